//! Every refusal, reached through the C interface: its status, and the operator and argument in the last error.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unsafe_code, reason = "the C interface is called")]
#![allow(dead_code, reason = "the caller and the device are shared with other tests")]

mod caller;
mod fake;

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};

use caller::{
    Caller, assert_ok, assert_refused, enqueue, last, made_up, nothing, number, prepare, zeroed,
};
use fake::Defect;
use proofhouse_bridge::ffi::{
    proofhouse_cache_clear, proofhouse_counters, proofhouse_counters_reset,
    proofhouse_device_close, proofhouse_device_count, proofhouse_device_describe,
    proofhouse_device_open, proofhouse_last_error, proofhouse_last_error_text,
    proofhouse_operator_check, proofhouse_operator_close, proofhouse_operator_kernel_count,
    proofhouse_operator_kernel_name,
};
use proofhouse_bridge::layout::{
    CallC, CountersC, DeviceC, DeviceHandle, DimC, ErrorC, OpenOptionsC, ParamC,
};
use proofhouse_bridge::status::Status;
use proofhouse_contract::refusal::Mutation;
use proofhouse_contract::{Call, Dtype, Layout, ParamValue, find_operator};
use proofhouse_cuda::OPERATORS;

fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for name in OPERATORS {
        let spec = find_operator(name).unwrap();
        for dtype in spec.dtypes {
            let dims: Vec<_> = spec
                .dims
                .iter()
                .map(|dim| (dim.name, if dim.name == "rows" { 3 } else { 64 }))
                .collect();
            calls.push(Call::new(name, *dtype, &dims, &[]).unwrap());
            if spec.param("add-residual").is_some() {
                let params = [("add-residual", ParamValue::Bool(true))];
                calls.push(Call::new(name, *dtype, &dims, &params).unwrap());
            }
        }
    }
    calls
}

