//! The inside of a worker process: the protocol loop over the timer.
//!
//! A provider written in Rust implements [`Worker`] and calls [`serve`]; this crate does the rest: it connects, says
//! hello, maps tensors, answers `prepare`, `check`, `measure`, `witness`, `release` and `bye`, and ends with a typed
//! error when the other side breaks the protocol. It knows no operator.
//!
//! | module | what it does |
//! |---|---|
//! | [`provider`] | the traits that a provider implements |
//! | [`cases`] | what a worker that holds its own memory implements: a device's |
//! | [`descriptor`] | what cannot even be mapped |
//! | [`reasons`] | findings of the timer as they travel |
//! | [`session`] | the connection and the strict loop |
//! | [`tensor`] | tensors as a provider gets them |
//! | [`decline`] | the answers that are no result |
//! | [`rehearsal`] | a supervisor in a few lines, for tests of workers |
//!
//! A panic inside a provider becomes a `failed` answer. The process never ends with success without a `bye`.

#[allow(unsafe_code, reason = "pieces of one anonymous mapping")]
mod arena;
pub mod cases;
pub mod decline;
pub mod descriptor;
mod host;
mod line;
mod measure;
#[allow(unsafe_code, reason = "mapped files, and calls that live beside the memory they borrow")]
mod memory;
pub mod provider;
pub mod reasons;
pub mod rehearsal;
pub mod session;
mod sets;
pub mod tensor;
mod witness;

pub use cases::Cases;
pub use decline::Decline;
pub use provider::{Call, Description, Mode, Region, Worker};
pub use session::{SessionError, serve, serve_cases, serve_connected, serve_stream};
pub use tensor::{Storage, Tensor};
