//! The table of defects, and what is said of each.

use proofhouse_schema::gate::GateKind;
use proofhouse_schema::timing::{Cache, Launch};
use proofhouse_schema::verdict::Verdict;

use crate::cuda::CUDA_DEFECTS;

use GateKind::{Baseline, Correctness};
use Verdict::{Errored, Fail, Inconclusive, Invalid, Pass};

/// A way to go wrong, or an honest control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defect {
    /// Its name, kebab-case.
    pub name: &'static str,
    /// The pitfall it stands for.
    pub pitfall: &'static str,
    /// Verdicts that are right.
    pub expected: &'static [Verdict],
    /// Codes of reasons, at least one of which must be given; empty: any reason does.
    pub codes: &'static [&'static str],
    /// The kind of gate that must see it.
    pub kind: GateKind,
    /// Whether it is an honest control, which must pass.
    pub control: bool,
    /// Where its timed calls find their operands.
    pub cache: Cache,
    /// How its timed calls are launched.
    pub launch: Launch,
    /// Whether an honest provider comes after it in the same session, and must pass.
    pub followed: bool,
    /// Whether a process that is no part of the run computes on the device meanwhile.
    pub neighbor: bool,
    /// What it does.
    pub about: &'static str,
}

impl Defect {
    pub(crate) const fn graph(self) -> Self {
        Self { launch: Launch::Graph, ..self }
    }

    pub(crate) const fn cold(self) -> Self {
        Self { cache: Cache::Cold, ..self }
    }

    pub(crate) const fn followed(self) -> Self {
        Self { followed: true, ..self }
    }

    pub(crate) const fn beside_a_neighbor(self) -> Self {
        Self { neighbor: true, ..self }
    }

    pub(crate) const fn for_one_of(self, codes: &'static [&'static str]) -> Self {
        Self { codes, ..self }
    }
}

pub(crate) const fn bad(
    name: &'static str,
    pitfall: &'static str,
    kind: GateKind,
    expected: &'static [Verdict],
    about: &'static str,
) -> Defect {
    Defect {
        name,
        pitfall,
        expected,
        codes: &[],
        kind,
        control: false,
        cache: Cache::Hot,
        launch: Launch::Eager,
        followed: false,
        neighbor: false,
        about,
    }
}

pub(crate) const fn honest(
    name: &'static str,
    pitfall: &'static str,
    kind: GateKind,
    about: &'static str,
) -> Defect {
    Defect { control: true, ..bad(name, pitfall, kind, &[Pass], about) }
}

