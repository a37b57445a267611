//! Providers on this machine: what they are made of, and how their workers are started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proofhouse_provenance::{DigestError, file_digest, folder_digest};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::gate::{CaseSpec, Expect};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::probe::Probe;
use proofhouse_schema::protocol::Hello;
use proofhouse_schema::provider::{Environment, Provider, ProviderFacts};

use crate::attempt::{Launch, Placement};
use crate::error::RunError;
use crate::options::RunOptions;

/// Variables of the machine that attempts get, where they are set.
const INHERITED: [&str; 5] = ["PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "TZ"];

/// Variables that say where compilers on a device keep what they made, and the folder of each in the kernel cache (P41).
const KERNEL_CACHES: [(&str, &str); 4] = [
    ("PROOFHOUSE_KERNEL_CACHE", "nvrtc"),
    ("TRITON_CACHE_DIR", "triton"),
    ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
    ("FLASHINFER_WORKSPACE_BASE", "flashinfer"),
];

/// A provider with the folder that its `provider.toml` lies in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderHome {
    /// What `provider.toml` says.
    pub provider: Provider,
    /// The folder, absolute.
    pub folder: PathBuf,
}

/// The program of our own worker on a CUDA device, which alone is asked what the device can do.
const OWN_CUDA_WORKER: &str = "{bin}/proofhouse-worker-cuda";

impl ProviderHome {
    /// Whether its worker is ours on a CUDA device.
    pub(crate) fn is_own_worker(&self) -> bool {
        self.provider.command.first().is_some_and(|program| program == OWN_CUDA_WORKER)
    }
}

/// What decides whether results of a provider can be used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Makeup {
    pub(crate) source: Digest,
    pub(crate) binary: Probe<Digest>,
}

impl Makeup {
    /// The digests in a reuse key. A binary that could not be read has none, and its absence is in the key, too.
    pub(crate) fn digests(&self) -> Vec<Digest> {
        let unknown = || Digest::of(b"no binary");
        vec![self.source.clone(), self.binary.known().cloned().unwrap_or_else(unknown)]
    }

    /// Hashes a provider's files: its folder, the modules that lie beside it, its binary.
    pub(crate) fn of(home: &ProviderHome, options: &RunOptions) -> Result<Self, RunError> {
        let fault = |error: DigestError| RunError::ProviderFiles {
            provider: home.provider.id.clone(),
            path: home.folder.clone(),
            source: std::io::Error::other(error),
        };
        let mut parts = vec![folder_digest(&home.folder).map_err(fault)?];
        if uses_python(&home.provider) {
            let beside = beside(&home.folder);
            parts.extend(
                beside
                    .iter()
                    .map(|path| file_digest(path))
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(fault)?,
            );
        }
        if let Environment::Path(folder) = &home.provider.environment {
            // A folder that is not there keeps the provider from running; its absence is in the key, too.
            for path in package_folders(home, options, folder).unwrap_or_default() {
                let there = path.is_dir();
                let absent = || Digest::of(b"no folder");
                parts.push(if there { folder_digest(&path).map_err(fault)? } else { absent() });
            }
        }
        let text: Vec<&str> = parts.iter().map(Digest::as_str).collect();
        let source = Digest::of(text.join("\n").as_bytes());
        let program = program(home, options, None);
        let binary = Probe::from_result(match find_program(&program, options) {
            Some(path) => file_digest(&path).map_err(|e| e.to_string()),
            None => Err(format!("{} is not there", program.display())),
        });
        Ok(Self { source, binary })
    }
}

/// Modules beside a provider's folder, which its worker may import: `baselines/protocol.py`.
fn beside(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.parent().and_then(|parent| std::fs::read_dir(parent).ok());
    let mut files: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "py") && path.is_file())
        .collect();
    files.sort();
    files
}

pub(crate) fn uses_python(provider: &Provider) -> bool {
    provider.environment != Environment::Binary
        || provider.command.iter().any(|part| part.contains("{python}"))
}

fn program(home: &ProviderHome, options: &RunOptions, python: Option<&Path>) -> PathBuf {
    let first = home.provider.command.first().map_or("", String::as_str);
    PathBuf::from(fill(first, home, options, python))
}

/// A program by its path, or by its name on the caller's `PATH`.
pub(crate) fn find_program(program: &Path, options: &RunOptions) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = options.environment.get("PATH")?;
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|found| found.is_file())
}

fn fill(text: &str, home: &ProviderHome, options: &RunOptions, python: Option<&Path>) -> String {
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    text.replace("{python}", &python.map_or_else(|| "python3".to_owned(), shown))
        .replace("{folder}", &shown(&home.folder))
        .replace("{bin}", &shown(&options.binaries))
}

