//! How much a record is worth: exploratory, qualified or claim, and why no more.

use std::collections::{BTreeMap, BTreeSet};

use proofhouse_schema::evidence::{CellRecord, Grade, HostFacts, Observation, SessionRecord};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::probe::Probe;
use proofhouse_schema::provider::ProviderFacts;
use proofhouse_schema::verdict::Reason;

/// Replicates that a qualified speed needs.
const QUALIFIED_REPLICATES: usize = 3;
/// Replicates that a claim about speed needs.
const CLAIM_REPLICATES: usize = 5;

/// The grade of a record and why it is no higher.
///
/// Speed: 1 replicate is exploratory, 3 are qualified, 5 or more can carry a claim; what counts is the least over
/// candidate and compared baselines. Correctness is the same bit for bit from run to run (the repeated run shows it), so
/// replicates do not limit it. Anything unknown makes either exploratory; a dirty tree makes it qualified at most.
#[must_use]
pub fn grade(record: &CellRecord, session: Option<&SessionRecord>) -> (Grade, Vec<Reason>) {
    let mut best = Grade::Claim;
    let mut reasons = Vec::new();
    let mut limit = |to: Grade, code: &str, detail: String| {
        best = best.min(to);
        reasons.push(Reason::new(code, detail));
    };
    if let Some(replicates) = replicates(record) {
        let detail = format!("{replicates} replicates; a claim needs {CLAIM_REPLICATES}");
        if replicates < QUALIFIED_REPLICATES {
            limit(Grade::Exploratory, "few-replicates", detail);
        } else if replicates < CLAIM_REPLICATES {
            limit(Grade::Qualified, "few-replicates", detail);
        }
    }
    for what in unknowns(record, session) {
        limit(Grade::Exploratory, "unknown-fact", format!("{what} is not known"));
    }
    if record.source.dirty.known() == Some(&true) {
        limit(Grade::Qualified, "dirty-tree", "the source tree differs from its revision".into());
    }
    (best, reasons)
}

/// The least number of replicates over the providers of a speed; none for other kinds.
fn replicates(record: &CellRecord) -> Option<usize> {
    let Observation::Baseline(seen) = &record.observation else { return None };
    let mut by_provider: BTreeMap<&ProviderId, BTreeSet<u32>> = BTreeMap::new();
    for arm in &seen.arms {
        by_provider.entry(&arm.provider).or_default().insert(arm.replicate);
    }
    Some(by_provider.values().map(BTreeSet::len).min().unwrap_or(0))
}

fn unknowns(record: &CellRecord, session: Option<&SessionRecord>) -> Vec<String> {
    let mut missing = Vec::new();
    let mut need = |what: &str, known: bool| {
        if !known {
            missing.push(what.to_owned());
        }
    };
    need("the source revision", record.source.revision.known().is_some());
    need("the source tree", record.source.tree.known().is_some());
    need("whether the source tree is dirty", record.source.dirty.known().is_some());
    let dirty = record.source.dirty.known() == Some(&true);
    need("the digest of the source difference", !dirty || record.source.diff.is_some());
    need("any input's digest", !record.inputs.is_empty() || empty_case(record));
    need("the command that reproduces", !record.reproduce.is_empty());
    for facts in std::iter::once(&record.candidate)
        .chain(&record.baselines)
        .chain(std::iter::once(&record.checker))
    {
        for what in unknown_facts(facts) {
            need(&what, false);
        }
    }
    match session {
        None => need("the session", false),
        Some(session) => {
            for what in unknown_host(&session.host) {
                need(what, false);
            }
        }
    }
    missing
}

fn empty_case(record: &CellRecord) -> bool {
    record.case.dims.values().any(|extent| *extent == 0)
        || !matches!(record.case.expect, proofhouse_schema::gate::Expect::Outputs)
}

fn unknown_facts(facts: &ProviderFacts) -> Vec<String> {
    let mut missing = Vec::new();
    if facts.version.known().is_none() {
        missing.push(format!("the version of {}", facts.id));
    }
    if facts.binary.known().is_none() {
        missing.push(format!("the binary digest of {}", facts.id));
    }
    missing
}

fn unknown_host(host: &HostFacts) -> Vec<&'static str> {
    fn open<T>(probe: &Probe<T>) -> bool {
        probe.known().is_none()
    }
    [
        ("the machine", open(&host.machine)),
        ("the kernel", open(&host.kernel)),
        ("the CPU", open(&host.cpu)),
        ("the number of cores", open(&host.cores)),
        ("the memory", open(&host.memory)),
        ("the last-level cache", open(&host.last_level_cache)),
    ]
    .into_iter()
    .filter_map(|(what, open)| open.then_some(what))
    .collect()
}
