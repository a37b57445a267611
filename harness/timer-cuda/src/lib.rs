//! The timer's CUDA device: graph replay, eager enqueue, rotation, clocks; a C library for other languages.