/// How a provider's worker is started.
pub(crate) fn launch(
    home: &ProviderHome,
    options: &RunOptions,
    python: Option<&Path>,
    placement: &Placement,
) -> Launch {
    let provider = &home.provider;
    let arguments = provider.command.iter().skip(1);
    let arguments: Vec<String> = arguments.map(|part| fill(part, home, options, python)).collect();
    let mut environment = BTreeMap::new();
    let mut inherited = Vec::new();
    for name in INHERITED {
        if let Some(value) = options.environment.get(name) {
            environment.insert(name.to_owned(), value.clone());
            inherited.push(name.to_owned());
        }
    }
    let threads = placement.threads.max(1).to_string();
    environment.insert("LC_ALL".to_owned(), "C.UTF-8".to_owned());
    environment.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
    environment.insert("PYTHONNOUSERSITE".to_owned(), "1".to_owned());
    environment.insert("PROOFHOUSE_THREADS".to_owned(), threads.clone());
    let timer = match placement.device {
        DeviceKind::Cpu => &options.timer_library,
        DeviceKind::Cuda => &options.timer_cuda_library,
    };
    if let Some(timer) = timer {
        let name = "PROOFHOUSE_TIMER".to_owned();
        environment.insert(name.clone(), timer.to_string_lossy().into_owned());
        inherited.push(name);
    }
    if let Environment::Path(folder) = &provider.environment {
        let name = "PYTHONPATH".to_owned();
        // A placeholder that nothing fills is told by the environment's own check, before anything starts.
        let folders = package_folders(home, options, folder).unwrap_or_default();
        let shown: Vec<_> = folders.iter().map(|path| path.to_string_lossy()).collect();
        environment.insert(name.clone(), shown.join(":"));
        inherited.push(name);
    }
    for (name, value) in options.devices.variables(placement.device) {
        environment.insert(name.to_owned(), value);
    }
    if !placement.device.is_cpu() {
        for (name, folder) in KERNEL_CACHES {
            let path = options.kernel_cache.join(folder);
            environment.insert(name.to_owned(), path.to_string_lossy().into_owned());
            inherited.push(name.to_owned());
        }
    }
    for name in &provider.thread_variables {
        environment.insert(name.clone(), threads.clone());
    }
    environment.extend(provider.variables.clone());
    let program = program(home, options, python);
    let program = find_program(&program, options).unwrap_or(program);
    let mut recorded = provider.command.clone();
    let (program, arguments) = match placement.wrapper.split_first() {
        None => (program, arguments),
        Some((wrapper, before)) => {
            recorded.insert(0, file_name(wrapper));
            let own = std::iter::once(program.to_string_lossy().into_owned());
            (PathBuf::from(wrapper), before.iter().cloned().chain(own).chain(arguments).collect())
        }
    };
    Launch { provider: provider.id.clone(), program, arguments, recorded, environment, inherited }
}

/// The placeholder in `environment = "path:..."` for the folder with packages that were carried to this machine.
const SET: &str = "{set}";

/// The folders of `environment = "path:FOLDER:FOLDER"`, relative to the provider's own.
///
/// # Errors
/// What to do when `{set}` stands for nothing here.
pub fn package_folders(
    home: &ProviderHome,
    options: &RunOptions,
    folders: &str,
) -> Result<Vec<PathBuf>, String> {
    let set = match &options.package_set {
        Some(set) => set.to_string_lossy(),
        None if folders.contains(SET) => {
            return Err(format!(
                "{folders:?} needs the folder of carried packages: set {SET_VARIABLE} to it"
            ));
        }
        None => "".into(),
    };
    Ok(folders.split(':').map(|folder| home.folder.join(folder.replace(SET, &set))).collect())
}

/// The variable with the folder that `{set}` stands for.
pub const SET_VARIABLE: &str = "PROOFHOUSE_GPU_SET";

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// What is recorded of a provider; its hello is absent where it never said one.
pub(crate) fn facts(home: &ProviderHome, makeup: &Makeup, hello: Option<&Hello>) -> ProviderFacts {
    let no_hello = || Probe::Unavailable("it said no hello".to_owned());
    ProviderFacts {
        id: home.provider.id.clone(),
        version: hello.map_or_else(no_hello, |hello| Probe::Known(hello.version.clone())),
        source: makeup.source.clone(),
        binary: makeup.binary.clone(),
        packages: hello.map_or_else(|| home.provider.packages.clone(), |h| h.packages.clone()),
        compiler: hello.map_or_else(no_hello, |hello| Probe::Known(hello.language.clone())),
        includes: home.provider.includes.clone(),
    }
}

/// Why a provider says, before any tensor is made, that it does not do a case; nothing when it does.
pub(crate) fn declines(hello: &Hello, case: &CaseSpec) -> Option<String> {
    let dtypes = hello.operators.get(&case.operator);
    if dtypes.is_none() {
        return Some(format!("it does not declare {}", case.operator));
    }
    if dtypes.is_some_and(|dtypes| !dtypes.contains(&case.dtype)) {
        return Some(format!("it does not declare {} in {}", case.operator, case.dtype));
    }
    if case.layout != "contiguous" && !hello.capabilities.strided {
        return Some(format!("it honors contiguous layouts only, asked was {}", case.layout));
    }
    if matches!(case.expect, Expect::Refusal { .. }) && !hello.capabilities.refusals {
        return Some("it has no typed refusals".to_owned());
    }
    None
}

/// Providers by id.
pub(crate) fn by_id(homes: &[ProviderHome]) -> BTreeMap<ProviderId, ProviderHome> {
    homes.iter().map(|home| (home.provider.id.clone(), home.clone())).collect()
}
