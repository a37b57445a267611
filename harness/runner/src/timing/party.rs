//! One provider of a baseline gate: its process of this replicate, and its turns checked against our clock.

use std::time::Instant;

use proofhouse_schema::evidence::{Attempt, Finding};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Hello, Measure, Measured, Phase, Reply, Request, Witnessed};
use proofhouse_schema::units::Nanos;

use crate::attempt::{CoreTime, Loss, Placement, Worker, unexpected};
use crate::context::Context;
use crate::correctness::fallbacks;
use crate::socket::ProtocolFault;

/// A worker's account may exceed the supervisor's clock by this fraction: the clocks are two.
const CLOCK_SLACK: f64 = 0.02;
/// ... and by this many nanoseconds.
const CLOCK_SLACK_NS: f64 = 200_000.0;

/// One provider of a baseline gate.
#[derive(Debug)]
pub(super) struct Party {
    pub(super) id: ProviderId,
    pub(super) worker: Option<Worker>,
    pub(super) hello: Option<Hello>,
    pub(super) witness: Option<Witnessed>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) losses: u32,
}

/// A measurement with the supervisor's own time for it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(super) struct Turn {
    pub(super) measured: Measured,
    ///
    /// Waits for a core are taken off: on a busy machine they are no fault of the worker's account.
    pub(super) supervisor: Nanos,
    /// Why it cannot be trusted: what the worker said, and what was seen from here.
    pub(super) invalid: Vec<Finding>,
}

impl Party {
    pub(super) fn new(id: ProviderId) -> Self {
        Self { id, worker: None, hello: None, witness: None, attempts: Vec::new(), losses: 0 }
    }

    /// Starts a process if there is none.
    pub(super) async fn ready(
        &mut self,
        context: &Context,
        placement: &Placement,
    ) -> Result<(), Loss> {
        if self.worker.is_some() {
            return Ok(());
        }
        let limit = context.options.limits.losses;
        if self.losses >= limit {
            return Err(Loss::NotStarted {
                detail: format!("gave-up: {limit} processes were lost"),
            });
        }
        match context.start(&self.id, placement).await {
            Ok(worker) => {
                self.hello = Some(worker.hello().clone());
                self.worker = Some(worker);
                Ok(())
            }
            Err((loss, attempt)) => {
                self.losses += 1;
                self.attempts.push(*attempt);
                Err(loss)
            }
        }
    }

    /// Ends the process because of a loss.
    pub(super) async fn lose(&mut self, loss: &Loss) {
        if let Some(worker) = self.worker.take() {
            self.losses += 1;
            self.attempts.push(worker.lose(loss).await);
        }
    }

    /// Asks what really ran and ends the process; a wrong end is given back.
    pub(super) async fn close(&mut self, stopped: bool) -> Option<Loss> {
        let mut worker = self.worker.take()?;
        if stopped {
            self.attempts.push(worker.lose(&Loss::Interrupted).await);
            return None;
        }
        let witnessed = match worker.ask(Request::Witness).await {
            Ok(Reply::Witnessed(witnessed)) => Ok(witnessed),
            Ok(other) => Err(unexpected("witness", &other, "witnessed")),
            Err(loss) => Err(loss),
        };
        match witnessed {
            Ok(witnessed) => {
                self.witness = Some(witnessed);
                let (attempt, loss) = worker.end().await;
                self.attempts.push(attempt);
                loss
            }
            Err(loss) => {
                self.attempts.push(worker.lose(&loss).await);
                Some(loss)
            }
        }
    }

    /// Libraries that the provider promised and did not map.
    pub(super) fn fallbacks(&self, context: &Context) -> Vec<Finding> {
        let expected = context.expected_libraries(&self.id);
        self.witness.as_ref().map(|witness| fallbacks(&expected, witness)).unwrap_or_default()
    }

    /// The live worker.
    pub(super) fn live(&mut self) -> Result<&mut Worker, Loss> {
        let missing = || Loss::NotStarted { detail: "no process".to_owned() };
        self.worker.as_mut().ok_or_else(missing)
    }

