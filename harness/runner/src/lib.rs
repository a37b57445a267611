//! Runs gates: it starts workers, keeps them within their limits, asks them over their socket, and hands what was
//! seen to the judge and to the evidence folder.
//!
//! ```text
//! options ── plan() ──> Plan ── run() ──> dispatcher ──> executors ──> attempts (one process each)
//!                                 │  ^                       │
//!                                 │  └── drafts of records ──┘
//!                                 └──> evidence, judge, events
//! ```
//!
//! The dispatcher is the only one who writes evidence and sends events; executors only ask workers and draft records.
//! An attempt is one process with its own process group, an allow-listed environment, a deadline for every request and
//! a memory limit; whatever becomes of it is data ([`proofhouse_schema::evidence::Ending`]).
//!
//! Entry points: [`plan()`] for what would be done, [`run()`] to do it, [`selftest()`] for planted faults.

pub mod attempt;
mod budget;
mod calibration;
mod checker;
mod context;
mod correctness;
pub mod custody;
pub mod device;
mod dispatch;
mod draft;
mod ending;
pub mod environment;
mod error;
mod interrupt;
mod memory;
mod options;
mod plan;
pub mod ports;
mod provider;
mod scratch;
mod selection;
mod selftest;
mod session;
pub mod socket;
mod timing;
mod trace;
mod worklist;

pub use calibration::{CalibrationFindings, CalibrationOptions, calibrate};
pub use dispatch::{Outcome, run};
pub use error::RunError;
pub use interrupt::{Cause, Stop};
pub use options::{Limits, Reuse, RunOptions, SessionFacts};
pub use plan::{Plan, PlannedCell, PlannedGate, plan};
pub use provider::{ProviderHome, SET_VARIABLE, package_folders};
pub use selection::{Filter, Selection, Shard, ShardError};
pub use selftest::{Exploit, Fixture, SelftestFindings, SelftestOptions, selftest};
