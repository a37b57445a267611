//! The operators on CUDA: device probe, NVRTC compile with a cache, checked launches.