    /// Warms up or takes a turn. `Err(Ok(_))` is what the worker said in place of samples.
    pub(super) async fn measure(&mut self, request: Measure) -> Result<Turn, NoTurn> {
        let asked = request.clone();
        let worker = self.live()?;
        let before = worker.core_time();
        let begun = Instant::now();
        let reply = worker.ask(Request::Measure(request)).await?;
        let supervisor = Nanos(begun.elapsed().as_nanos() as f64);
        let spent = worker.core_time().since(before);
        match reply {
            Reply::Measured(measured) => {
                let mut turn = checked(&asked, measured, supervisor)?;
                turn.supervisor = without_waits(&turn.measured, supervisor, spent);
                Ok(turn)
            }
            Reply::Failed { detail } => Err(NoTurn::Declined(detail)),
            Reply::Unsupported { case, reason } if case == asked.case => {
                Err(NoTurn::Declined(reason))
            }
            other => Err(unexpected("measure", &other, "measured, unsupported, failed").into()),
        }
    }
}

/// Why there are no samples.
#[derive(Debug)]
pub(super) enum NoTurn {
    /// The process is lost.
    Lost(Loss),
    /// It lives and does not measure this.
    Declined(String),
}

impl From<Loss> for NoTurn {
    fn from(loss: Loss) -> Self {
        NoTurn::Lost(loss)
    }
}

/// The supervisor's time less what the kernel let both sides wait for a core. No less than the time that the worker was
/// on a core, which a patched clock cannot hide; no less than its account, for waits inside samples are in that, too.
fn without_waits(measured: &Measured, supervisor: Nanos, spent: CoreTime) -> Nanos {
    let account = measured.timed.0 + measured.untimed.0;
    let least = account.max(spent.used_ns).min(supervisor.0);
    Nanos((supervisor.0 - spent.waited_ns).max(least))
}

/// A measurement that is about something else or cannot be is a broken protocol; one that is merely suspect is
/// invalid.
fn checked(asked: &Measure, measured: Measured, supervisor: Nanos) -> Result<Turn, Loss> {
    let subject =
        |case: &str, phase: Phase, block, position| format!("{case} {phase:?} {block} {position}");
    let expected = subject(&asked.case, asked.phase, asked.block, asked.position);
    let found = subject(&measured.case, measured.phase, measured.block, measured.position);
    if found != expected {
        return Err(ProtocolFault::WrongSubject { asked: "measure", found, expected }.into());
    }
    let account = |detail: String| Err(Loss::from(ProtocolFault::Account { detail }));
    let sum: f64 = measured.elapsed_ns.iter().sum();
    if (sum - measured.timed.0).abs() > 1e-6 * sum.abs() + 1.0 {
        return account(format!("its samples sum to {}, it says {}", Nanos(sum), measured.timed));
    }
    let most = supervisor.0 * (1.0 + CLOCK_SLACK) + CLOCK_SLACK_NS;
    if measured.wall.0 > most || measured.timed.0 + measured.untimed.0 > most {
        return account(format!(
            "it says {} (samples {}, between them {}), by the supervisor's clock the request took {supervisor}",
            measured.wall, measured.timed, measured.untimed
        ));
    }
    let mut invalid = measured.invalid.clone();
    invalid.extend(suspicions(asked, &measured));
    Ok(Turn { measured, supervisor, invalid })
}

