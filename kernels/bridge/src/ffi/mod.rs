//! The functions that C calls. Their comments are the header's, written for callers in C.

mod boundary;

use std::ffi::{c_char, c_void};
use std::ptr::without_provenance_mut;
use std::sync::Arc;

pub(crate) use boundary::ForeignTensor;

use boundary::{
    call, copy_text, fill, guarded, optional_text, options, put, quietly, stream, write,
};

use proofhouse_cuda::Runtime;

use crate::backend::Backend;
use crate::cuda::{self, Wanted};
use crate::device::{self, Device, Operator};
use crate::failure::{self, Failure};
use crate::layout::{
    CallC, CountersC, DeviceC, DeviceHandle, ErrorC, NAME_BYTES, OpenOptionsC, OperatorHandle,
    PATH_BYTES, TEXT_BYTES, TensorC,
};
use crate::status::Status;
use crate::tickets::Tickets;

static DEVICES: Tickets<Device> = Tickets::new();
static OPERATORS: Tickets<Operator> = Tickets::new();

const DEVICE: &str = "a handle that proofhouse_device_open gave and nobody closed";
const OPERATOR: &str = "a handle that proofhouse_operator_prepare gave and nobody closed";

fn device(handle: *const DeviceHandle) -> Result<Arc<Device>, Failure> {
    let ticket = handle.addr();
    DEVICES.find(ticket).ok_or_else(|| bad_handle(ticket, "device", DEVICE))
}

fn operator(handle: *const OperatorHandle) -> Result<Arc<Operator>, Failure> {
    let ticket = handle.addr();
    OPERATORS.find(ticket).ok_or_else(|| bad_handle(ticket, "prepared", OPERATOR))
}

fn bad_handle(ticket: usize, argument: &str, accepted: &str) -> Failure {
    if ticket == 0 {
        return Failure::new(Status::NullArgument, argument, "null", accepted);
    }
    Failure::new(Status::BadHandle, argument, "no open handle of its kind", accepted)
}

/// Opens a backend of the caller's own under the interface, as a test does; `most_cached` is 0 for the default.
///
/// The handle is closed as any other. A `most_cached` above [`crate::MOST_CACHED`] counts as that.
#[must_use]
pub fn open_backend(backend: Box<dyn Backend>, most_cached: u32) -> *mut DeviceHandle {
    let most = device::most_cached(most_cached).unwrap_or(crate::MOST_CACHED);
    without_provenance_mut(DEVICES.give(Arc::new(Device::new(backend, most))))
}

/// The version of the header that the library was built with: compare it with PROOFHOUSE_KERNELS_VERSION and go no
/// further where they differ. The text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn proofhouse_version() -> *const c_char {
    crate::version::version().as_ptr()
}

/// The name of a status, such as "storage_too_short"; "no_such_status" for a number that is none. The text lives as long
/// as the library.
#[unsafe(no_mangle)]
pub extern "C" fn proofhouse_status_name(status: i32) -> *const c_char {
    Status::of_code(status).map_or(c"no_such_status", Status::name).as_ptr()
}

/// How the last call on this thread ended. Like proofhouse_last_error_text, proofhouse_version and
/// proofhouse_status_name it leaves that as it is; every other function sets it.
///
/// # Safety
/// `error` is null or leads to a writable struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_last_error(error: *mut ErrorC) -> i32 {
    // SAFETY: the caller's promise.
    status(quietly(|| unsafe { write(error, "error", describe_last) }))
}

fn describe_last() -> ErrorC {
    let mut error = ErrorC {
        // About a kilobyte.
        size: size_of::<ErrorC>() as u32,
        status: Status::Ok as i32,
        row: -1,
        text_bytes: 1,
        operator_name: [0; NAME_BYTES],
        argument: [0; NAME_BYTES],
        text: [0; TEXT_BYTES],
    };
    if let Some(last) = failure::last() {
        error.status = last.status as i32;
        // Rows are counted in 31 bits where kernels look at them.
        error.row = last.row.map_or(-1, |row| i64::try_from(row).unwrap_or(i64::MAX));
        error.text_bytes = last.text.len() as u64 + 1;
        fill(&mut error.operator_name, &last.operator);
        fill(&mut error.argument, &last.argument);
        fill(&mut error.text, &last.text);
    }
    error
}

