//! Where things are: the project's folders, its declarations, its providers, this command's own binaries.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use proofhouse_gate::declare::{
    Bindings, DeclarationErrors, Declarations, DiskFolder, bind_provider, read_catalog,
};
use proofhouse_runner::ProviderHome;
use proofhouse_schema::catalog::Catalog;
use proofhouse_schema::gate::{Profile, ResolvedGate};
use proofhouse_schema::ids::{ProfileId, ProviderId};

use crate::arguments::Common;
use crate::error::CliError;

/// The folders of a project, absolute.
#[derive(Debug, Clone)]
pub struct Project {
    /// The project.
    pub root: PathBuf,
    /// Gates.
    pub gates: PathBuf,
    /// Provider folders: every one below `baselines/`, then those of `--provider`.
    pub provider_folders: Vec<PathBuf>,
    /// Evidence.
    pub evidence: PathBuf,
    /// Reports.
    pub reports: PathBuf,
    /// Things that can be made again: the index.
    pub scratch: PathBuf,
}

/// Everything that is declared, bound together.
#[derive(Debug)]
pub struct Declared {
    /// Gates with their cells.
    pub gates: Vec<ResolvedGate>,
    /// The profile.
    pub profile: Profile,
    /// Providers with their folders.
    pub providers: Vec<ProviderHome>,
}

impl Project {
    /// Finds the project.
    ///
    /// # Errors
    /// [`CliError::NoProject`] and [`CliError::NoFolder`].
    pub fn find(common: &Common) -> Result<Self, CliError> {
        let here = env::current_dir()
            .map_err(|source| CliError::Read { path: PathBuf::from("."), source })?;
        let root = match &common.root {
            Some(root) => here.join(root),
            None => here
                .ancestors()
                .find(|folder| folder.join("gates").is_dir())
                .ok_or_else(|| CliError::NoProject { start: here.clone() })?
                .to_owned(),
        };
        let below = |given: &Option<PathBuf>, name: &str| {
            given.as_ref().map_or_else(|| root.join(name), |path| here.join(path))
        };
        let gates = below(&common.gates, "gates");
        if !gates.is_dir() {
            return Err(CliError::NoFolder { what: "the gates folder", path: gates });
        }
        let mut provider_folders = provider_folders(&root.join("baselines"))?;
        for folder in &common.providers {
            let folder = here.join(folder);
            if !folder.join("provider.toml").is_file() {
                let path = folder.join("provider.toml");
                return Err(CliError::NoFolder { what: "the provider file", path });
            }
            provider_folders.push(folder);
        }
        Ok(Self {
            evidence: below(&common.evidence, "evidence"),
            reports: below(&common.reports, "reports"),
            scratch: root.join(".proofhouse"),
            provider_folders,
            gates,
            root,
        })
    }

    /// Reads every provider.
    ///
    /// # Errors
    /// [`CliError::Declarations`] for bad files, [`CliError::TwoProviders`].
    pub fn providers(&self) -> Result<Vec<ProviderHome>, CliError> {
        let catalog = self.catalog()?;
        let mut errors = Vec::new();
        let mut found: BTreeMap<ProviderId, ProviderHome> = BTreeMap::new();
        for folder in &self.provider_folders {
            let path = folder.join("provider.toml");
            let bytes =
                fs::read(&path).map_err(|source| CliError::Read { path: path.clone(), source })?;
            match bind_provider(&self.shown(&path), &bytes, &catalog) {
                Ok(provider) => {
                    let id = provider.id.clone();
                    let home = ProviderHome { provider, folder: folder.clone() };
                    if let Some(first) = found.insert(id.clone(), home) {
                        return Err(CliError::TwoProviders {
                            id: id.to_string(),
                            first: first.folder,
                            second: folder.clone(),
                        });
                    }
                }
                Err(DeclarationErrors(more)) => errors.extend(more),
            }
        }
        if errors.is_empty() {
            Ok(found.into_values().collect())
        } else {
            Err(CliError::Declarations(DeclarationErrors(errors)))
        }
    }

    /// Reads and binds everything that is declared.
    ///
    /// # Errors
    /// [`CliError::Declarations`] with everything that is wrong, [`CliError::Profile`].
    pub fn declared(&self, profile: &ProfileId) -> Result<Declared, CliError> {
        let files = DiskFolder(self.gates.clone());
        let providers = self.providers()?;
        let by_id: BTreeMap<_, _> =
            providers.iter().map(|h| (h.provider.id.clone(), h.provider.clone())).collect();
        let declarations = Declarations::load(&files).map_err(CliError::Declarations)?;
        let catalog = self.catalog()?;
        let found = declarations.profiles.get(profile).ok_or_else(|| CliError::Profile {
            found: profile.to_string(),
            known: names(declarations.profiles.keys()),
        })?;
        let bindings = Bindings {
            catalog: &catalog,
            providers: &by_id,
            profiles: &declarations.profiles,
            files: &files,
        };
        let gates = declarations.resolve(&bindings, profile).map_err(CliError::Declarations)?;
        Ok(Declared { gates, profile: found.clone(), providers })
    }

    /// The catalog that the gates folder holds.
    ///
    /// # Errors
    /// [`CliError::Declarations`].
    pub fn catalog(&self) -> Result<Catalog, CliError> {
        read_catalog(&DiskFolder(self.gates.clone())).map_err(CliError::Declarations)
    }

    /// A path as people see it: relative to the project where it lies inside.
    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

/// Folders below `baselines/` that hold a `provider.toml`, sorted.
fn provider_folders(baselines: &Path) -> Result<Vec<PathBuf>, CliError> {
    let read = |source| CliError::Read { path: baselines.to_owned(), source };
    if !baselines.is_dir() {
        return Ok(Vec::new());
    }
    let mut folders = Vec::new();
    for entry in fs::read_dir(baselines).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path.join("provider.toml").is_file() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// The folder of this command's own binaries.
///
/// # Errors
/// When the system does not say where this program is.
pub fn binaries() -> Result<PathBuf, CliError> {
    Ok(this_program()?.parent().unwrap_or(Path::new("/")).to_owned())
}

/// This program.
///
/// # Errors
/// When the system does not say where it is.
pub fn this_program() -> Result<PathBuf, CliError> {
    env::current_exe()
        .map_err(|source| CliError::Read { path: PathBuf::from("this program"), source })
}

/// Where environments are kept.
pub fn cache() -> PathBuf {
    let under = |name: &str, below: &str| {
        env::var_os(name).filter(|v| !v.is_empty()).map(|v| PathBuf::from(v).join(below))
    };
    under("PROOFHOUSE_CACHE_DIR", "")
        .or_else(|| under("XDG_CACHE_HOME", "proofhouse"))
        .or_else(|| under("HOME", ".cache/proofhouse"))
        .unwrap_or_else(|| env::temp_dir().join("proofhouse-cache"))
}

/// Names in a row, for errors.
pub fn names<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
