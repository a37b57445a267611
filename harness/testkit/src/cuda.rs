//! The defects on a GPU. Each is played by `harness/testkit/cuda/worker.py --defect NAME` on a GPU, and by the fake worker,
//! which says what such a worker would say, on a machine without one.

use proofhouse_schema::gate::GateKind::{Baseline, Correctness, Graph};
use proofhouse_schema::verdict::Verdict::{Errored, Fail, Invalid, Unsupported};

use crate::defects::{Defect, bad, honest};

/// What the checker says of outputs that were not written, or are those of other inputs.
const WRONG: &[&str] = &["unwritten", "out-of-tolerance", "class-mismatch"];

/// Every defect and control on a GPU. A name that stands twice is seen by gates of two kinds, or under two ways to launch.
pub const CUDA_DEFECTS: &[Defect] = &[
    // Honest controls.
    honest("none", "P23", Correctness, "nothing is wrong"),
    honest("none", "P8", Graph, "nothing is wrong"),
    honest("none", "P16", Baseline, "nothing is wrong").graph(),
    honest("none", "P16", Baseline, "nothing is wrong"),
    honest(
        "clocks-patched",
        "P35",
        Baseline,
        "replaces Python's clocks and PyTorch's events, from which no sample comes",
    )
    .graph(),
    // The device and the process.
    bad(
        "illegal-access",
        "P37",
        Correctness,
        &[Errored],
        "writes to memory that was freed; whoever comes next is not to suffer",
    )
    .for_one_of(&["exited"])
    .followed(),
    bad("device-assert", "P37", Correctness, &[Errored], "fails an assertion in a kernel")
        .for_one_of(&["exited"])
        .followed(),
    bad("hung-kernel", "P38", Correctness, &[Errored], "enqueues a kernel that never ends")
        .for_one_of(&["timeout"])
        .followed(),
    bad(
        "device-index-swap",
        "P20",
        Correctness,
        &[Errored],
        "opens another device than the one it was given",
    )
    .for_one_of(&["protocol"]),
    bad(
        "foreign-process",
        "P19",
        Baseline,
        &[Invalid],
        "is honest, beside a process of somebody else",
    )
    .graph()
    .for_one_of(&["foreign-process"])
    .beside_a_neighbor(),
    // The outputs.
    bad("unwritten-tail", "P31", Correctness, &[Fail], "leaves the last element")
        .for_one_of(&["unwritten"]),
    bad("out-of-bounds-write", "P32", Correctness, &[Fail], "writes behind its output")
        .for_one_of(&["guard-overwritten"]),
    bad("mutates-input", "P33", Correctness, &[Fail], "changes its input")
        .for_one_of(&["input-changed"]),
    bad("memo-by-pointer", "P34", Correctness, &[Fail], "remembers results by address")
        .for_one_of(WRONG),
    bad("memo-by-shape", "P34", Correctness, &[Fail], "remembers results by shape")
        .for_one_of(WRONG),
    // Graphs.
    bad("empty-graph", "P6", Graph, &[Fail, Invalid], "captures nothing")
        .for_one_of(&["no-kernel-nodes"]),
    bad("stale-graph-inputs", "P8", Graph, &[Fail], "captures a copy of earlier inputs")
        .for_one_of(WRONG),
    bad("stream-escape", "P5", Graph, &[Fail], "works on a stream that is not captured")
        .for_one_of(WRONG),
    bad("silent-fallback", "P40", Graph, &[Fail, Invalid], "runs other kernels than it promised")
        .for_one_of(&["silent-fallback"]),
    bad("reads-back", "P7", Graph, &[Unsupported], "looks at a value on the host")
        .for_one_of(&["capture-unsupported"]),
    // Time.
    bad("empty-graph", "P6", Baseline, &[Invalid], "captures nothing")
        .graph()
        .for_one_of(&["no-kernels"]),
    bad("idle-when-captured", "P6", Baseline, &[Invalid], "captures a kernel of no use")
        .graph()
        .for_one_of(WRONG),
    bad("stream-escape", "P5", Baseline, &[Invalid], "works on a stream that is not captured")
        .graph()
        .for_one_of(WRONG),
    bad("stream-escape", "P5", Baseline, &[Invalid], "works on a stream that is not timed")
        .for_one_of(&["work-escaped"]),
    bad("memo-by-pointer", "P34", Baseline, &[Invalid], "captures results that it remembers")
        .graph()
        .for_one_of(WRONG),
    bad("skips-when-written", "P34", Baseline, &[Invalid], "computes only what was never written")
        .graph()
        .for_one_of(WRONG),
    // A replay runs the kernels that were captured, whatever the inputs hold; calls from the host can remember contents.
    bad("memo-by-content", "P34", Baseline, &[Fail], "is slow on contents that it has not seen")
        .for_one_of(&["cached-result"]),
    bad("one-set", "P1", Baseline, &[Invalid], "works on one buffer set where many are to rotate")
        .graph()
        .cold()
        .for_one_of(WRONG),
    bad("loads-code-on-call-n", "P9", Baseline, &[Invalid], "loads a library while it is timed")
        .for_one_of(&["code-loaded", "module-loaded"]),
    bad("jit-on-call-n", "P9", Baseline, &[Invalid], "compiles a kernel while it is timed")
        .for_one_of(&["code-loaded", "module-loaded"]),
    bad("timer-patched", "P35", Baseline, &[Invalid], "reports a fiftieth of each sample")
        .graph()
        .for_one_of(&["clock-disagrees"]),
    bad("zero-time", "P6", Baseline, &[Invalid], "reports no time at all")
        .graph()
        .for_one_of(&["bad-time", "bad-sample"]),
    bad(
        "impossible-time",
        "P36",
        Baseline,
        &[Invalid],
        "reports cold calls that are faster than memory",
    )
    .graph()
    .cold()
    .for_one_of(&["faster-than-memory"]),
    bad("silent-fallback", "P40", Baseline, &[Invalid], "runs other kernels than it promised")
        .graph()
        .for_one_of(&["silent-fallback"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What must have a fixture on a GPU, by name and pitfall.
    const REQUIRED: [(&str, &str); 19] = [
        ("stream-escape", "P5"),
        ("empty-graph", "P6"),
        ("memo-by-pointer", "P34"),
        ("memo-by-shape", "P34"),
        ("memo-by-content", "P34"),
        ("jit-on-call-n", "P9"),
        ("stale-graph-inputs", "P8"),
        ("unwritten-tail", "P31"),
        ("out-of-bounds-write", "P32"),
        ("mutates-input", "P33"),
        ("timer-patched", "P35"),
        ("clocks-patched", "P35"),
        ("silent-fallback", "P40"),
        ("impossible-time", "P36"),
        ("device-index-swap", "P20"),
        ("foreign-process", "P19"),
        ("hung-kernel", "P38"),
        ("illegal-access", "P37"),
        ("reads-back", "P7"),
    ];

    #[test]
    fn every_exploit_that_applies_to_a_gpu_has_a_row() {
        for (name, pitfall) in REQUIRED {
            let found = CUDA_DEFECTS.iter().find(|defect| defect.name == name);
            assert_eq!(found.map(|defect| defect.pitfall), Some(pitfall), "{name}");
        }
        let none: Vec<_> = CUDA_DEFECTS.iter().filter(|defect| defect.name == "none").collect();
        for kind in [Correctness, Graph, Baseline] {
            assert!(none.iter().any(|control| control.kind == kind), "{kind}");
        }
    }

    #[test]
    fn every_fault_must_be_found_for_a_reason_and_lost_devices_are_followed() {
        for defect in CUDA_DEFECTS.iter().filter(|defect| !defect.control) {
            assert!(!defect.codes.is_empty(), "{}", defect.name);
            let process = defect.expected == [Errored] && defect.pitfall != "P20";
            assert_eq!(defect.followed, process, "{}", defect.name);
        }
    }

    #[test]
    fn the_worker_on_a_gpu_plays_every_row() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda");
        let mut text = String::new();
        for module in ["worker", "outputs", "graphs", "process", "tampering"] {
            text += &std::fs::read_to_string(folder.join(format!("{module}.py"))).unwrap();
        }
        for defect in CUDA_DEFECTS {
            assert!(text.contains(&format!("\"{}\"", defect.name)), "{}", defect.name);
        }
    }
}
