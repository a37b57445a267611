//! The driver: contexts, modules, memory, streams.

use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};

use crate::error::CudaError;

/// Reads a status; `call` names the function that gave it.
fn status(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let text = |of: unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult| {
        let mut pointer = ptr::null();
        // SAFETY: the pointer is to a pointer that lives through the call; the driver sets it to a constant string.
        let found = unsafe { of(result, &mut pointer) } == CUresult::CUDA_SUCCESS;
        if !found || pointer.is_null() {
            return format!("{result:?}");
        }
        // SAFETY: as above: a constant, terminated string.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    };
    Err(CudaError::Driver {
        call,
        code: text(sys::cuGetErrorName),
        meaning: text(sys::cuGetErrorString),
    })
}

/// Whether the driver's library is there, once somebody has asked.
static PRESENT: OnceLock<bool> = OnceLock::new();

/// Whether [`load`] has found the driver's library.
pub(crate) fn is_loaded() -> bool {
    PRESENT.get().copied().unwrap_or(false)
}

/// Loads and starts the driver, once.
pub(crate) fn load() -> Result<(), CudaError> {
    // SAFETY: opening the library runs its initializers, which are NVIDIA's and need nothing from us.
    if !*PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return Err(CudaError::LibraryMissing {
            library: "libcuda",
            accepted: "libcuda.so.1 of an installed NVIDIA driver on the loader's path".to_owned(),
        });
    }
    // SAFETY: the call takes no pointer and may be repeated.
    status("cuInit", unsafe { sys::cuInit(0) })
}

/// How many devices there are; [`load`] must have succeeded.
pub(crate) fn device_count() -> Result<u32, CudaError> {
    let mut count = 0;
    // SAFETY: the pointer is to an integer that lives through the call.
    status("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    Ok(count.max(0) as u32)
}

/// The identity of the device of that number, which need not have a context; [`load`] must have succeeded.
pub(crate) fn uuid_of(ordinal: u32) -> Result<[u8; 16], CudaError> {
    let mut device = 0;
    // SAFETY: the pointer is to a number that lives through the call.
    status("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the pointer is to a structure that lives through the call.
    status("cuDeviceGetUuid_v2", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) })?;
    Ok(uuid.bytes.map(|byte| byte as u8))
}

