//! What one replicate gave one cell, kept until the others are there too: a run that is stopped goes on with its next
//! replicate, in another run.
//!
//! A slice is no evidence. It is used only where everything that decides whether a record can be used again is the same,
//! and besides the tool, the state of the source tree, the providers that take part and what their workers say of
//! themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{Attempt, Control, Finding, Pass};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Hello, Witnessed};
use serde::{Deserialize, Serialize};

use super::arms::TakenTurn;
use crate::draft::PosedFacts;
use crate::options::{RunOptions, SessionFacts};

/// What one replicate gave one cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slice {
    /// The digest of the cell's reuse key.
    pub(crate) key: Digest,
    pub(crate) replicate: u32,
    pub(crate) made: Made,
    /// Everything that was seen.
    pub(crate) part: Part,
    pub(super) turns: Vec<TakenTurn>,
    pub(super) posed: Option<PosedFacts>,
    /// Baselines that took no part any more, and why.
    pub(super) absent: BTreeMap<ProviderId, String>,
    /// Whether the check for remembered results was made.
    pub(super) identical: bool,
    pub(super) took: Duration,
}

/// Under which circumstances a slice was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Made {
    /// The tool's version.
    tool: String,
    /// Whether the source tree differed from its revision.
    dirty: Option<bool>,
    /// Who took part.
    parties: Vec<ProviderId>,
    /// The session; the dispatcher writes it in.
    pub(crate) session: Option<Digest>,
    /// The session's controls: a record made of this slice is held against them, too.
    pub(crate) controls: Vec<Control>,
}

/// What one replicate's processes left behind for one cell.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    pub(super) attempts: Vec<Attempt>,
    pub(super) hellos: BTreeMap<ProviderId, Hello>,
    pub(super) witness: BTreeMap<ProviderId, Witnessed>,
    pub(super) timed: BTreeMap<ProviderId, Vec<Pass>>,
    pub(super) distrusted: BTreeMap<ProviderId, Vec<Finding>>,
}

impl Made {
    pub(super) fn now(facts: &SessionFacts, parties: &[ProviderId]) -> Self {
        Self {
            tool: facts.tool.clone(),
            dirty: facts.source.dirty.known().copied(),
            parties: parties.to_vec(),
            session: None,
            controls: Vec::new(),
        }
    }

    /// Whether a slice made then is as good as one made now.
    fn fits(&self, now: &Made) -> bool {
        let parties = |made: &Made| made.parties.iter().cloned().collect::<BTreeSet<_>>();
        (&self.tool, self.dirty) == (&now.tool, now.dirty) && parties(self) == parties(now)
    }
}

impl Slice {
    /// Reads a slice; what is none is measured again.
    pub(crate) fn read(bytes: &[u8], key: &Digest) -> Option<Self> {
        let slice: Self = serde_json::from_slice(bytes).ok()?;
        (slice.key == *key && slice.made.session.is_some()).then_some(slice)
    }

    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Whether it can stand for a replicate of this run, by these providers.
    pub(super) fn fits(&self, options: &RunOptions, parties: &[ProviderId]) -> bool {
        self.replicate < options.profile.replicates
            && self.made.fits(&Made::now(&options.facts, parties))
    }
}

/// Whether two processes say the same of themselves, their ids aside.
pub(super) fn agree(a: &Hello, b: &Hello) -> bool {
    let without_pid = |hello: &Hello| Hello { pid: 0, ..hello.clone() };
    without_pid(a) == without_pid(b)
}
