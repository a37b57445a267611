//! What executors share, and what each has for itself.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::evidence::{Attempt, QualificationScore};
use proofhouse_schema::gate::CaseSpec;
use proofhouse_schema::ids::{OperatorName, ProviderId};
use proofhouse_schema::protocol::Hello;
use proofhouse_schema::provider::ProviderFacts;
use tokio::sync::mpsc::UnboundedSender;

use crate::attempt::{Loss, Placement, Watch, Worker};
use crate::budget::Budget;
use crate::checker::{Checker, CheckerFault};
use crate::correctness::no_battery;
use crate::device::Health;
use crate::draft::{Draft, Message, Place};
use crate::environment::Python;
use crate::error::RunError;
use crate::interrupt::Stop;
use crate::options::RunOptions;
use crate::plan::Plan;
use crate::provider;
use crate::scratch::Scratch;
use crate::socket::ProtocolFault;
use crate::timing::Slice;

/// What executors share; nothing here changes but the batteries' scores.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) options: RunOptions,
    pub(crate) plan: Plan,
    /// Providers that are available, with their Python.
    pub(crate) pythons: BTreeMap<ProviderId, Python>,
    /// Providers that are not, and why.
    pub(crate) absent: BTreeMap<ProviderId, String>,
    pub(crate) stop: Stop,
    pub(crate) watch: Watch,
    pub(crate) sender: UnboundedSender<Message>,
    pub(crate) batteries: RefCell<BTreeMap<String, QualificationScore>>,
    pub(crate) budget: Rc<Budget>,
    /// Cells and slices that are done and not yet written.
    pub(crate) unwritten: Cell<usize>,
    /// Whether devices still work.
    pub(crate) health: Health,
}

impl Context {
    pub(crate) fn case(&self, place: Place) -> &CaseSpec {
        let gate = &self.plan.gates[place.gate];
        &gate.cell(&gate.cells[place.cell]).case
    }

    /// The device that a cell's candidate runs on.
    pub(crate) fn device(&self, place: Place) -> DeviceKind {
        self.plan.gates[place.gate].gate.header.device
    }

    /// Why cells on a device cannot run (any more), if they cannot.
    pub(crate) fn no_device(&self, kind: DeviceKind) -> Option<String> {
        self.options.devices.absent(kind).or_else(|| self.health.quarantined(kind))
    }

    pub(crate) fn started(&self, place: Place) {
        self.send(Message::Started(place));
    }

    pub(crate) fn done(&self, draft: Draft) {
        self.unwritten.set(self.unwritten.get() + 1);
        self.send(Message::Done(Box::new(draft)));
    }

    /// Keeps a replicate of a cell that is not done.
    pub(crate) fn keep(&self, slice: Slice) {
        self.unwritten.set(self.unwritten.get() + 1);
        self.send(Message::Kept(Box::new(slice)));
    }

    pub(crate) fn send(&self, message: Message) {
        // The dispatcher listens until every executor is gone; if it failed, nobody is to be told.
        let _ = self.sender.send(message);
    }

    pub(crate) fn facts(&self, id: &ProviderId, hello: Option<&Hello>) -> ProviderFacts {
        provider::facts(&self.plan.homes[id], &self.plan.makeups[id], hello)
    }

    pub(crate) fn expected_libraries(&self, id: &ProviderId) -> Vec<String> {
        self.plan.homes[id].provider.expect_libraries.clone()
    }

    pub(crate) fn expected_kernels(&self, id: &ProviderId) -> Vec<String> {
        self.plan.homes[id].provider.expect_kernels.clone()
    }

    /// Starts a worker of a provider that is available. First everything that is done is written: a start that is timed
    /// while the dispatcher waits for a disk would look slow.
    pub(crate) async fn start(
        &self,
        id: &ProviderId,
        placement: &Placement,
    ) -> Result<Worker, (Loss, Box<Attempt>)> {
        self.health.ready(self, placement.device).await;
        while self.unwritten.get() > 0 {
            tokio::task::yield_now().await;
        }
        let python = self.pythons.get(id).cloned().flatten();
        let home = &self.plan.homes[id];
        let launch = provider::launch(home, &self.options, python.as_deref(), placement);
        let limits = self.options.limits.on(placement.device);
        let worker = Worker::start(&launch, placement, &limits, &self.watch).await?;
        match self.other_device(&worker, placement.device) {
            None => Ok(worker),
            Some(loss) => {
                let attempt = worker.lose(&loss).await;
                Err((loss, Box::new(attempt)))
            }
        }
    }

