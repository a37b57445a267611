//! The device of this process: opened once, known by its UUID.

use std::path::PathBuf;

use proofhouse_contract::{Call, CallPlan, Dtype, TensorLayout, TensorPlan};
use proofhouse_cuda::{CudaError, DeviceTensor, OwnedStream, Runtime, Toolchain};
use proofhouse_timer_cuda::{Cuda, OpenError};

/// Where the device, the compiler and its cache are; the caller reads the environment.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The device's UUID; none: the first that the process may see.
    pub uuid: Option<String>,
    /// The folder of NVRTC, where the loader does not find it.
    pub nvrtc: Option<PathBuf>,
    /// Where compiled kernels are kept.
    pub cache: Option<PathBuf>,
}

/// Why the device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernels' runtime.
    #[error("the kernels' runtime cannot be opened")]
    Kernels(#[from] CudaError),
    /// The timer's driver.
    #[error("the timer cannot open the device")]
    Timer(#[from] OpenError),
    /// Another device than the one asked for.
    #[error("the device is {found}; asked for: {asked}")]
    OtherDevice {
        /// The UUID that was asked for.
        asked: String,
        /// The UUID that was opened.
        found: String,
    },
    /// The canary gave a wrong result.
    #[error("the canary's kernel gave {found}; expected: {expected}")]
    Canary {
        /// What it gave.
        found: String,
        /// What it must give.
        expected: String,
    },
}

/// A device, open.
#[derive(Debug)]
pub struct OpenedCuda {
    pub(crate) runtime: Runtime,
    pub(crate) cuda: Cuda,
    pub(crate) stream: OwnedStream,
}

impl OpenedCuda {
    /// Opens the device.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn open(place: &Place) -> Result<Self, StartError> {
        let cuda = match &place.uuid {
            Some(uuid) => Cuda::open_uuid(uuid)?,
            None => Cuda::open(0)?,
        };
        let toolchain = Toolchain { nvrtc: place.nvrtc.clone() };
        let runtime = Self::runtime(&cuda, &toolchain, place.cache.clone())?;
        let stream = runtime.create_stream()?;
        Ok(Self { runtime, cuda, stream })
    }

    /// The kernels' runtime on the timer's device: ordinals are tried until the UUIDs agree.
    fn runtime(
        cuda: &Cuda,
        toolchain: &Toolchain,
        cache: Option<PathBuf>,
    ) -> Result<Runtime, StartError> {
        let asked = cuda.facts().uuid.clone();
        let mut found = "none".to_owned();
        for ordinal in 0..Runtime::device_count()? {
            let runtime = Runtime::open(ordinal, toolchain, cache.clone())?;
            if runtime.device().uuid == asked {
                return Ok(runtime);
            }
            found.clone_from(&runtime.device().uuid);
        }
        Err(StartError::OtherDevice { asked, found })
    }
}

/// Runs one small kernel and looks at its result: whether the device works for a fresh process.
///
/// # Errors
/// [`StartError`].
pub fn canary(place: &Place) -> Result<(), StartError> {
    const WIDTH: u64 = 64;
    let opened = OpenedCuda::open(place)?;
    let stream = opened.stream.handle();
    let contract = |error: proofhouse_contract::ContractError| CudaError::from(error);
    let operator = proofhouse_contract::find_operator("rms_norm").map_err(contract)?;
    let dims = [("rows".to_owned(), 1), ("hidden".to_owned(), WIDTH)].into_iter().collect();
    let params = operator.params.iter().map(|p| (p.name.to_owned(), p.default)).collect();
    let call = Call { operator, dtype: Dtype::F32, dims, params };
    let mut buffers = Vec::new();
    for tensor in operator.tensors {
        let elements = if tensor.name == "w" { vec![WIDTH] } else { vec![1, WIDTH] };
        let layout =
            TensorLayout { dtype: Dtype::F32, shape: elements, row_stride: WIDTH, offset: 0 };
        let mut buffer = opened.runtime.allocate(4 * WIDTH as usize)?;
        let ones: Vec<u8> =
            std::iter::repeat_n(1.0_f32.to_le_bytes(), WIDTH as usize).flatten().collect();
        buffer.upload(&ones, stream)?;
        buffers.push((tensor, layout, buffer));
    }
    let tensors = buffers
        .iter()
        .map(|(spec, layout, buffer)| TensorPlan {
            name: spec.name,
            role: spec.role,
            layout: layout.clone(),
            address: buffer.address(),
            bytes: buffer.len() as u64,
        })
        .collect();
    let prepared = opened.runtime.prepare(&CallPlan { call, tensors })?;
    let operands: Vec<DeviceTensor<'_>> =
        buffers.iter().map(|(_, layout, buffer)| buffer.tensor(layout.clone())).collect();
    prepared.launch(stream, &operands)?;
    opened.stream.synchronize()?;
    let mut bytes = [0; 4];
    let output = buffers.iter().find(|(spec, ..)| spec.name == "y");
    if let Some((_, _, buffer)) = output {
        buffer.download(&mut bytes, stream)?;
    }
    // One divided by the root of one and a millionth.
    let found = f32::from_le_bytes(bytes);
    if (found - 1.0).abs() < 1e-5 {
        return Ok(());
    }
    Err(StartError::Canary { found: found.to_string(), expected: "1".to_owned() })
}
