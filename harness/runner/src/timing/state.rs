//! What is known of a timed cell so far: its replicates, those too that an earlier run kept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proofhouse_schema::evidence::{Attempt, Control, Finding, Observation, Pass};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::Hello;

use super::arms::{Distrusted, TakenTurn};
use super::interrupted;
use super::party::Party;
use super::slice::{Made, Part, Slice, agree};
use crate::attempt::{Loss, sentence};
use crate::draft::{Place, PosedFacts};

/// What is known of a cell so far.
#[derive(Debug)]
pub(super) struct CellState {
    pub(super) place: Place,
    pub(super) posed: Option<PosedFacts>,
    pub(super) turns: Vec<TakenTurn>,
    /// Baselines that take no part in this cell, and why.
    pub(super) absent: BTreeMap<ProviderId, String>,
    /// What each replicate left behind; one that goes on is among them.
    pub(super) parts: BTreeMap<u32, Part>,
    /// Replicates that are whole.
    pub(super) done: BTreeSet<u32>,
    /// Those of them that an earlier run made.
    earlier: BTreeMap<u32, Made>,
    /// Lost checkers.
    pub(super) attempts: Vec<Attempt>,
    /// What the cell came to, if it is no measurement.
    pub(super) over: Option<Observation>,
    /// How long the last replicate took.
    pub(super) took: Option<Duration>,
    pub(super) started: bool,
    pub(super) written: bool,
}

impl CellState {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            posed: None,
            turns: Vec::new(),
            absent: BTreeMap::new(),
            parts: BTreeMap::new(),
            done: BTreeSet::new(),
            earlier: BTreeMap::new(),
            attempts: Vec::new(),
            over: None,
            took: None,
            started: false,
            written: false,
        }
    }

    /// Takes over a replicate that an earlier run made.
    pub(super) fn restore(&mut self, slice: &Slice) {
        let slice = slice.clone();
        self.posed = self.posed.take().or(slice.posed);
        self.turns.extend(slice.turns);
        self.absent.extend(slice.absent);
        self.took = Some(slice.took);
        self.parts.insert(slice.replicate, slice.part);
        self.done.insert(slice.replicate);
        self.earlier.insert(slice.replicate, slice.made);
    }

    /// Forgets the replicates of earlier runs: they are about something else. Gives whether there were any.
    pub(super) fn forget_earlier(&mut self) -> bool {
        let earlier = std::mem::take(&mut self.earlier);
        if earlier.is_empty() {
            return false;
        }
        self.turns.retain(|taken| !earlier.contains_key(&taken.replicate));
        self.parts.retain(|replicate, _| !earlier.contains_key(replicate));
        self.done.retain(|replicate| !earlier.contains_key(replicate));
        self.absent.clear();
        self.posed = None;
        true
    }

    /// Whether a provider's process says the same of itself as those of earlier runs did.
    pub(super) fn agrees(&self, party: &Party) -> bool {
        let Some(hello) = &party.hello else { return true };
        let said = |replicate: &u32| self.parts.get(replicate)?.hellos.get(&party.id);
        self.earlier.keys().filter_map(said).all(|earlier| agree(earlier, hello))
    }

    /// Controls of the earlier sessions in which replicates of this cell were made.
    pub(super) fn carried(&self) -> Vec<Control> {
        let sessions: BTreeMap<_, _> =
            self.earlier.values().map(|made| (&made.session, &made.controls)).collect();
        sessions.into_values().flatten().cloned().collect()
    }

    /// Whether it waits for a replicate still.
    pub(super) fn is_open(&self) -> bool {
        !self.written && self.over.is_none()
    }

    /// The first replicate that it lacks.
    pub(super) fn lacks(&self, replicates: u32) -> Option<u32> {
        (0..replicates).find(|replicate| !self.done.contains(replicate))
    }

    pub(super) fn part(&mut self, replicate: u32) -> &mut Part {
        self.parts.entry(replicate).or_default()
    }

    pub(super) fn distrust(&mut self, provider: &ProviderId, replicate: u32, finding: &Finding) {
        let distrusted = &mut self.part(replicate).distrusted;
        distrusted.entry(provider.clone()).or_default().push(finding.clone());
    }

    /// What no single turn shows, by provider and replicate.
    pub(super) fn distrusted(&self) -> Distrusted {
        let of = |(replicate, part): (&u32, &Part)| {
            let keyed = |(id, found): (&ProviderId, &Vec<Finding>)| {
                ((id.clone(), *replicate), found.clone())
            };
            part.distrusted.iter().map(keyed).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of).collect()
    }

    /// The checker's comparisons of timed outputs, in the order of replicates.
    pub(super) fn timed(&self) -> BTreeMap<ProviderId, Vec<Pass>> {
        let mut timed: BTreeMap<ProviderId, Vec<Pass>> = BTreeMap::new();
        for (id, passes) in self.parts.values().flat_map(|part| &part.timed) {
            timed.entry(id.clone()).or_default().extend(passes.iter().cloned());
        }
        timed
    }

    /// What a provider's last process said first.
    pub(super) fn hello(&self, id: &ProviderId) -> Option<&Hello> {
        self.parts.values().rev().find_map(|part| part.hellos.get(id))
    }

    /// A process was lost: the candidate's ends the cell, a baseline's makes it absent. True when the cell is over.
    pub(super) fn lost(&mut self, who: &ProviderId, candidate: &ProviderId, loss: &Loss) -> bool {
        if interrupted(loss) {
            return true;
        }
        if who == candidate {
            self.over = Some(Observation::Errored {
                ending: loss.ending(),
                provider: who.clone(),
                detail: loss.to_string(),
            });
            return true;
        }
        self.absent.insert(who.clone(), format!("errored ({}): {loss}", sentence(&loss.ending())));
        false
    }

    /// What is to be kept of a replicate that is whole.
    pub(super) fn slice(
        &self,
        replicate: u32,
        key: &proofhouse_schema::canonical::Digest,
        made: Made,
        identical: bool,
    ) -> Slice {
        let turns = self.turns.iter().filter(|taken| taken.replicate == replicate);
        Slice {
            key: key.clone(),
            replicate,
            made,
            part: self.parts.get(&replicate).cloned().unwrap_or_default(),
            turns: turns.cloned().collect(),
            posed: self.posed.clone(),
            absent: self.absent.clone(),
            identical,
            took: self.took.unwrap_or_default(),
        }
    }
}
