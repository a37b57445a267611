//! Results of two moments side by side, only where they are statements about the same thing.

use std::collections::BTreeMap;

use proofhouse_schema::canonical::{self, CanonicalError, Digest};
use proofhouse_schema::evidence::{CellRecord, SessionRecord};
use proofhouse_schema::ids::{GateId, ProviderId};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::report::CellRow;

use crate::error::{StoreError, doing};
use crate::rows::{Heading, Selection};
use crate::scope;
use crate::store::Store;

/// Two records of the same timing scope.
///
/// They were not measured side by side, so this names no winner: a claim needs a paired run.
#[derive(Debug, Clone, PartialEq)]
pub struct SideBySide {
    /// The first record.
    pub a: CellRow,
    /// The second.
    pub b: CellRow,
    /// The providers that both have, by id.
    pub changes: BTreeMap<ProviderId, Change>,
}

/// One provider at two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Median time per call in the first record, nanoseconds.
    pub a_p50_ns: f64,
    /// Median time per call in the second.
    pub b_p50_ns: f64,
    /// First over second: above 1 the second is faster.
    pub ratio: f64,
}

/// One record in a history.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryPoint {
    /// When its first process began, nanoseconds since 1970.
    pub started_ns: u64,
    /// The git revision, where it is known.
    pub revision: Option<String>,
    /// The record with its verdict, its comparisons and its times.
    pub row: CellRow,
}

/// The records of one cell that may stand in one line.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// The scope that they share, as [`Store::history`] takes it.
    pub scope: String,
    /// The oldest first.
    pub points: Vec<HistoryPoint>,
}

impl Store {
    /// Puts two records side by side.
    ///
    /// # Errors
    /// [`StoreError::DifferentScope`] names every difference in operator, case, inputs, timing contract or
    /// host; a host that is not known equals none. [`StoreError::UnknownEvidence`], [`StoreError::NotTimed`].
    pub fn compare(&self, a: &Digest, b: &Digest) -> Result<SideBySide, StoreError> {
        let (first, second) = (self.timed(a)?, self.timed(b)?);
        let differences = differences(&first, &second);
        if !differences.is_empty() {
            let (a, b) = (a.clone(), b.clone());
            return Err(StoreError::DifferentScope { a, b, differences });
        }
        let mut changes = BTreeMap::new();
        for (provider, before) in &first.row.times {
            if let Some(after) = second.row.times.get(provider) {
                let (a_p50_ns, b_p50_ns) = (before.p50_ns.0, after.p50_ns.0);
                let ratio = a_p50_ns / b_p50_ns;
                changes.insert(provider.clone(), Change { a_p50_ns, b_p50_ns, ratio });
            }
        }
        Ok(SideBySide { a: first.row, b: second.row, changes })
    }

    /// Every record of one cell and candidate over time.
    ///
    /// # Errors
    /// [`StoreError::MixedScopes`] when the records have more than one scope and `scope` names none of them.
    pub fn history(
        &self,
        gate: &GateId,
        cell: &str,
        provider: &ProviderId,
        scope: Option<&str>,
    ) -> Result<History, StoreError> {
        let failed = "reading a history";
        let sql = "SELECT digest, started_ns, revision FROM evidence
                   WHERE gate = ? AND cell = ? AND provider = ? AND outcome = 'baseline'
                   ORDER BY started_ns, record";
        let mut statement = self.connection.prepare(sql).map_err(doing(failed))?;
        let found = statement
            .query_map([gate.as_str(), cell, provider.as_str()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<u64>>(1)?, row.get(2)?))
            })
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(doing(failed))?;
        let mut scopes: BTreeMap<String, Vec<HistoryPoint>> = BTreeMap::new();
        for (digest, started, revision) in found {
            let digest = Digest::parse(&digest)
                .map_err(|source| StoreError::BadBody { digest: digest.clone(), source })?;
            let timed = self.timed(&digest)?;
            let label = timed.scope_label()?;
            let started_ns = started.unwrap_or_default();
            let point = HistoryPoint { started_ns, revision, row: timed.row };
            scopes.entry(label).or_default().push(point);
        }
        let chosen = match scope {
            Some(scope) => scopes.remove_entry(scope),
            None if scopes.len() <= 1 => Some(scopes.pop_first().unwrap_or_default()),
            None => None,
        };
        match chosen {
            Some((scope, points)) => Ok(History { scope, points }),
            None => Err(StoreError::MixedScopes {
                gate: gate.to_string(),
                cell: cell.to_owned(),
                scopes: scopes.into_keys().collect(),
            }),
        }
    }

    fn timed(&self, digest: &Digest) -> Result<Timed, StoreError> {
        let heading = Heading {
            title: String::new(),
            generated: String::new(),
            tool: String::new(),
            points: 0,
        };
        let one = std::slice::from_ref(digest);
        let mut model = self.report(Selection::Records(one), heading)?;
        let row = model
            .cells
            .pop()
            .ok_or_else(|| StoreError::UnknownEvidence { digest: digest.clone() })?;
        let session = model.sessions.remove(&row.session);
        let cell = self.cell(digest)?;
        if cell.gate.timing.is_none() || row.times.is_empty() {
            let kind = cell.gate.kind.to_string();
            return Err(StoreError::NotTimed { digest: digest.clone(), kind });
        }
        Ok(Timed { row, cell, session })
    }
}

/// A timed record with all that its scope is made of.
struct Timed {
    row: CellRow,
    cell: CellRecord,
    session: Option<SessionRecord>,
}

impl Timed {
    /// What must be equal, by name, as text for people.
    fn scope(&self) -> Vec<(&'static str, Option<String>)> {
        let json = |value: Result<String, serde_json::Error>| value.ok();
        let case = &self.cell.case;
        let contract = self.cell.gate.timing.as_ref().map(|timing| &timing.contract);
        let host = self.session.as_ref().map(|session| &session.host);
        let known = |probe: Option<&Probe<String>>| probe.and_then(Probe::known).cloned();
        vec![
            ("operator", Some(case.operator.to_string())),
            ("shape", Some(scope::shape_words(&self.cell.cell, case))),
            ("dtype", Some(case.dtype.to_string())),
            ("layout", Some(case.layout.clone())),
            ("parameters", json(serde_json::to_string(&case.params))),
            ("inputs", json(serde_json::to_string(&case.inputs))),
            ("timing contract", contract.and_then(|c| json(serde_json::to_string(c)))),
            ("machine", known(host.map(|host| &host.machine))),
            ("CPU", known(host.map(|host| &host.cpu))),
        ]
    }

    fn scope_label(&self) -> Result<String, StoreError> {
        let bad = |source: CanonicalError| StoreError::BadBody {
            digest: self.row.evidence.to_string(),
            source,
        };
        let parts: Vec<Option<String>> = self.scope().into_iter().map(|(_, part)| part).collect();
        let digest = canonical::digest(&parts).map_err(bad)?;
        let words = self.row.contract.clone().unwrap_or_default();
        Ok(format!("{words} #{}", &digest.short()[..8]))
    }
}

fn differences(a: &Timed, b: &Timed) -> Vec<String> {
    let pairs = a.scope().into_iter().zip(b.scope());
    pairs
        .filter(|((_, a), (_, b))| a.is_none() || a != b)
        .map(|((name, a), (_, b))| {
            let told = |part: Option<String>| part.unwrap_or_else(|| "unknown".to_owned());
            format!("{name}: {} and {}", told(a), told(b))
        })
        .collect()
}
