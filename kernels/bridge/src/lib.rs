//! The operators on CUDA for programs in any language: a C ABI of sized descriptors, one header, its hash as the version.
//!
//! The header is `include/proofhouse_kernels.h`, which `cargo run -p proofhouse-bridge --example regenerate` writes from
//! the definitions in [`layout`], [`status`] and [`ffi`]. Its version is a digest of its text, and the library says
//! which header it was built with, so that a caller with another one can stop before it calls anything else.
//!
//! ```c
//! if (strcmp(proofhouse_version(), PROOFHOUSE_KERNELS_VERSION) != 0) { /* another header: do not go on */ }
//! struct proofhouse_open_options options = {.size = sizeof options, .ordinal = 0};
//! struct proofhouse_device *device;
//! if (proofhouse_device_open(&options, &device) != PROOFHOUSE_STATUS_OK) { /* proofhouse_last_error says why */ }
//! proofhouse_enqueue(device, &call, stream);      // prepares the call the first time, launches it every time
//! proofhouse_device_close(device);
//! ```
//!
//! # What always holds
//! - Every struct begins with its size; another size than this library's is refused and not misread.
//! - Null and misaligned pointers are refused. Handles are tickets that are looked up and never followed: one that was
//!   closed, made up or of another kind is refused.
//! - What the contract refuses is refused before a launch, and so is a tensor whose elements reach past its span.
//! - Every failure has a [`status::Status`] and, on its thread, a last error that names operator and argument.
//! - No panic crosses the boundary: it becomes [`status::Status::Panic`].
//! - Launches go onto the caller's stream, never wait and never allocate once a call is prepared. The context that was
//!   current on the caller's thread is current again afterwards.
//!
//! # Threads
//! Every function may be called from any thread at any time. Launches of one prepared operator share its workspace: they
//! go into one stream, or the caller makes them wait for each other. The cache behind `proofhouse_enqueue` keeps an
//! operator for each stream, so its callers need not.
//!
//! Unsafe code stays in [`ffi`]: what comes from C is read there, once, and everything behind it is safe.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod backend;
mod cache;
mod counters;
mod cuda;
mod descriptor;
mod device;
mod failure;
#[allow(unsafe_code, reason = "a C interface takes pointers")]
pub mod ffi;
pub mod layout;
pub mod status;
mod tickets;
mod version;

pub use device::{DEFAULT_CACHED, MOST_CACHED};
pub use version::{HEADER, VERSION_DEFINE, version, version_of};
