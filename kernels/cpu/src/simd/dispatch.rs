//! From a path and an element type to the function compiled for both.

use proofhouse_contract::Dtype;

use crate::path::Path;

/// A path and an element type: which compiled function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The instruction set.
    pub path: Path,
    /// The element type.
    pub kind: Kind,
}

/// The element types that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F16,
    Bf16,
}

impl Kind {
    /// The kind of an activation dtype; `None` for types that no kernel reads.
    pub(crate) const fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::F16 => Some(Self::F16),
            Dtype::BF16 => Some(Self::Bf16),
            Dtype::F8E4M3 | Dtype::I32 | Dtype::I64 | Dtype::U8 => None,
        }
    }

    /// The contract's name for it.
    pub(crate) const fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::BF16,
        }
    }

    /// Bytes of one element.
    pub(crate) const fn size(self) -> usize {
        self.dtype().size()
    }
}

/// Compiles a generic kernel for every path and element type, and picks one at run time.
///
/// The kernel is `inline(always)` and generic over lanes and element; each wrapper enables the features that
/// its lanes need, so that the whole kernel is compiled with them.
macro_rules! dispatch {
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? = $kernel:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// As the kernel of the same name.
        #[allow(clippy::too_many_arguments)] // the kernel's arguments and where to send them
        unsafe fn $name(target: crate::simd::Target, $($arg: $type),*) $(-> $ret)? {
            use crate::simd::lanes::{Bf16, Element, F16, F32};
            use crate::simd::{Kind, scalar::Scalar};

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,popcnt,bmi1")]
            unsafe fn wide<E: Element>($($arg: $type),*) $(-> $ret)? {
                // SAFETY: the features are enabled here; the rest is the caller's promise.
                unsafe { $kernel::<crate::simd::avx512::Avx512, E>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,popcnt,bmi1")]
            unsafe fn narrow<E: Element>($($arg: $type),*) $(-> $ret)? {
                // SAFETY: the features are enabled here; the rest is the caller's promise.
                unsafe { $kernel::<crate::simd::avx2::Avx2, E>($($arg),*) }
            }
            unsafe fn plain<E: Element>($($arg: $type),*) $(-> $ret)? {
                // SAFETY: scalar lanes need no features; the rest is the caller's promise.
                unsafe { $kernel::<Scalar, E>($($arg),*) }
            }
            // SAFETY: a path exists only where its features were detected.
            unsafe {
                match (target.path.isa(), target.kind) {
                    #[cfg(target_arch = "x86_64")]
                    (crate::path::Isa::Avx512, Kind::F32) => wide::<F32>($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    (crate::path::Isa::Avx512, Kind::F16) => wide::<F16>($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    (crate::path::Isa::Avx512, Kind::Bf16) => wide::<Bf16>($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    (crate::path::Isa::Avx2, Kind::F32) => narrow::<F32>($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    (crate::path::Isa::Avx2, Kind::F16) => narrow::<F16>($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    (crate::path::Isa::Avx2, Kind::Bf16) => narrow::<Bf16>($($arg),*),
                    (_, Kind::F32) => plain::<F32>($($arg),*),
                    (_, Kind::F16) => plain::<F16>($($arg),*),
                    (_, Kind::Bf16) => plain::<Bf16>($($arg),*),
                }
            }
        }
    };
}

pub(super) use dispatch;
