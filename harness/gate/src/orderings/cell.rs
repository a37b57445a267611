//! One record: whether it is to be trusted, and who took how long.

use std::collections::BTreeMap;

use proofhouse_schema::SCHEMA;
use proofhouse_schema::evidence::{
    BaselineObservation, CellRecord, Observation, SessionRecord, Summary,
};
use proofhouse_schema::gate::{GateKind, TimingRule};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::ordering::{CellOrdering, UnrankedCell};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::provider::ProviderFacts;
use proofhouse_schema::real::Real;
use proofhouse_schema::samples::Samples;
use proofhouse_schema::timing::Cache;
use proofhouse_schema::verdict::{Comparison, Reason, VerdictBody};

use super::Seen;
use super::ranking::{Player, rank};
use crate::judge::baseline::{Replicates, trusted};
use crate::judge::notes::Notes;
use crate::judge::speed::{Controls, compare, paired};
use crate::judge::{Evidence, judge};
use crate::stats::{PairedSamples, StatsError, summarize};

/// A cell that could be ranked, with what its gate's overall order is made of.
pub(super) struct Measured {
    /// What is said of it.
    pub(super) said: CellOrdering,
    /// The candidate, then the baselines that took part.
    pub(super) providers: Vec<Provider>,
    /// What the session's controls allow.
    pub(super) controls: Controls,
    /// The gate's rule.
    pub(super) rule: TimingRule,
}

/// A provider of a cell.
pub(super) struct Provider {
    pub(super) facts: ProviderFacts,
    pub(super) times: Replicates,
}

impl Measured {
    /// Ranks a record, or says why it cannot be ranked.
    pub(super) fn of(seen: &Seen<'_>) -> Result<Self, UnrankedCell> {
        let evidence =
            Evidence { digest: seen.digest, samples: seen.samples, session: seen.session };
        let judged = judge(seen.record, &evidence);
        let unranked = |reasons| UnrankedCell {
            cell: seen.record.cell.clone(),
            evidence: seen.digest.clone(),
            verdict: judged.verdict,
            reasons,
        };
        let (rule, observed, providers) =
            taken(seen).ok_or_else(|| unranked(why_not(seen, &judged)))?;
        let controls = Controls::of(seen.session, seen.record.gate.device);
        let floor = allowed(&controls).map_err(|reason| unranked(vec![reason]))?;
        let mut players = Vec::new();
        for provider in &providers {
            players.push(player(&provider.facts, seen.samples).map_err(|error| {
                unranked(vec![Reason::new(error.code(), format!("{}: {error}", provider.facts.id))])
            })?);
        }
        let ranking =
            rank(&players, |a, b| side_by_side(&providers[a], &providers[b], rule, &controls))
                .map_err(|reason| unranked(vec![reason]))?;
        let replicates = providers.iter().map(|p| p.times.len()).min().unwrap_or(0);
        let dims = extents(seen.record);
        let said = CellOrdering {
            cell: seen.record.cell.clone(),
            rest: rest(seen.record, &dims),
            dims,
            dtype: seen.record.case.dtype,
            evidence: seen.digest.clone(),
            session: seen.record.session.clone(),
            verdict: judged.verdict,
            grade: judged.grade,
            replicates: u32::try_from(replicates).unwrap_or(u32::MAX),
            noise_floor: Real(floor),
            ranking,
            absent: observed.absent.clone(),
            memory_floor_ns: memory_floor(seen.record, rule, seen.session),
        };
        Ok(Self { said, providers, controls, rule: rule.clone() })
    }

    /// Where a provider stands in the list, if it took part.
    pub(super) fn find(&self, id: &ProviderId) -> Option<&Provider> {
        self.providers.iter().find(|provider| provider.facts.id == *id)
    }

    /// The blocks of two providers side by side; none where one of them took no part.
    pub(super) fn paired(
        &self,
        a: &ProviderId,
        b: &ProviderId,
    ) -> Option<Result<PairedSamples, StatsError>> {
        Some(paired(&self.find(a)?.times, &self.find(b)?.times))
    }
}

/// The rule, the observation and the providers of a record that the judge trusts.
fn taken<'a>(seen: &Seen<'a>) -> Option<(&'a TimingRule, &'a BaselineObservation, Vec<Provider>)> {
    let record = seen.record;
    let Observation::Baseline(observed) = &record.observation else { return None };
    if record.schema != SCHEMA || record.gate.kind != GateKind::Baseline {
        return None;
    }
    let rule = record.gate.timing.as_ref()?;
    let mut notes = Notes::default();
    let trusted = trusted(record, observed, rule, seen.samples, seen.session, &mut notes)?;
    let mut present = trusted.present;
    present.sort_by(|a, b| a.id.cmp(&b.id));
    let mut arms = trusted.arms;
    let all = std::iter::once(&record.candidate).chain(present);
    let provider = |facts: &ProviderFacts| {
        Some(Provider { facts: facts.clone(), times: arms.remove(&facts.id)? })
    };
    let providers: Option<Vec<Provider>> = all.map(provider).collect();
    Some((rule, observed, providers?))
}