#[test]
fn every_call_of_every_operator_and_layout_is_accepted() {
    let (device, log) = fake::open(Defect::None, 0);
    let mut accepted = 0;
    for call in calls() {
        for layout in Layout::CASES {
            let caller = Caller::of(&call.plan(layout).unwrap());
            assert_ok(caller.enqueue(device, 0));
            accepted += 1;
        }
    }
    assert_eq!(log.launches().len(), accepted);
    assert!(accepted > 100);
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn every_refusal_of_the_contract_comes_back_with_its_status_and_argument() {
    let (device, log) = fake::open(Defect::None, 0);
    let mut posed = 0;
    for call in calls() {
        let valid = call.plan(Layout::Contiguous).unwrap();
        let (_, operator) = Caller::of(&valid).prepare(device);
        for refusal in call.operator.refusals(&call) {
            // A vector has no stride between rows to be too narrow; values in memory need a device.
            let vector = |name| valid.tensor(name).unwrap().layout.shape.len() == 1;
            if refusal.is_on_device()
                || matches!(refusal.mutation, Mutation::NarrowStride { tensor } if vector(tensor))
            {
                continue;
            }
            let mut plan = valid.clone();
            refusal.apply(&mut plan);
            let caller = Caller::of(&plan);
            let (name, argument) = (call.operator.name, refusal.argument);
            let status = Status::from(refusal.kind);
            assert_refused(caller.enqueue(device, 0), status, name, argument);
            assert_refused(caller.prepare(device).0, status, name, argument);
            if plan.call == valid.call {
                assert_refused(caller.launch(operator, 0), status, name, argument);
            }
            posed += 1;
        }
        assert_ok(proofhouse_operator_close(operator));
    }
    assert!(posed > 300, "{posed}");
    assert_eq!(log.launches().len(), 0);
    assert_ok(proofhouse_device_close(device));
}

/// Asserts that a changed call is refused, when it is launched and when it is prepared.
fn refuses(change: impl FnOnce(&mut Caller), status: Status, argument: &str) {
    let (device, log) = fake::open(Defect::None, 0);
    let mut caller = Caller::rms_norm(4, 64);
    change(&mut caller);
    let operator = caller.operator.to_str().unwrap_or_default().to_owned();
    assert_refused(caller.enqueue(device, 0), status, &operator, argument);
    assert_refused(caller.prepare(device).0, status, &operator, argument);
    assert!(log.launches().is_empty() && log.preparations() == 0);
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn names_that_are_not_the_contracts_are_refused() {
    refuses(|c| c.operator = c"rms_form".into(), Status::Unknown, "operator");
    refuses(|c| c.operator = c"min_p".into(), Status::NoKernel, "operator");
    refuses(|c| c.dims[0].name = c"width".as_ptr(), Status::Missing, "hidden");
    refuses(
        |c| c.dims.push(DimC { name: c"vocab".as_ptr(), ..zeroed() }),
        Status::Unknown,
        "vocab",
    );
    refuses(|c| c.dims.push(c.dims[0]), Status::Duplicate, "dims");
    refuses(
        |c| c.params.push(ParamC { name: c"top".as_ptr(), kind: 2, ..zeroed() }),
        Status::Unknown,
        "top",
    );
    let eps = ParamC { name: c"eps".as_ptr(), kind: 1, real: 1e-5, ..zeroed() };
    refuses(|c| c.params = vec![eps, eps], Status::Duplicate, "params");
}

#[test]
fn texts_that_cannot_be_names_are_refused() {
    let long = CString::new("x".repeat(64)).unwrap();
    refuses(|c| c.dims[1].name = c"\xff\xfe".as_ptr(), Status::BadText, "dims[1].name");
    refuses(|c| c.dims[1].name = long.as_ptr(), Status::BadText, "dims[1].name");
    refuses(|c| c.dims[0].name = null(), Status::NullArgument, "dims[0].name");
    let (device, _) = fake::open(Defect::None, 0);
    let caller = Caller::rms_norm(4, 64);
    let unnamed = CallC { operator_name: null(), ..caller.call() };
    assert_refused(enqueue(device, &unnamed, 0), Status::NullArgument, "", "operator_name");
    let unnamed = CallC { operator_name: long.as_ptr(), ..caller.call() };
    assert_refused(enqueue(device, &unnamed, 0), Status::BadText, "", "operator_name");
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn numbers_that_stand_for_nothing_are_refused() {
    refuses(|c| c.dtype = 0, Status::UnknownValue, "dtype");
    refuses(|c| c.dtype = 99, Status::UnknownValue, "dtype");
    refuses(|c| c.dtype = number(Dtype::I64), Status::Unsupported, "dtype");
    refuses(|c| c.tensors[1].dtype = 8, Status::UnknownValue, "w");
    let param = ParamC { name: c"eps".as_ptr(), kind: 1, real: 1e-5, ..zeroed() };
    refuses(|c| c.params = vec![ParamC { kind: 0, ..param }], Status::UnknownValue, "eps");
    refuses(
        |c| c.params = vec![ParamC { kind: 3, integer: 2, ..param }],
        Status::UnknownValue,
        "eps",
    );
    refuses(|c| c.params = vec![ParamC { real: f64::NAN, ..param }], Status::NotFinite, "eps");
    refuses(|c| c.params = vec![ParamC { real: 0.0, ..param }], Status::OutOfRange, "eps");
    refuses(|c| c.params = vec![ParamC { kind: 2, ..param }], Status::DtypeMismatch, "eps");
}

#[test]
fn reserved_fields_that_are_not_zero_are_refused() {
    refuses(|c| c.dims[1].reserved = 1, Status::UnknownValue, "dims[1].reserved");
    refuses(|c| c.tensors[2].reserved = 1, Status::UnknownValue, "tensors[2].reserved");
    let (device, _) = fake::open(Defect::None, 0);
    let caller = Caller::rms_norm(4, 64);
    let call = CallC { reserved: 7, ..caller.call() };
    assert_refused(enqueue(device, &call, 0), Status::UnknownValue, "rms_norm", "call.reserved");
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn tensors_that_lie_as_rows_cannot_are_refused() {
    refuses(|c| c.tensors[0].rank = 0, Status::BadRank, "x");
    refuses(|c| c.tensors[0].rank = 5, Status::BadRank, "x");
    refuses(|c| c.tensors[1].strides[0] = -1, Status::NegativeStride, "w");
    refuses(|c| c.tensors[0].strides[0] = -64, Status::NegativeStride, "x");
    refuses(|c| c.tensors[0].strides = [1, 4, 0, 0], Status::BadStride, "x");
    refuses(|c| c.tensors[2].strides[0] = 0, Status::BadStride, "y");
    // The right number of elements is not the right shape.
    let three = |c: &mut Caller| {
        c.tensors[0].rank = 3;
        c.tensors[0].shape = [2, 2, 64, 0];
        c.tensors[0].strides = [128, 64, 1, 0];
    };
    refuses(three, Status::LengthMismatch, "x");
    let uneven = |c: &mut Caller| {
        three(c);
        c.tensors[0].strides[0] = 256;
    };
    refuses(uneven, Status::BadStride, "x");
}

#[test]
fn tensors_that_reach_past_their_span_are_refused_to_the_byte() {
    refuses(|c| c.tensors[0].span_bytes -= 1, Status::StorageTooShort, "x");
    refuses(|c| c.tensors[0].strides[0] = 65, Status::StorageTooShort, "x");
    refuses(|c| c.tensors[1].span_bytes = 0, Status::StorageTooShort, "w");
    refuses(|c| c.tensors[0].span_bytes = u64::MAX, Status::Overflow, "x");
    refuses(|c| c.tensors[0].strides[0] = i64::MAX, Status::Overflow, "x");
    refuses(|c| c.tensors[0].address += 1, Status::Misaligned, "x");
    refuses(|c| c.tensors[0].address = 0, Status::NullPointer, "x");
    refuses(|c| c.tensors[2].address = c.tensors[0].address + 510, Status::Overlap, "y");
    // The last byte that is needed is enough, and the next tensor may begin behind it.
    let (device, log) = fake::open(Defect::None, 0);
    let mut caller = Caller::rms_norm(4, 64);
    caller.tensors[0].span_bytes = 4 * 64 * 2;
    caller.tensors[2].address = caller.tensors[0].address + caller.tensors[0].span_bytes;
    assert_ok(caller.enqueue(device, 0));
    assert_eq!(log.launches().len(), 1);
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn another_number_of_tensors_is_refused() {
    refuses(|c| c.tensors.truncate(2), Status::Missing, "y");
    refuses(|c| c.tensors.push(c.tensors[0]), Status::Unknown, "operands");
    refuses(|c| c.tensors = vec![c.tensors[0]; 17], Status::TooMany, "tensors");
    refuses(|c| c.dims = vec![c.dims[0]; 17], Status::TooMany, "dims");
    let (device, _) = fake::open(Defect::None, 0);
    let caller = Caller::rms_norm(4, 64);
    let call = CallC { tensors: null(), ..caller.call() };
    assert_refused(enqueue(device, &call, 0), Status::NullArgument, "rms_norm", "tensors");
    let call = CallC { dims: null(), ..caller.call() };
    assert_refused(enqueue(device, &call, 0), Status::NullArgument, "rms_norm", "dims");
    // None is too few for a launch, and means made-up ones for a preparation.
    let call = CallC { tensor_count: 0, ..caller.call() };
    assert_refused(enqueue(device, &call, 0), Status::Missing, "rms_norm", "x");
    let (status, operator) = prepare(device, &call);
    assert_ok(status);
    assert_ok(caller.launch(operator, 0));
    assert_ok(proofhouse_operator_close(operator));
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn structs_of_another_size_are_refused_wherever_they_stand() {
    for size in [0, 1, size_of::<CallC>() as u32 - 8, size_of::<CallC>() as u32 + 8, u32::MAX] {
        let (device, _) = fake::open(Defect::None, 0);
        let caller = Caller::rms_norm(4, 64);
        let call = CallC { size, ..caller.call() };
        assert_refused(enqueue(device, &call, 0), Status::WrongSize, "", "call");
        assert_ok(proofhouse_device_close(device));
    }
    let other = |size: u32| size + 8;
    refuses(|c| c.dims[0].size = other(c.dims[0].size), Status::WrongSize, "dims");
    refuses(|c| c.tensors[2].size = other(c.tensors[2].size), Status::WrongSize, "tensors[2]");
    let eps = ParamC { size: 8, name: c"eps".as_ptr(), kind: 1, real: 1e-5, integer: 0 };
    refuses(|c| c.params = vec![eps], Status::WrongSize, "params");
}

#[test]
fn structs_to_write_to_are_refused_in_another_size_and_left_alone() {
    let (device, _) = fake::open(Defect::None, 0);
    let mut counters = CountersC { size: 8, launches: 77, ..zeroed() };
    let mut description = DeviceC { size: 8, multiprocessors: 77, ..zeroed() };
    let mut error = ErrorC { size: 8, row: 77, ..zeroed() };
    let options = OpenOptionsC { size: 8, ..zeroed() };
    let mut opened = made_up::<DeviceHandle>();
    // SAFETY: every struct is as large as its type, whatever it says, and writable.
    unsafe {
        let status = proofhouse_counters(device, null(), &raw mut counters);
        assert_refused(status, Status::WrongSize, "", "counters");
        let status = proofhouse_device_describe(device, &raw mut description);
        assert_refused(status, Status::WrongSize, "", "description");
        assert_eq!(proofhouse_last_error(&raw mut error), Status::WrongSize as i32);
        let status = proofhouse_device_open(&raw const options, &raw mut opened);
        assert_refused(status, Status::WrongSize, "", "options");
    }
    assert_eq!((counters.launches, description.multiprocessors, error.row), (77, 77, 77));
    assert!(opened.is_null());
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn null_is_refused_wherever_something_is_needed() {
    let (device, _) = fake::open(Defect::None, 0);
    let caller = Caller::rms_norm(4, 64);
    let (_, operator) = caller.prepare(device);
    assert_refused(enqueue(device, null(), 0), Status::NullArgument, "", "call");
    assert_refused(enqueue(nothing(), &caller.call(), 0), Status::NullArgument, "", "device");
    assert_refused(caller.launch(nothing(), 0), Status::NullArgument, "", "prepared");
    assert_refused(proofhouse_device_close(nothing()), Status::NullArgument, "", "device");
    assert_refused(proofhouse_operator_close(nothing()), Status::NullArgument, "", "prepared");
    assert_refused(proofhouse_cache_clear(nothing()), Status::NullArgument, "", "device");
    assert_refused(proofhouse_counters_reset(nothing()), Status::NullArgument, "", "device");
    // SAFETY: null is refused, and everything else is there.
    unsafe {
        let status = proofhouse_operator_check(operator, null(), 3, null_mut());
        assert_refused(status, Status::NullArgument, "rms_norm", "tensors");
        assert_refused(proofhouse_device_count(null_mut()), Status::NullArgument, "", "count");
        let status = proofhouse_device_open(null(), null_mut());
        assert_refused(status, Status::NullArgument, "", "device");
        let mut opened = made_up::<DeviceHandle>();
        let status = proofhouse_device_open(null(), &raw mut opened);
        assert_refused(status, Status::NullArgument, "", "options");
        assert!(opened.is_null());
        let status = proofhouse_device_describe(device, null_mut());
        assert_refused(status, Status::NullArgument, "", "description");
        let status = proofhouse_counters(device, null(), null_mut());
        assert_refused(status, Status::NullArgument, "", "counters");
        let status = proofhouse_operator_kernel_count(operator, null_mut());
        assert_refused(status, Status::NullArgument, "", "count");
        let status = proofhouse_operator_kernel_name(operator, 0, null_mut(), 0, null_mut());
        assert_refused(status, Status::NoRoom, "", "out");
        assert_eq!(proofhouse_last_error(null_mut()), Status::NullArgument as i32);
        assert_eq!(last().status, Status::NoRoom as i32, "the last error stays as it is");
    }
    assert_ok(proofhouse_operator_close(operator));
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn misaligned_pointers_are_refused_and_not_read() {
    let (device, _) = fake::open(Defect::None, 0);
    let caller = Caller::rms_norm(4, 64);
    let aside = |pointer: *const CallC| pointer.wrapping_byte_add(4);
    let status = enqueue(device, aside(&caller.call()), 0);
    assert_refused(status, Status::MisalignedArgument, "", "call");
    let tensors = caller.tensors.as_ptr().wrapping_byte_add(1);
    let call = CallC { tensors, ..caller.call() };
    assert_refused(enqueue(device, &call, 0), Status::MisalignedArgument, "rms_norm", "tensors");
    let dims = caller.dims.as_ptr().wrapping_byte_add(2);
    let call = CallC { dims, ..caller.call() };
    assert_refused(enqueue(device, &call, 0), Status::MisalignedArgument, "rms_norm", "dims");
    let mut error = zeroed::<ErrorC>();
    let mut count = [0u32; 2];
    // SAFETY: misaligned pointers are refused before they are used.
    unsafe {
        let pointer = (&raw mut error).wrapping_byte_add(4);
        assert_eq!(proofhouse_last_error(pointer), Status::MisalignedArgument as i32);
        let pointer = count.as_mut_ptr().wrapping_byte_add(1);
        assert_refused(proofhouse_device_count(pointer), Status::MisalignedArgument, "", "count");
    }
    assert_eq!(count, [0, 0]);
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn handles_that_are_closed_made_up_or_of_another_kind_are_refused() {
    let (device, _) = fake::open(Defect::None, 0);
    let caller = Caller::rms_norm(4, 64);
    let (_, operator) = caller.prepare(device);
    assert_refused(enqueue(made_up(), &caller.call(), 0), Status::BadHandle, "", "device");
    assert_refused(enqueue(operator.cast(), &caller.call(), 0), Status::BadHandle, "", "device");
    assert_refused(caller.launch(device.cast(), 0), Status::BadHandle, "", "prepared");
    assert_ok(proofhouse_device_close(device));
    assert_refused(proofhouse_device_close(device), Status::BadHandle, "", "device");
    assert_refused(caller.enqueue(device, 0), Status::BadHandle, "", "device");
    assert_ok(caller.launch(operator, 0));
    assert_ok(proofhouse_operator_close(operator));
    assert_refused(proofhouse_operator_close(operator), Status::BadHandle, "", "prepared");
    assert_refused(caller.launch(operator, 0), Status::BadHandle, "", "prepared");
}

#[test]
fn options_that_mean_nothing_are_refused_before_a_device_is_looked_for() {
    let open = |options: OpenOptionsC| {
        let mut opened = made_up::<DeviceHandle>();
        // SAFETY: the options are there, and the handle is writable.
        let status = unsafe { proofhouse_device_open(&raw const options, &raw mut opened) };
        assert!(opened.is_null());
        status
    };
    let options = OpenOptionsC { most_cached: 4097, ..zeroed() };
    assert_refused(open(options), Status::OutOfRange, "", "most_cached");
    let options = OpenOptionsC { reserved: 1, ..zeroed() };
    assert_refused(open(options), Status::UnknownValue, "", "options.reserved");
    let long = CString::new("G".repeat(64)).unwrap();
    let options = OpenOptionsC { uuid: long.as_ptr(), ..zeroed() };
    assert_refused(open(options), Status::BadText, "", "uuid");
    let long = CString::new("f".repeat(4096)).unwrap();
    let options = OpenOptionsC { nvrtc_folder: long.as_ptr(), ..zeroed() };
    assert_refused(open(options), Status::BadText, "", "nvrtc_folder");
    let folder = c"\xff";
    let options = OpenOptionsC { kernel_folder: folder.as_ptr(), ..zeroed() };
    assert_refused(open(options), Status::BadText, "", "kernel_folder");
}

#[test]
fn a_text_that_does_not_fit_is_cut_between_characters_and_its_size_is_told() {
    let (device, _) = fake::open(Defect::None, 0);
    let mut caller = Caller::rms_norm(4, 64);
    caller.operator = CString::new("\u{e9}".repeat(20)).unwrap();
    assert_refused(caller.enqueue(device, 0), Status::Unknown, &"\u{e9}".repeat(20), "operator");
    let whole = last().text;
    let mut needed = 0;
    // SAFETY: every buffer has the room that is told.
    unsafe {
        let status = proofhouse_last_error_text(null_mut(), 0, &raw mut needed);
        assert_eq!((status, needed), (Status::NoRoom as i32, whole.len() + 1));
        let mut room = vec![0x55 as c_char; needed + 8];
        let status = proofhouse_last_error_text(room.as_mut_ptr(), needed, null_mut());
        assert_eq!(status, 0);
        assert_eq!(CStr::from_ptr(room.as_ptr()).to_str().unwrap(), whole);
        assert!(room[needed..].iter().all(|byte| *byte == 0x55));
        // The text begins with characters of two bytes: three bytes of room hold one and the zero.
        let mut small = [0x55 as c_char; 8];
        let status = proofhouse_last_error_text(small.as_mut_ptr(), 4, null_mut());
        assert_eq!(status, Status::NoRoom as i32);
        assert_eq!(CStr::from_ptr(small.as_ptr()).to_str().unwrap(), "\u{e9}");
        assert!(small[4..].iter().all(|byte| *byte == 0x55));
    }
    assert_eq!(last().text, whole, "asking does not change it");
    assert_ok(proofhouse_device_close(device));
}
