//! `provider.toml`: who a provider is, how it is started and what it runs.

use std::collections::BTreeMap;
use std::ops::Range;

use proofhouse_schema::catalog::Catalog;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::ids::{OperatorName, ProviderId};
use proofhouse_schema::provider::{Environment, Provider};
use schemars::JsonSchema;

use super::fault::{DeclarationErrors, Fault};
use super::reader::{Reader, Sink, decode, read_document};
use super::sited::{Named, Sited};
use super::spec::{escapes, sited_id, word};

/// A provider: anything that can run an operator.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields, title = "Proofhouse provider")]
pub struct ProviderFile {
    /// Its id; gates name it.
    pub id: Sited<String>,
    /// One sentence.
    pub about: Sited<String>,
    /// Program and arguments; `{python}`, `{folder}` and `{bin}` are filled in.
    pub command: Vec<Sited<String>>,
    /// `binary`, `venv` (made from `lock`), `host` (the machine's Python) or `path:FOLDER`.
    #[schemars(extend("pattern" = "^(binary|venv|host|path:.+)$"))]
    pub environment: Sited<String>,
    /// Requirements with hashes, beside this file; needed by `venv`.
    pub lock: Option<Sited<String>>,
    /// Packages and versions, as pinned or expected; `"*"` is any version.
    pub packages: Option<Named<Sited<String>>>,
    /// Whether it answers invalid inputs with typed refusals; default: false.
    pub refusals: Option<Sited<bool>>,
    /// Whether it honors layouts other than contiguous; default: false.
    pub strided: Option<Sited<bool>>,
    /// What its timed region includes besides the operator; default: nothing.
    pub includes: Option<Vec<Sited<String>>>,
    /// Parts of names that must be among the libraries it maps; else it fell back silently.
    pub expect_libraries: Option<Vec<Sited<String>>>,
    /// Parts of kernel names that must be in a device graph.
    pub expect_kernels: Option<Vec<Sited<String>>>,
    /// Whether preparing a case compiles or tunes for seconds, and finds in the cache of kernels what it found before;
    /// default: false.
    pub tunes: Option<Sited<bool>>,
    /// Environment variables that carry the thread count.
    pub thread_variables: Option<Vec<Sited<String>>>,
    /// Further environment variables.
    pub variables: Option<Named<Sited<String>>>,
    /// Devices that it runs on; default: `cpu`.
    #[schemars(with = "Option<Vec<DeviceName>>")]
    pub devices: Option<Vec<Sited<String>>>,
    /// Operators and the activation dtypes that it runs each in.
    pub operators: Named<Vec<Sited<String>>>,
}

/// A device as it is written.
#[derive(JsonSchema)]
#[schemars(extend("enum" = ["cpu", "cuda"]))]
#[allow(dead_code, reason = "only its schema is used")]
struct DeviceName(String);

impl ProviderFile {
    fn read(reader: Reader<'_, '_>, sink: &mut Sink) -> Option<Self> {
        let mut r = reader.named("the provider");
        let id = r.required("id", sink);
        let about = r.required("about", sink);
        let command = r.required("command", sink);
        let environment = r.required("environment", sink);
        let lock = r.optional("lock", sink);
        let packages = r.optional("packages", sink);
        let refusals = r.optional("refusals", sink);
        let strided = r.optional("strided", sink);
        let includes = r.optional("includes", sink);
        let expect_libraries = r.optional("expect-libraries", sink);
        let expect_kernels = r.optional("expect-kernels", sink);
        let tunes = r.optional("tunes", sink);
        let thread_variables = r.optional("thread-variables", sink);
        let variables = r.optional("variables", sink);
        let devices = r.optional("devices", sink);
        let operators = r.required("operators", sink);
        r.finish(sink);
        Some(Self {
            id: id?,
            about: about?,
            command: command?,
            environment: environment?,
            lock,
            packages,
            refusals,
            strided,
            includes,
            expect_libraries,
            expect_kernels,
            tunes,
            thread_variables,
            variables,
            devices,
            operators: operators?,
        })
    }
}

/// Reads `provider.toml` by itself; `shown` is how errors name it.
///
/// # Errors
/// Everything that is wrong with it by itself.
pub fn parse_provider(shown: &str, bytes: &[u8]) -> Result<Provider, DeclarationErrors> {
    read(shown, bytes, |_, _| ())
}

