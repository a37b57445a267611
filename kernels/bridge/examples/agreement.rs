//! Runs every operator through the C interface on a device, and compares what comes out with the contract.
//!
//! `cargo run --release -p proofhouse-bridge --example agreement [NVRTC_FOLDER]`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people at a terminal")]
#![allow(unsafe_code, reason = "the C interface is called")]
#![allow(dead_code, reason = "the caller is shared with the tests")]

#[path = "../tests/caller/mod.rs"]
mod caller;

use std::error::Error;
use std::ffi::CString;
use std::path::PathBuf;

use caller::{Caller, counters, last, nothing, zeroed};
use proofhouse_bridge::ffi::{
    proofhouse_device_close, proofhouse_device_open, proofhouse_operator_close,
};
use proofhouse_bridge::layout::{DeviceHandle, OpenOptionsC};
use proofhouse_contract::{
    Agreement, Call, CallPlan, Case, CaseTensors, Layout, Mode, ParamValue, TensorPlan, check,
    find_operator,
};
use proofhouse_cuda::{DeviceBuffer, OPERATORS, OwnedStream, Runtime, Toolchain};

/// Bytes behind every tensor that nothing may write.
const RED_ZONE: usize = 64;

/// Which of the two ways a call is launched.
#[derive(Clone, Copy, Debug)]
enum Way {
    Cached,
    Handle,
}

struct Bench {
    device: *mut DeviceHandle,
    runtime: Runtime,
    stream: OwnedStream,
}

fn worked(status: i32) -> Result<(), Box<dyn Error>> {
    if status == 0 { Ok(()) } else { Err(last().text.into()) }
}

fn cases() -> Result<Vec<Case>, Box<dyn Error>> {
    let mut cases = Vec::new();
    for name in OPERATORS {
        let spec = find_operator(name)?;
        for dtype in spec.dtypes {
            for (rows, width) in [(1, 64), (3, 127), (8, 4096)] {
                let dims: Vec<_> = spec
                    .dims
                    .iter()
                    .map(|dim| (dim.name, if dim.name == "rows" { rows } else { width }))
                    .collect();
                let mut params = vec![Vec::new()];
                if spec.param("add-residual").is_some() {
                    params.push(vec![("add-residual", ParamValue::Bool(true))]);
                }
                for params in params {
                    let call = Call::new(name, *dtype, &dims, &params)?;
                    let of_layout = |layout| Case { layout, seed: 7, ..Case::new(call.clone()) };
                    cases.extend(Layout::CASES.map(of_layout));
                }
            }
        }
    }
    Ok(cases)
}

impl Bench {
    fn open(nvrtc: Option<PathBuf>) -> Result<Self, Box<dyn Error>> {
        let folder = nvrtc
            .as_ref()
            .map(|path| CString::new(path.to_string_lossy().as_bytes()))
            .transpose()?;
        let mut options = zeroed::<OpenOptionsC>();
        if let Some(folder) = &folder {
            options.nvrtc_folder = folder.as_ptr();
        }
        let mut device = nothing();
        // SAFETY: the options and the text that they point to are there, and the handle is writable.
        worked(unsafe { proofhouse_device_open(&raw const options, &raw mut device) })?;
        let runtime = Runtime::open(0, &Toolchain { nvrtc }, None)?;
        let stream = runtime.create_stream()?;
        Ok(Self { device, runtime, stream })
    }

    fn upload(&self, tensors: &CaseTensors) -> Result<Vec<DeviceBuffer>, Box<dyn Error>> {
        let mut buffers = Vec::new();
        for tensor in &tensors.tensors {
            let bytes = tensor.storage.as_slice();
            let mut buffer = self.runtime.allocate(bytes.len())?;
            buffer.upload(bytes, self.stream.handle())?;
            buffers.push(buffer);
        }
        Ok(buffers)
    }

    fn launch(&self, way: Way, caller: &Caller) -> Result<(), Box<dyn Error>> {
        let stream = self.stream.handle().raw();
        match way {
            Way::Cached => worked(caller.enqueue(self.device, stream))?,
            Way::Handle => {
                let (status, operator) = caller.prepare(self.device);
                worked(status)?;
                worked(caller.launch(operator, stream))?;
                self.stream.synchronize()?;
                worked(proofhouse_operator_close(operator))?;
            }
        }
        Ok(self.stream.synchronize()?)
    }

    /// Runs one case; gives what is wrong with its outputs.
    fn run(&self, case: &Case, way: Way) -> Result<Option<String>, Box<dyn Error>> {
        let before = CaseTensors::generate(case, 0xa5, RED_ZONE)?;
        let buffers = self.upload(&before)?;
        let operands = before.tensors.iter().zip(&buffers);
        let mut tensors = Vec::new();
        for (spec, (tensor, buffer)) in case.call.tensors().zip(operands) {
            tensors.push(TensorPlan {
                name: spec.name,
                role: spec.role,
                layout: tensor.layout.clone(),
                address: buffer.address(),
                bytes: (buffer.len() - RED_ZONE) as u64,
            });
        }
        let caller = Caller::of(&CallPlan { call: case.call.clone(), tensors });
        self.launch(way, &caller)?;

        let mut after = before.clone();
        for (tensor, buffer) in after.tensors.iter_mut().zip(&buffers) {
            buffer.download(tensor.storage.as_mut_slice(), self.stream.handle())?;
        }
        for tensor in &after.tensors {
            let bytes = tensor.storage.as_slice();
            if bytes[bytes.len() - RED_ZONE..].iter().any(|byte| *byte != 0xa5) {
                return Ok(Some(format!("{} was written past its end", tensor.name)));
            }
        }
        let (call, mode) = (&case.call, Mode::Unchecked);
        let (inputs, initial) = (before.views(call, false), before.views(call, true));
        let comparisons = check(call, mode, &inputs, &initial, &after.views(call, true))?;
        let wrong = comparisons.iter().find(|found| found.agreement() != Agreement::Agree);
        Ok(wrong.map(|found| format!("{found:?}")))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let bench = Bench::open(std::env::args().nth(1).map(PathBuf::from))?;
    let (mut agreed, mut wrong) = (0, 0);
    for case in cases()? {
        for way in [Way::Cached, Way::Handle] {
            match bench.run(&case, way)? {
                None => agreed += 1,
                Some(what) => {
                    wrong += 1;
                    println!("{} {way:?} {:?}: {what}", case.call.operator.name, case.layout);
                }
            }
        }
    }
    println!("{agreed} calls agree with the contract, {wrong} do not");
    println!("{:?}", counters(bench.device, None));
    worked(proofhouse_device_close(bench.device))?;
    if wrong > 0 || agreed == 0 {
        return Err("not every call agrees".into());
    }
    Ok(())
}