fn suspicions(asked: &Measure, measured: &Measured) -> Vec<Finding> {
    let finding = |code: &str, detail: String| Finding { code: code.to_owned(), detail };
    let mut found = Vec::new();
    let count = measured.elapsed_ns.len();
    if asked.phase == Phase::Turn && measured.invalid.is_empty() && count != asked.samples as usize
    {
        found.push(finding(
            "no-samples",
            format!("{count} samples, {} were asked for", asked.samples),
        ));
    }
    if measured.calls == 0 {
        found.push(finding("no-calls", "samples of no call at all".to_owned()));
    }
    let bad = measured.elapsed_ns.iter().find(|time| !time.is_finite() || **time <= 0.0);
    if let Some(time) = bad {
        found.push(finding("bad-time", format!("a sample took {time} ns")));
    }
    let [before, after] = measured.modules;
    if asked.phase == Phase::Turn && before != after && measured.invalid.is_empty() {
        let detail = format!("{before} modules before the turn, {after} after it");
        found.push(finding("module-loaded", detail));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_schema::device::Telemetry;
    use proofhouse_schema::timing::{Cache, Launch};

    fn asked() -> Measure {
        Measure {
            case: "c".to_owned(),
            phase: Phase::Turn,
            block: 1,
            position: 0,
            samples: 2,
            min_sample_ns: 1.0,
            cache: Cache::Hot,
            launch: Launch::Eager,
            footprint: 0,
            publish: false,
            slowdown: 0.0,
            refresh: false,
        }
    }

    fn honest() -> Measured {
        Measured {
            case: "c".to_owned(),
            phase: Phase::Turn,
            block: 1,
            position: 0,
            calls: 10,
            sets: 1,
            elapsed_ns: vec![1e6, 1.1e6],
            timed: Nanos(2.1e6),
            untimed: Nanos(0.0),
            wall: Nanos(2.2e6),
            modules: [5, 5],
            invalid: vec![],
            enqueue_ns: vec![],
            telemetry: Telemetry::default(),
            kernels: vec![],
            reuse: None,
            retaken: 0,
        }
    }

    fn turn(measured: Measured) -> Result<Turn, Loss> {
        checked(&asked(), measured, Nanos(2.3e6))
    }

    #[test]
    fn an_honest_turn_is_trusted() {
        assert!(turn(honest()).unwrap().invalid.is_empty());
    }

    #[test]
    fn a_turn_about_another_block_breaks_the_protocol() {
        for wrong in [
            Measured { block: 0, ..honest() },
            Measured { position: 1, ..honest() },
            Measured { phase: Phase::Warm, ..honest() },
            Measured { case: "d".to_owned(), ..honest() },
        ] {
            assert!(matches!(turn(wrong), Err(Loss::Protocol(ProtocolFault::WrongSubject { .. }))));
        }
    }

    #[test]
    fn more_time_than_passed_here_breaks_the_protocol() {
        for wrong in [
            Measured { wall: Nanos(4e6), ..honest() },
            Measured { untimed: Nanos(2e6), ..honest() },
            Measured { timed: Nanos(1e6), ..honest() },
        ] {
            assert!(matches!(turn(wrong), Err(Loss::Protocol(ProtocolFault::Account { .. }))));
        }
    }

    #[test]
    fn waits_are_taken_off_and_a_patched_clock_still_shows() {
        let spent = |used_ns, waited_ns| CoreTime { used_ns, waited_ns };
        let busy = without_waits(&honest(), Nanos(9e6), spent(2.2e6, 6.5e6));
        assert_eq!(busy, Nanos(2.5e6));
        let inside = without_waits(&honest(), Nanos(2.3e6), spent(1.1e6, 1e6));
        assert_eq!(inside, Nanos(2.1e6), "waits inside samples are in the account");
        let patched = Measured { timed: Nanos(0.2e6), ..honest() };
        let seen = without_waits(&patched, Nanos(2.3e6), spent(2e6, 2.2e6));
        assert_eq!(seen, Nanos(2e6), "the kernel saw it work");
    }

    #[test]
    fn suspect_turns_are_invalid_and_say_why() {
        let codes = |measured| -> Vec<String> {
            turn(measured).unwrap().invalid.into_iter().map(|f| f.code).collect()
        };
        assert_eq!(codes(Measured { modules: [5, 6], ..honest() }), ["module-loaded"]);
        assert_eq!(codes(Measured { calls: 0, ..honest() }), ["no-calls"]);
        let one = Measured { elapsed_ns: vec![1e6], timed: Nanos(1e6), ..honest() };
        assert_eq!(codes(one), ["no-samples"]);
        let zero = Measured { elapsed_ns: vec![0.0, 1e6], timed: Nanos(1e6), ..honest() };
        assert_eq!(codes(zero), ["bad-time"]);
    }
}
