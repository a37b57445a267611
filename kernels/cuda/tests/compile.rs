//! Every kernel compiles for every architecture, within its budget of registers and without a spill.
//!
//! No device is needed, but NVRTC is: a missing compiler is a failure, because then nothing was shown.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use proofhouse_contract::{Call, Dtype, ParamValue, find_operator};
use proofhouse_cuda::{
    Arch, Build, CompileReport, OPERATORS, Origin, Target, Toolchain, compile_all,
};

/// Registers that a thread of an operator's kernel may have: with vectors, and with single elements.
///
/// Of normalizations and gates the first keep 24 warps or more on a multiprocessor; single elements need an address and a comparison each. Threads
/// over a vocabulary hold 32 logits, and their blocks are small.
const BUDGET: [(&str, u32, u32); 6] = [
    ("rms_norm", 64, 80),
    ("add_rms_norm", 72, 120),
    // With a residual, gains that are read ahead of the sum cost eight more and are worth them.
    ("rms_norm_dynamic_fp8", 92, 160),
    ("silu_and_mul", 48, 64),
    ("greedy_logprob", 128, 128),
    ("selected_logprob_rank", 128, 128),
];

fn toolchain() -> Toolchain {
    let folder = std::env::var_os("PROOFHOUSE_NVRTC").map(PathBuf::from);
    assert!(
        folder.as_ref().is_some_and(|folder| folder.is_dir()),
        "PROOFHOUSE_NVRTC is {folder:?}; it must be the folder of libnvrtc.so.13, as the package nvidia-cuda-nvrtc 13.0 \
         installs it under nvidia/cu13/lib; `cargo house test` installs the package and sets the variable"
    );
    Toolchain { nvrtc: folder }
}

/// Few rows and many, short rows and long ones, of all dtypes, for tensors in both kinds of places.
fn builds() -> Vec<Build> {
    let mut builds = Vec::new();
    for operator in OPERATORS {
        let spec = find_operator(operator).unwrap();
        let width = spec.dims[1].name;
        let shapes: &[(u64, u64)] = match width {
            "vocab" => &[(1, 151_936)],
            "width" => &[(1, 64), (1, 14_336), (8192, 14_336)],
            _ => &[(1, 128), (1, 4096), (8192, 4096), (8192, 8192)],
        };
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            for (rows, extent) in shapes {
                let dims = [("rows", *rows), (width, *extent)];
                let mut calls = vec![Call::new(operator, dtype, &dims, &[]).unwrap()];
                if spec.param("add-residual").is_some() {
                    let params = [("add-residual", ParamValue::Bool(true))];
                    calls.push(Call::new(operator, dtype, &dims, &params).unwrap());
                }
                for call in calls {
                    for aligned in [true, false] {
                        builds.push(Build { call: call.clone(), tuning: None, aligned });
                    }
                }
            }
        }
    }
    builds
}

fn over_budget(report: &CompileReport) -> Option<String> {
    let kernel = &report.kernel;
    let (_, vectors, elements) = BUDGET.iter().find(|(name, ..)| *name == kernel.kernel).unwrap();
    let registers = if report.variant.contains("ALIGNED=1") { vectors } else { elements };
    let spilled = kernel.spill_store_bytes + kernel.spill_load_bytes;
    (kernel.registers > *registers || spilled > 0).then(|| {
        format!(
            "{} for {}: {} registers of {registers}, {spilled} bytes spilled",
            report.variant, report.arch, kernel.registers
        )
    })
}

fn compile_for(major: u32, minor: u32) {
    let arch = Arch::new(major, minor).unwrap();
    let target = Target { arch, multiprocessors: 132, l2_bytes: 50 << 20 };
    let reports = compile_all(&toolchain(), None, target, &builds())
        .unwrap_or_else(|error| panic!("{error}"));
    for operator in OPERATORS {
        assert!(reports.iter().any(|report| report.kernel.kernel == operator), "{operator}");
    }
    assert!(reports.iter().all(|report| report.origin == Origin::Compiled && report.arch == arch));
    let over: Vec<_> = reports.iter().filter_map(over_budget).collect();
    assert!(over.is_empty(), "{} of {} kernels:\n{}", over.len(), reports.len(), over.join("\n"));
}

#[test]
fn every_kernel_is_within_its_budget_for_sm_80() {
    compile_for(8, 0);
}

#[test]
fn every_kernel_is_within_its_budget_for_sm_90() {
    compile_for(9, 0);
}

#[test]
fn every_kernel_is_within_its_budget_for_sm_100() {
    compile_for(10, 0);
}
