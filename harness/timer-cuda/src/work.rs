//! What is timed: calls that somebody enqueues or captures.

use proofhouse_timer::Rotation;
use proofhouse_timer::host::CallFailure;

use crate::handle::{Graph, Stream};

/// The calls of a provider on its buffer sets.
pub trait CudaWork {
    /// Enqueues one call on buffer set `set`, without waiting.
    ///
    /// # Errors
    /// The work's own.
    fn enqueue(&mut self, set: u32, stream: Stream) -> Result<(), CallFailure>;

    /// Captures the calls of a rotation by itself and keeps the graph, or leaves it to the timer,
    /// which then captures what [`Self::enqueue`] enqueues.
    ///
    /// A graph that is given must hold exactly these calls in this order, and it and the memory
    /// that it uses must live as long as the work.
    ///
    /// # Errors
    /// The work's own.
    fn capture(
        &mut self,
        _rotation: Rotation,
        _stream: Stream,
    ) -> Result<Option<Graph>, CallFailure> {
        Ok(None)
    }

    /// Enqueues what gives buffer set `set` its original contents back, without waiting; it is
    /// captured once and replayed.
    ///
    /// # Errors
    /// The work's own; by default that it cannot restore, so that a plan which restores fails.
    fn restore(&mut self, _set: u32, _stream: Stream) -> Result<(), CallFailure> {
        Err(CallFailure { code: 0, message: "this work cannot restore its inputs".into() })
    }
}

/// The set of each call of a rotation, in order.
pub fn sets_of(rotation: Rotation) -> impl Iterator<Item = u32> {
    let offset = rotation.first_set - rotation.cycle_start;
    (0..rotation.calls).map(move |call| {
        let place = (u64::from(offset) + u64::from(call)) % u64::from(rotation.sets);
        // The remainder is below `sets`, which fits.
        rotation.cycle_start + place as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_goes_on_from_its_first_set_and_begins_again() {
        let all = Rotation { first_set: 2, cycle_start: 0, sets: 3, calls: 5 };
        assert_eq!(sets_of(all).collect::<Vec<_>>(), [2, 0, 1, 2, 0]);
        let one = Rotation { first_set: 7, cycle_start: 7, sets: 1, calls: 3 };
        assert_eq!(sets_of(one).collect::<Vec<_>>(), [7, 7, 7]);
    }
}
