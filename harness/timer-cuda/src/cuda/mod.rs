//! The real driver, found at run time, on the primary context of one device.
#![allow(unsafe_code, reason = "the driver is a C library")]

mod calls;
mod graph;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::rc::Rc;

use cudarc::driver::sys;

use crate::driver::{Driven, DriverError};
use crate::handle::Function;

/// What is asked of `libcuda`; a driver that lacks one of these is refused when it is opened, not
/// in the middle of a measurement.
const FUNCTIONS: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxResetPersistingL2Cache",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetName",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphChildGraphNodeGetGraph",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetNodes",
    "cuGraphInstantiateWithFlags",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphLaunch",
    "cuGraphNodeGetType",
    "cuGraphUpload",
    "cuInit",
    "cuKernelGetName",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleGetLoadingMode",
    "cuModuleLoadData",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
];

/// Why there is no device to measure on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The driver's library is not on this machine.
    #[error("libcuda is not found; accepted: a machine with an NVIDIA driver")]
    NoLibrary,
    /// The driver is too old.
    #[error("the driver lacks {function}; accepted: a driver for CUDA 13.0 or later")]
    Function {
        /// The function that it does not have.
        function: &'static str,
    },
    /// There is no such device.
    #[error("device {asked} is asked for and found are {found:?}; accepted: one of those")]
    NoDevice {
        /// What was asked for, a UUID or an ordinal.
        asked: String,
        /// The UUIDs that are there.
        found: Vec<String>,
    },
    /// No context is current in this thread.
    #[error("no context is current in this thread; accepted: a thread in which CUDA was used")]
    NoContext,
    /// A driver call failed.
    #[error("the device cannot be opened")]
    Driver(#[from] DriverError),
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DeviceFacts {
    /// The name.
    pub name: String,
    /// The UUID as NVML writes it, `GPU-` and 32 digits in five groups.
    pub uuid: String,
    /// Compute capability, major and minor.
    pub capability: [i32; 2],
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: u64,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// The CUDA version of the driver, e.g. 13000.
    pub driver_version: i32,
    /// Whether the driver loads a kernel's code only at its first use.
    pub lazy_loading: bool,
}

/// A device of the real driver. A clone is another handle of the same.
///
/// It belongs to the thread that opened it, in which its context is current.
#[derive(Clone, Debug)]
pub struct Cuda(Rc<Context>);

#[derive(Debug)]
struct Context {
    device: sys::CUdevice,
    retained: bool,
    facts: DeviceFacts,
    /// What was loaded, by the address of its text, so that it is loaded once.
    loaded: RefCell<HashMap<usize, Vec<Function>>>,
    // The driver's contexts belong to threads.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.retained {
            // SAFETY: this object retained the primary context of the device once, and everything
            // made in it that holds a `Cuda` is gone. What the call says can help nobody any more.
            let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        }
    }
}

impl Cuda {
    /// The device with the ordinal among those that the process may see.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(ordinal: u32) -> Result<Self, OpenError> {
        let devices = devices()?;
        match devices.get(ordinal as usize) {
            Some(device) => Self::retain(*device),
            None => Err(no_device(ordinal.to_string(), &devices)?),
        }
    }

    /// The device with the UUID, as NVML writes it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_uuid(uuid: &str) -> Result<Self, OpenError> {
        let devices = devices()?;
        for device in &devices {
            if uuid_of(*device)? == uuid {
                return Self::retain(*device);
            }
        }
        Err(no_device(uuid.to_owned(), &devices)?)
    }

    /// The device whose context is current in this thread, which somebody else keeps.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn current() -> Result<Self, OpenError> {
        start()?;
        let (mut context, mut device) = (std::ptr::null_mut(), 0);
        // SAFETY: both pointers are to writable values of the right type.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&raw mut context))?;
            if context.is_null() {
                return Err(OpenError::NoContext);
            }
            check("cuCtxGetDevice", sys::cuCtxGetDevice(&raw mut device))?;
        }
        Ok(Self::of(device, false)?)
    }

    /// What the device says of itself.
    #[must_use]
    pub fn facts(&self) -> &DeviceFacts {
        &self.0.facts
    }

    fn retain(device: sys::CUdevice) -> Result<Self, OpenError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` is writable, and the device came from the driver.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", retained)?;
        let cuda = Self::of(device, true)?;
        // SAFETY: the context was just retained and lives as long as `cuda`.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
        Ok(cuda)
    }

    fn of(device: sys::CUdevice, retained: bool) -> Driven<Self> {
        let facts = facts_of(device)?;
        let loaded = RefCell::default();
        let _thread = std::marker::PhantomData;
        Ok(Self(Rc::new(Context { device, retained, facts, loaded, _thread })))
    }
}

/// Finds the library, sees that it is complete and initializes it.
fn start() -> Result<(), OpenError> {
    // SAFETY: loading the driver's library runs its initializers, which is what it is for.
    if !unsafe { sys::is_culib_present() } {
        return Err(OpenError::NoLibrary);
    }
    for &function in FUNCTIONS {
        // SAFETY: the library was found above; the symbol is only looked up, never called through
        // this type.
        let symbol = unsafe { sys::culib().get::<*const ()>(function.as_bytes()) };
        if symbol.is_err() {
            return Err(OpenError::Function { function });
        }
    }
    // SAFETY: the flags must be zero, which they are.
    Ok(check("cuInit", unsafe { sys::cuInit(0) })?)
}

fn devices() -> Result<Vec<sys::CUdevice>, OpenError> {
    start()?;
    let mut count = 0;
    // SAFETY: `count` is writable.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: `device` is writable, and the ordinal is below the count.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal) })?;
        devices.push(device);
    }
    Ok(devices)
}

fn no_device(asked: String, devices: &[sys::CUdevice]) -> Driven<OpenError> {
    let found = devices.iter().map(|device| uuid_of(*device)).collect::<Driven<_>>()?;
    Ok(OpenError::NoDevice { asked, found })
}

fn uuid_of(device: sys::CUdevice) -> Driven<String> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` is writable, and the device came from the driver.
    check("cuDeviceGetUuid_v2", unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, device) })?;
    let mut text = String::from("GPU");
    for (index, byte) in uuid.bytes.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        // The driver's bytes are C characters, which may be signed.
        text.push_str(&format!("{:02x}", *byte as u8));
    }
    Ok(text)
}

