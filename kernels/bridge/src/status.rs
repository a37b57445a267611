//! How a call of the interface ends.

use proofhouse_contract::ErrorKind;

/// How a call ended.
///
/// 0 is success; 1 to 99 is what the interface itself refuses, 100 to 199 what the operator's contract refuses, 200 to
/// 299 what the device, its driver or its compiler could not do. New numbers may come, none changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum Status {
    /// It worked.
    Ok = 0,
    /// A pointer that the call needs is null.
    NullArgument = 1,
    /// A pointer is not aligned as its type asks.
    MisalignedArgument = 2,
    /// A struct begins with another size than this library's.
    WrongSize = 3,
    /// A text is too long or not UTF-8.
    BadText = 4,
    /// A handle is not open, or of another kind.
    BadHandle = 5,
    /// There are more entries than a call can have.
    TooMany = 6,
    /// A number stands for nothing, or a reserved field is not zero.
    UnknownValue = 7,
    /// A name is given twice.
    Duplicate = 8,
    /// A tensor has no axis, or more than a descriptor holds.
    BadRank = 9,
    /// A stride is negative.
    NegativeStride = 10,
    /// The caller's buffer is too small; it holds the beginning.
    NoRoom = 11,
    /// The stream is being captured and the call was not prepared before.
    NotPrepared = 12,
    /// The cache is full of operators that graphs were captured with.
    CacheFull = 13,
    /// A dimension that must be at least one is zero.
    ZeroDimension = 100,
    /// A size or an address overflows.
    Overflow = 101,
    /// A tensor's shape does not follow from the call's dimensions.
    LengthMismatch = 102,
    /// A tensor or parameter has another type than the contract says.
    DtypeMismatch = 103,
    /// Strides that rows cannot have: elements of a row apart, rows that overlap, or no one distance between rows.
    BadStride = 104,
    /// The span ends before the last element.
    StorageTooShort = 105,
    /// An address is not a multiple of the element's size.
    Misaligned = 106,
    /// An address is null.
    NullPointer = 107,
    /// A tensor that is written shares memory with another.
    Overlap = 108,
    /// A value is out of range.
    OutOfRange = 109,
    /// A value is NaN or infinite.
    NotFinite = 110,
    /// A dimension, parameter or tensor is absent.
    Missing = 111,
    /// A name or a tensor is not part of the contract.
    Unknown = 112,
    /// The contract or the kernels do not cover this.
    Unsupported = 113,
    /// The driver or the compiler is not installed, or not found.
    LibraryMissing = 200,
    /// A call of the driver failed.
    Driver = 201,
    /// There is no such device.
    NoDevice = 202,
    /// The device is older than the kernels.
    UnsupportedDevice = 203,
    /// A call of the compiler failed.
    Compiler = 204,
    /// A kernel does not compile.
    Compile = 205,
    /// The folder of compiled kernels cannot be used.
    CacheFolder = 206,
    /// A launch is larger than a grid can be.
    TooLarge = 207,
    /// The operator has no kernel here.
    NoKernel = 208,
    /// Another failure on the device's side; the text says which.
    DeviceFailure = 209,
    /// The library panicked, which is a defect of it; the text says where it can.
    Panic = 300,
}

impl Status {
    /// Every status.
    pub(crate) const ALL: [Self; 39] = [
        Self::Ok,
        Self::NullArgument,
        Self::MisalignedArgument,
        Self::WrongSize,
        Self::BadText,
        Self::BadHandle,
        Self::TooMany,
        Self::UnknownValue,
        Self::Duplicate,
        Self::BadRank,
        Self::NegativeStride,
        Self::NoRoom,
        Self::NotPrepared,
        Self::CacheFull,
        Self::ZeroDimension,
        Self::Overflow,
        Self::LengthMismatch,
        Self::DtypeMismatch,
        Self::BadStride,
        Self::StorageTooShort,
        Self::Misaligned,
        Self::NullPointer,
        Self::Overlap,
        Self::OutOfRange,
        Self::NotFinite,
        Self::Missing,
        Self::Unknown,
        Self::Unsupported,
        Self::LibraryMissing,
        Self::Driver,
        Self::NoDevice,
        Self::UnsupportedDevice,
        Self::Compiler,
        Self::Compile,
        Self::CacheFolder,
        Self::TooLarge,
        Self::NoKernel,
        Self::DeviceFailure,
        Self::Panic,
    ];

