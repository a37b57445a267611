//! JSON Schemas of what people write and of what evidence holds; editors complete from the first.

use proofhouse_schema::evidence::Record;
use schemars::{JsonSchema, schema_for};

use crate::declare::profiles::ProfilesFile;
use crate::declare::provider::ProviderFile;
use crate::declare::written::GateFile;

/// Every generated schema: path below the repository, and text. The copies there are committed and compared in a test.
#[must_use]
pub fn schemas() -> Vec<(String, String)> {
    vec![
        ("gates/schema/gate.schema.json".into(), text::<GateFile>()),
        ("gates/schema/profiles.schema.json".into(), text::<ProfilesFile>()),
        ("gates/schema/provider.schema.json".into(), text::<ProviderFile>()),
        ("gates/schema/evidence.schema.json".into(), text::<Record>()),
    ]
}

fn text<T: JsonSchema>() -> String {
    let schema = schema_for!(T);
    format!("{:#}\n", schema.as_value())
}