/// Copies the whole text of the thread's last error, UTF-8 with a closing zero; empty where the last call worked.
///
/// `needed`, where it is not NULL, gets the bytes of the whole text. NO_ROOM where `capacity` is less: then `out` holds
/// the beginning, with a closing zero. `out` may be NULL with a capacity of 0, to ask for the size.
///
/// # Safety
/// `out` is null or has room for `capacity` bytes; `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_last_error_text(
    out: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    let text = failure::last().map(|last| last.text).unwrap_or_default();
    // SAFETY: the caller's promise.
    status(quietly(|| unsafe { copy_text(&text, out, capacity, needed) }))
}

fn status(ended: Result<(), Failure>) -> i32 {
    ended.map_or_else(|failure| failure.status, |()| Status::Ok) as i32
}

/// How many CUDA devices there are.
///
/// # Safety
/// `count` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_device_count(count: *mut u32) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { put(count, "count", 0) }?;
        let found = Runtime::device_count()?;
        // SAFETY: the caller's promise.
        unsafe { put(count, "count", found) }
    })
}

/// Opens a device, by its number or its identity; its primary context is retained. `*device` is NULL unless it works.
///
/// Every open device has counters and a cache of its own; close it with proofhouse_device_close.
///
/// # Safety
/// `options` is null or leads to a struct that begins with its size, whose texts end with a zero; `device` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_device_open(
    options: *const OpenOptionsC,
    device: *mut *mut DeviceHandle,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { put(device, "device", std::ptr::null_mut()) }?;
        // SAFETY: the caller's promise.
        let (wanted, most) = unsafe { wanted(options) }?;
        let opened = open_backend(cuda::open(wanted)?, most);
        // SAFETY: the caller's promise.
        unsafe { put(device, "device", opened) }
    })
}

/// What a caller wants to open, and how many operators to keep.
///
/// # Safety
/// As for [`proofhouse_device_open`].
unsafe fn wanted(pointer: *const OpenOptionsC) -> Result<(Wanted, u32), Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { options(pointer) }?;
    // SAFETY: the caller's promise.
    let path = |text, argument| unsafe { optional_text(text, PATH_BYTES, argument) };
    let wanted = Wanted {
        ordinal: given.ordinal,
        // SAFETY: the caller's promise.
        uuid: unsafe { optional_text(given.uuid, NAME_BYTES, "uuid") }?,
        nvrtc_folder: path(given.nvrtc_folder, "nvrtc_folder")?.map(Into::into),
        kernel_folder: path(given.kernel_folder, "kernel_folder")?.map(Into::into),
    };
    Ok((wanted, device::most_cached(given.most_cached)?))
}

/// Describes an open device.
///
/// # Safety
/// `description` is null or leads to a writable struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_device_describe(
    device: *const DeviceHandle,
    description: *mut DeviceC,
) -> i32 {
    guarded(|| {
        let device = self::device(device)?;
        // SAFETY: the caller's promise.
        unsafe { write(description, "description", || describe(&device)) }
    })
}

fn describe(device: &Device) -> DeviceC {
    let info = device.info();
    let mut description = DeviceC {
        // Less than a kilobyte.
        size: size_of::<DeviceC>() as u32,
        compute_major: info.arch.major,
        compute_minor: info.arch.minor,
        multiprocessors: info.multiprocessors,
        memory_bytes: info.memory_bytes,
        l2_bytes: info.l2_bytes,
        name: [0; NAME_BYTES],
        uuid: [0; NAME_BYTES],
    };
    fill(&mut description.name, &info.name);
    fill(&mut description.uuid, &info.uuid);
    description
}

