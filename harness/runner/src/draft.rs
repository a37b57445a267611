//! What executors hand to the dispatcher.

use std::collections::BTreeMap;

use proofhouse_schema::SCHEMA;
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{
    Arm, Attempt, BaselineObservation, BlobRef, CellRecord, Control, Grade, Observation, Pass,
    QualificationScore, SessionRecord, Traffic,
};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Posed, Witnessed};
use proofhouse_schema::provider::ProviderFacts;
use proofhouse_schema::samples::Samples;
use proofhouse_schema::units::Bytes;

use crate::environment::Progress;
use crate::plan::{PlannedCell, PlannedGate};
use crate::timing::Slice;

/// What an executor says. The set is closed.
#[derive(Debug)]
pub(crate) enum Message {
    /// Work on a cell began.
    Started(Place),
    /// A cell is done.
    Done(Box<Draft>),
    /// A cell has one replicate more.
    Kept(Box<Slice>),
    /// A step that takes a while.
    Step(Progress),
    /// Something that a person should know.
    Warning(String),
}

/// A planned cell by its place in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The gate's place.
    pub(crate) gate: usize,
    /// The cell's place among the gate's planned cells.
    pub(crate) cell: usize,
}

/// A cell that is done, before it is a record.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) place: Place,
    pub(crate) candidate: ProviderFacts,
    pub(crate) baselines: Vec<ProviderFacts>,
    pub(crate) checker: ProviderFacts,
    /// What the checker said of the case.
    pub(crate) posed: PosedFacts,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) seen: Sight,
    pub(crate) witness: BTreeMap<ProviderId, Witnessed>,
    /// Controls of earlier sessions in which a part of this was seen.
    pub(crate) carried: Vec<Control>,
}

/// What the checker says of a case; empty where it was never posed.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PosedFacts {
    pub(crate) inputs: BTreeMap<String, Digest>,
    pub(crate) tolerance: BTreeMap<String, String>,
    pub(crate) traffic: Option<Traffic>,
}

impl From<&Posed> for PosedFacts {
    fn from(posed: &Posed) -> Self {
        let known = posed.bytes_read + posed.bytes_written > 0;
        Self {
            inputs: posed.inputs.clone(),
            tolerance: posed.tolerance.clone(),
            traffic: known.then_some(Traffic {
                read: Bytes(posed.bytes_read),
                written: Bytes(posed.bytes_written),
            }),
        }
    }
}

/// What was seen.
#[derive(Debug)]
pub(crate) enum Sight {
    /// Anything but a baseline cell that ran.
    Plain(Observation),
    /// A baseline cell that ran.
    Timed(Box<TimedSight>),
}

/// A baseline cell that ran, before its samples have a digest.
#[derive(Debug)]
pub(crate) struct TimedSight {
    pub(crate) arms: Vec<Arm>,
    pub(crate) samples: Samples,
    pub(crate) timed: BTreeMap<ProviderId, Vec<Pass>>,
    pub(crate) absent: BTreeMap<ProviderId, String>,
    pub(crate) qualification: QualificationScore,
}

impl TimedSight {
    /// The observation, once the samples are written.
    pub(crate) fn observation(self, samples: BlobRef) -> (Observation, Samples) {
        let observation = BaselineObservation {
            arms: self.arms,
            samples,
            timed: self.timed,
            absent: self.absent,
            qualification: self.qualification,
        };
        (Observation::Baseline(observation), self.samples)
    }
}

/// The record of a draft.
pub(crate) fn record(
    draft: Draft,
    observation: Observation,
    gate: &PlannedGate,
    planned: &PlannedCell,
    (session_digest, session): (&Digest, &SessionRecord),
) -> CellRecord {
    let cell = gate.cell(planned);
    let device = gate.gate.header.device;
    let device = session.devices.iter().find(|facts| facts.kind == device).cloned();
    let mut record = CellRecord {
        schema: SCHEMA.to_owned(),
        key: planned.key.clone(),
        gate: gate.gate.header.clone(),
        gate_digest: gate.digest.clone(),
        cell: cell.key.clone(),
        case: cell.case.clone(),
        profile: session.profile.clone(),
        grade: Grade::Exploratory,
        reproduce: reproduce(gate, planned, session),
        candidate: draft.candidate,
        baselines: draft.baselines,
        checker: draft.checker,
        inputs: draft.posed.inputs,
        tolerance: draft.posed.tolerance,
        traffic: draft.posed.traffic,
        device,
        session: session_digest.clone(),
        source: session.source.clone(),
        attempts: draft.attempts,
        observation,
        witness: draft.witness,
    };
    record.grade = proofhouse_gate::judge::grade(&record, Some(session)).0;
    record
}

fn reproduce(gate: &PlannedGate, planned: &PlannedCell, session: &SessionRecord) -> Vec<String> {
    let filter =
        format!("{} {} {}", gate.gate.header.id, gate.cell(planned).key, planned.candidate);
    let words =
        ["proofhouse", "run", "--fresh", "--profile", session.profile.id.as_str(), "--filter"];
    words.iter().map(ToString::to_string).chain([filter]).collect()
}