    /// A worker that opened another device than the one that it was given (P20).
    fn other_device(&self, worker: &Worker, device: DeviceKind) -> Option<Loss> {
        let asked = &self.options.devices.found.get(&device)?.uuid;
        let found = worker.hello().device.as_ref().map(|opened| opened.uuid.clone());
        if found.as_ref() == Some(asked) || worker.hello().capabilities.checker {
            return None;
        }
        let found = found.unwrap_or_else(|| "no device".to_owned());
        let expected = asked.clone();
        Some(ProtocolFault::WrongSubject { asked: "hello", found, expected }.into())
    }

    pub(crate) fn qualification(
        &self,
        operator: &OperatorName,
        dtype: Dtype,
    ) -> QualificationScore {
        let scores = self.batteries.borrow();
        scores.get(&battery_name(operator, dtype)).cloned().unwrap_or_else(no_battery)
    }
}

/// The name of a battery in a session record.
pub(crate) fn battery_name(operator: &OperatorName, dtype: Dtype) -> String {
    format!("{operator} {dtype}")
}

/// What one executor has for itself: a checker and a place for tensors.
#[derive(Debug)]
pub(crate) struct Desk {
    scratch: Scratch,
    checker: Option<Checker>,
    hello: Option<Hello>,
    lost: Vec<Attempt>,
    losses: u32,
}

impl Desk {
    pub(crate) fn open(context: &Rc<Context>) -> Result<Self, RunError> {
        let scratch = Scratch::make(&context.options.shared_memory).map_err(|source| {
            let folder = context.options.shared_memory.display();
            RunError::Setup { what: format!("make a folder for tensors in {folder}"), source }
        })?;
        Ok(Self { scratch, checker: None, hello: None, lost: Vec::new(), losses: 0 })
    }

    /// Starts a checker if there is none.
    pub(crate) async fn ready(&mut self, context: &Context) -> Result<(), CheckerFault> {
        if self.checker.is_some() {
            return Ok(());
        }
        let id = &context.options.checker;
        if let Some(reason) = context.absent.get(id) {
            return Err(CheckerFault::Declined(format!("the checker is not available: {reason}")));
        }
        if self.losses >= context.options.limits.losses {
            return Err(CheckerFault::Declined(format!(
                "gave-up: the checker lost {} processes",
                self.losses
            )));
        }
        let placement = Placement { threads: 1, ..Placement::default() };
        let fault = match context.start(id, &placement).await {
            Ok(worker) => match Checker::new(worker, &context.options.gates_folder) {
                Ok(checker) => {
                    self.hello = Some(checker.worker.hello().clone());
                    self.checker = Some(checker);
                    return Ok(());
                }
                Err(wrong) => {
                    let (worker, loss) = *wrong;
                    self.lost.push(worker.lose(&loss).await);
                    loss
                }
            },
            Err((loss, attempt)) => {
                self.lost.push(*attempt);
                loss
            }
        };
        self.losses += 1;
        Err(fault.into())
    }

    pub(crate) fn hello(&self) -> Option<&Hello> {
        self.hello.as_ref()
    }

    /// Checker and scratch folder, for one cell.
    pub(crate) fn parts(&mut self) -> Result<(&mut Checker, &Scratch), CheckerFault> {
        match &mut self.checker {
            Some(checker) => Ok((checker, &self.scratch)),
            None => Err(CheckerFault::Declined("there is no checker".to_owned())),
        }
    }

    /// Ends a checker that failed.
    pub(crate) async fn lose(&mut self, loss: &Loss) {
        if let Some(checker) = self.checker.take() {
            self.losses += 1;
            self.lost.push(checker.lose(loss).await);
        }
    }

    /// Checkers that were lost since the last question.
    pub(crate) fn take_lost(&mut self) -> Vec<Attempt> {
        std::mem::take(&mut self.lost)
    }

    /// Ends the checker in peace.
    pub(crate) async fn close(&mut self) {
        if let Some(checker) = self.checker.take() {
            checker.worker.end().await;
        }
    }
}
