//! Where pointers from C are read and written: each is checked for null, alignment and the struct's own size first.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use proofhouse_contract::{ParamValue, TensorLayout};
use proofhouse_cuda::{CallersContext, DeviceTensor, Stream};

use crate::descriptor::Asked;
use crate::failure::{self, Failure};
use crate::layout::{
    CallC, CountersC, DeviceC, DimC, ErrorC, MOST_ENTRIES, NAME_BYTES, OpenOptionsC, ParamC,
    ParamKindC, TensorC,
};
use crate::status::Status;

/// A struct that crosses the boundary.
///
/// # Safety
/// The type is `repr(C)`, begins with a `u32` that holds its size, and every pattern of bits is a value of it.
pub(super) unsafe trait Descriptor: Copy {}

// SAFETY: in all of these: `repr(C)`, the size in front, and fields that are numbers, pointers or arrays of numbers.
unsafe impl Descriptor for OpenOptionsC {}
// SAFETY: as above.
unsafe impl Descriptor for DeviceC {}
// SAFETY: as above.
unsafe impl Descriptor for DimC {}
// SAFETY: as above.
unsafe impl Descriptor for ParamC {}
// SAFETY: as above.
unsafe impl Descriptor for TensorC {}
// SAFETY: as above.
unsafe impl Descriptor for CallC {}
// SAFETY: as above.
unsafe impl Descriptor for CountersC {}
// SAFETY: as above.
unsafe impl Descriptor for ErrorC {}

/// A tensor of the caller's: its descriptor, and the promise that its memory is there.
#[derive(Debug)]
pub(crate) struct ForeignTensor {
    descriptor: TensorC,
}

impl ForeignTensor {
    pub(crate) const fn descriptor(&self) -> &TensorC {
        &self.descriptor
    }

    /// The tensor as an operand.
    pub(crate) fn operand(&self, layout: TensorLayout) -> DeviceTensor<'static> {
        // SAFETY: only `tensors` makes a value of this type, whose caller promised that the span is memory of the
        // device until every launch and every graph made with it is over.
        unsafe {
            DeviceTensor::from_raw(self.descriptor.address, self.descriptor.span_bytes, layout)
        }
    }
}

/// A stream of the caller's.
///
/// # Safety
/// The stream belongs to the primary context of the device it is used with, and outlives what is put into it.
pub(super) unsafe fn stream(raw: *mut c_void) -> Stream {
    // SAFETY: the caller's promise.
    unsafe { Stream::from_raw(raw.addr()) }
}

/// Runs the body of a call; keeps how it ended as the thread's last error, and gives its status.
pub(super) fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let ended = quietly(body);
    let status = ended.as_ref().map_or_else(|failure| failure.status, |()| Status::Ok);
    failure::keep_last(ended.err());
    status as i32
}

/// Runs the body of a call; a panic becomes a failure, and the caller's context is current again afterwards.
pub(super) fn quietly(body: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    // What a body shares with others, tickets, counters and caches, is changed in single steps.
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _kept = CallersContext::keep();
        body()
    }));
    ended.unwrap_or_else(|payload| Err(Failure::panicked(&*payload)))
}

fn check_pointer<T>(pointer: *const T, argument: impl FnOnce() -> String) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::new(Status::NullArgument, argument(), "null", "a valid pointer"));
    }
    if !pointer.is_aligned() {
        let (found, accepted) =
            (format!("{pointer:p}"), format!("a multiple of {}", align_of::<T>()));
        return Err(Failure::new(Status::MisalignedArgument, argument(), found, accepted));
    }
    Ok(())
}

fn check_size<T: Descriptor>(
    pointer: *const T,
    argument: impl FnOnce() -> String,
) -> Result<(), Failure> {
    // SAFETY: the callers below have checked the pointer and pass on that it leads to a struct which begins with its
    // size, whatever that is.
    let found = unsafe { pointer.cast::<u32>().read() };
    if found as usize != size_of::<T>() {
        let (found, accepted) =
            (format!("a struct of {found} bytes"), format!("one of {} bytes", size_of::<T>()));
        return Err(Failure::new(Status::WrongSize, argument(), found, accepted));
    }
    Ok(())
}

/// The struct behind a pointer.
///
/// # Safety
/// `pointer` is null, misaligned, or leads to a struct that begins with its size and is that large.
pub(super) unsafe fn read<T: Descriptor>(
    pointer: *const T,
    argument: impl Fn() -> String,
) -> Result<T, Failure> {
    check_pointer(pointer, &argument)?;
    check_size(pointer, &argument)?;
    // SAFETY: not null, aligned, and of this type's size, every pattern of which is a value.
    Ok(unsafe { pointer.read() })
}