/// Reads `provider.toml` and holds its operators and their dtypes against the catalog.
///
/// # Errors
/// Everything that is wrong with it, names that the catalog lacks among it.
pub fn bind_provider(
    shown: &str,
    bytes: &[u8],
    catalog: &Catalog,
) -> Result<Provider, DeclarationErrors> {
    read(shown, bytes, |operators, sink| bind(operators, catalog, sink))
}

fn read(
    shown: &str,
    bytes: &[u8],
    bind: impl FnOnce(&Named<Vec<Sited<String>>>, &mut Sink),
) -> Result<Provider, DeclarationErrors> {
    read_document(&decode(shown, bytes)?, |reader, sink| {
        let written = ProviderFile::read(reader, sink)?;
        bind(&written.operators, sink);
        check_variables(&written, sink);
        check_packages(&written, sink);
        let id = sited_id(&written.id, ProviderId::new, sink);
        let environment = environment(&written, sink);
        let operators = operators(&written.operators, sink);
        let devices = devices(written.devices.as_deref(), written.id.span.clone(), sink);
        if written.command.is_empty() {
            let accepted = "give the program: command = [\"{python}\", \"{folder}/worker.py\"]";
            let fault = Fault::Empty { what: "command", accepted: accepted.into() };
            sink.push(written.id.span.clone(), fault);
        }
        Some(Provider {
            id: id?.value,
            about: written.about.value,
            command: texts(Some(written.command)),
            environment: environment?,
            lock: written.lock.map(|lock| lock.value),
            packages: map(written.packages),
            devices: devices?,
            operators: operators?,
            refusals: written.refusals.is_some_and(|flag| flag.value),
            strided: written.strided.is_some_and(|flag| flag.value),
            includes: texts(written.includes),
            expect_libraries: texts(written.expect_libraries),
            expect_kernels: texts(written.expect_kernels),
            tunes: written.tunes.is_some_and(|flag| flag.value),
            thread_variables: texts(written.thread_variables),
            variables: map(written.variables),
        })
    })
}

fn devices(
    written: Option<&[Sited<String>]>,
    place: Range<usize>,
    sink: &mut Sink,
) -> Option<Vec<DeviceKind>> {
    let words = DeviceKind::ALL.map(|kind| (kind.as_str(), kind));
    match written {
        None => Some(vec![DeviceKind::Cpu]),
        Some([]) => {
            let accepted = "name at least one, or leave the key out for [\"cpu\"]".to_owned();
            sink.push(place, Fault::Empty { what: "devices", accepted });
            None
        }
        Some(found) => found.iter().map(|found| word(found, "device", &words, sink)).collect(),
    }
}

/// Notes operators that the catalog lacks, and dtypes that are no activation dtypes of theirs.
fn bind(operators: &Named<Vec<Sited<String>>>, catalog: &Catalog, sink: &mut Sink) {
    for (name, dtypes) in &operators.entries {
        let known = catalog.operators.iter().find(|(known, _)| known.as_str() == name.value);
        let Some((_, operator)) = known else {
            let (what, found) = ("operator of the catalog", name.value.clone());
            let accepted = catalog.operators.keys().map(ToString::to_string).collect();
            sink.push(name.span.clone(), Fault::UnknownName { what, found, accepted });
            continue;
        };
        let accepted: Vec<String> = operator.dtypes.iter().map(ToString::to_string).collect();
        // A word that is no dtype at all is noted where dtypes are read.
        let other = |found: &&Sited<String>| {
            Dtype::ALL.iter().any(|dtype| dtype.as_str() == found.value)
                && !accepted.contains(&found.value)
        };
        for found in dtypes.iter().filter(other) {
            let (what, accepted) = ("activation dtype of this operator", accepted.clone());
            let fault = Fault::UnknownName { what, found: found.value.clone(), accepted };
            sink.push(found.span.clone(), fault);
        }
    }
}

/// Why a variable is not a provider's to set, if it is not.
fn reserved(name: &str) -> Option<&'static str> {
    match name {
        "PROOFHOUSE_SOCKET" | "PROOFHOUSE_NONCE" => Some("the worker finds the supervisor by it"),
        "PROOFHOUSE_THREADS" => Some("it grants what the gate's contract says"),
        "PROOFHOUSE_TIMER" => Some("it names the one timer"),
        "PROOFHOUSE_DEVICE" => Some("it names the device that the gate is about"),
        "LD_PRELOAD" | "LD_AUDIT" => Some("it puts code beneath the timer and the protocol"),
        _ => None,
    }
}

