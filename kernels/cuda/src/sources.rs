//! The device sources, part of the library: a machine needs NVRTC and nothing else to compile them.

use crate::sys::nvrtc::Header;

macro_rules! device_source {
    ($file:literal) => {
        include_str!(concat!("../../device/", $file))
    };
}

/// What the kernels include.
pub(crate) const HEADERS: &[Header] = &[
    ("instructions.cuh", device_source!("instructions.cuh")),
    ("element.cuh", device_source!("element.cuh")),
    ("norm.cuh", device_source!("norm.cuh")),
    ("vocabulary.cuh", device_source!("vocabulary.cuh")),
];

/// The source of an operator's kernel.
pub(crate) fn of_operator(operator: &str) -> Option<&'static str> {
    Some(match operator {
        "rms_norm" => device_source!("rms_norm.cu"),
        "add_rms_norm" => device_source!("add_rms_norm.cu"),
        "rms_norm_dynamic_fp8" => device_source!("rms_norm_dynamic_fp8.cu"),
        "silu_and_mul" => device_source!("silu_and_mul.cu"),
        "greedy_logprob" => device_source!("greedy_logprob.cu"),
        "selected_logprob_rank" => device_source!("selected_logprob_rank.cu"),
        _ => return None,
    })
}