/// Writes a struct to where the caller has one of the same size.
///
/// # Safety
/// As for [`read`], and writable.
pub(super) unsafe fn write<T: Descriptor>(
    pointer: *mut T,
    argument: &str,
    value: impl FnOnce() -> T,
) -> Result<(), Failure> {
    let name = || argument.to_owned();
    check_pointer(pointer, name)?;
    check_size(pointer.cast_const(), name)?;
    // SAFETY: not null, aligned, of this type's size, and writable as promised.
    unsafe { pointer.write(value()) };
    Ok(())
}

/// Writes a plain value, such as a handle or a number.
///
/// # Safety
/// `pointer` is null, misaligned or writable.
pub(super) unsafe fn put<T>(pointer: *mut T, argument: &str, value: T) -> Result<(), Failure> {
    check_pointer(pointer, || argument.to_owned())?;
    // SAFETY: not null, aligned, and writable as promised; what was there needs no drop.
    unsafe { pointer.write(value) };
    Ok(())
}

/// A text of less than `bytes` bytes.
///
/// # Safety
/// `pointer` is null or leads to bytes up to a zero, or to `bytes` of them.
unsafe fn text(
    pointer: *const c_char,
    bytes: usize,
    argument: impl Fn() -> String,
) -> Result<String, Failure> {
    check_pointer(pointer, &argument)?;
    let mut read = Vec::new();
    while read.len() < bytes {
        // SAFETY: no zero came before this byte, and it is one of the first `bytes`.
        match unsafe { pointer.add(read.len()).cast::<u8>().read() } {
            0 => {
                return String::from_utf8(read).map_err(|_| {
                    Failure::new(Status::BadText, argument(), "not UTF-8", "UTF-8 text")
                });
            }
            byte => read.push(byte),
        }
    }
    let accepted = format!("at most {} bytes and a zero", bytes - 1);
    Err(Failure::new(Status::BadText, argument(), "longer than it may be", accepted))
}

/// As [`text`], and none for null.
///
/// # Safety
/// As for [`text`].
pub(super) unsafe fn optional_text(
    pointer: *const c_char,
    bytes: usize,
    argument: &str,
) -> Result<Option<String>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { text(pointer, bytes, || argument.to_owned()) }.map(Some)
}

/// Structs that lie side by side, each with its size.
///
/// # Safety
/// `pointer` is null, misaligned, or leads to `count` structs, each of which begins with its size and is that large.
unsafe fn entries<T: Descriptor>(
    pointer: *const T,
    count: u32,
    argument: &str,
) -> Result<Vec<T>, Failure> {
    if count as usize > MOST_ENTRIES {
        let found = format_args!("{count} entries");
        let accepted = format_args!("at most {MOST_ENTRIES}");
        return Err(Failure::new(Status::TooMany, argument, found, accepted));
    }
    // SAFETY: the pointer leads to so many structs; of another size, the first one ends the walk.
    let entry = |at: usize| unsafe {
        read(pointer.wrapping_add(at), || {
            if at == 0 { argument.to_owned() } else { format!("{argument}[{at}]") }
        })
    };
    (0..count as usize).map(entry).collect()
}

fn refuse_reserved(reserved: u32, argument: impl FnOnce() -> String) -> Result<(), Failure> {
    if reserved == 0 {
        return Ok(());
    }
    Err(Failure::new(Status::UnknownValue, argument(), reserved, "0"))
}

/// The options of an open call.
///
/// # Safety
/// As for [`read`].
pub(super) unsafe fn options(pointer: *const OpenOptionsC) -> Result<OpenOptionsC, Failure> {
    // SAFETY: the caller's promise.
    let options = unsafe { read(pointer, || "options".to_owned()) }?;
    refuse_reserved(options.reserved, || "options.reserved".to_owned())?;
    Ok(options)
}

/// The tensors of a call.
///
/// # Safety
/// As for [`entries`]; the spans are memory of the device until every launch and every graph made with them is over.
pub(super) unsafe fn tensors(
    pointer: *const TensorC,
    count: u32,
    argument: &str,
) -> Result<Vec<ForeignTensor>, Failure> {
    // SAFETY: the caller's promise.
    let read = unsafe { entries(pointer, count, argument) }?;
    let foreign = |(at, descriptor): (usize, TensorC)| {
        refuse_reserved(descriptor.reserved, || format!("{argument}[{at}].reserved"))?;
        Ok(ForeignTensor { descriptor })
    };
    read.into_iter().enumerate().map(foreign).collect()
}

