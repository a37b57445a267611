//! Every type that Proofhouse serializes, canonical JSON, digests and exit codes.
//!
//! This crate does no IO and knows no operator. What goes to disk or over a worker's socket is declared
//! here, once, with a version; every other crate of the harness depends on it and none redefines a shape.
//!
//! | module | what it declares |
//! |---|---|
//! | [`bundle`] | the manifest of what is carried to another host |
//! | [`canonical`] | RFC 8785 bytes, strict parsing, digests |
//! | [`catalog`] | what gates must know of operators, exported by the checker |
//! | [`device`] | devices, and what is read off them |
//! | [`gate`] | gates after resolution: what is asked |
//! | [`protocol`] | the lines between supervisor and worker |
//! | [`evidence`] | records, sessions, attempts: what was seen |
//! | [`verdict`] | verdicts and their reasons: what is judged |
//! | [`samples`] | the column blob of raw samples |
//! | [`event`] | the run's event stream |
//! | [`report`] | the rows that reports are made of |
//! | [`ordering`] | providers in order |
//! | [`exit`] | documented exit codes |

pub mod bundle;
pub mod canonical;
pub mod catalog;
pub mod device;
pub mod dtype;
pub mod event;
pub mod evidence;
pub mod exit;
pub mod gate;
pub mod ids;
pub mod ordering;
pub mod probe;
pub mod protocol;
pub mod provider;
pub mod real;
pub mod report;
pub mod samples;
pub mod timing;
pub mod units;
pub mod verdict;

/// The version of every serialized shape in this crate; a reader refuses a newer one.
pub const SCHEMA: &str = "proofhouse/v1";