    /// The status of that number.
    #[must_use]
    pub fn of_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|status| *status as i32 == code)
    }

    /// Whether the caller asked for something that is refused, and nothing failed.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        matches!(self as i32, 1..=199) || matches!(self, Self::NoKernel | Self::TooLarge)
    }

    /// The status's name: snake_case, stable; the contract's kinds keep the names they have there.
    #[must_use]
    pub const fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::Ok => c"ok",
            Self::NullArgument => c"null_argument",
            Self::MisalignedArgument => c"misaligned_argument",
            Self::WrongSize => c"wrong_size",
            Self::BadText => c"bad_text",
            Self::BadHandle => c"bad_handle",
            Self::TooMany => c"too_many",
            Self::UnknownValue => c"unknown_value",
            Self::Duplicate => c"duplicate",
            Self::BadRank => c"bad_rank",
            Self::NegativeStride => c"negative_stride",
            Self::NoRoom => c"no_room",
            Self::NotPrepared => c"not_prepared",
            Self::CacheFull => c"cache_full",
            Self::ZeroDimension => c"zero_dimension",
            Self::Overflow => c"overflow",
            Self::LengthMismatch => c"length_mismatch",
            Self::DtypeMismatch => c"dtype_mismatch",
            Self::BadStride => c"bad_stride",
            Self::StorageTooShort => c"storage_too_short",
            Self::Misaligned => c"misaligned",
            Self::NullPointer => c"null_pointer",
            Self::Overlap => c"overlap",
            Self::OutOfRange => c"out_of_range",
            Self::NotFinite => c"not_finite",
            Self::Missing => c"missing",
            Self::Unknown => c"unknown",
            Self::Unsupported => c"unsupported",
            Self::LibraryMissing => c"library_missing",
            Self::Driver => c"driver",
            Self::NoDevice => c"no_device",
            Self::UnsupportedDevice => c"unsupported_device",
            Self::Compiler => c"compiler",
            Self::Compile => c"compile",
            Self::CacheFolder => c"cache_folder",
            Self::TooLarge => c"too_large",
            Self::NoKernel => c"no_kernel",
            Self::DeviceFailure => c"device_failure",
            Self::Panic => c"panic",
        }
    }
}

impl From<ErrorKind> for Status {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::ZeroDimension => Self::ZeroDimension,
            ErrorKind::Overflow => Self::Overflow,
            ErrorKind::LengthMismatch => Self::LengthMismatch,
            ErrorKind::DtypeMismatch => Self::DtypeMismatch,
            ErrorKind::BadStride => Self::BadStride,
            ErrorKind::StorageTooShort => Self::StorageTooShort,
            ErrorKind::Misaligned => Self::Misaligned,
            ErrorKind::NullPointer => Self::NullPointer,
            ErrorKind::Overlap => Self::Overlap,
            ErrorKind::OutOfRange => Self::OutOfRange,
            ErrorKind::NotFinite => Self::NotFinite,
            ErrorKind::Missing => Self::Missing,
            ErrorKind::Unknown => Self::Unknown,
            ErrorKind::Unsupported => Self::Unsupported,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_status_has_a_number_and_a_name_of_its_own() {
        let codes: BTreeSet<i32> = Status::ALL.into_iter().map(|status| status as i32).collect();
        let names: BTreeSet<_> = Status::ALL.into_iter().map(Status::name).collect();
        assert_eq!((codes.len(), names.len()), (Status::ALL.len(), Status::ALL.len()));
        for status in Status::ALL {
            assert_eq!(Status::of_code(status as i32), Some(status));
        }
        assert_eq!(Status::of_code(-1), None);
    }

    #[test]
    fn the_contracts_kinds_keep_their_names() {
        for kind in ErrorKind::ALL {
            let status = Status::from(kind);
            assert_eq!(status.name().to_str().unwrap(), kind.name());
            assert!(status.is_refusal());
        }
    }

    #[test]
    fn what_the_device_could_not_do_is_no_refusal() {
        assert!(!Status::Ok.is_refusal() && !Status::Panic.is_refusal());
        assert!(!Status::Driver.is_refusal() && Status::NoKernel.is_refusal());
    }
}