/// Every defect and control. A name that stands twice is seen by gates of two kinds.
pub const DEFECTS: &[Defect] = &[
    // Honest controls.
    honest("none", "P23", Correctness, "nothing is wrong"),
    honest("none", "P16", Baseline, "nothing is wrong"),
    honest("stdout-noise", "P35", Correctness, "prints on stdout, which is only a log"),
    honest("stderr-flood", "P38", Correctness, "prints megabytes on stderr"),
    honest("slow-but-right", "P13", Baseline, "three times slower, and right"),
    honest("other-order", "P24", Correctness, "adds in another order, within the tolerance"),
    // The process.
    bad("hang", "P38", Correctness, &[Errored], "never answers a check"),
    bad(
        "hang-ignoring-sigterm",
        "P38",
        Correctness,
        &[Errored],
        "never answers and ignores SIGTERM",
    ),
    bad("segfault", "P37", Correctness, &[Errored], "dies of SIGSEGV"),
    bad("abort", "P37", Correctness, &[Errored], "dies of SIGABRT"),
    bad("oom", "P38", Correctness, &[Errored], "takes memory without end"),
    bad("never-connects", "P38", Correctness, &[Errored], "never connects to the socket"),
    bad(
        "exit-before-bye",
        "P37",
        Correctness,
        &[Errored],
        "exits with code 0 in the middle of its work",
    ),
    bad("exit-code-after-bye", "P37", Correctness, &[Errored], "says bye and exits with code 3"),
    bad("leaves-child", "P39", Correctness, &[Errored], "leaves a process in a session of its own"),
    bad(
        "leaves-child-scrubbed",
        "P39",
        Correctness,
        &[Errored],
        "leaves a process in a session of its own, without its environment",
    ),
    bad("early-exit", "P37", Baseline, &[Errored], "exits in the middle of a turn"),
    // The protocol.
    bad("garbage-line", "P35", Correctness, &[Errored], "answers with a line that is no JSON"),
    bad("overlong-line", "P35", Correctness, &[Errored], "answers with a line without end"),
    bad("late-reply", "P21", Correctness, &[Errored], "answers an earlier request"),
    bad("double-reply", "P21", Correctness, &[Errored], "answers twice"),
    bad("wrong-nonce", "P35", Correctness, &[Errored], "answers with a nonce of its own"),
    bad("wrong-provider", "P21", Correctness, &[Errored], "answers as another provider"),
    bad("wrong-case", "P21", Correctness, &[Errored], "answers about another case"),
    bad("unexpected-verb", "P35", Correctness, &[Errored], "answers a check with `prepared`"),
    bad("untyped-failure", "P37", Correctness, &[Errored], "fails without a type"),
    // The outputs.
    bad("writes-nothing", "P31", Correctness, &[Fail], "writes nothing"),
    bad("writes-zeros", "P23", Correctness, &[Fail], "writes zeros"),
    bad("unwritten-tail", "P31", Correctness, &[Fail], "leaves the last element"),
    bad("out-of-bounds-write", "P32", Correctness, &[Fail], "writes one byte behind its output"),
    bad("mutates-input", "P33", Correctness, &[Fail], "changes its input"),
    bad("memo-by-pointer", "P34", Correctness, &[Fail], "remembers results by address"),
    bad("memo-by-shape", "P34", Correctness, &[Fail], "remembers results by shape"),
    bad("memo-last", "P34", Correctness, &[Fail], "gives the last result of the same size again"),
    bad("stale-output", "P8", Correctness, &[Fail], "writes the result of the call before"),
    bad("sign-flip", "P23", Correctness, &[Fail], "flips the sign"),
    bad("scale-1.01", "P23", Correctness, &[Fail], "is one percent off"),
    bad("off-by-one-row", "P23", Correctness, &[Fail], "writes each row's neighbor"),
    bad("one-nan", "P22", Correctness, &[Fail], "writes one NaN"),
    bad("nan-for-inf", "P22", Correctness, &[Fail], "swaps NaN and infinity"),
    bad("nondeterministic", "P26", Correctness, &[Fail], "changes its last bit from call to call"),
    bad("batch-variant", "P26", Correctness, &[Fail], "depends on how many rows there are"),
    // Refusals.
    bad("refuses-everything", "P30", Correctness, &[Fail], "refuses valid inputs"),
    bad("accepts-invalid", "P30", Correctness, &[Fail], "accepts invalid inputs"),
    bad("wrong-refusal-kind", "P30", Correctness, &[Fail], "refuses with the wrong kind"),
    bad(
        "silent-fallback",
        "P40",
        Correctness,
        &[Fail, Invalid],
        "runs without the library it promised",
    ),
    // Time.
    bad("silent-fallback", "P40", Baseline, &[Invalid], "runs without the library it promised"),
    bad("noop-fast", "P6", Baseline, &[Fail, Invalid], "does nothing while it is timed"),
    bad(
        "memo-by-pointer",
        "P34",
        Baseline,
        &[Fail, Invalid],
        "remembers results by address while it is timed",
    ),
    bad("memo-by-content", "P34", Baseline, &[Fail], "remembers results by content"),
    bad(
        "skips-when-written",
        "P34",
        Baseline,
        &[Fail, Invalid],
        "computes only where its output was never written",
    ),
    bad("jit-on-call-n", "P9", Baseline, &[Invalid], "loads code while it is timed"),
    bad("clock-patched", "P35", Baseline, &[Invalid], "reports a tenth of the time"),
    bad("clock-inflated", "P35", Baseline, &[Errored], "reports more time than passed"),
    bad("zero-time", "P6", Baseline, &[Invalid], "reports no time at all"),
    bad("wrong-block", "P21", Baseline, &[Errored], "answers with the samples of another block"),
    bad("fewer-samples", "P45", Baseline, &[Invalid], "leaves samples out"),
    bad(
        "slow-first-slot",
        "P13",
        Baseline,
        &[Inconclusive, Invalid],
        "is fast unless it is first in its block",
    ),
    bad(
        "bimodal-by-process",
        "P15",
        Baseline,
        &[Inconclusive, Invalid],
        "is fast in every other process",
    ),
];

/// The first defect of this name, on any device.
#[must_use]
pub fn find(name: &str) -> Option<&'static Defect> {
    DEFECTS.iter().chain(CUDA_DEFECTS).find(|defect| defect.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_defect_stands_twice_for_one_kind_of_gate() {
        for table in [DEFECTS, CUDA_DEFECTS] {
            for (i, a) in table.iter().enumerate() {
                let same =
                    |b: &&Defect| a.name == b.name && a.kind == b.kind && a.launch == b.launch;
                assert!(!table[..i].iter().any(|b| same(&b)), "{}", a.name);
            }
        }
    }

    #[test]
    fn only_controls_may_pass() {
        for defect in DEFECTS.iter().chain(CUDA_DEFECTS) {
            assert!(!defect.expected.is_empty(), "{}", defect.name);
            assert_eq!(defect.control, defect.expected.contains(&Pass), "{}", defect.name);
        }
    }
}