/// Closes a device and forgets what its cache keeps. Operators that were prepared for handles stay open, and with them
/// the device's context.
///
/// Graphs that were captured with operators of the cache must be gone.
#[unsafe(no_mangle)]
pub extern "C" fn proofhouse_device_close(device: *mut DeviceHandle) -> i32 {
    guarded(|| {
        let ticket = device.addr();
        let closed = DEVICES.take(ticket).ok_or_else(|| bad_handle(ticket, "device", DEVICE))?;
        closed.clear_cache();
        Ok(())
    })
}

/// Compiles, loads and allocates what a call needs, once, for any number of launches. `*prepared` is NULL unless it works.
///
/// The tensors say where operands will lie: their shapes and strides are checked, and their alignment decides which
/// kernel is made ready. Without tensors (a count of 0) the kernel is made ready for contiguous ones at aligned
/// addresses. It waits for the device, and must not be called while a stream is captured.
///
/// # Safety
/// `call` is null or leads to a struct that begins with its size; so is what it points to, by the counts in it; names
/// end with a zero. `prepared` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_operator_prepare(
    device: *const DeviceHandle,
    call: *const CallC,
    prepared: *mut *mut OperatorHandle,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { put(prepared, "prepared", std::ptr::null_mut()) }?;
        let device = self::device(device)?;
        // SAFETY: the caller's promise.
        let operator = device.prepare(unsafe { boundary::call(call) })?;
        let ticket = OPERATORS.give(Arc::new(operator));
        // SAFETY: the caller's promise.
        unsafe { put(prepared, "prepared", without_provenance_mut(ticket)) }
    })
}

/// Puts one launch of a prepared operator into a stream: no wait, no allocation; it can be captured into a graph.
///
/// `tensors` are the call's, in the contract's calling order, with the shapes that it was prepared for; addresses and
/// strides may change from launch to launch. Tensors of another alignment than the prepared one compile another kernel the
/// first time. Launches of one operator share its workspace: they go into one stream, or wait for each other, graphs
/// included.
///
/// # Safety
/// `tensors` is null or leads to `tensor_count` structs that begin with their size. Each span is memory of the device
/// until the launch, and every graph that holds it, is over. `stream` is a CUstream of the device's primary context, or
/// NULL for its default stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_operator_enqueue(
    prepared: *const OperatorHandle,
    tensors: *const TensorC,
    tensor_count: u32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { launch(prepared, (tensors, tensor_count), stream, false) })
}

/// As proofhouse_operator_enqueue, but waits, and reports the first value in the device's memory that the contract does
/// not accept (an id out of range, a NaN among logits) with its row. Not for a stream that is being captured.
///
/// # Safety
/// As for proofhouse_operator_enqueue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_operator_check(
    prepared: *const OperatorHandle,
    tensors: *const TensorC,
    tensor_count: u32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { launch(prepared, (tensors, tensor_count), stream, true) })
}

/// Launches a prepared operator.
///
/// # Safety
/// As for [`proofhouse_operator_enqueue`].
unsafe fn launch(
    prepared: *const OperatorHandle,
    (tensors, count): (*const TensorC, u32),
    raw: *mut c_void,
    checks: bool,
) -> Result<(), Failure> {
    let operator = operator(prepared)?;
    // SAFETY: the caller's promise.
    let (tensors, stream) = unsafe { (boundary::tensors(tensors, count, "tensors"), stream(raw)) };
    operator.launch(tensors, stream, checks)
}

/// How many kernels one launch of a prepared operator has, which is the nodes that it adds to a graph; 0 for a call
/// without rows.
///
/// # Safety
/// `count` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_operator_kernel_count(
    prepared: *const OperatorHandle,
    count: *mut u32,
) -> i32 {
    guarded(|| {
        let operator = operator(prepared)?;
        // An operator has a few kernels.
        let found = operator.kernels().len() as u32;
        // SAFETY: the caller's promise.
        unsafe { put(count, "count", found) }
    })
}