fn check_variables(written: &ProviderFile, sink: &mut Sink) {
    let names = written.variables.iter().flat_map(|v| v.entries.iter().map(|(name, _)| name));
    // The thread count is what these get anyway.
    let threads = written.thread_variables.iter().flatten();
    for name in names.chain(threads.filter(|name| name.value != "PROOFHOUSE_THREADS")) {
        if let Some(why) = reserved(&name.value) {
            let fault = Fault::ReservedVariable { name: name.value.clone(), why };
            sink.push(name.span.clone(), fault);
        }
        if name.value.is_empty() || name.value.contains(['=', '\0']) {
            let (what, found) = ("name of a variable", name.value.clone());
            let accepted = "at least one character, none of them `=` or NUL";
            sink.push(name.span.clone(), Fault::BadId { what, found, accepted });
        }
    }
    for (name, value) in written.variables.iter().flat_map(|variables| &variables.entries) {
        if value.value.contains('\0') {
            let (what, found) = ("value of a variable", name.value.clone());
            let accepted = "text without NUL";
            sink.push(value.span.clone(), Fault::BadId { what, found, accepted });
        }
    }
}

fn check_packages(written: &ProviderFile, sink: &mut Sink) {
    for (name, version) in written.packages.iter().flat_map(|packages| &packages.entries) {
        if version.value.trim().is_empty() {
            let accepted = format!("name it: {} = \"1.2.3\", or \"*\" for any", name.value);
            sink.push(version.span.clone(), Fault::Empty { what: "version", accepted });
        }
    }
}

fn texts(list: Option<Vec<Sited<String>>>) -> Vec<String> {
    list.unwrap_or_default().into_iter().map(|item| item.value).collect()
}

fn map(named: Option<Named<Sited<String>>>) -> BTreeMap<String, String> {
    let entries = named.map(|named| named.entries).unwrap_or_default();
    entries.into_iter().map(|(name, value)| (name.value, value.value)).collect()
}

fn environment(written: &ProviderFile, sink: &mut Sink) -> Option<Environment> {
    if let Some(lock) = written.lock.as_ref().filter(|lock| escapes(&lock.value)) {
        let (path, folder) = (lock.value.clone(), "the provider's folder");
        sink.push(lock.span.clone(), Fault::EscapingPath { path, folder });
    }
    let found = &written.environment;
    if let Some(folder) = found.value.strip_prefix("path:").filter(|folder| !folder.is_empty()) {
        return Some(Environment::Path(folder.to_owned()));
    }
    let words =
        [("binary", Environment::Binary), ("venv", Environment::Venv), ("host", Environment::Host)];
    let indexed: Vec<(&str, usize)> = words
        .iter()
        .enumerate()
        .map(|(at, (word, _))| (*word, at))
        .chain([("path:FOLDER", 3)])
        .collect();
    let at = word(found, "environment", &indexed, sink)?;
    let (_, environment) = words.into_iter().nth(at)?;
    if environment == Environment::Venv && written.lock.is_none() {
        let fault =
            Fault::MissingKey { key: "lock", table: "a provider with environment = \"venv\"" };
        sink.push(found.span.clone(), fault);
    }
    Some(environment)
}

fn operators(
    written: &Named<Vec<Sited<String>>>,
    sink: &mut Sink,
) -> Option<BTreeMap<OperatorName, Vec<Dtype>>> {
    if written.entries.is_empty() {
        let accepted = "name at least one: rms_norm = [\"F32\"]".to_owned();
        sink.push(written.span.clone(), Fault::Empty { what: "operators", accepted });
    }
    let words = Dtype::ALL.map(|dtype| (dtype.as_str(), dtype));
    let mut operators = BTreeMap::new();
    for (name, dtypes) in &written.entries {
        let id = sited_id(name, OperatorName::new, sink);
        let read: Vec<_> = dtypes.iter().map(|found| word(found, "dtype", &words, sink)).collect();
        if read.is_empty() {
            let accepted = "list the activation dtypes, or leave the operator out".to_owned();
            sink.push(name.span.clone(), Fault::Empty { what: "dtypes", accepted });
        }
        if let (Some(id), Some(read)) = (id, read.into_iter().collect::<Option<Vec<_>>>()) {
            operators.insert(id.value, read);
        }
    }
    Some(operators)
}
