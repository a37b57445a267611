//! Without a driver or a compiler there are typed errors, which say what is missing and where it would be found.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use proofhouse_contract::{Call, Dtype};
use proofhouse_cuda::{
    Arch, Build, CallersContext, CudaError, Runtime, Target, Toolchain, compile_all,
};

fn missing_folder() -> Toolchain {
    Toolchain { nvrtc: Some(PathBuf::from("no/such/folder")) }
}

/// The error of a library that is not there; a machine that has it gives another outcome.
fn assert_teaches(error: &CudaError, name: &str, place: &str) {
    let CudaError::LibraryMissing { library, accepted } = error else {
        panic!("{error}");
    };
    assert_eq!(*library, name);
    assert!(accepted.contains(place) && error.to_string().contains(accepted), "{error}");
}

#[test]
fn a_device_is_opened_or_the_error_says_what_is_missing() {
    match Runtime::device_count() {
        // There is a driver, and so a number that no device has.
        Ok(devices) => match Runtime::open(devices, &Toolchain::default(), None) {
            Err(CudaError::NoDevice { ordinal, devices: found }) => {
                assert_eq!((ordinal, found), (devices, devices));
            }
            Err(error) => assert_teaches(&error, "libnvrtc", "libnvrtc.so.13"),
            Ok(_) => panic!("device {devices} of {devices} was opened"),
        },
        Err(CudaError::Driver { call, .. }) => assert_eq!(call, "cuInit"),
        Err(error) => {
            assert_teaches(&error, "libcuda", "libcuda.so.1");
            let error = Runtime::open(0, &missing_folder(), None).unwrap_err();
            assert_teaches(&error, "libcuda", "libcuda.so.1");
        }
    }
}

#[test]
fn kernels_are_compiled_or_the_error_names_the_folder_without_a_compiler() {
    let call = Call::new("rms_norm", Dtype::F16, &[("rows", 1), ("hidden", 64)], &[]).unwrap();
    let builds = [Build { call, tuning: None, aligned: true }];
    let arch = Arch::new(9, 0).unwrap();
    let target = Target { arch, multiprocessors: 132, l2_bytes: 50 << 20 };
    match compile_all(&missing_folder(), None, target, &builds) {
        // The loader knows a compiler of its own.
        Ok(reports) => assert_eq!(reports.len(), 1),
        Err(error) => assert_teaches(&error, "libnvrtc", "no/such/folder"),
    }
}

#[test]
fn a_device_that_is_not_there_is_not_found_and_the_error_names_those_that_are() {
    let _kept = CallersContext::keep();
    match Runtime::find("GPU-none") {
        Err(CudaError::UnknownDevice { uuid, accepted }) => {
            assert_eq!(uuid, "GPU-none");
            assert!(accepted == "none" || accepted.starts_with("GPU-"), "{accepted}");
        }
        Err(CudaError::Driver { call, .. }) => assert_eq!(call, "cuInit"),
        Err(error) => assert_teaches(&error, "libcuda", "libcuda.so.1"),
        Ok(ordinal) => panic!("device {ordinal} has no identity of that kind"),
    }
}
