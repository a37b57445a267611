//! Handles as tickets: numbers that are looked up, never followed, and never given out twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The last ticket that was given out, of whatever kind, so that a ticket of one kind is none of another.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// What is open of one kind, by ticket.
#[derive(Debug)]
pub(crate) struct Tickets<T> {
    open: RwLock<BTreeMap<usize, Arc<T>>>,
}

impl<T> Tickets<T> {
    pub(crate) const fn new() -> Self {
        Self { open: RwLock::new(BTreeMap::new()) }
    }

    /// Keeps a value; gives its ticket, which is not zero.
    pub(crate) fn give(&self, value: Arc<T>) -> usize {
        let ticket = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(ticket, value);
        ticket
    }

    /// The value of a ticket that is open.
    pub(crate) fn find(&self, ticket: usize) -> Option<Arc<T>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&ticket).cloned()
    }

    /// Ends a ticket and gives the value back, which others may still be using.
    pub(crate) fn take(&self, ticket: usize) -> Option<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_until_it_is_taken_and_never_given_again() {
        let (numbers, words) = (Tickets::new(), Tickets::new());
        let first = numbers.give(Arc::new(1));
        let word = words.give(Arc::new("one"));
        assert!(first != 0 && first != word);
        assert_eq!(numbers.find(first).as_deref(), Some(&1));
        assert!(numbers.find(word).is_none() && words.find(first).is_none());
        assert_eq!(numbers.take(first).as_deref(), Some(&1));
        assert!(numbers.find(first).is_none() && numbers.take(first).is_none());
        assert_ne!(numbers.give(Arc::new(2)), first);
    }
}