/// A call, with everything that it points to.
///
/// # Safety
/// As for [`read`], [`entries`] and [`tensors`]; names end with a zero.
pub(super) unsafe fn call(pointer: *const CallC) -> Result<Asked, Failure> {
    // SAFETY: the caller's promise.
    let call = unsafe { read(pointer, || "call".to_owned()) }?;
    // SAFETY: the caller's promise.
    let operator = unsafe { text(call.operator_name, NAME_BYTES, || "operator_name".to_owned()) }?;
    // SAFETY: the caller's promise.
    unsafe { parts(&call, operator.clone()) }.map_err(|failure| failure.of(&operator))
}

/// The rest of a call whose operator is known.
///
/// # Safety
/// As for [`call`].
unsafe fn parts(call: &CallC, operator: String) -> Result<Asked, Failure> {
    refuse_reserved(call.reserved, || "call.reserved".to_owned())?;
    let mut dims = Vec::new();
    // SAFETY: the caller's promise.
    for (at, dim) in unsafe { entries(call.dims, call.dim_count, "dims") }?.into_iter().enumerate()
    {
        refuse_reserved(dim.reserved, || format!("dims[{at}].reserved"))?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(dim.name, NAME_BYTES, || format!("dims[{at}].name")) }?;
        dims.push((name, dim.extent));
    }
    let mut params = Vec::new();
    // SAFETY: the caller's promise.
    let read = unsafe { entries(call.params, call.param_count, "params") }?;
    for (at, param) in read.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        let name = unsafe { text(param.name, NAME_BYTES, || format!("params[{at}].name")) }?;
        let value = value(&param, &name)?;
        params.push((name, value));
    }
    // SAFETY: the caller's promise.
    let tensors = unsafe { tensors(call.tensors, call.tensor_count, "tensors") }?;
    Ok(Asked { operator, dtype: call.dtype, dims, params, tensors })
}

fn value(param: &ParamC, name: &str) -> Result<ParamValue, Failure> {
    const FLOAT: u32 = ParamKindC::Float as u32;
    const INT: u32 = ParamKindC::Int as u32;
    const BOOL: u32 = ParamKindC::Bool as u32;
    match (param.kind, param.integer) {
        (FLOAT, _) => Ok(ParamValue::Float(param.real)),
        (INT, integer) => Ok(ParamValue::Int(integer)),
        (BOOL, 0) => Ok(ParamValue::Bool(false)),
        (BOOL, 1) => Ok(ParamValue::Bool(true)),
        (BOOL, other) => Err(Failure::new(Status::UnknownValue, name, other, "0 or 1 for a BOOL")),
        (other, _) => {
            let accepted = "a proofhouse_param_kind, 1 to 3";
            Err(Failure::new(Status::UnknownValue, name, format_args!("of kind {other}"), accepted))
        }
    }
}

/// Writes a text and a zero into an array, cut between characters where it is longer.
pub(super) fn fill(array: &mut [c_char], text: &str) {
    let mut end = text.len().min(array.len().saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    array.fill(0);
    for (to, byte) in array.iter_mut().zip(&text.as_bytes()[..end]) {
        *to = byte.cast_signed() as c_char;
    }
}

/// Copies a text and a zero to a caller's buffer; cut, and refused, where there is no room for all of it.
///
/// # Safety
/// `out` is null or has room for `capacity` bytes; `needed` is null or writable.
pub(super) unsafe fn copy_text(
    text: &str,
    out: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> Result<(), Failure> {
    let whole = text.len() + 1;
    if !needed.is_null() {
        // SAFETY: not null, and writable as promised.
        unsafe { put(needed, "needed", whole) }?;
    }
    if !out.is_null() && capacity > 0 {
        let mut copy = vec![0; capacity.min(whole)];
        fill(&mut copy, text);
        // SAFETY: the copy is no longer than the caller's buffer, and apart from it.
        unsafe { out.copy_from_nonoverlapping(copy.as_ptr(), copy.len()) };
        if whole <= capacity {
            return Ok(());
        }
    }
    let room = if out.is_null() { 0 } else { capacity };
    let (found, accepted) =
        (format_args!("room for {room} bytes"), format_args!("{whole} and more"));
    Err(Failure::new(Status::NoRoom, "out", found, accepted))
}
