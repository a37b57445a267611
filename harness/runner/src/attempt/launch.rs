//! What is started, with which environment, where.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::ids::ProviderId;

/// A process to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Whose worker it is.
    pub provider: ProviderId,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Program and arguments as evidence records them, with placeholders in place of machine paths.
    pub recorded: Vec<String>,
    /// Its whole environment but socket and nonce.
    pub environment: BTreeMap<String, String>,
    /// Names of the variables above that are the machine's and are recorded without their values.
    pub inherited: Vec<String>,
}

/// Where an attempt runs and as what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// The replicate (baseline), else 0.
    pub replicate: u32,
    /// The cores it is pinned to; none: wherever the system puts it.
    pub cores: Option<Vec<usize>>,
    /// Threads it may use.
    pub threads: u32,
    /// The device that it works on.
    pub device: DeviceKind,
    /// A program that runs the worker, with its arguments: a sanitizer; empty for none.
    pub wrapper: Vec<String>,
}

impl Launch {
    /// The environment as evidence records it: our values, and the mere names of the machine's.
    #[must_use]
    pub fn recorded_environment(&self) -> BTreeMap<String, String> {
        let value = |name: &String, value: &String| {
            if self.inherited.contains(name) { "(inherited)".to_owned() } else { value.clone() }
        };
        self.environment.iter().map(|(n, v)| (n.clone(), value(n, v))).collect()
    }
}
