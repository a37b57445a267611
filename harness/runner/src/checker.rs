//! The checker: the one worker that poses cases and compares outputs.

use std::path::Path;

use proofhouse_schema::evidence::{Attempt, Ending, Observation, QualificationScore};
use proofhouse_schema::gate::CaseSpec;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Judge, Judged, Poison, Pose, Posed, Reply, Request};

use crate::attempt::{Answer, Loss, Worker, unexpected};
use crate::socket::ProtocolFault;

/// A live checker.
#[derive(Debug)]
pub(crate) struct Checker {
    pub(crate) worker: Worker,
    gates_folder: String,
}

/// A pose to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoseOf<'a> {
    pub(crate) case: &'a str,
    pub(crate) spec: &'a CaseSpec,
    pub(crate) file: &'a Path,
    pub(crate) poison: Poison,
    pub(crate) contents: u32,
    pub(crate) row: Option<u64>,
}

/// Why the checker gave no answer.
#[derive(Debug)]
pub(crate) enum CheckerFault {
    /// Its process is lost.
    Lost(Loss),
    /// It lives and said that it cannot.
    Declined(String),
}

impl From<Loss> for CheckerFault {
    fn from(loss: Loss) -> Self {
        CheckerFault::Lost(loss)
    }
}

impl CheckerFault {
    /// Whether the run was interrupted: that is no fault, and nothing is recorded of it.
    pub(crate) fn is_interrupt(&self) -> bool {
        matches!(self, CheckerFault::Lost(Loss::Interrupted))
    }

    /// What evidence says of it.
    pub(crate) fn observation(&self, provider: &ProviderId) -> Observation {
        let (ending, detail) = match self {
            CheckerFault::Lost(loss) => (loss.ending(), loss.to_string()),
            CheckerFault::Declined(detail) => (Ending::Protocol, detail.clone()),
        };
        Observation::Errored { ending, provider: provider.clone(), detail }
    }
}

impl Checker {
    pub(crate) fn new(worker: Worker, gates_folder: &Path) -> Result<Self, Box<(Worker, Loss)>> {
        if worker.hello().capabilities.checker {
            let gates_folder = gates_folder.to_string_lossy().into_owned();
            return Ok(Self { worker, gates_folder });
        }
        let fault = ProtocolFault::UnexpectedVerb {
            asked: "hello",
            found: "a hello without the capability `checker`",
            accepted: "a checker's",
        };
        Err(Box::new((worker, fault.into())))
    }

    /// Makes a case's tensors.
    pub(crate) async fn pose(&mut self, pose: PoseOf<'_>) -> Result<Posed, CheckerFault> {
        let request = Request::Pose(Pose {
            case: pose.case.to_owned(),
            spec: pose.spec.clone(),
            gates: self.gates_folder.clone(),
            file: pose.file.to_string_lossy().into_owned(),
            poison: pose.poison,
            contents: pose.contents,
            row: pose.row,
        });
        match self.worker.ask(request).await? {
            Reply::Posed(posed) if posed.case == pose.case => Ok(posed),
            Reply::Refused { error, .. } => Err(CheckerFault::Declined(format!(
                "the checker refused to pose the case: {} of {}: found {}, accepted {}",
                error.kind, error.argument, error.found, error.accepted
            ))),
            Reply::Failed { detail } => Err(CheckerFault::Declined(format!(
                "the checker could not pose the case: {detail}"
            ))),
            other => Err(unexpected("pose", &other, "posed, refused, failed").into()),
        }
    }

    /// Compares a case's tensors with the oracle's.
    pub(crate) async fn judge(
        &mut self,
        case: &str,
        rows: Vec<u64>,
    ) -> Result<Judged, CheckerFault> {
        let request = Request::Judge(Judge { case: case.to_owned(), rows });
        match self.worker.ask(request).await? {
            Reply::Judged(judged) if judged.case == case => Ok(judged),
            Reply::Failed { detail } => {
                Err(CheckerFault::Declined(format!("the checker could not compare: {detail}")))
            }
            other => Err(unexpected("judge", &other, "judged, failed").into()),
        }
    }

    /// Runs the mutation battery.
    pub(crate) async fn qualify(
        &mut self,
        case: &CaseSpec,
    ) -> Result<QualificationScore, CheckerFault> {
        let request = Request::Qualify { case: case.clone(), gates: self.gates_folder.clone() };
        match self.worker.ask(request).await? {
            Reply::Qualified(score) => Ok(score),
            Reply::Failed { detail } => {
                Err(CheckerFault::Declined(format!("the battery could not run: {detail}")))
            }
            other => Err(unexpected("qualify", &other, "qualified, failed").into()),
        }
    }

    /// Forgets a case.
    pub(crate) async fn release(&mut self, case: &str) -> Result<(), CheckerFault> {
        let request = Request::Release { case: case.to_owned() };
        match self.worker.ask_case(request, case).await? {
            Answer::Done => Ok(()),
            other => Err(CheckerFault::Declined(format!("it did not release {case}: {other:?}"))),
        }
    }

    pub(crate) async fn lose(self, loss: &Loss) -> Attempt {
        self.worker.lose(loss).await
    }
}
