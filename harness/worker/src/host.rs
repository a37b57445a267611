//! Cases on the host's processor: tensors are the mapped file's bytes, and calls are timed by the host's clock.

use std::collections::BTreeMap;

use proofhouse_schema::protocol::{Measure, Prepare, Reply, Request};

use crate::cases::{Cases, unknown_case};
use crate::measure::{Bench, Timed};
use crate::memory::Bound;
use crate::provider::{Description, Mode, Worker};

/// A prepared case.
struct Case {
    prepare: Prepare,
    // Before `mapped` goes, its timed copies go.
    timed: Option<Timed>,
    mapped: Bound,
}

/// The cases of a worker that runs on the host.
pub(crate) struct HostCases<'a> {
    worker: &'a mut dyn Worker,
    cases: BTreeMap<String, Case>,
}

impl<'a> HostCases<'a> {
    /// No case yet.
    pub(crate) fn new(worker: &'a mut dyn Worker) -> Self {
        Self { worker, cases: BTreeMap::new() }
    }
}

impl Cases for HostCases<'_> {
    fn describe(&self) -> Description {
        self.worker.describe()
    }

    fn prepare(&mut self, prepare: &Prepare) -> Reply {
        self.cases.remove(&prepare.case);
        match Bound::mapped(self.worker, prepare) {
            Ok(mapped) => {
                let case = Case { prepare: prepare.clone(), mapped, timed: None };
                self.cases.insert(prepare.case.clone(), case);
                Reply::Prepared { case: prepare.case.clone() }
            }
            Err(decline) => decline.into_reply(&prepare.case),
        }
    }

    fn check(&mut self, name: &str, mode: Mode) -> Reply {
        let Some(case) = self.cases.get_mut(name) else { return unknown_case(name) };
        match case.mapped.call().run(mode) {
            Ok(()) => Reply::Checked { case: name.to_owned() },
            Err(decline) => decline.into_reply(name),
        }
    }

    fn measure(&mut self, measure: &Measure) -> Reply {
        match self.cases.get_mut(&measure.case) {
            Some(Case { prepare, timed, mapped }) => {
                Bench { worker: self.worker, case: prepare, mapped, timed }.measure(measure)
            }
            None => unknown_case(&measure.case),
        }
    }

    fn forget(&mut self, name: &str) -> bool {
        self.cases.remove(name).is_some()
    }

    fn dispatch(&self) -> String {
        self.worker.dispatch()
    }

    fn answer(&mut self, request: &Request) -> Option<Reply> {
        self.worker.answer(request)
    }
}