fn why_not(seen: &Seen<'_>, judged: &VerdictBody) -> Vec<Reason> {
    let mut reasons = judged.reasons.clone();
    if let Some(fault) = seen.fault {
        // What is shown is the first: why there are no samples says more than that there are none.
        reasons.insert(0, Reason::new("unreadable-samples", fault));
    }
    if reasons.is_empty() {
        reasons.push(Reason::new("not-trusted", "the judge does not trust this record"));
    }
    reasons
}

/// The noise floor, where the controls allow that anything is called.
fn allowed(controls: &Controls) -> Result<f64, Reason> {
    match (&controls.blind, controls.floor) {
        (Some(reason), _) => Err(reason.clone()),
        (None, Some(floor)) => Ok(floor),
        (None, None) => {
            let detail =
                "an A/A control of the session gave no interval, so its noise is not known";
            Err(Reason::new("no-noise-floor", detail))
        }
    }
}

fn side_by_side(a: &Provider, b: &Provider, rule: &TimingRule, controls: &Controls) -> Comparison {
    compare(&a.facts, &b.facts, (&a.times, &b.times), rule, controls)
}

fn player(facts: &ProviderFacts, samples: Option<&Samples>) -> Result<Player, StatsError> {
    let time = samples.map(|samples| times(samples, &facts.id)).ok_or(StatsError::NoSamples)??;
    let version = version(facts);
    Ok(Player { id: facts.id.clone(), version, time: Some(time) })
}

/// A provider's version as tables show it.
pub(super) fn version(facts: &ProviderFacts) -> String {
    facts.version.known().cloned().unwrap_or_else(|| "unknown".to_owned())
}

fn times(samples: &Samples, id: &ProviderId) -> Result<Summary, StatsError> {
    let index = samples.providers.iter().position(|found| found == id);
    let rows = samples.rows.iter().filter(|row| row.measured);
    let own = rows.filter(|row| Some(usize::from(row.provider)) == index);
    let per_call: Vec<f64> = own.map(|row| row.elapsed_ns / f64::from(row.calls)).collect();
    summarize(&per_call)
}

/// The extents of a case, in the order of the cell's key.
fn extents(record: &CellRecord) -> Vec<(String, u64)> {
    let dims: &BTreeMap<String, u64> = &record.case.dims;
    let named = record.cell.split_whitespace().filter_map(|word| {
        let (name, _) = word.split_once('=')?;
        Some((name.to_owned(), *dims.get(name)?))
    });
    let named: Vec<(String, u64)> = named.collect();
    if named.len() == dims.len() {
        return named;
    }
    dims.iter().map(|(name, extent)| (name.clone(), *extent)).collect()
}

fn rest(record: &CellRecord, dims: &[(String, u64)]) -> String {
    let is_extent = |word: &&str| {
        word.split_once('=').is_some_and(|(name, _)| dims.iter().any(|(dim, _)| dim == name))
    };
    let words: Vec<&str> = record.cell.split_whitespace().filter(|word| !is_extent(word)).collect();
    words.join(" ")
}

/// The name of what the record was measured on.
pub(super) fn place(seen: &Seen<'_>) -> Option<String> {
    let record = seen.record;
    if let Some(device) = &record.device {
        return device.name.known().cloned();
    }
    let cpu = || seen.session.and_then(|session| Probe::known(&session.host.cpu).cloned());
    record.gate.device.is_cpu().then(cpu).flatten()
}

/// The time that the bytes of a cold cell need at the session's rates of reading and writing.
fn memory_floor(
    record: &CellRecord,
    rule: &TimingRule,
    session: Option<&SessionRecord>,
) -> Option<Real> {
    if rule.contract.cache != Cache::Cold {
        return None;
    }
    let prefix = if record.gate.device.is_cpu() { "" } else { "cuda_" };
    let rate = |name: &str| {
        let probe = session?.ceilings.get(&format!("{prefix}{name}_bytes_per_s"))?;
        probe.known().map(|rate| rate.0).filter(|rate| rate.is_finite() && *rate > 0.0)
    };
    let traffic = record.traffic?;
    let seconds = traffic.read.0 as f64 / rate("read")? + traffic.written.0 as f64 / rate("write")?;
    Some(Real(seconds * 1e9))
}