/// Copies the name of a kernel of a prepared operator, as a graph's node has it and a profiler shows it.
///
/// `out`, `capacity` and `needed` are as for proofhouse_last_error_text.
///
/// # Safety
/// `out` is null or has room for `capacity` bytes; `needed` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_operator_kernel_name(
    prepared: *const OperatorHandle,
    index: u32,
    out: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> i32 {
    guarded(|| {
        let operator = operator(prepared)?;
        let kernels = operator.kernels();
        let kernel = kernels.get(index as usize).ok_or_else(|| {
            let accepted = format_args!("a number below {}", kernels.len());
            Failure::new(Status::OutOfRange, "index", index, accepted)
        })?;
        // SAFETY: the caller's promise.
        unsafe { copy_text(kernel, out, capacity, needed) }
    })
}

/// Closes a prepared operator and frees its workspace. Graphs that were captured with it must be gone.
#[unsafe(no_mangle)]
pub extern "C" fn proofhouse_operator_close(prepared: *mut OperatorHandle) -> i32 {
    guarded(|| {
        let ticket = prepared.addr();
        let closed = OPERATORS.take(ticket);
        closed.map(drop).ok_or_else(|| bad_handle(ticket, "prepared", OPERATOR))
    })
}

/// Puts one launch of a call into a stream, with the operator that the device's cache keeps for it.
///
/// A call is looked up by operator, dtype, dimensions, parameters and stream, and prepared the first time (the default
/// stream of each thread, CU_STREAM_PER_THREAD, is a stream of its own). The cache holds
/// most_cached operators (proofhouse_open_options); for one more, the one that was used the longest ago leaves. Finish
/// a stream's work before its handle is used for another stream.
///
/// While the stream is captured nothing is prepared: a call that was not made in this stream before is NOT_PREPARED, and
/// one that was is to have tensors of the same alignment as then. Nor are calls that are new to be made in other streams
/// meanwhile: CUDA may end a capture when memory is allocated beside it.
/// What a capture uses is the graph's from then on. It counts towards most_cached, never leaves, and stream launches get
/// another; when nothing else is left, new calls are refused with CACHE_FULL until proofhouse_cache_clear. Graphs
/// that were captured from one stream share it: their runs wait for each other.
///
/// # Safety
/// As for proofhouse_operator_prepare and proofhouse_operator_enqueue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_enqueue(
    device: *const DeviceHandle,
    call: *const CallC,
    stream: *mut c_void,
) -> i32 {
    guarded(|| {
        let device = self::device(device)?;
        // SAFETY: the caller's promise.
        let (asked, stream) = unsafe { (self::call(call), self::stream(stream)) };
        device.enqueue(asked, stream)
    })
}

/// Forgets every operator that the device's cache keeps; it waits for the device where memory is freed. Graphs that were
/// captured with them must be gone.
#[unsafe(no_mangle)]
pub extern "C" fn proofhouse_cache_clear(device: *const DeviceHandle) -> i32 {
    guarded(|| {
        self::device(device)?.clear_cache();
        Ok(())
    })
}

/// What was counted on a device of an operator, or of all calls where `operator_name` is NULL: calls that name no
/// operator of the contract are part of the latter only.
///
/// # Safety
/// `operator_name` is null or ends with a zero; `counters` is null or leads to a writable struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_counters(
    device: *const DeviceHandle,
    operator_name: *const c_char,
    counters: *mut CountersC,
) -> i32 {
    guarded(|| {
        let device = self::device(device)?;
        // SAFETY: the caller's promise.
        let operator = unsafe { optional_text(operator_name, NAME_BYTES, "operator_name") }?;
        let counted = device.counted(operator.as_deref())?;
        // SAFETY: the caller's promise.
        unsafe { write(counters, "counters", || counted) }
    })
}

/// Sets all counters of a device to zero.
#[unsafe(no_mangle)]
pub extern "C" fn proofhouse_counters_reset(device: *const DeviceHandle) -> i32 {
    guarded(|| {
        self::device(device)?.reset_counters();
        Ok(())
    })
}
