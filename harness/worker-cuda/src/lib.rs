//! The worker that runs our CUDA operators.
