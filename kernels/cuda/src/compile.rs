//! From a kernel's variant to a cubin: options, compilation, cache.

use std::path::PathBuf;

use proofhouse_contract::Dtype;

use crate::cache::{self, Cache, Entry, Origin};
use crate::error::CudaError;
use crate::report::{self, KernelReport};
use crate::sources;
use crate::sys::nvrtc;
use crate::tuning::Numbers;

/// Where the compiler is; the caller, not this library, reads the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolchain {
    /// Folder of `libnvrtc.so.13` and its built-ins; without one the loader looks for them.
    ///
    /// The first library that a process loads stays in use.
    pub nvrtc: Option<PathBuf>,
}

/// A target architecture, such as `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    /// Major number of the compute capability.
    pub major: u32,
    /// Minor number of the compute capability.
    pub minor: u32,
}

impl Arch {
    /// The architecture of a compute capability.
    ///
    /// # Errors
    /// `UnsupportedDevice` below 8.0.
    pub const fn new(major: u32, minor: u32) -> Result<Self, CudaError> {
        if major < 8 {
            return Err(CudaError::UnsupportedDevice { major, minor });
        }
        Ok(Self { major, minor })
    }

    /// Whether a launch can begin while the one in front of it ends.
    #[must_use]
    pub const fn has_dependent_launch(self) -> bool {
        self.major >= 9
    }
}

impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// One way to build an operator's kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Variant {
    /// The operator, which is also the kernel's name.
    pub(crate) operator: &'static str,
    /// The activation dtype.
    pub(crate) dtype: Dtype,
    /// Bytes of the structure that the kernel takes.
    pub(crate) argument_bytes: usize,
    /// Numbers that the source is built with, by name.
    pub(crate) numbers: Numbers,
}

impl Variant {
    /// NVRTC's options.
    fn options(&self, arch: Arch) -> Vec<String> {
        let mut options = vec![
            format!("--gpu-architecture={arch}"),
            "--std=c++17".to_owned(),
            "--ptxas-options=-v".to_owned(),
            format!("-DELEMENT={}", self.dtype.name()),
            format!("-DARGUMENT_BYTES={}", self.argument_bytes),
        ];
        options.extend(self.numbers.iter().map(|(name, number)| format!("-D{name}={number}")));
        options
    }
}

impl std::fmt::Display for Variant {
    /// `rms_norm BF16 THREADS=256 VECTORS=2`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.operator, self.dtype)?;
        for (name, number) in &self.numbers {
            write!(f, " {name}={number}")?;
        }
        Ok(())
    }
}

/// A variant's cubin and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) cubin: Vec<u8>,
    pub(crate) report: CompileReport,
}

/// What compiling one variant of a kernel gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileReport {
    /// The variant: operator, dtype and the numbers it was built with.
    pub variant: String,
    /// The target.
    pub arch: Arch,
    /// Bytes of the cubin.
    pub cubin_bytes: usize,
    /// Whether the cubin was compiled or read.
    pub origin: Origin,
    /// What the kernel takes of a multiprocessor.
    pub kernel: KernelReport,
    /// The compiler's log, also of a compilation that went well.
    pub log: String,
}

/// Compiles variants, or finds them compiled.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    version: String,
    /// The option that keeps NVRTC from a cache of its own, where it has one: what comes out of that has no log, and so
    /// no report of registers and spills.
    uncached: Option<&'static str>,
    cache: Cache,
}

/// NVRTC's major version from which on it has a cache of its own.
const CACHES_ITSELF: i32 = 13;

impl Compiler {
    /// Loads NVRTC; kernels are kept in `cache`, where one is given.
    pub(crate) fn open(toolchain: &Toolchain, cache: Option<PathBuf>) -> Result<Self, CudaError> {
        nvrtc::load(toolchain.nvrtc.as_deref())?;
        let (major, minor) = nvrtc::version()?;
        let uncached = (major >= CACHES_ITSELF).then_some("--no-cache");
        Ok(Self { version: format!("NVRTC {major}.{minor}"), uncached, cache: Cache::new(cache) })
    }

    /// NVRTC's name and version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn compile(&self, variant: &Variant, arch: Arch) -> Result<Compiled, CudaError> {
        let source = sources::of_operator(variant.operator).ok_or_else(|| CudaError::NoKernel {
            operator: variant.operator,
            accepted: crate::OPERATORS.join(", "),
        })?;
        let options = variant.options(arch);
        let joined = options.join(" ");
        let headers = sources::HEADERS.iter().flat_map(|(name, body)| [*name, *body]);
        let parts = [variant.operator, source, &joined, &self.version];
        let key = cache::key(parts.into_iter().chain(headers));
        let (entry, origin) = self.cache.get(&key, || {
            let all: Vec<String> =
                options.iter().cloned().chain(self.uncached.map(str::to_owned)).collect();
            let output = nvrtc::compile(variant.operator, source, sources::HEADERS, &all)?;
            Ok(Entry { cubin: output.cubin, log: output.log })
        })?;
        let kernel = report::parse_log(&entry.log)
            .into_iter()
            .find(|report| report.kernel == variant.operator)
            .ok_or_else(|| CudaError::Compile {
                kernel: variant.operator,
                options: joined,
                log: format!("the log has no report of the kernel: {}", entry.log),
            })?;
        let report = CompileReport {
            variant: variant.to_string(),
            arch,
            cubin_bytes: entry.cubin.len(),
            origin,
            kernel,
            log: entry.log,
        };
        Ok(Compiled { cubin: entry.cubin, report })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_device_is_refused_and_a_new_one_is_named() {
        assert!(matches!(
            Arch::new(7, 5),
            Err(CudaError::UnsupportedDevice { major: 7, minor: 5 })
        ));
        assert_eq!(Arch::new(9, 0).unwrap().to_string(), "sm_90");
        assert_eq!(Arch::new(10, 3).unwrap().to_string(), "sm_103");
    }

    #[test]
    fn options_hold_everything_that_a_variant_is_built_with() {
        let variant = Variant {
            operator: "rms_norm",
            dtype: Dtype::BF16,
            argument_bytes: 56,
            numbers: vec![("THREADS", 256), ("ALIGNED", 1)],
        };
        let options = variant.options(Arch::new(9, 0).unwrap()).join(" ");
        for part in [
            "sm_90",
            "c++17",
            "-DELEMENT=BF16",
            "-DARGUMENT_BYTES=56",
            "-DTHREADS=256",
            "-DALIGNED=1",
        ] {
            assert!(options.contains(part), "{options}");
        }
        assert_eq!(variant.to_string(), "rms_norm BF16 THREADS=256 ALIGNED=1");
    }
}
