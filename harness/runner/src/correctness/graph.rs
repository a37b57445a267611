//! Graph cells: one call in a device graph, replayed on other contents in the same buffers, each time beside an eager run
//! on the same contents.

use proofhouse_schema::evidence::{Capture, Finding, Outcome, Pass, Purpose, ReplayPair};
use proofhouse_schema::protocol::{Poison, Reply, Request};

use super::{Broken, Passes, Seen, Way, blank};
use crate::attempt::{Loss, unexpected};

/// Replays of one graph.
const REPLAYS: u32 = 3;

impl Passes<'_> {
    pub(super) async fn graph(&mut self, expected: &[String]) -> Result<Seen, Broken> {
        let way = Way {
            purpose: Purpose::Eager,
            slot: "g",
            poison: Poison::A,
            contents: 0,
            row: None,
            prepare: true,
            checked: false,
        };
        let first = self.pass(way, None).await?;
        match first.outcome {
            Outcome::Ran => {}
            Outcome::Unsupported(reason) => return Ok(Seen::Unsupported(reason)),
            _ => return Ok(Seen::Passes(vec![first])),
        }
        let mut findings = self.witness().await?;
        let capture = self.capture(way).await?;
        let Capture::Captured { kernels, .. } = &capture else {
            return Ok(Seen::Graph(capture, Vec::new()));
        };
        findings.extend(missing_kernels(expected, kernels));
        let mut replays = Vec::new();
        for contents in 1..=REPLAYS {
            let poison = if contents % 2 == 0 { Poison::A } else { Poison::B };
            let way = Way { contents, poison, prepare: false, ..way };
            let replay = self.replay(Way { purpose: Purpose::Replay, ..way }).await?;
            let eager = self.pass(way, None).await?;
            replays.push(ReplayPair { replay, eager });
        }
        replays[0].replay.findings.append(&mut findings);
        Ok(Seen::Graph(capture, replays))
    }

    async fn capture(&mut self, way: Way) -> Result<Capture, Broken> {
        let case = self.case_name(way);
        let asked = self.live.worker.ask(Request::Capture { case: case.clone() }).await;
        match asked.map_err(broke)? {
            Reply::Captured { case: named, nodes, kernels } if named == case => {
                Ok(Capture::Captured { nodes, kernels })
            }
            Reply::Unsupported { case: named, reason } if named == case => {
                Ok(Capture::Unsupported { reason })
            }
            Reply::Failed { detail } => Ok(Capture::Broken { detail }),
            other => Err(unexpected("capture", &other, "captured, unsupported, failed").into()),
        }
    }

    async fn replay(&mut self, way: Way) -> Result<Pass, Broken> {
        self.pose(way).await?;
        let case = self.case_name(way);
        let asked = self.live.worker.ask(Request::Replay { case: case.clone() }).await;
        let outcome = match asked.map_err(broke)? {
            Reply::Replayed { case: named } if named == case => Outcome::Ran,
            Reply::Failed { detail } => Outcome::Failed(detail),
            other => return Err(unexpected("replay", &other, "replayed, failed").into()),
        };
        let mut pass = blank(way.purpose, outcome);
        if pass.outcome == Outcome::Ran {
            let judged = self.checker.judge(&case, Vec::new()).await?;
            pass.outputs = judged.outputs;
            pass.findings = judged.findings;
            pass.digests = judged.digests;
        }
        Ok(pass)
    }
}

/// A process that is lost over a graph broke the capture; a run that was stopped did not.
fn broke(loss: Loss) -> Broken {
    match loss {
        Loss::Interrupted => Broken::Candidate(loss),
        loss => Broken::Capture(loss),
    }
}

/// Kernels that provider.toml promises and the graph lacks: a silent fallback (P40).
pub(crate) fn missing_kernels(expected: &[String], kernels: &[String]) -> Option<Finding> {
    let found = |name: &String| kernels.iter().any(|kernel| kernel.contains(name.as_str()));
    if expected.is_empty() || expected.iter().any(found) {
        return None;
    }
    let detail = format!(
        "no kernel of the graph is named like one of {expected:?}, which provider.toml expects; found: {kernels:?}"
    );
    Some(Finding { code: "silent-fallback".to_owned(), detail })
}
