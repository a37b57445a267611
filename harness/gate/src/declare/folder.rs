//! A whole gates folder: every gate, the profiles, the catalog.

use std::collections::BTreeMap;
use std::fs::FileType;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use proofhouse_schema::canonical;
use proofhouse_schema::catalog::Catalog;
use proofhouse_schema::gate::{Profile, ResolvedGate};
use proofhouse_schema::ids::{GateId, ProfileId};

use super::fault::{DeclarationError, DeclarationErrors, Fault, SourceFile};
use super::profiles::parse_profiles;
use super::resolve::{Bindings, resolve};
use super::spec::GateSpec;

/// The file with the profiles.
pub const PROFILES: &str = "profiles.toml";
/// The file with the operators.
pub const CATALOG: &str = "catalog.json";

/// Where declarations come from: a folder, or a map in tests. Paths are relative to the gates folder, with `/`.
pub trait FileSource {
    /// Every file, sorted.
    ///
    /// # Errors
    /// When the folder cannot be listed, or a path is not UTF-8.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A file's bytes.
    ///
    /// # Errors
    /// When the file cannot be read.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;

    /// A file's length, and its bytes to be read one after another.
    ///
    /// # Errors
    /// When the file cannot be opened.
    fn open(&self, path: &str) -> io::Result<(u64, Box<dyn io::Read + '_>)> {
        let bytes = self.read(path)?;
        Ok((bytes.len() as u64, Box::new(io::Cursor::new(bytes))))
    }

    /// How errors name a file.
    fn shown(&self, path: &str) -> String {
        format!("gates/{path}")
    }
}

impl FileSource for BTreeMap<String, Vec<u8>> {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.keys().cloned().collect())
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

/// A gates folder on disk: the only reading that this crate does.
#[derive(Debug, Clone)]
pub struct DiskFolder(pub PathBuf);

impl FileSource for DiskFolder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut files = Vec::new();
        let mut open = vec![(self.0.clone(), String::new())];
        while let Some((folder, prefix)) = open.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let entry = entry?;
                let name = entry.file_name().into_string().map_err(|name| {
                    let message = format!("the name {name:?} in {} is not UTF-8", folder.display());
                    io::Error::new(io::ErrorKind::InvalidData, message)
                })?;
                let path = format!("{prefix}{name}");
                if entry.file_type()?.is_dir() {
                    open.push((entry.path(), format!("{path}/")));
                } else {
                    files.push(path);
                }
            }
        }
        files.sort();
        Ok(files)
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let (length, mut file) = self.open(path)?;
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn open(&self, path: &str) -> io::Result<(u64, Box<dyn io::Read + '_>)> {
        let path = self.0.join(path);
        // Looked at before it is opened: opening a FIFO waits until somebody writes.
        regular(std::fs::metadata(&path)?.file_type())?;
        let file = std::fs::File::open(&path)?;
        let facts = file.metadata()?;
        regular(facts.file_type())?;
        Ok((facts.len(), Box::new(file)))
    }

    fn shown(&self, path: &str) -> String {
        self.0.join(path).display().to_string()
    }
}

