//! The time that a run may take: no work begins that would pass it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::interrupt::Stop;

/// A run's time, counted from its beginning.
#[derive(Debug)]
pub(crate) struct Budget {
    begun: Instant,
    limit: Option<Duration>,
    /// Whether work was refused for which all other work is given up.
    spent: Cell<bool>,
    /// Whether work was passed over for shorter work.
    passed_over: Cell<bool>,
    /// Whether processes are being ended in peace, so that what they gave can be kept.
    closing: Rc<Cell<bool>>,
}

/// How long the end of processes may pass the limit. They have deadlines of their own.
const GRACE: Duration = Duration::from_secs(60);
/// How often it is looked whether they have ended.
const LOOK: Duration = Duration::from_millis(50);

impl Budget {
    pub(crate) fn new(begun: Instant, limit: Option<Duration>) -> Self {
        Self {
            begun,
            limit,
            spent: Cell::new(false),
            passed_over: Cell::new(false),
            closing: Rc::default(),
        }
    }

    /// Whether work that may take so long can begin. Once something could not, nothing can: the rest is another run's.
    pub(crate) fn allows(&self, next: Duration) -> bool {
        if !self.holds(next) {
            self.spent.set(true);
        }
        !self.spent.get()
    }

    /// Whether work that may take so long can begin; where it cannot, shorter work still can.
    pub(crate) fn fits(&self, next: Duration) -> bool {
        let fits = self.has(next);
        self.passed_over.set(self.passed_over.get() || !fits);
        fits
    }

    fn holds(&self, next: Duration) -> bool {
        self.limit.is_none_or(|limit| limit.saturating_sub(self.begun.elapsed()) > next)
    }

    /// Whether there is so much time; nothing is given up where there is not.
    pub(crate) fn has(&self, next: Duration) -> bool {
        !self.spent.get() && self.holds(next)
    }

    /// Whether there is a limit at all.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether nothing can begin any more.
    pub(crate) fn spent(&self) -> bool {
        self.spent.get()
    }

    /// Whether any work was left to another run.
    pub(crate) fn left_work(&self) -> bool {
        self.spent.get() || self.passed_over.get()
    }

    /// Says that processes are being ended in peace, or no longer.
    pub(crate) fn closing(&self, closing: bool) {
        self.closing.set(closing);
    }

    /// Stops the run hard when its time is over: what began too late, or hangs, is not waited for, but for processes that
    /// are being ended already. It must be called within a local task set.
    pub(crate) fn enforce(&self, stop: &Stop) -> Option<tokio::task::JoinHandle<()>> {
        let end = tokio::time::Instant::from_std(self.begun + self.limit?);
        let (stop, closing) = (stop.clone(), Rc::clone(&self.closing));
        Some(tokio::task::spawn_local(async move {
            tokio::time::sleep_until(end).await;
            while closing.get() && end.elapsed() < GRACE {
                tokio::time::sleep(LOOK).await;
            }
            stop.spend();
        }))
    }
}

/// What of a budget must be left before another step: time for it, if it is as long as the longest before it, and for what
/// comes after all steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    reserve: Duration,
    longest: Duration,
}

impl Pace {
    pub(crate) fn new(reserve: Duration) -> Self {
        Self { reserve, longest: Duration::ZERO }
    }

    /// A step took so long.
    pub(crate) fn took(&mut self, step: Duration) {
        self.longest = self.longest.max(step);
    }

    pub(crate) fn next(&self) -> Duration {
        self.reserve + self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_everything_is_allowed() {
        let budget = Budget::new(Instant::now(), None);
        assert!(budget.allows(Duration::MAX) && !budget.spent());
    }

    #[test]
    fn what_would_pass_the_limit_is_refused_and_so_is_everything_after_it() {
        let budget = Budget::new(Instant::now(), Some(Duration::from_secs(3600)));
        assert!(budget.allows(Duration::from_secs(60)));
        assert!(!budget.allows(Duration::from_secs(3600)) && budget.spent());
        assert!(!budget.allows(Duration::ZERO));
    }

    #[test]
    fn a_step_as_long_as_the_longest_must_fit_beside_the_reserve() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let budget = Budget::new(Instant::now(), Some(minutes(60)));
        let mut pace = Pace::new(minutes(10));
        assert!(budget.allows(pace.next()));
        pace.took(minutes(55));
        pace.took(minutes(1));
        assert_eq!(pace.next(), minutes(65));
        assert!(
            !budget.allows(pace.next()),
            "the step would be cut off, and all of the replicate lost"
        );
    }

    #[test]
    fn work_that_is_passed_over_leaves_room_for_shorter_work() {
        let budget = Budget::new(Instant::now(), Some(Duration::from_secs(3600)));
        assert!(!budget.left_work());
        assert!(!budget.fits(Duration::from_secs(3600)) && budget.fits(Duration::from_secs(60)));
        assert!(budget.left_work() && !budget.spent());
        assert!(!budget.allows(Duration::from_secs(3600)) && !budget.fits(Duration::ZERO));
    }

    #[test]
    fn a_budget_that_is_used_up_allows_nothing() {
        let budget = Budget::new(Instant::now(), Some(Duration::ZERO));
        assert!(!budget.allows(Duration::ZERO));
    }
}
