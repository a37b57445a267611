//! Which instruction set the kernels use: found at run time, or chosen among those this machine has.

use std::fmt;
use std::sync::OnceLock;

/// An instruction set, with the kernels compiled for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Isa {
    /// One element at a time, baseline x86-64 or any other architecture.
    Scalar,
    /// Eight F32 lanes: AVX2, FMA and F16C.
    Avx2,
    /// Sixteen F32 lanes: AVX-512 F, BW, VL and DQ.
    Avx512,
}

/// A set of kernels that this machine can run.
///
/// Values exist only for instruction sets that were detected, so holding one is the proof that its kernels
/// are safe to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(Isa);

impl Path {
    /// The fastest path of this machine; detected once.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Path> = OnceLock::new();
        *BEST.get_or_init(|| Self::supported().next().unwrap_or(Self(Isa::Scalar)))
    }

    /// Every path of this machine, the fastest first.
    pub fn supported() -> impl Iterator<Item = Self> {
        [Isa::Avx512, Isa::Avx2, Isa::Scalar].into_iter().filter(|isa| detected(*isa)).map(Self)
    }

    /// The path of that name (`avx512`, `avx2` or `scalar`), or `None` where the machine lacks it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::supported().find(|path| path.name() == name)
    }

    /// The path's name: `avx512`, `avx2` or `scalar`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    pub(crate) const fn isa(self) -> Isa {
        self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
fn detected(isa: Isa) -> bool {
    match isa {
        Isa::Scalar => true,
        Isa::Avx2 => {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("bmi1")
        }
        Isa::Avx512 => {
            detected(Isa::Avx2)
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected(isa: Isa) -> bool {
    isa == Isa::Scalar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_path_is_supported_and_every_path_is_found_by_its_name() {
        assert_eq!(Path::supported().next(), Some(Path::best()));
        for path in Path::supported() {
            assert_eq!(Path::named(path.name()), Some(path));
        }
        assert_eq!(Path::named("sse9"), None);
    }

    #[test]
    fn the_scalar_path_is_always_there() {
        assert!(Path::named("scalar").is_some());
    }
}
