//! Evidence of many cells to providers in order. Pure, and by the judge's own rules.
//!
//! | file | what it does |
//! |---|---|
//! | `cell` | one record: is it to be trusted, and who took how long |
//! | `ranking` | calls of pairs to ranks |
//! | `overall` | the same over a gate's cells |
//! | `flips` | cells that call a pair the other way round |
//! | `crossovers` | pairs whose order turns along a dimension |
//!
//! A record that the judge does not trust, or whose session's controls are wrong, is listed with the reason and ranked
//! nowhere.

mod cell;
mod crossovers;
mod flips;
mod overall;
mod ranking;

use std::collections::BTreeMap;

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{CellRecord, SessionRecord};
use proofhouse_schema::gate::GateKind;
use proofhouse_schema::ids::{GateId, ProviderId};
use proofhouse_schema::ordering::{CellOrdering, GateOrdering, UnrankedCell};
use proofhouse_schema::samples::Samples;

use cell::Measured;

/// A timed record with what it is ranked by.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The record's digest.
    pub digest: &'a Digest,
    /// The record.
    pub record: &'a CellRecord,
    /// The decoded sample blob, where the record names one and it could be read.
    pub samples: Option<&'a Samples>,
    /// Why the blob could not be read.
    pub fault: Option<&'a str>,
    /// The session that the record names.
    pub session: Option<&'a SessionRecord>,
}

/// The places of the newest timed record of each gate, cell and candidate, in the order given. Of records that began at the
/// same time the last one is the newest.
#[must_use]
pub fn newest(records: &[&CellRecord]) -> Vec<usize> {
    let mut found: BTreeMap<(&GateId, &str, &ProviderId), (Option<u64>, usize)> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        if record.gate.kind != GateKind::Baseline {
            continue;
        }
        let key = (&record.gate.id, record.cell.as_str(), &record.candidate.id);
        let began = record.attempts.iter().map(|attempt| attempt.started.0).min();
        let this = (began, at);
        let best = found.entry(key).or_insert(this);
        *best = this.max(*best);
    }
    let mut places: Vec<usize> = found.into_values().map(|(_, at)| at).collect();
    places.sort_unstable();
    places
}

/// Collects records, one after another, and orders their providers.
#[derive(Default)]
pub struct Orderings {
    groups: Vec<Group>,
}

/// Records that may stand in one table: one gate, candidate, rule and place.
struct Group {
    sample: CellRecord,
    place: Option<String>,
    measured: Vec<Measured>,
    unranked: Vec<UnrankedCell>,
}

impl Group {
    fn is_of(&self, record: &CellRecord, place: Option<&String>) -> bool {
        self.is_like(record) && self.place.as_ref() == place
    }

    /// What the gate requires of a speed changes verdicts and no order.
    fn is_like(&self, record: &CellRecord) -> bool {
        let rule = |record: &CellRecord| {
            record.gate.timing.as_ref().map(|timing| (timing.contract.clone(), timing.margin))
        };
        self.sample.gate.id == record.gate.id
            && self.sample.gate.device == record.gate.device
            && self.sample.candidate.id == record.candidate.id
            && rule(&self.sample) == rule(record)
    }
}

impl Orderings {
    /// Takes a record in. Give the newest of each cell alone.
    pub fn add(&mut self, seen: &Seen<'_>) {
        let place = cell::place(seen);
        let at = self.groups.iter().position(|group| group.is_of(seen.record, place.as_ref()));
        let at = at.unwrap_or_else(|| {
            self.groups.push(Group {
                sample: seen.record.clone(),
                place,
                measured: Vec::new(),
                unranked: Vec::new(),
            });
            self.groups.len() - 1
        });
        match Measured::of(seen) {
            Ok(measured) => self.groups[at].measured.push(measured),
            Err(unranked) => self.groups[at].unranked.push(unranked),
        }
    }

    /// The orderings, by gate, candidate and place.
    #[must_use]
    pub fn finish(mut self) -> Vec<GateOrdering> {
        self.join_the_placeless();
        let mut done: Vec<GateOrdering> = self.groups.into_iter().map(ordered).collect();
        done.sort_by(|a, b| {
            (&a.gate, &a.candidate, &a.place).cmp(&(&b.gate, &b.candidate, &b.place))
        });
        done
    }

    /// A cell that did not run names no device: it belongs to the one place where its gate was measured.
    fn join_the_placeless(&mut self) {
        let (placeless, mut placed): (Vec<Group>, Vec<Group>) = std::mem::take(&mut self.groups)
            .into_iter()
            .partition(|group| group.place.is_none() && group.measured.is_empty());
        for group in placeless {
            let mut like = placed.iter_mut().filter(|other| other.is_like(&group.sample));
            match (like.next(), like.next()) {
                (Some(only), None) => only.unranked.extend(group.unranked),
                _ => self.groups.push(group),
            }
        }
        self.groups.append(&mut placed);
    }
}

fn ordered(mut group: Group) -> GateOrdering {
    group.measured.sort_by(|a, b| by_place(&a.said, &b.said));
    group.unranked.sort_by(|a, b| (&a.cell, &a.evidence).cmp(&(&b.cell, &b.evidence)));
    let overall = overall::overall(&group.measured);
    let against_best = overall::against_best(&group.measured);
    let absences = overall::absences(&group.measured);
    let cells: Vec<CellOrdering> = group.measured.into_iter().map(|cell| cell.said).collect();
    let gate = group.sample.gate;
    GateOrdering {
        gate: gate.id,
        operator: gate.operator,
        candidate: group.sample.candidate.id,
        device: gate.device,
        place: group.place.unwrap_or_else(|| "an unknown device".to_owned()),
        timing: gate.timing,
        flips: flips::flips(&cells, overall.as_ref()),
        crossovers: crossovers::crossovers(&cells),
        cells,
        unranked: group.unranked,
        overall,
        against_best,
        absences,
    }
}

/// What is no extent first, then the extents by their value.
fn by_place(a: &CellOrdering, b: &CellOrdering) -> std::cmp::Ordering {
    (a.dtype, &a.rest, &a.dims, &a.evidence).cmp(&(b.dtype, &b.rest, &b.dims, &b.evidence))
}
