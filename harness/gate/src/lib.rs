//! Gates: from TOML to a resolved gate, and from evidence to a verdict. Pure.
//!
//! | module | what it does |
//! |---|---|
//! | [`declare`] | reads gates, profiles and providers; binds gates to catalog, providers and a profile |
//! | [`judge`] | evidence to verdicts, verdicts to totals and exit codes |
//! | [`stats`] | the statistics of paired speeds |
//! | [`orderings`] | evidence of many cells to providers in order |
//! | [`document`] | the part of `docs/kernels.md` that is drawn from the catalog |
//! | [`schemas`] | the JSON Schemas of what people write |

pub mod declare;
pub mod document;
pub mod judge;
pub mod orderings;
mod schemas;
pub mod stats;

pub use schemas::schemas;
