//! Stopping a run from outside.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::budget::Budget;
use crate::options::RunOptions;

/// Why a run stops before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Somebody asked for it.
    Asked,
    /// Its time budget is used up.
    TimeBudget,
}

/// Stops a run cleanly: what finished is kept, workers are ended. Clones stop the same run.
#[derive(Debug, Clone)]
pub struct Stop {
    sender: Arc<watch::Sender<Option<Cause>>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// A stop that was not requested.
    #[must_use]
    pub fn new() -> Self {
        Self { sender: Arc::new(watch::Sender::new(None)) }
    }

    /// Asks the run to stop; may be called from any thread, and again.
    pub fn request(&self) {
        self.sender.send_replace(Some(Cause::Asked));
    }

    /// Stops the run since its time is used up. Who asked before has the word.
    pub(crate) fn spend(&self) {
        self.sender.send_if_modified(|cause| {
            let first = cause.is_none();
            cause.get_or_insert(Cause::TimeBudget);
            first
        });
    }

    /// Whether it was asked to.
    #[must_use]
    pub fn requested(&self) -> bool {
        self.cause().is_some()
    }

    /// Why it stops, if it does.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        *self.sender.borrow()
    }

    /// Waits until it is asked to.
    pub(crate) async fn wait(&self) {
        let mut receiver = self.sender.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = receiver.wait_for(Option::is_some).await;
    }
}

/// The signals that end a run cleanly. A hang-up that the caller ignores (`nohup`) stays ignored.
fn watched() -> Vec<SignalKind> {
    let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !ignores(&status, SignalKind::hangup().as_raw_value()) {
        kinds.push(SignalKind::hangup());
    }
    kinds
}

/// Whether a process ignores a signal, by its `status` in `/proc`.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Ends the run when one of the signals comes.
fn on_signal(kind: SignalKind, stop: &Stop) -> std::io::Result<tokio::task::JoinHandle<()>> {
    let (mut signal, stop) = (signal(kind)?, stop.clone());
    Ok(tokio::task::spawn_local(async move {
        signal.recv().await;
        stop.request();
    }))
}

/// Tasks that ask the run to stop; they end with the run.
#[derive(Debug)]
pub(crate) struct Watchers(Vec<tokio::task::JoinHandle<()>>);

impl Watchers {
    /// Starts them; it must be called within a local task set.
    pub(crate) fn start(
        options: &RunOptions,
        budget: &Budget,
        stop: &Stop,
    ) -> std::io::Result<Self> {
        let mut tasks = Vec::new();
        if options.handle_signals {
            for kind in watched() {
                tasks.push(on_signal(kind, stop)?);
            }
        }
        tasks.extend(budget.enforce(stop));
        Ok(Self(tasks))
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_ignored_is_seen_in_the_mask() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert!(ignores(status, libc::SIGHUP));
        assert!(ignores(status, libc::SIGPIPE));
        assert!(!ignores(status, libc::SIGINT));
        assert!(!ignores("", libc::SIGHUP));
    }

    #[test]
    fn who_asks_has_the_word_over_the_clock() {
        let stop = Stop::new();
        stop.spend();
        assert_eq!(stop.cause(), Some(Cause::TimeBudget));
        stop.request();
        stop.spend();
        assert_eq!(stop.cause(), Some(Cause::Asked));
    }
}
