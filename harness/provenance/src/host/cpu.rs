//! The CPU: model, instruction sets, usable cores, governor.

use proofhouse_schema::probe::Probe;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

use super::text;

/// Instruction sets that decide which path of a kernel runs.
const FEATURES: [&str; 14] = [
    "avx2",
    "f16c",
    "fma",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512dq",
    "avx512_bf16",
    "avx512_fp16",
    "avx512_vbmi",
    "amx_bf16",
    "asimd",
    "asimdhp",
    "sve",
];

/// The CPU's brand.
pub(super) fn model() -> Probe<String> {
    let system =
        System::new_with_specifics(RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()));
    match system {
        Ok(system) => match system.cpus().first().map(|cpu| cpu.brand().trim().to_owned()) {
            Some(brand) if !brand.is_empty() => Probe::Known(brand),
            _ => Probe::Unavailable("the CPU tells no brand".to_owned()),
        },
        Err(error) => Probe::Unavailable(error.to_string()),
    }
}

/// Those of [`FEATURES`] that the CPU has.
pub(super) fn features() -> Vec<String> {
    let Probe::Known(info) = text("/proc/cpuinfo") else { return Vec::new() };
    let flags = info
        .lines()
        .find(|line| line.starts_with("flags") || line.starts_with("Features"))
        .and_then(|line| line.split_once(':'))
        .map_or("", |(_, flags)| flags);
    let has = |feature: &&str| flags.split_whitespace().any(|flag| flag == *feature);
    FEATURES.into_iter().filter(has).map(str::to_owned).collect()
}

/// Cores that this process may use.
pub(super) fn cores() -> Probe<u32> {
    Probe::from_result(std::thread::available_parallelism().map(|n| n.get() as u32))
}

/// The frequency governor of the first core, as found.
pub(super) fn governor() -> Probe<String> {
    text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
}
