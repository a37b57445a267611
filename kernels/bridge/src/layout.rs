//! The structs and numbers that cross the boundary, as C sees them.
//!
//! Text in these comments becomes the header's, and is written for callers in C.

use std::ffi::c_char;

/// Most axes of a tensor.
pub const MOST_AXES: usize = 4;
/// Most dimensions, parameters or tensors of a call, each.
pub const MOST_ENTRIES: usize = 16;
/// Bytes of a name, the closing zero included.
pub const NAME_BYTES: usize = 64;
/// Bytes of a path, the closing zero included.
pub const PATH_BYTES: usize = 4096;
/// Bytes of the text in proofhouse_error, the closing zero included.
pub const TEXT_BYTES: usize = 1024;

/// Element types, for the fields named dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DtypeC {
    /// IEEE binary32.
    F32 = 1,
    /// IEEE binary16.
    F16 = 2,
    /// The upper half of a binary32.
    Bf16 = 3,
    /// OCP E4M3FN.
    F8E4m3 = 4,
    /// Signed 32-bit integer.
    I32 = 5,
    /// Signed 64-bit integer.
    I64 = 6,
    /// Unsigned byte.
    U8 = 7,
}

/// Types of parameters, for the field kind of proofhouse_param.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ParamKindC {
    /// A real number, in the field real.
    Float = 1,
    /// An integer, in the field integer.
    Int = 2,
    /// A switch, in the field integer: 0 or 1.
    Bool = 3,
}

/// An open device; a ticket that is looked up and never followed.
#[derive(Debug)]
pub struct DeviceHandle {
    _opaque: (),
}

/// A prepared operator; a ticket that is looked up and never followed.
#[derive(Debug)]
pub struct OperatorHandle {
    _opaque: (),
}

/// Which device to open, and with what. Zero every field that is not used.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OpenOptionsC {
    /// sizeof this struct.
    pub size: u32,
    /// Number of the device in CUDA's order; used where uuid is NULL.
    pub ordinal: u32,
    /// Identity of the device, as nvidia-smi writes it ("GPU-" and a UUID); NULL for the ordinal.
    pub uuid: *const c_char,
    /// Folder of libnvrtc; NULL where the loader finds it. The first library a process loads stays in use.
    pub nvrtc_folder: *const c_char,
    /// Folder that compiled kernels are kept in; NULL to keep none.
    pub kernel_folder: *const c_char,
    /// Most operators that proofhouse_enqueue keeps prepared, up to 4096; 0 for 256.
    pub most_cached: u32,
    /// Zero.
    pub reserved: u32,
}

/// What a device is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceC {
    /// sizeof this struct.
    pub size: u32,
    /// Major number of the compute capability.
    pub compute_major: u32,
    /// Minor number of the compute capability.
    pub compute_minor: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
    /// The device's name, cut where it is longer, with a closing zero.
    pub name: [c_char; NAME_BYTES],
    /// The device's identity, as nvidia-smi writes it, with a closing zero.
    pub uuid: [c_char; NAME_BYTES],
}

/// A dimension of a call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DimC {
    /// sizeof this struct.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// The dimension's name in the contract, such as "rows".
    pub name: *const c_char,
    /// Its extent, in elements.
    pub extent: u64,
}

/// A parameter of a call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ParamC {
    /// sizeof this struct.
    pub size: u32,
    /// A proofhouse_param_kind.
    pub kind: u32,
    /// The parameter's name in the contract, such as "eps".
    pub name: *const c_char,
    /// The value of a FLOAT.
    pub real: f64,
    /// The value of an INT or a BOOL.
    pub integer: i64,
}

/// A tensor in the device's memory.
///
/// Elements of the last axis lie side by side, and the axes before it are rows with one distance between neighbors.
/// Strides of axes of one element or none do not matter.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TensorC {
    /// sizeof this struct.
    pub size: u32,
    /// A proofhouse_dtype.
    pub dtype: u32,
    /// Address of the first element, in the device's memory.
    pub address: u64,
    /// Bytes from the address on that belong to the tensor's storage: no element may reach past them.
    pub span_bytes: u64,
    /// Number of axes, from 1 to PROOFHOUSE_MOST_AXES.
    pub rank: u32,
    /// Zero.
    pub reserved: u32,
    /// Extents, outermost axis first, in elements; what stands behind the rank is not read.
    pub shape: [u64; MOST_AXES],
    /// Distances between neighbors along each axis, in elements, none negative.
    pub strides: [i64; MOST_AXES],
}

/// A call of an operator: what to compute, how large, and on which tensors.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallC {
    /// sizeof this struct.
    pub size: u32,
    /// The activations' proofhouse_dtype.
    pub dtype: u32,
    /// The operator's name in the contract, such as "rms_norm".
    pub operator_name: *const c_char,
    /// The call's dimensions, every one that the operator has, in any order.
    pub dims: *const DimC,
    /// The call's parameters, in any order; one that is absent has its default. NULL for none.
    pub params: *const ParamC,
    /// The call's tensors, in the contract's calling order. NULL for none where a function allows that.
    pub tensors: *const TensorC,
    /// Number of dimensions.
    pub dim_count: u32,
    /// Number of parameters.
    pub param_count: u32,
    /// Number of tensors.
    pub tensor_count: u32,
    /// Zero.
    pub reserved: u32,
}

/// What was counted of an operator on a device since it was opened or the counters were reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CountersC {
    /// sizeof this struct.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// Launches put into a stream. One that was captured counts once, however often its graph runs; a call without rows
    /// launches nothing and counts nothing.
    pub launches: u64,
    /// Calls that were refused: by this interface, by the contract, or for a bad value that a check found.
    pub refusals: u64,
    /// Calls that failed on the device's side, or panicked.
    pub failures: u64,
    /// Operators that were prepared, for the cache or for a handle.
    pub preparations: u64,
    /// Calls that found their operator in the cache.
    pub cache_hits: u64,
    /// Operators that left the cache to make room.
    pub evictions: u64,
}

/// How the last call on this thread ended.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ErrorC {
    /// sizeof this struct.
    pub size: u32,
    /// A proofhouse_status; PROOFHOUSE_STATUS_OK where the last call worked.
    pub status: i32,
    /// Row of a bad value in the device's memory; -1 where there is none.
    pub row: i64,
    /// Bytes of the whole text, the closing zero included; proofhouse_last_error_text gives all of it.
    pub text_bytes: u64,
    /// The operator's name; empty where none is involved.
    pub operator_name: [c_char; NAME_BYTES],
    /// The dimension, parameter, tensor or argument at fault; empty where none is.
    pub argument: [c_char; NAME_BYTES],
    /// What went wrong, what was found and what is accepted, cut where it is longer. UTF-8 with a closing zero.
    pub text: [c_char; TEXT_BYTES],
}
