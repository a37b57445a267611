//! Gates: from TOML to a resolved gate, and from evidence to a verdict. Pure.
//!
//! | module | what it does |
//! |---|---|
//! | [`declare`] | reads gates, profiles and providers; binds gates to catalog, providers and a profile |
//! | [`schemas`] | the JSON Schemas of what people write |

pub mod declare;
mod schemas;

pub use schemas::schemas;