/// The context that is current on this thread, as a number; 0 for none. [`load`] must have succeeded.
pub(crate) fn current_context() -> Result<usize, CudaError> {
    let mut raw = ptr::null_mut();
    // SAFETY: the pointer is to a handle that lives through the call.
    status("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut raw) })?;
    Ok(raw as usize)
}

/// Makes a context current on this thread again.
///
/// # Safety
/// `raw` came from [`current_context`] and its context still exists.
pub(crate) unsafe fn set_current_context(raw: usize) -> Result<(), CudaError> {
    // SAFETY: the caller's promise.
    status("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(raw as sys::CUcontext) })
}

/// Whether what is put into a stream of the current context goes into a graph.
pub(crate) fn is_capturing(stream: usize) -> Result<bool, CudaError> {
    let mut found = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the pointer is to a value that lives through the call; a stream is a handle that the driver checks.
    status("cuStreamIsCapturing", unsafe {
        sys::cuStreamIsCapturing(stream as sys::CUstream, &mut found)
    })?;
    Ok(found != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// The driver's version, as `1000 * major + 10 * minor`.
pub(crate) fn version() -> Result<i32, CudaError> {
    let mut version = 0;
    // SAFETY: the pointer is to an integer that lives through the call.
    status("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    Ok(version)
}

/// A device's primary context, retained until this value is dropped.
#[derive(Debug)]
pub(crate) struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

// SAFETY: a context may be made current on any thread, and the driver locks its own state.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device.
    pub(crate) fn retain(ordinal: u32) -> Result<Self, CudaError> {
        let devices = device_count()?;
        if ordinal >= devices {
            return Err(CudaError::NoDevice { ordinal, devices });
        }
        let mut device = 0;
        // SAFETY: the pointer is to a number that lives through the call.
        status("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
        let mut raw = ptr::null_mut();
        // SAFETY: the device is the driver's own number for it.
        status("cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&mut raw, device)
        })?;
        Ok(Self { device, raw })
    }

    /// Makes the context current on this thread.
    pub(crate) fn make_current(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained.
        status("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }

    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Result<u32, CudaError> {
        let mut value = 0;
        // SAFETY: the pointer is to an integer that lives through the call.
        status("cuDeviceGetAttribute", unsafe {
            sys::cuDeviceGetAttribute(&mut value, attribute, self.device)
        })?;
        Ok(value.max(0) as u32)
    }

    pub(crate) fn device_name(&self) -> Result<String, CudaError> {
        let mut name = [0u8; 256];
        // SAFETY: the buffer has the size that the call is told.
        status("cuDeviceGetName", unsafe {
            sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, self.device)
        })?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    pub(crate) fn device_uuid(&self) -> Result<[u8; 16], CudaError> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the pointer is to a structure that lives through the call.
        status("cuDeviceGetUuid_v2", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, self.device) })?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    pub(crate) fn device_memory(&self) -> Result<u64, CudaError> {
        let mut bytes = 0;
        // SAFETY: the pointer is to an integer that lives through the call.
        status("cuDeviceTotalMem_v2", unsafe {
            sys::cuDeviceTotalMem_v2(&mut bytes, self.device)
        })?;
        Ok(bytes as u64)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context was retained once by this value. There is nothing to do about a failure.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// A kernel of a loaded module; the module is unloaded with this value.
#[derive(Debug)]
pub(crate) struct Function {
    context: Arc<Context>,
    module: sys::CUmodule,
    raw: sys::CUfunction,
}

// SAFETY: modules and functions are handles that any thread with the context current may use.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// Loads a cubin and finds a kernel in it.
    pub(crate) fn load(
        context: &Arc<Context>,
        cubin: &[u8],
        name: &str,
    ) -> Result<Self, CudaError> {
        const FIND: &str = "cuModuleGetFunction";
        context.make_current()?;
        let name = CString::new(name).map_err(|_| CudaError::Driver {
            call: FIND,
            code: "CUDA_ERROR_INVALID_VALUE".to_owned(),
            meaning: "a kernel's name holds a zero byte".to_owned(),
        })?;
        let mut module = ptr::null_mut();
        // SAFETY: the image is a whole cubin, whose header holds its own sizes; the driver copies it.
        status("cuModuleLoadData", unsafe {
            sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast())
        })?;
        let mut function = Self { context: Arc::clone(context), module, raw: ptr::null_mut() };
        // SAFETY: the module is loaded and the name is terminated.
        status(FIND, unsafe {
            sys::cuModuleGetFunction(&mut function.raw, module, name.as_ptr())
        })?;
        Ok(function)
    }

    /// Puts a launch into a stream; `overlaps` lets it begin while the launch in front of it ends.
    ///
    /// # Safety
    /// `arguments` points to the one structure that the kernel takes, and what the structure points to is valid
    /// for what the kernel does with it, until the launch has run; the stream belongs to this context. A kernel
    /// that `overlaps` waits for the launch in front of it by itself, before it touches memory.
    pub(crate) unsafe fn launch(
        &self,
        grid: [u32; 3],
        block: u32,
        overlaps: bool,
        stream: usize,
        arguments: *const c_void,
    ) -> Result<(), CudaError> {
        let mut parameters = [arguments.cast_mut()];
        // The stream may be under capture: then the edge between the two nodes of the graph says the same.
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream as sys::CUstream,
            attrs: if overlaps { &raw mut attribute } else { ptr::null_mut() },
            numAttrs: u32::from(overlaps),
        };
        // SAFETY: the function is loaded; the driver copies configuration, attribute and the one argument during the
        // call; the rest is the caller's promise.
        status("cuLaunchKernelEx", unsafe {
            sys::cuLaunchKernelEx(&config, self.raw, parameters.as_mut_ptr(), ptr::null_mut())
        })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: the module is loaded and nobody uses it afterwards. There is nothing to do about a failure.
            let _ = unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

/// Allocates device memory in the current context.
pub(crate) fn allocate(bytes: usize) -> Result<u64, CudaError> {
    let mut address = 0;
    // SAFETY: the pointer is to an address that lives through the call.
    status("cuMemAlloc_v2", unsafe { sys::cuMemAlloc_v2(&mut address, bytes) })?;
    Ok(address)
}

/// Frees device memory, after the work that is under way.
///
/// # Safety
/// `address` came from [`allocate`] and is not used afterwards.
pub(crate) unsafe fn free(address: u64) -> Result<(), CudaError> {
    // SAFETY: the caller's promise.
    status("cuMemFree_v2", unsafe { sys::cuMemFree_v2(address) })
}

/// Copies to the device and waits.
///
/// # Safety
/// `address` has `bytes.len()` bytes of device memory.
pub(crate) unsafe fn upload(address: u64, bytes: &[u8], stream: usize) -> Result<(), CudaError> {
    // SAFETY: the caller's promise; the host's bytes live until the wait below is over.
    status("cuMemcpyHtoDAsync_v2", unsafe {
        sys::cuMemcpyHtoDAsync_v2(
            address,
            bytes.as_ptr().cast(),
            bytes.len(),
            stream as sys::CUstream,
        )
    })?;
    synchronize(stream)
}

/// Copies from the device and waits.
///
/// # Safety
/// `address` has `bytes.len()` bytes of device memory.
pub(crate) unsafe fn download(
    address: u64,
    bytes: &mut [u8],
    stream: usize,
) -> Result<(), CudaError> {
    // SAFETY: the caller's promise; the host's bytes live until the wait below is over.
    status("cuMemcpyDtoHAsync_v2", unsafe {
        sys::cuMemcpyDtoHAsync_v2(
            bytes.as_mut_ptr().cast(),
            address,
            bytes.len(),
            stream as sys::CUstream,
        )
    })?;
    synchronize(stream)
}

/// Puts a fill into a stream.
///
/// # Safety
/// `address` has `bytes` bytes of device memory.
pub(crate) unsafe fn fill(
    address: u64,
    bytes: usize,
    value: u8,
    stream: usize,
) -> Result<(), CudaError> {
    // SAFETY: the caller's promise.
    status("cuMemsetD8Async", unsafe {
        sys::cuMemsetD8Async(address, value, bytes, stream as sys::CUstream)
    })
}

/// Waits for a stream's work.
pub(crate) fn synchronize(stream: usize) -> Result<(), CudaError> {
    // SAFETY: a stream is a handle that the driver checks.
    status("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream as sys::CUstream) })
}

/// Makes a stream that does not wait for the default stream.
pub(crate) fn create_stream() -> Result<usize, CudaError> {
    let mut stream = ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: the pointer is to a handle that lives through the call.
    status("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
    Ok(stream as usize)
}

/// Destroys a stream once its work is done.
///
/// # Safety
/// `stream` came from [`create_stream`] and is not used afterwards.
pub(crate) unsafe fn destroy_stream(stream: usize) -> Result<(), CudaError> {
    // SAFETY: the caller's promise.
    status("cuStreamDestroy_v2", unsafe { sys::cuStreamDestroy_v2(stream as sys::CUstream) })
}