fn facts_of(device: sys::CUdevice) -> Driven<DeviceFacts> {
    use sys::CUdevice_attribute as Attribute;
    let attribute = |attribute| {
        let mut value: c_int = 0;
        // SAFETY: `value` is writable, and the device came from the driver.
        let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) };
        check("cuDeviceGetAttribute", result).map(|()| value)
    };
    let mut name = [0; 256];
    let (mut memory, mut version) = (0_usize, 0);
    let mut mode = 0_u32;
    // SAFETY: every pointer is to a writable value, `name` has the length that is told, and the
    // loading mode is an enum of 32 bits.
    unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), 255, device))?;
        check("cuDeviceTotalMem_v2", sys::cuDeviceTotalMem_v2(&raw mut memory, device))?;
        check("cuDriverGetVersion", sys::cuDriverGetVersion(&raw mut version))?;
        check("cuModuleGetLoadingMode", sys::cuModuleGetLoadingMode((&raw mut mode).cast()))?;
    }
    // SAFETY: the array was zero and the driver wrote at most 255 characters of it.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let positive = |value: c_int| u64::try_from(value).unwrap_or(0);
    Ok(DeviceFacts {
        name,
        uuid: uuid_of(device)?,
        capability: [
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ],
        // A count of multiprocessors fits.
        multiprocessors: positive(attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?)
            as u32,
        l2_bytes: positive(attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
        memory_bytes: memory as u64,
        driver_version: version,
        lazy_loading: mode == sys::CUmoduleLoadingMode_enum::CU_MODULE_LAZY_LOADING as u32,
    })
}

/// The call's result as an error with its name.
fn check(call: &'static str, result: sys::CUresult) -> Driven<()> {
    if result == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failed(call, result)) }
}

#[cold]
fn failed(call: &'static str, result: sys::CUresult) -> DriverError {
    let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
    // SAFETY: both pointers are writable; the driver's texts are constants of its library.
    let (name, text) = unsafe {
        let _ = sys::cuGetErrorName(result, &raw mut name);
        let _ = sys::cuGetErrorString(result, &raw mut text);
        (words(name), words(text))
    };
    DriverError { call, code: i64::from(result as u32), name, text }
}

/// The text behind a pointer that may be null.
///
/// # Safety
/// `text` is null or a C string that lives during the call.
unsafe fn words(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and a C string as promised.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_is_a_typed_error_that_says_what_is_needed() {
        // SAFETY: as in `start`.
        if unsafe { sys::is_culib_present() } {
            assert!(!matches!(Cuda::open(0), Err(OpenError::NoLibrary)));
            return;
        }
        for opened in [Cuda::open(0), Cuda::open_uuid("GPU-0"), Cuda::current()] {
            let Err(error) = opened else { panic!("there is no library") };
            assert_eq!(error, OpenError::NoLibrary);
            assert!(error.to_string().contains("accepted"), "{error}");
        }
    }

    #[test]
    fn the_functions_are_listed_once_and_in_order() {
        assert!(FUNCTIONS.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
