//! What a run would do.

use std::collections::BTreeMap;
use std::sync::Arc;

use proofhouse_schema::canonical::{self, Digest};
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::ReuseKey;
use proofhouse_schema::gate::{Cell, GateKind, Level, ResolvedGate};
use proofhouse_schema::ids::ProviderId;

use crate::error::RunError;
use crate::options::{Reuse, RunOptions};
use crate::ports::{Evidence, Finished};
use crate::provider::{Makeup, ProviderHome, by_id};
use crate::timing::Slice;

/// What a run would do.
#[derive(Debug)]
pub struct Plan {
    /// The gates that have cells, in order.
    pub gates: Vec<PlannedGate>,
    /// Cells that the selection takes and that are left out, because their device is not part of this run.
    pub left_out: BTreeMap<DeviceKind, usize>,
    pub(crate) homes: BTreeMap<ProviderId, ProviderHome>,
    pub(crate) makeups: BTreeMap<ProviderId, Makeup>,
}

/// A gate of a plan.
#[derive(Debug)]
pub struct PlannedGate {
    /// The gate.
    pub gate: Arc<ResolvedGate>,
    /// The digest of its header.
    pub digest: Digest,
    /// Cells to be done, one for each candidate.
    pub cells: Vec<PlannedCell>,
}

/// A cell of a plan: one case, one candidate.
#[derive(Debug)]
pub struct PlannedCell {
    /// Who is judged.
    pub candidate: ProviderId,
    /// Its place among the gate's cells.
    pub index: u32,
    /// The digest of its reuse key.
    pub key: Digest,
    /// Evidence that is used again.
    pub reused: Option<Finished>,
    /// Replicates that an earlier run kept.
    pub(crate) kept: Vec<Slice>,
}

impl PlannedGate {
    /// The cell itself.
    #[must_use]
    pub fn cell(&self, planned: &PlannedCell) -> &Cell {
        &self.gate.cells[planned.index as usize]
    }

    /// Whether its cells decide the exit code.
    #[must_use]
    pub fn required(&self) -> bool {
        self.gate.header.level == Level::Required
    }
}

impl Plan {
    /// Cells, those too whose evidence is used again.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.gates.iter().map(|gate| gate.cells.len()).sum()
    }

    /// Cells whose evidence is used again.
    #[must_use]
    pub fn reused(&self) -> usize {
        self.gates.iter().flat_map(|gate| &gate.cells).filter(|cell| cell.reused.is_some()).count()
    }

    /// Cells that decide.
    #[must_use]
    pub fn required(&self) -> usize {
        self.gates.iter().filter(|gate| gate.required()).map(|gate| gate.cells.len()).sum()
    }

    /// Cells to be run of which an earlier run kept replicates.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.gates.iter().flat_map(|gate| &gate.cells).filter(|cell| !cell.kept.is_empty()).count()
    }

    /// Cells that gates exclude, each with its reason.
    #[must_use]
    pub fn excluded(&self) -> usize {
        self.gates.iter().map(|gate| gate.gate.exclusions.len()).sum()
    }
}

/// Plans a run: which cells are selected, and which have evidence that is used again. Reads provider files (each once)
/// and the evidence index; starts nothing.
///
/// # Errors
/// A gate that names a provider which is not there; files that cannot be read.
pub fn plan(options: &RunOptions, evidence: &dyn Evidence) -> Result<Plan, RunError> {
    let homes = by_id(&options.providers);
    let mut planner = Planner { options, evidence, homes, makeups: BTreeMap::new(), common: None };
    let mut gates = Vec::new();
    let mut left_out = BTreeMap::new();
    for gate in &options.gates {
        if !options.devices.takes(gate.header.device) {
            let cells = planner.count(gate);
            *left_out.entry(gate.header.device).or_default() += cells;
            continue;
        }
        let planned = planner.gate(gate)?;
        if !planned.cells.is_empty() {
            gates.push(planned);
        }
    }
    left_out.retain(|_, cells| *cells > 0);
    Ok(Plan { gates, left_out, homes: planner.homes, makeups: planner.makeups })
}

struct Planner<'a> {
    options: &'a RunOptions,
    evidence: &'a dyn Evidence,
    homes: BTreeMap<ProviderId, ProviderHome>,
    makeups: BTreeMap<ProviderId, Makeup>,
    /// Digests of profile and host.
    common: Option<(Digest, Digest)>,
}

