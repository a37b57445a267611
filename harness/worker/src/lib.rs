//! The inside of a worker process: the protocol loop over the timer.
