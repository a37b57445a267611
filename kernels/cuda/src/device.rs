//! What a device is.

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::compile::Arch;
use crate::error::CudaError;
use crate::sys::driver::{self, Context};
use crate::tuning::Target;

/// A device and its driver, as they describe themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device's name.
    pub name: String,
    /// The device's identity, as `nvidia-smi` writes it: `GPU-` and a UUID.
    pub uuid: String,
    /// The architecture that kernels are compiled for.
    pub arch: Arch,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Version of CUDA that the driver speaks, as `major.minor`.
    pub driver_cuda: String,
}

impl DeviceInfo {
    /// What tunings follow from.
    #[must_use]
    pub const fn target(&self) -> Target {
        Target { arch: self.arch, multiprocessors: self.multiprocessors, l2_bytes: self.l2_bytes }
    }

    pub(crate) fn probe(context: &Context) -> Result<Self, CudaError> {
        let major = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let version = driver::version()?;
        Ok(Self {
            name: context.device_name()?,
            uuid: format_uuid(context.device_uuid()?),
            arch: Arch::new(major, minor)?,
            multiprocessors: context
                .attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            l2_bytes: u64::from(context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
            memory_bytes: context.device_memory()?,
            driver_cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
        })
    }
}

/// `GPU-` and a UUID in its usual groups.
pub(crate) fn format_uuid(bytes: [u8; 16]) -> String {
    let digits = hex::encode(bytes);
    let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    format!("GPU-{}", groups.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_written_as_the_system_tools_write_it() {
        let bytes = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(format_uuid(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
