//! Fake workers, one for each way to go wrong.