/// Refuses what is no file: it could be read without end, or never.
fn regular(kind: FileType) -> io::Result<()> {
    let found = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    let message = format!("it is {found}; accepted: a regular file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Every gate and profile of a folder, each by itself, not bound to anything.
#[derive(Debug, Clone, PartialEq)]
pub struct Declarations {
    /// Gates, sorted by id.
    pub gates: Vec<GateSpec>,
    /// Profiles.
    pub profiles: BTreeMap<ProfileId, Profile>,
}

impl Declarations {
    /// Reads a folder: `profiles.toml` and every `<operator>/<gate>.toml`.
    ///
    /// # Errors
    /// Everything that is wrong in any file.
    pub fn load(files: &dyn FileSource) -> Result<Self, DeclarationErrors> {
        let mut errors = Vec::new();
        let listed = files.list().map_err(|error| whole(files, "", &error.to_string()))?;
        let profiles =
            read(files, PROFILES).and_then(|bytes| parse_profiles(&files.shown(PROFILES), &bytes));
        let profiles = collect(profiles, &mut errors).unwrap_or_default();
        let mut gates: Vec<GateSpec> = Vec::new();
        for path in listed.iter().filter(|path| is_gate(path)) {
            let gate = read(files, path)
                .and_then(|bytes| GateSpec::parse(path, &files.shown(path), &bytes));
            if let Some(gate) = collect(gate, &mut errors) {
                gates.push(gate);
            }
        }
        if gates.is_empty() && errors.is_empty() {
            let file = Arc::new(SourceFile { path: files.shown(""), text: String::new() });
            let accepted = "a gate is a file <operator>/<name>.toml".to_owned();
            let fault = Fault::Empty { what: "gates in this folder", accepted };
            errors.push(DeclarationError { file, span: 0..0, fault, related: None });
        }
        gates.sort_by(|a, b| a.id.cmp(&b.id));
        for pair in gates.windows(2).filter(|pair| pair[0].id == pair[1].id) {
            let (id, other) = (pair[1].id.to_string(), pair[0].file.path.clone());
            let fault = Fault::DuplicateId { id, other };
            let file = Arc::clone(&pair[1].file);
            errors.push(DeclarationError { file, span: 0..0, fault, related: None });
        }
        if errors.is_empty() {
            Ok(Self { gates, profiles })
        } else {
            Err(DeclarationErrors(errors))
        }
    }

    /// Binds every gate in one profile; gates without a cell in it are left out.
    ///
    /// # Errors
    /// Everything that does not fit, in any gate.
    pub fn resolve(
        &self,
        bindings: &Bindings<'_>,
        profile: &ProfileId,
    ) -> Result<Vec<ResolvedGate>, DeclarationErrors> {
        let mut errors = Vec::new();
        let mut resolved = Vec::new();
        for gate in &self.gates {
            if let Some(Some(gate)) = collect(resolve(gate, bindings, profile), &mut errors) {
                resolved.push(gate);
            }
        }
        if errors.is_empty() { Ok(resolved) } else { Err(DeclarationErrors(errors)) }
    }

    /// The ids of every gate.
    pub fn ids(&self) -> impl Iterator<Item = &GateId> {
        self.gates.iter().map(|gate| &gate.id)
    }
}

/// Reads `catalog.json`.
///
/// # Errors
/// When it is absent, is not strict JSON, or has another shape or a newer schema.
pub fn read_catalog(files: &dyn FileSource) -> Result<Catalog, DeclarationErrors> {
    let bytes = read(files, CATALOG)?;
    let catalog: Catalog = canonical::parse(&bytes).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|c| format!(": {c}")).unwrap_or_default();
        whole(files, CATALOG, &format!("{error}{cause}"))
    })?;
    if catalog.schema == proofhouse_schema::SCHEMA {
        // What cells take over from it must have a digest.
        match canonical::to_bytes(&catalog) {
            Ok(_) => Ok(catalog),
            Err(error) => Err(whole(files, CATALOG, &error.to_string())),
        }
    } else {
        let (found, accepted) = (&catalog.schema, proofhouse_schema::SCHEMA);
        Err(whole(files, CATALOG, &format!("its schema is {found:?}, accepted is {accepted:?}")))
    }
}

/// Gates lie in folders; a TOML file at the top is `profiles.toml` or the claims'.
fn is_gate(path: &str) -> bool {
    path.ends_with(".toml") && path.contains('/') && !path.starts_with("inputs/")
}

fn read(files: &dyn FileSource, path: &str) -> Result<Vec<u8>, DeclarationErrors> {
    files.read(path).map_err(|error| whole(files, path, &error.to_string()))
}

fn whole(files: &dyn FileSource, path: &str, why: &str) -> DeclarationErrors {
    let file = Arc::new(SourceFile { path: files.shown(path), text: String::new() });
    let fault = Fault::Unreadable { why: why.to_owned() };
    DeclarationErrors(vec![DeclarationError { file, span: 0..0, fault, related: None }])
}

fn collect<T>(
    result: Result<T, DeclarationErrors>,
    errors: &mut Vec<DeclarationError>,
) -> Option<T> {
    result.map_err(|mut found| errors.append(&mut found.0)).ok()
}
