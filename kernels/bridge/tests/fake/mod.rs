//! A device that is none: it refuses as the contract does and writes down what it was asked to launch.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use proofhouse_bridge::backend::{Backend, Ready};
use proofhouse_bridge::ffi::open_backend;
use proofhouse_bridge::layout::DeviceHandle;
use proofhouse_contract::{Call, CallPlan, ContractError, ErrorKind};
use proofhouse_cuda::{Arch, CudaError, DeviceInfo, DeviceTensor, Stream, plan_of_operands};

/// What is wrong with the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Defect {
    /// Nothing.
    #[default]
    None,
    /// It panics where it should say what it is.
    PanicsAtInfo,
    /// It panics where it should prepare.
    PanicsAtPrepare,
    /// It panics where it should launch.
    PanicsAtLaunch,
    /// Its driver fails where it should launch.
    FailsAtLaunch,
    /// Its memory holds a bad value in row 3, which a check finds.
    BadValue,
}

/// A launch as it reached the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    pub operator: &'static str,
    pub stream: usize,
    pub addresses: Vec<u64>,
    /// Which of the prepared operators, by the order of their preparation.
    pub prepared: usize,
}

/// What happened on a device, and what its streams are doing.
#[derive(Debug, Default)]
pub struct Log {
    pub launched: Mutex<Vec<Launched>>,
    pub prepared: Mutex<usize>,
    /// Streams that are being captured.
    pub captured: Mutex<BTreeSet<usize>>,
}

impl Log {
    pub fn launches(&self) -> Vec<Launched> {
        self.launched.lock().unwrap().clone()
    }

    pub fn preparations(&self) -> usize {
        *self.prepared.lock().unwrap()
    }
}

struct Device {
    info: DeviceInfo,
    defect: Defect,
    log: Arc<Log>,
}

struct Prepared {
    call: Call,
    kernels: Vec<String>,
    number: usize,
    defect: Defect,
    log: Arc<Log>,
}

/// Opens a device with a defect, and a cache of so many operators.
pub fn open(defect: Defect, most_cached: u32) -> (*mut DeviceHandle, Arc<Log>) {
    let info = DeviceInfo {
        name: "a device that is none".to_owned(),
        uuid: "GPU-00112233-4455-6677-8899-aabbccddeeff".to_owned(),
        arch: Arch::new(9, 0).unwrap(),
        multiprocessors: 132,
        l2_bytes: 50 << 20,
        memory_bytes: 1 << 37,
        driver_cuda: "13.0".to_owned(),
    };
    let log = Arc::<Log>::default();
    let device = Device { info, defect, log: Arc::clone(&log) };
    (open_backend(Box::new(device), most_cached), log)
}

impl Backend for Device {
    fn info(&self) -> &DeviceInfo {
        assert!(self.defect != Defect::PanicsAtInfo, "a defect at info");
        &self.info
    }

    fn prepare(&self, plan: &CallPlan) -> Result<Arc<dyn Ready>, CudaError> {
        assert!(self.defect != Defect::PanicsAtPrepare, "a defect at prepare");
        let mut prepared = self.log.prepared.lock().unwrap();
        let number = *prepared;
        *prepared += 1;
        let rows = plan.call.dim("rows")?;
        let kernels = if rows == 0 { Vec::new() } else { vec![plan.call.operator.name.to_owned()] };
        let (call, log) = (plan.call.clone(), Arc::clone(&self.log));
        Ok(Arc::new(Prepared { call, kernels, number, defect: self.defect, log }))
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool, CudaError> {
        Ok(self.log.captured.lock().unwrap().contains(&stream.raw()))
    }
}

impl Ready for Prepared {
    fn call(&self) -> &Call {
        &self.call
    }

    fn kernels(&self) -> &[String] {
        &self.kernels
    }

    fn enqueue(&self, operands: &[DeviceTensor<'_>], stream: Stream) -> Result<(), CudaError> {
        plan_of_operands(&self.call, operands)?.validate()?;
        match self.defect {
            Defect::PanicsAtLaunch => panic!("a defect at launch"),
            Defect::FailsAtLaunch => Err(CudaError::Driver {
                call: "cuLaunchKernelEx",
                code: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(),
                meaning: "an illegal memory access was encountered".to_owned(),
            }),
            _ => {
                self.log.launched.lock().unwrap().push(Launched {
                    operator: self.call.operator.name,
                    stream: stream.raw(),
                    addresses: operands.iter().map(DeviceTensor::address).collect(),
                    prepared: self.number,
                });
                Ok(())
            }
        }
    }

    fn check(&self, operands: &[DeviceTensor<'_>], stream: Stream) -> Result<(), CudaError> {
        self.enqueue(operands, stream)?;
        if self.defect != Defect::BadValue {
            return Ok(());
        }
        let error = ContractError::new(self.call.operator.name, "logits", ErrorKind::NotFinite);
        Err(error.found("NaN in column 5").accepted("numbers and infinities").at_row(3).into())
    }
}
