//! What calls through the C interface do: launches, counters, the cache, captures, panics, and the last error of a thread.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unsafe_code, reason = "the C interface is called")]
#![allow(dead_code, reason = "the caller and the device are shared with other tests")]

mod caller;
mod fake;

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Barrier;

use caller::{Caller, assert_ok, assert_refused, counters, last, text_of, zeroed};
use fake::Defect;
use proofhouse_bridge::ffi::{
    proofhouse_cache_clear, proofhouse_counters_reset, proofhouse_device_close,
    proofhouse_device_count, proofhouse_device_describe, proofhouse_device_open,
    proofhouse_operator_check, proofhouse_operator_close, proofhouse_operator_kernel_count,
    proofhouse_operator_kernel_name, proofhouse_status_name,
};
use proofhouse_bridge::layout::{DeviceC, DeviceHandle, OpenOptionsC, OperatorHandle};
use proofhouse_bridge::status::Status;
use proofhouse_contract::{Call, Dtype, Layout};

fn greedy(rows: u64) -> Caller {
    let dims = [("rows", rows), ("vocab", 1024)];
    let call = Call::new("greedy_logprob", Dtype::F32, &dims, &[]).unwrap();
    Caller::of(&call.plan(Layout::Contiguous).unwrap())
}

fn check(caller: &Caller, operator: *mut OperatorHandle) -> i32 {
    let count = caller.tensors.len() as u32;
    // SAFETY: the tensors are there; there is no device that would touch their memory.
    unsafe { proofhouse_operator_check(operator, caller.tensors.as_ptr(), count, null_mut()) }
}

