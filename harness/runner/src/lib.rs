//! Runs gates: dispatcher, executors, process groups, limits, custody.