impl Planner<'_> {
    fn gate(&mut self, gate: &ResolvedGate) -> Result<PlannedGate, RunError> {
        let header = &gate.header;
        let digest = canonical_digest(header, || format!("gate {}", header.id))?;
        let mut cells = Vec::new();
        for candidate in &header.candidates {
            let providers = self.providers(gate, candidate)?;
            for (index, cell) in gate.cells.iter().enumerate() {
                let selection = &self.options.selection;
                if !selection.takes(&header.id, header.kind, &cell.key, candidate) {
                    continue;
                }
                let name = || format!("{} {} {candidate}", header.id, cell.key);
                if selection.shard.is_some_and(|s| !s.holds(&Digest::of(name().as_bytes()))) {
                    continue;
                }
                let key = self.key(&digest, cell, &providers, header.device)?;
                let reused = match self.options.reuse {
                    Reuse::ByContent => self.evidence.finished(&key)?,
                    Reuse::Fresh => None,
                };
                let timed = header.kind == GateKind::Baseline;
                let open = timed && reused.is_none() && self.options.reuse == Reuse::ByContent;
                let kept = if open { self.kept(&key) } else { Vec::new() };
                let candidate = candidate.clone();
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                cells.push(PlannedCell { candidate, index, key, reused, kept });
            }
        }
        Ok(PlannedGate { gate: Arc::new(gate.clone()), digest, cells })
    }

    /// Cells of a gate that the selection takes, over all candidates; the shard is not asked.
    fn count(&self, gate: &ResolvedGate) -> usize {
        let header = &gate.header;
        let takes = |candidate: &ProviderId, cell: &Cell| {
            self.options.selection.takes(&header.id, header.kind, &cell.key, candidate)
        };
        let of = |candidate| gate.cells.iter().filter(|cell| takes(candidate, cell)).count();
        header.candidates.iter().map(of).sum()
    }

    fn kept(&self, key: &Digest) -> Vec<Slice> {
        let parts = self.evidence.kept(key);
        parts.iter().filter_map(|bytes| Slice::read(bytes, key)).collect()
    }

    fn providers(
        &mut self,
        gate: &ResolvedGate,
        candidate: &ProviderId,
    ) -> Result<BTreeMap<ProviderId, Vec<Digest>>, RunError> {
        let baselines: &[ProviderId] = match gate.header.kind {
            GateKind::Baseline => &gate.header.baselines,
            _ => &[],
        };
        let checker = self.options.checker.clone();
        let mut found = BTreeMap::new();
        for id in [candidate, &checker].into_iter().chain(baselines) {
            let mut digests = self.makeup(gate, id)?.digests();
            if gate.header.kind == GateKind::Baseline && *id != checker {
                digests.extend(self.timer(gate.header.device)?);
            }
            found.insert(id.clone(), digests);
        }
        Ok(found)
    }

    fn makeup(&mut self, gate: &ResolvedGate, id: &ProviderId) -> Result<&Makeup, RunError> {
        if !self.makeups.contains_key(id) {
            let home = self.homes.get(id).ok_or_else(|| RunError::UnknownProvider {
                gate: gate.header.id.clone(),
                provider: id.clone(),
                known: self.homes.keys().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            })?;
            self.makeups.insert(id.clone(), Makeup::of(home, self.options)?);
        }
        Ok(&self.makeups[id])
    }

    fn timer(&mut self, device: DeviceKind) -> Result<Option<Digest>, RunError> {
        let path = match device {
            DeviceKind::Cpu => &self.options.timer_library,
            DeviceKind::Cuda => &self.options.timer_cuda_library,
        };
        let Some(path) = path else { return Ok(None) };
        let digest = proofhouse_provenance::file_digest(path).map_err(|error| RunError::Setup {
            what: "read the timer library".to_owned(),
            source: std::io::Error::other(error),
        })?;
        Ok(Some(digest))
    }

    fn key(
        &mut self,
        gate: &Digest,
        cell: &Cell,
        providers: &BTreeMap<ProviderId, Vec<Digest>>,
        device: DeviceKind,
    ) -> Result<Digest, RunError> {
        let (profile, host) = self.common()?;
        let case = canonical_digest(&cell.case, || format!("cell {}", cell.key))?;
        let device = match self.options.devices.found.get(&device) {
            Some(facts) => {
                let class = (&facts.name, &facts.architecture, &facts.driver);
                Some(canonical_digest(&class, || "the device's class".to_owned())?)
            }
            None => None,
        };
        let (gate, providers) = (gate.clone(), providers.clone());
        let key = ReuseKey { gate, case, profile, providers, host, device };
        canonical_digest(&key, || "a reuse key".to_owned())
    }

    fn common(&mut self) -> Result<(Digest, Digest), RunError> {
        if let Some(common) = &self.common {
            return Ok(common.clone());
        }
        let host = &self.options.facts.host;
        let class = (&host.machine, &host.cpu, &host.kernel);
        let profile = canonical_digest(&self.options.profile, || "the profile".to_owned())?;
        let host = canonical_digest(&class, || "the host's class".to_owned())?;
        Ok(self.common.insert((profile, host)).clone())
    }
}

/// A value's digest, or an error that says whose.
pub(crate) fn canonical_digest<T: serde::Serialize>(
    value: &T,
    what: impl FnOnce() -> String,
) -> Result<Digest, RunError> {
    canonical::digest(value).map_err(|source| RunError::Canonical { what: what(), source })
}
