//! The manifest of a bundle: what was packed for a host that has no source tree.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canonical::Digest;
use crate::evidence::SourceFacts;

/// The manifest's file at the bundle's root.
pub const MANIFEST: &str = "bundle.json";

/// What a bundle holds, and which source tree it was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`crate::SCHEMA`].
    pub schema: String,
    /// The tool's version.
    pub tool: String,
    /// The source tree; it counts only as long as every file below has its digest.
    pub source: SourceFacts,
    /// sha256 of every file, by its path from the bundle's root.
    pub files: BTreeMap<String, Digest>,
}
