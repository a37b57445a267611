//! Buffer sets: private copies of a case's tensors that timed calls rotate through.

use proofhouse_schema::catalog::Role;
use proofhouse_schema::protocol::{Prepare, TensorRef};
use proofhouse_timer::host::{CallFailure, HostWork};

use crate::arena::Arena;
use crate::decline::Decline;
use crate::descriptor::{is_written, rows};
use crate::memory::Bound;
use crate::provider::{Mode, Worker};

/// What outputs hold before a turn whose outputs are published, so that a call that writes nothing shows.
const TURN_POISON: u8 = 0xa5;

/// The sets of a case, what they started from, and which was used last.
#[derive(Debug)]
pub(crate) struct Sets {
    case: Prepare,
    sets: Vec<Bound>,
    /// Where the sets lie.
    arena: Arena,
    /// What each tensor held in the file when the sets were made or refreshed.
    contents: Vec<Vec<u8>>,
    last: u32,
    declined: Option<Decline>,
}

impl Sets {
    /// One set with the contents of the mapped file.
    pub(crate) fn from_mapped(
        worker: &mut dyn Worker,
        case: &Prepare,
        mapped: &mut Bound,
    ) -> Result<Self, Decline> {
        let contents = read_all(case, mapped);
        let mut arena = Arena::default();
        let first = Bound::private(worker, case, &contents, &mut arena)?;
        let case = case.clone();
        Ok(Self { case, sets: vec![first], arena, contents, last: 0, declined: None })
    }

    /// Makes sets until there are `count`.
    pub(crate) fn grow(&mut self, worker: &mut dyn Worker, count: u32) -> Result<(), Decline> {
        while self.sets.len() < count as usize {
            let set = Bound::private(worker, &self.case, &self.contents, &mut self.arena)?;
            self.sets.push(set);
        }
        Ok(())
    }

    /// Why the last call failed, once.
    pub(crate) fn take_declined(&mut self) -> Option<Decline> {
        self.declined.take()
    }

    /// Gives every set the contents that the mapped file has now, at the same addresses.
    pub(crate) fn refresh(
        &mut self,
        worker: &mut dyn Worker,
        mapped: &mut Bound,
    ) -> Result<(), Decline> {
        self.contents = read_all(&self.case, mapped);
        for set in &mut self.sets {
            set.renew(worker, &self.case, &self.contents)?;
        }
        Ok(())
    }

    /// Poisons the elements of every output in every set.
    pub(crate) fn poison_outputs(&mut self) {
        for set in &mut self.sets {
            for (index, tensor) in self.case.tensors.iter().enumerate() {
                if tensor.role != Role::Out {
                    continue;
                }
                if let Some(bytes) = set.call().bytes_mut(index) {
                    for row in rows(tensor) {
                        bytes[row].fill(TURN_POISON);
                    }
                }
            }
        }
    }

    /// Copies what the last call wrote into the mapped file, element by element, gaps left alone.
    pub(crate) fn publish(&mut self, mapped: &mut Bound) -> Result<(), Decline> {
        for (index, tensor) in self.case.tensors.iter().enumerate() {
            if !is_written(tensor) {
                continue;
            }
            let from = self.sets[self.last as usize].call().bytes(index);
            let into = mapped.call().bytes_mut(index).ok_or_else(|| no_bytes(tensor))?;
            for row in rows(tensor) {
                into[row.clone()].copy_from_slice(&from[row]);
            }
        }
        Ok(())
    }
}

fn no_bytes(tensor: &TensorRef) -> Decline {
    Decline::Failed(format!("the provider's call gives no memory for `{}`", tensor.name))
}

fn read_all(case: &Prepare, mapped: &mut Bound) -> Vec<Vec<u8>> {
    let call = mapped.call();
    (0..case.tensors.len()).map(|index| call.bytes(index).to_vec()).collect()
}

impl HostWork for Sets {
    #[inline]
    fn call(&mut self, set: u32) -> Result<(), CallFailure> {
        self.last = set;
        match self.sets[set as usize].call().run(Mode::Unchecked) {
            Ok(()) => Ok(()),
            Err(decline) => Err(failure(&mut self.declined, decline)),
        }
    }

    fn restore(&mut self, set: u32) -> Result<(), CallFailure> {
        for (index, tensor) in self.case.tensors.iter().enumerate() {
            if tensor.role != Role::InOut {
                continue;
            }
            match self.sets[set as usize].call().bytes_mut(index) {
                Some(bytes) => bytes.copy_from_slice(&self.contents[index]),
                None => return Err(failure(&mut self.declined, no_bytes(tensor))),
            }
        }
        Ok(())
    }
}

#[cold]
fn failure(declined: &mut Option<Decline>, decline: Decline) -> CallFailure {
    let message = decline.to_string();
    *declined = Some(decline);
    CallFailure { code: 1, message }
}