#[test]
fn a_launch_reaches_the_device_with_its_stream_and_addresses_in_calling_order() {
    let (device, log) = fake::open(Defect::None, 0);
    let mut caller = Caller::rms_norm(4, 64);
    let (status, operator) = caller.prepare(device);
    assert_ok(status);
    assert_ok(caller.launch(operator, 0x70));
    // Other addresses and a gap between rows are another launch of the same operator.
    caller.tensors[0].address = 1 << 40;
    caller.tensors[0].strides[0] = 72;
    caller.tensors[0].span_bytes = 4 * 72 * 2;
    assert_ok(caller.launch(operator, 0x80));
    assert_ok(check(&caller, operator));
    let launches = log.launches();
    assert_eq!(log.preparations(), 1);
    let streams: Vec<_> = launches.iter().map(|launch| launch.stream).collect();
    assert_eq!(streams, [0x70, 0x80, 0]);
    let addresses: Vec<_> = caller.tensors.iter().map(|tensor| tensor.address).collect();
    assert_eq!(launches[1].addresses, addresses);
    assert_ok(proofhouse_operator_close(operator));
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn counters_count_apart_by_operator_and_can_be_reset() {
    let (device, _) = fake::open(Defect::None, 0);
    let (norm, greedy) = (Caller::rms_norm(4, 64), greedy(2));
    for _ in 0..3 {
        assert_ok(norm.enqueue(device, 0));
    }
    assert_ok(greedy.enqueue(device, 0));
    let mut short = Caller::rms_norm(4, 64);
    short.tensors[0].span_bytes -= 1;
    assert_refused(short.enqueue(device, 0), Status::StorageTooShort, "rms_norm", "x");
    let mut unknown = Caller::rms_norm(4, 64);
    unknown.operator = c"softmax".into();
    assert_refused(unknown.enqueue(device, 0), Status::Unknown, "softmax", "operator");

    let of_norm = counters(device, Some(c"rms_norm"));
    assert_eq!((of_norm.launches, of_norm.refusals, of_norm.failures), (3, 1, 0));
    assert_eq!((of_norm.preparations, of_norm.cache_hits, of_norm.evictions), (1, 2 + 1, 0));
    let of_greedy = counters(device, Some(c"greedy_logprob"));
    assert_eq!((of_greedy.launches, of_greedy.refusals, of_greedy.preparations), (1, 0, 1));
    let all = counters(device, None);
    assert_eq!((all.launches, all.refusals, all.preparations), (4, 2, 2));

    let (other, _) = fake::open(Defect::None, 0);
    assert_eq!(counters(other, None).launches, 0, "every device counts by itself");
    assert_ok(proofhouse_counters_reset(device));
    let all = counters(device, None);
    assert_eq!((all.launches, all.refusals, all.preparations, all.cache_hits), (0, 0, 0, 0));
    assert_ok(proofhouse_device_close(device));
    assert_ok(proofhouse_device_close(other));
}

#[test]
fn a_call_without_rows_launches_nothing_and_counts_nothing() {
    let (device, _) = fake::open(Defect::None, 0);
    let caller = Caller::rms_norm(0, 64);
    assert_ok(caller.enqueue(device, 0));
    let (status, operator) = caller.prepare(device);
    assert_ok(status);
    let mut count = 77;
    // SAFETY: the number is writable.
    assert_ok(unsafe { proofhouse_operator_kernel_count(operator, &raw mut count) });
    assert_eq!((count, counters(device, None).launches), (0, 0));
    assert_ok(proofhouse_operator_close(operator));
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn an_operator_names_the_kernels_that_a_graphs_nodes_will_have() {
    let (device, _) = fake::open(Defect::None, 0);
    let (_, operator) = Caller::rms_norm(4, 64).prepare(device);
    let (mut count, mut needed, mut name) = (0, 0, [0x55 as c_char; 16]);
    // SAFETY: everything is writable and has the room that is told.
    unsafe {
        assert_ok(proofhouse_operator_kernel_count(operator, &raw mut count));
        let out = name.as_mut_ptr();
        assert_ok(proofhouse_operator_kernel_name(operator, 0, out, 16, &raw mut needed));
        assert_eq!((count, needed, text_of(&name).as_str()), (1, 9, "rms_norm"));
        let status = proofhouse_operator_kernel_name(operator, 1, out, 16, null_mut());
        assert_refused(status, Status::OutOfRange, "", "index");
        let status = proofhouse_operator_kernel_name(operator, 0, out, 4, &raw mut needed);
        assert_refused(status, Status::NoRoom, "", "out");
        assert_eq!((needed, text_of(&name).as_str()), (9, "rms"));
    }
    assert_ok(proofhouse_operator_close(operator));
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn the_cache_is_bounded_and_what_was_used_the_longest_ago_leaves() {
    let (device, log) = fake::open(Defect::None, 3);
    let of_rows = |rows| Caller::rms_norm(rows, 64).enqueue(device, 0);
    for rows in [1, 2, 3, 1, 4] {
        assert_ok(of_rows(rows));
    }
    // 1 was used again, so 2 has left for 4.
    assert_eq!((log.preparations(), counters(device, None).evictions), (4, 1));
    for rows in [1, 3, 4] {
        assert_ok(of_rows(rows));
    }
    assert_eq!(log.preparations(), 4);
    assert_ok(of_rows(2));
    assert_eq!((log.preparations(), counters(device, None).evictions), (5, 2));
    for rows in 0..200 {
        assert_ok(of_rows(rows));
    }
    // What is not there has left: three are there.
    let all = counters(device, None);
    assert_eq!(all.preparations - all.evictions, 3);
    assert_ok(proofhouse_cache_clear(device));
    let before = log.preparations();
    assert_ok(of_rows(199));
    assert_eq!(log.preparations(), before + 1);
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn calls_that_differ_in_anything_but_addresses_have_operators_of_their_own() {
    let (device, log) = fake::open(Defect::None, 0);
    let mut calls =
        vec![Caller::rms_norm(4, 64), Caller::rms_norm(4, 128), Caller::rms_norm(5, 64)];
    let dims = [("rows", 4), ("hidden", 64)];
    for (operator, dtype, eps) in [
        ("rms_norm", Dtype::BF16, None),
        ("rms_norm", Dtype::F16, Some(1e-5)),
        ("add_rms_norm", Dtype::F16, None),
    ] {
        let params: Vec<_> = eps
            .map(|eps| ("eps", proofhouse_contract::ParamValue::Float(eps)))
            .into_iter()
            .collect();
        let call = Call::new(operator, dtype, &dims, &params).unwrap();
        calls.push(Caller::of(&call.plan(Layout::Contiguous).unwrap()));
    }
    for _ in 0..2 {
        for call in &calls {
            for stream in [0, 0x70] {
                assert_ok(call.enqueue(device, stream));
            }
        }
    }
    assert_eq!(log.preparations(), 2 * calls.len());
    // A default that is written out is the same call.
    let default = proofhouse_contract::find_operator("rms_norm").unwrap().param("eps").unwrap();
    let call = Call::new("rms_norm", Dtype::F16, &dims, &[("eps", default.default)]).unwrap();
    assert_ok(Caller::of(&call.plan(Layout::Offset { elements: 3 }).unwrap()).enqueue(device, 0));
    assert_eq!(log.preparations(), 2 * calls.len());
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn a_capture_uses_what_was_prepared_before_and_keeps_it_for_its_graph() {
    let (device, log) = fake::open(Defect::None, 2);
    let (norm, other) = (Caller::rms_norm(4, 64), Caller::rms_norm(5, 64));
    log.captured.lock().unwrap().insert(0x70);
    assert_refused(norm.enqueue(device, 0x70), Status::NotPrepared, "rms_norm", "stream");
    assert_ok(norm.enqueue(device, 0));
    assert_refused(norm.enqueue(device, 0x70), Status::NotPrepared, "rms_norm", "stream");
    log.captured.lock().unwrap().clear();
    assert_ok(proofhouse_cache_clear(device));

    assert_ok(norm.enqueue(device, 0x70));
    log.captured.lock().unwrap().insert(0x70);
    assert_ok(norm.enqueue(device, 0x70));
    assert_ok(norm.enqueue(device, 0x70));
    log.captured.lock().unwrap().clear();
    let prepared: Vec<_> = log.launches()[1..].iter().map(|launch| launch.prepared).collect();
    assert_eq!(prepared, [1, 1, 1], "the same in the stream and in every capture");
    // The stream gets another, so that it does not share a workspace with the graph.
    assert_ok(norm.enqueue(device, 0x70));
    assert_eq!(log.launches().last().unwrap().prepared, 2);
    // Others come and go beside what is the graph's.
    for _ in 0..3 {
        assert_ok(other.enqueue(device, 0));
        assert_ok(norm.enqueue(device, 0));
    }
    log.captured.lock().unwrap().insert(0x70);
    assert_ok(norm.enqueue(device, 0x70));
    assert_eq!(log.launches().last().unwrap().prepared, 1);
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn a_cache_full_of_what_graphs_use_refuses_new_calls_until_it_is_cleared() {
    let (device, log) = fake::open(Defect::None, 2);
    for rows in [1, 2] {
        let caller = Caller::rms_norm(rows, 64);
        assert_ok(caller.enqueue(device, 0x70));
        log.captured.lock().unwrap().insert(0x70);
        assert_ok(caller.enqueue(device, 0x70));
        log.captured.lock().unwrap().clear();
    }
    let new = Caller::rms_norm(3, 64);
    let before = log.preparations();
    assert_refused(new.enqueue(device, 0), Status::CacheFull, "rms_norm", "most_cached");
    assert_eq!(log.preparations(), before, "nothing is prepared that cannot be kept");
    // A handle is not the cache's.
    let (status, operator) = new.prepare(device);
    assert_ok(status);
    assert_ok(new.launch(operator, 0));
    assert_ok(proofhouse_cache_clear(device));
    assert_ok(new.enqueue(device, 0));
    assert_ok(proofhouse_operator_close(operator));
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn no_panic_crosses_and_what_panicked_can_be_used_again() {
    for (defect, said) in [
        (Defect::PanicsAtPrepare, "a defect at prepare"),
        (Defect::PanicsAtLaunch, "a defect at launch"),
    ] {
        let (device, _) = fake::open(defect, 0);
        let caller = Caller::rms_norm(4, 64);
        for times in 1..=2 {
            assert_eq!(caller.enqueue(device, 0), Status::Panic as i32);
            let last = last();
            assert_eq!((last.status, last.operator.as_str()), (Status::Panic as i32, "rms_norm"));
            assert!(last.text.contains(said), "{last:?}");
            let all = counters(device, Some(c"rms_norm"));
            assert_eq!((all.launches, all.refusals, all.failures), (0, 0, times));
        }
        assert_ok(proofhouse_device_close(device));
    }
    // Neither does one outside of an operator's call.
    let (device, _) = fake::open(Defect::PanicsAtInfo, 0);
    let mut found = zeroed::<DeviceC>();
    // SAFETY: the struct is writable.
    let status = unsafe { proofhouse_device_describe(device, &raw mut found) };
    assert_eq!((status, last().status), (Status::Panic as i32, Status::Panic as i32));
    assert!(last().text.contains("a defect at info"), "{:?}", last());
    assert_eq!(found.multiprocessors, 0);
    assert_ok(Caller::rms_norm(4, 64).enqueue(device, 0));
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn a_failure_of_the_device_is_no_refusal_and_a_bad_value_names_its_row() {
    let (device, _) = fake::open(Defect::FailsAtLaunch, 0);
    assert_eq!(Caller::rms_norm(4, 64).enqueue(device, 0), Status::Driver as i32);
    let failed = last();
    assert!(failed.text.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{failed:?}");
    assert_eq!((failed.operator.as_str(), failed.row), ("rms_norm", -1));
    let all = counters(device, None);
    assert_eq!((all.launches, all.refusals, all.failures), (0, 0, 1));
    assert_ok(proofhouse_device_close(device));

    let (device, _) = fake::open(Defect::BadValue, 0);
    let caller = greedy(8);
    let (_, operator) = caller.prepare(device);
    assert_refused(check(&caller, operator), Status::NotFinite, "greedy_logprob", "logits");
    assert_eq!(last().row, 3);
    let all = counters(device, None);
    assert_eq!((all.launches, all.refusals), (1, 1), "it was launched, and refused");
    assert_ok(proofhouse_operator_close(operator));
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn the_last_error_is_each_threads_own_and_a_call_that_works_ends_it() {
    let (device, _) = fake::open(Defect::None, 0);
    let (device, barrier) = (device.addr(), Barrier::new(2));
    // Whatever comes back is looked at afterwards: a thread that ended early would leave the other one waiting.
    let fails = |dtype: u32| {
        let device: *mut DeviceHandle = without_provenance_mut(device);
        let mut caller = Caller::rms_norm(4, 64);
        caller.tensors[0].dtype = dtype;
        let mut found = Vec::new();
        for _ in 0..100 {
            let status = caller.enqueue(device, 0);
            barrier.wait();
            // The other thread has failed in its own way meanwhile.
            found.push((status, last().status));
            barrier.wait();
        }
        assert_ok(Caller::rms_norm(4, 64).enqueue(device, 0));
        found
    };
    let (unknown, other) = std::thread::scope(|scope| {
        let (unknown, other) = (scope.spawn(|| fails(99)), scope.spawn(|| fails(1)));
        (unknown.join().unwrap(), other.join().unwrap())
    });
    for (found, status) in [(unknown, Status::UnknownValue), (other, Status::DtypeMismatch)] {
        assert_eq!(found, [(status as i32, status as i32); 100]);
    }
    assert_eq!(last().status, 0, "nothing went wrong on this thread");
    assert_eq!(counters(without_provenance_mut(device), None).refusals, 200);
    assert_ok(proofhouse_device_close(without_provenance_mut(device)));
}

#[test]
fn threads_share_a_device_and_every_launch_is_counted_once() {
    let (device, log) = fake::open(Defect::None, 4);
    let device = device.addr();
    std::thread::scope(|scope| {
        for stream in 0..4 {
            scope.spawn(move || {
                for turn in 0..100 {
                    let caller = Caller::rms_norm(1 + turn % 3, 64);
                    assert_ok(caller.enqueue(without_provenance_mut(device), stream));
                }
            });
        }
    });
    let all = counters(without_provenance_mut(device), None);
    assert_eq!((all.launches, log.launches().len()), (400, 400));
    assert_eq!(all.preparations + all.cache_hits, 400);
    assert!(all.preparations - all.evictions <= 4);
    // No two streams were ever given the same operator.
    let pairs: BTreeSet<_> =
        log.launches().iter().map(|launch| (launch.prepared, launch.stream)).collect();
    let prepared: BTreeSet<_> = pairs.iter().map(|(prepared, _)| prepared).collect();
    assert_eq!(pairs.len(), prepared.len());
    assert_ok(proofhouse_device_close(without_provenance_mut(device)));
}

#[test]
fn the_default_stream_of_a_thread_is_another_one_on_every_thread() {
    const PER_THREAD: usize = 2;
    let (device, log) = fake::open(Defect::None, 0);
    let device = device.addr();
    for _ in 0..2 {
        assert_ok(Caller::rms_norm(4, 64).enqueue(without_provenance_mut(device), PER_THREAD));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let device = without_provenance_mut(device);
            assert_ok(Caller::rms_norm(4, 64).enqueue(device, PER_THREAD));
        });
    });
    let prepared: Vec<_> = log.launches().iter().map(|launch| launch.prepared).collect();
    assert_eq!(prepared, [0, 0, 1]);
    assert_ok(proofhouse_device_close(without_provenance_mut(device)));
}

#[test]
fn a_device_describes_itself() {
    let (device, _) = fake::open(Defect::None, 0);
    let mut found = zeroed::<DeviceC>();
    // SAFETY: the struct is writable.
    assert_ok(unsafe { proofhouse_device_describe(device, &raw mut found) });
    assert_eq!((found.compute_major, found.compute_minor, found.multiprocessors), (9, 0, 132));
    assert_eq!(text_of(&found.uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    assert_ok(proofhouse_device_close(device));
}

#[test]
fn a_device_that_is_not_there_is_a_typed_status() {
    let mut count = 77;
    // SAFETY: the number is writable.
    let status = unsafe { proofhouse_device_count(&raw mut count) };
    let options = [
        OpenOptionsC { ordinal: if status == 0 { count } else { 0 }, ..zeroed() },
        OpenOptionsC { uuid: c"GPU-none".as_ptr(), ..zeroed() },
    ];
    if status != 0 {
        assert_eq!(count, 0);
    }
    for options in options {
        let mut opened: *mut DeviceHandle = caller::made_up();
        // SAFETY: the options are there, and the handle is writable.
        let status = unsafe { proofhouse_device_open(&raw const options, &raw mut opened) };
        assert!(opened.is_null());
        // Where there is no driver, or none that starts, no device can be looked for.
        let accepted = [Status::LibraryMissing, Status::Driver, Status::NoDevice];
        assert!(accepted.iter().any(|known| *known as i32 == status), "{:?}", last());
        assert_eq!(last().status, status);
        assert!(!last().text.is_empty());
    }
}

#[test]
fn every_status_has_a_name_in_c() {
    let name = |status| {
        // SAFETY: the text is a constant with a closing zero.
        unsafe { CStr::from_ptr(proofhouse_status_name(status)) }.to_str().unwrap()
    };
    assert_eq!(name(0), "ok");
    assert_eq!(name(Status::StorageTooShort as i32), "storage_too_short");
    assert_eq!(name(-5), "no_such_status");
}
