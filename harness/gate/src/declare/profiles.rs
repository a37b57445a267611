//! `gates/profiles.toml`: how much is measured.

use std::collections::BTreeMap;
use std::ops::Range;

use proofhouse_schema::gate::Profile;
use proofhouse_schema::ids::ProfileId;
use schemars::JsonSchema;
use toml::Spanned;
use toml::de::DeValue;

use super::fault::{DeclarationErrors, Fault};
use super::reader::{FromToml, Sink, decode, read_document, read_table};
use super::sited::Sited;
use super::spec::sited_id;

/// One profile as it is written.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ProfileTable {
    /// Fresh processes per provider in a baseline gate: 1 is exploratory, 3 qualified, 5 a claim.
    pub replicates: Sited<u32>,
    /// Blocks per replicate, each with every provider once.
    pub blocks: Sited<u32>,
    /// Samples per turn.
    pub samples: Sited<u32>,
    /// Least duration of a sample, in microseconds.
    pub min_sample_us: Sited<f64>,
    /// The table's place.
    #[schemars(skip)]
    pub span: Range<usize>,
}

/// The whole file: profiles by id.
#[derive(JsonSchema)]
#[schemars(title = "Proofhouse profiles")]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct ProfilesFile(BTreeMap<String, ProfileTable>);

impl FromToml for ProfileTable {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        read_table(value, key, sink, |reader, sink| {
            let mut r = reader.named("the profile");
            let replicates = r.required("replicates", sink);
            let blocks = r.required("blocks", sink);
            let samples = r.required("samples", sink);
            let min_sample_us = r.required("min-sample-us", sink);
            let span = r.span();
            r.finish(sink);
            Some(Self {
                replicates: replicates?,
                blocks: blocks?,
                samples: samples?,
                min_sample_us: min_sample_us?,
                span,
            })
        })
    }
}

/// Reads `profiles.toml`; `shown` is how errors name it.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse_profiles(
    shown: &str,
    bytes: &[u8],
) -> Result<BTreeMap<ProfileId, Profile>, DeclarationErrors> {
    read_document(&decode(shown, bytes)?, |reader, sink| {
        let mut profiles = BTreeMap::new();
        for (name, value) in reader.entries() {
            let table = ProfileTable::from_toml(value, &name.value, sink);
            let id = sited_id(&name, ProfileId::new, sink);
            if let (Some(table), Some(id)) = (table, id) {
                profiles.insert(id.value.clone(), checked(id.value, &table, sink));
            }
        }
        if profiles.is_empty() && sink.is_empty() {
            let accepted = "declare one, e.g. [quick]".to_owned();
            sink.push(0..0, Fault::Empty { what: "profiles", accepted });
        }
        Some(profiles)
    })
}

fn checked(id: ProfileId, table: &ProfileTable, sink: &mut Sink) -> Profile {
    let counts = [
        ("replicates", &table.replicates, 1, 1000),
        ("blocks", &table.blocks, 2, 10_000),
        ("samples", &table.samples, 1, 10_000),
    ];
    for (key, count, least, most) in counts {
        if !(least..=most).contains(&count.value) {
            let (found, accepted) = (count.value.to_string(), format!("{least} to {most}"));
            let fault = Fault::OutOfRange { key: key.into(), found, accepted };
            sink.push(count.span.clone(), fault);
        }
    }
    let sample = &table.min_sample_us;
    if !(sample.value >= 1.0 && sample.value <= 1e7) {
        let (found, accepted) = (sample.value.to_string(), "1 to 10,000,000 microseconds".into());
        let fault = Fault::OutOfRange { key: "min-sample-us".into(), found, accepted };
        sink.push(sample.span.clone(), fault);
    }
    Profile {
        id,
        replicates: table.replicates.value,
        blocks: table.blocks.value,
        samples: table.samples.value,
        min_sample_us: sample.value,
    }
}
