//! Providers: anything that can run an operator.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canonical::Digest;
use crate::device::DeviceKind;
use crate::dtype::Dtype;
use crate::ids::{OperatorName, ProviderId};
use crate::probe::Probe;

/// Where a provider's interpreter and packages come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Environment {
    /// A binary that ships with Proofhouse; nothing to set up.
    Binary,
    /// A virtual environment made from the provider's lock file.
    Venv,
    /// The machine's own Python.
    Host,
    /// A folder carried along, put on the Python path.
    Path(String),
}

/// `provider.toml`, resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Its id.
    pub id: ProviderId,
    /// One sentence.
    pub about: String,
    /// Program and arguments. `{python}`, `{folder}` and `{bin}` are filled in by the runner.
    pub command: Vec<String>,
    /// Where its packages come from.
    pub environment: Environment,
    /// The lock file beside `provider.toml` (requirements with hashes), for `venv`.
    pub lock: Option<String>,
    /// Packages and versions, as pinned or expected.
    pub packages: BTreeMap<String, String>,
    /// Devices that it runs on.
    pub devices: Vec<DeviceKind>,
    /// Operators and the activation dtypes that it runs each in.
    pub operators: BTreeMap<OperatorName, Vec<Dtype>>,
    /// Whether it answers invalid inputs with typed refusals.
    pub refusals: bool,
    /// Whether it honors layouts other than contiguous.
    pub strided: bool,
    /// What its timed region includes beside the operator.
    pub includes: Vec<String>,
    /// Names that must be among the libraries it maps (substring); else it fell back silently.
    pub expect_libraries: Vec<String>,
    /// Kernel names that must appear in a device graph (substring).
    pub expect_kernels: Vec<String>,
    /// Whether preparing a case compiles or tunes for seconds, and finds in the cache of kernels what it found before.
    pub tunes: bool,
    /// Environment variables that carry the thread count.
    pub thread_variables: Vec<String>,
    /// Further environment variables, by name and value.
    pub variables: BTreeMap<String, String>,
}

/// What is recorded of a provider that took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderFacts {
    /// Its id.
    pub id: ProviderId,
    /// Its version, as it said in its hello.
    pub version: Probe<String>,
    /// Every file that can change the result: sources, lock, `provider.toml`.
    pub source: Digest,
    /// The executable's digest.
    pub binary: Probe<Digest>,
    /// Packages and versions that the worker reported.
    pub packages: BTreeMap<String, String>,
    /// Compiler and flags, where it is compiled.
    pub compiler: Probe<String>,
    /// What its timed region includes.
    pub includes: Vec<String>,
}
