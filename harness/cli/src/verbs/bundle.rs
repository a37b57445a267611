//! `bundle`: one file with everything that a host without Rust, network or DuckDB needs to run gates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proofhouse_provenance::file_digest;
use proofhouse_schema::SCHEMA;
use proofhouse_schema::bundle::{MANIFEST, Manifest};
use proofhouse_schema::canonical;
use proofhouse_schema::exit::Exit;

use super::archive::{Item, below, write};
use super::selftest::CUDA_FIXTURES;
use super::{TOOL, out};
use crate::arguments::BundleArguments;
use crate::error::CliError;
use crate::project::{Project, binaries};
use crate::terminal::counted;

/// The folder that everything lies in.
const ROOT: &str = "proofhouse";
/// Programs and libraries that workers are made of.
const PROGRAMS: [&str; 5] = [
    "proofhouse-worker-oracle",
    "proofhouse-worker-cpu",
    "proofhouse-worker-cuda",
    "libproofhouse_timer.so",
    "libproofhouse_timer_cuda.so",
];

/// Packs the bundle.
pub fn bundle(project: &Project, asked: &BundleArguments) -> Result<Exit, CliError> {
    let beside = binaries()?;
    let command = asked.command.clone().unwrap_or_else(|| beside.join("bundle/proofhouse"));
    if !command.is_file() {
        return Err(CliError::NoBundled { path: command });
    }
    let mut items = vec![Item { path: command, name: "bin/proofhouse".to_owned() }];
    for program in PROGRAMS {
        items.push(Item { path: present(beside.join(program))?, name: format!("bin/{program}") });
    }
    below(&project.gates, "gates", &mut items)?;
    for folder in &project.provider_folders {
        let Some(parent) = folder.parent() else { continue };
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        below(folder, &format!("baselines/{name}"), &mut items)?;
        modules(parent, &mut items)?;
    }
    let fixtures = project.root.join(CUDA_FIXTURES);
    if fixtures.is_dir() {
        below(&fixtures, CUDA_FIXTURES, &mut items)?;
    }
    items.sort_by(|a, b| a.name.cmp(&b.name));
    items.dedup_by(|a, b| a.name == b.name);
    let manifest = Manifest {
        schema: SCHEMA.to_owned(),
        tool: TOOL.to_owned(),
        source: proofhouse_provenance::source(&project.root),
        files: digests(&items)?,
    };
    let bytes = canonical::to_bytes(&manifest)
        .map_err(|error| CliError::Usage(format!("the manifest cannot be written: {error}")))?;
    for item in &mut items {
        item.name = format!("{ROOT}/{}", item.name);
    }
    write(&items, &[(format!("{ROOT}/{MANIFEST}"), bytes)], &asked.output)?;
    let revision = manifest.source.revision.known().map_or("unknown", String::as_str);
    let dirty = if manifest.source.dirty.known() == Some(&false) { "" } else { ", with changes" };
    out(&format!(
        "{}: {} of revision {revision}{dirty}\n",
        asked.output.display(),
        counted(items.len() as u64, "file")
    ))?;
    Ok(Exit::Passed)
}

fn present(path: PathBuf) -> Result<PathBuf, CliError> {
    if path.is_file() { Ok(path) } else { Err(CliError::NoBinary { path }) }
}

/// Modules beside provider folders, which their workers import.
fn modules(folder: &Path, items: &mut Vec<Item>) -> Result<(), CliError> {
    let mut found = Vec::new();
    let at = |source| CliError::Read { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.ends_with(".py") && entry.path().is_file() {
            found.push(Item { path: entry.path(), name: format!("baselines/{name}") });
        }
    }
    items.append(&mut found);
    Ok(())
}

fn digests(
    items: &[Item],
) -> Result<BTreeMap<String, proofhouse_schema::canonical::Digest>, CliError> {
    let digest = |item: &Item| {
        let found = file_digest(&item.path).map_err(|error| CliError::Read {
            path: item.path.clone(),
            source: std::io::Error::other(error),
        })?;
        Ok((item.name.clone(), found))
    };
    items.iter().map(digest).collect()
}
