//! A small catalog, providers and profiles that the tests bind gates to.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use proofhouse_gate::declare::{
    Bindings, DeclarationErrors, Declarations, parse_profiles, parse_provider,
};
use proofhouse_schema::catalog::Catalog;
use proofhouse_schema::gate::{Profile, ResolvedGate};
use proofhouse_schema::ids::{ProfileId, ProviderId};
use proofhouse_schema::provider::Provider;

/// A gates folder in memory.
pub type Folder = BTreeMap<String, Vec<u8>>;

pub fn catalog() -> Catalog {
    proofhouse_schema::canonical::parse(include_bytes!("catalog.json")).unwrap()
}

pub fn profiles() -> BTreeMap<ProfileId, Profile> {
    parse_profiles("gates/profiles.toml", include_bytes!("profiles.toml")).unwrap()
}

pub fn provider(id: &str, dtypes: &str, includes: &str) -> Provider {
    let text = format!(
        "id = \"{id}\"\nabout = \"a provider\"\ncommand = [\"{{bin}}/{id}\"]\nenvironment = \"binary\"\n\
         includes = {includes}\n[operators]\nrms_norm = {dtypes}\nsilu_and_mul = {dtypes}\n"
    );
    parse_provider("baselines/x/provider.toml", text.as_bytes()).unwrap()
}

pub fn providers() -> BTreeMap<ProviderId, Provider> {
    [
        provider("cpu", "[\"F32\", \"F16\", \"BF16\"]", "[]"),
        provider("numpy", "[\"F32\", \"F16\"]", "[]"),
        provider("onnxruntime", "[\"F32\"]", "[]"),
        provider("allocating", "[\"F32\"]", "[\"allocation\"]"),
    ]
    .into_iter()
    .map(|provider| (provider.id.clone(), provider))
    .collect()
}

/// A safetensors file with tensors of zeros.
pub fn safetensors(tensors: &[(&str, &[u64])]) -> Vec<u8> {
    let mut at = 0;
    let entries: Vec<String> = tensors
        .iter()
        .map(|(name, shape)| {
            let start = at;
            at += 4 * shape.iter().product::<u64>();
            format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":{shape:?},\"data_offsets\":[{start},{at}]}}")
        })
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + at as usize, 0);
    bytes
}

/// A folder with one gate, the profiles, a file of real tensors, and files that are spoiled in one way each.
pub fn folder(gate_path: &str, gate: &[u8]) -> Folder {
    let sound = safetensors(&[("hidden", &[16, 576]), ("norm", &[576]), ("gate_up", &[16, 3072])]);
    let header = 8 + u64::from_le_bytes(*sound.first_chunk::<8>().unwrap()) as usize;
    let mut longer = sound[..header - 1].to_vec();
    longer[0] += 1;
    let replaced = |from: &str, to: &str| {
        let at = sound.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        let mut bytes = sound.clone();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    let mut not_finite = sound.clone();
    for row in 0..16 {
        let at = header + row * 576 * 4;
        not_finite[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    }
    let files = [
        ("inputs/real.safetensors", sound.clone()),
        ("inputs/cut-in-its-data.safetensors", sound[..sound.len() - 1].to_vec()),
        ("inputs/cut-in-its-header.safetensors", longer),
        ("inputs/overlapping.safetensors", replaced("[36864,39168]", "[36863,39167]")),
        ("inputs/out-of-range.safetensors", replaced("[36864,39168]", "[99999,39168]")),
        ("inputs/whole-numbers.safetensors", replaced("F32", "I32")),
        ("inputs/nan-in-every-row.safetensors", not_finite),
        ("profiles.toml", include_bytes!("profiles.toml").to_vec()),
        (gate_path, gate.to_vec()),
    ];
    files.into_iter().map(|(path, bytes)| (path.to_owned(), bytes)).collect()
}

/// Reads and binds a folder.
pub fn resolve(folder: &Folder, profile: &str) -> Result<Vec<ResolvedGate>, DeclarationErrors> {
    let declarations = Declarations::load(folder)?;
    let (catalog, providers) = (catalog(), providers());
    let bindings = Bindings {
        catalog: &catalog,
        providers: &providers,
        profiles: &declarations.profiles,
        files: folder,
    };
    declarations.resolve(&bindings, &ProfileId::new(profile).unwrap())
}

/// Reads and binds a folder of one gate.
pub fn resolve_one(gate: &str, profile: &str) -> Result<ResolvedGate, DeclarationErrors> {
    let folder = folder("rms_norm/test.toml", gate.as_bytes());
    Ok(resolve(&folder, profile)?.remove(0))
}
