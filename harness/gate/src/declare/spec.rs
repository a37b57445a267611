//! The second stage: what a gate file means by itself. Ids are checked, words are values, keys fit the kind; nothing is
//! bound to a catalog yet.

use std::ops::Range;
use std::sync::Arc;

use proofhouse_schema::catalog::ParamValue;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::gate::{GateKind, Level, TimingRule};
use proofhouse_schema::ids::{GateId, IdError, OperatorName, ProfileId, ProviderId};
use proofhouse_schema::timing::{Cache, Clock, ClockPolicy, Launch, Statistic, TimingContract};
use proofhouse_schema::verdict::Require;

use super::fault::{DeclarationErrors, Fault, SourceFile};
use super::reader::{Sink, decode, read_document};
use super::sited::{Axis, Named, Sited};
use super::written::{CellsTable, ExcludeTable, GateFile, RefusalsTable, TimingTable, WhenTable};

/// The margin of a gate that declares none.
const DEFAULT_MARGIN: f64 = 0.01;
/// The largest margin.
const MAX_MARGIN: f64 = 0.5;
/// The largest whole number: a wider one has no canonical form, so its cell would have no digest.
const MAX_INTEGER: u64 = 1 << 53;

/// A gate by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct GateSpec {
    /// Where it was written.
    pub file: Arc<SourceFile>,
    /// Its id, from its path.
    pub id: GateId,
    /// correctness, baseline, graph or sanitizer.
    pub kind: GateKind,
    /// Where the candidates run.
    pub device: DeviceKind,
    /// required or informative.
    pub level: Level,
    /// One sentence.
    pub about: String,
    /// The operator.
    pub operator: Sited<OperatorName>,
    /// Who is judged.
    pub candidates: Vec<Sited<ProviderId>>,
    /// Who the candidates are compared with.
    pub baselines: Vec<Sited<ProviderId>>,
    /// Parameters of every cell.
    pub params: Vec<(Sited<String>, Sited<ParamValue>)>,
    /// Sets of cells.
    pub cells: Vec<CellsSpec>,
    /// Exclusions.
    pub exclude: Vec<ExcludeSpec>,
    /// Refusal cells.
    pub refusals: Option<RefusalsSpec>,
    /// The timing rule, with its place.
    pub timing: Option<Sited<TimingRule>>,
}

/// A set of cells.
#[derive(Debug, Clone, PartialEq)]
pub struct CellsSpec {
    /// Extents by dimension.
    pub dims: Vec<(Sited<String>, Axis<u64>)>,
    /// Activation dtypes, or all of the operator's.
    pub dtypes: Option<Vec<Sited<Dtype>>>,
    /// Layouts, or contiguous.
    pub layouts: Option<Axis<String>>,
    /// Value classes, or normal.
    pub values: Option<Axis<String>>,
    /// Parameter axes.
    pub params: Vec<(Sited<String>, Axis<ParamValue>)>,
    /// Profiles, or all.
    pub profiles: Option<Vec<Sited<ProfileId>>>,
    /// The seed.
    pub seed: u64,
    /// A file of real inputs.
    pub file: Option<FileSpec>,
    /// The table's place.
    pub span: Range<usize>,
}

/// A file of real inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct FileSpec {
    /// The path below `gates/`.
    pub path: Sited<String>,
    /// Operator tensor to tensor in the file.
    pub tensors: Vec<(Sited<String>, Sited<String>)>,
    /// The place of the tensors' table.
    pub span: Range<usize>,
}

/// An exclusion.
#[derive(Debug, Clone, PartialEq)]
pub struct ExcludeSpec {
    /// Extents by dimension.
    pub dims: Vec<(Sited<String>, Axis<u64>)>,
    /// Activation dtypes.
    pub dtype: Option<Vec<Sited<Dtype>>>,
    /// Layouts.
    pub layout: Option<Axis<String>>,
    /// Value classes.
    pub values: Option<Axis<String>>,
    /// Refusals.
    pub refusal: Option<Axis<String>>,
    /// Why.
    pub reason: String,
    /// The place of `when`.
    pub span: Range<usize>,
}

/// Refusal cells.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusalsSpec {
    /// One extent per dimension.
    pub dims: Vec<(Sited<String>, Sited<u64>)>,
    /// Activation dtypes, or the operator's first.
    pub dtypes: Option<Vec<Sited<Dtype>>>,
    /// Profiles, or all.
    pub profiles: Option<Vec<Sited<ProfileId>>>,
    /// The table's place.
    pub span: Range<usize>,
}

impl GateSpec {
    /// Reads a gate from its file; `path` is relative to the gates folder and gives the id, `shown` is how errors name
    /// the file.
    ///
    /// # Errors
    /// Everything that is wrong with it by itself.
    pub fn parse(path: &str, shown: &str, bytes: &[u8]) -> Result<Self, DeclarationErrors> {
        let file = decode(shown, bytes)?;
        read_document(&file, |reader, sink| {
            let id = id_of(path, sink);
            let written = GateFile::read(reader, sink)?;
            Self::mean(Arc::clone(&file), id, written, sink)
        })
    }

    fn mean(
        file: Arc<SourceFile>,
        id: Option<GateId>,
        written: GateFile,
        sink: &mut Sink,
    ) -> Option<Self> {
        let kind = word(&written.kind, "gate kind", &KINDS, sink);
        let level = word(&written.level, "level", &LEVELS, sink);
        let devices = DeviceKind::ALL.map(|kind| (kind.as_str(), kind));
        let device = match &written.device {
            None => Some(DeviceKind::Cpu),
            Some(found) => word(found, "device", &devices, sink),
        };
        let operator = sited_id(&written.operator, OperatorName::new, sink);
        let candidates = provider_ids(&written.candidates, sink);
        let baselines = written.baselines.as_ref().map(|axis| provider_ids(axis, sink));
        non_empty(
            &written.about,
            "sentence in `about`",
            "say what holds when the gate passes",
            sink,
        );
        if let Some(kind) = kind {
            keys_fit_kind(kind, &written, sink);
        }
        if written.cells.as_ref().is_none_or(Vec::is_empty) && written.refusals.is_none() {
            let accepted = "declare at least one [[cells]] or [refusals] table".to_owned();
            sink.push(0..0, Fault::Empty { what: "cells in this gate", accepted });
        }
        let cells: Vec<_> =
            written.cells.into_iter().flatten().map(|table| cells(table, sink)).collect();
        let exclude: Vec<_> =
            written.exclude.into_iter().flatten().map(|table| exclusion(table, sink)).collect();
        let refusals = written.refusals.map(|table| refusals(table, sink));
        let timing = written.timing.map(|table| timing(table, sink));
        for (name, value) in written.params.iter().flat_map(|params| &params.entries) {
            narrow_param(name, value, sink);
        }
        let candidates = candidates?;
        let baselines = baselines.unwrap_or_else(|| Some(Vec::new()))?;
        for baseline in &baselines {
            if candidates.iter().any(|c| c.value == baseline.value) {
                let provider = baseline.value.to_string();
                sink.push(baseline.span.clone(), Fault::SameProvider { provider });
            }
        }
        Some(Self {
            file,
            id: id?,
            kind: kind?,
            device: device?,
            level: level?,
            about: written.about.value,
            operator: operator?,
            candidates,
            baselines,
            params: written.params.map(|p| p.entries).unwrap_or_default(),
            cells: cells.into_iter().collect::<Option<_>>()?,
            exclude: exclude.into_iter().collect::<Option<_>>()?,
            refusals: refusals.map_or(Some(None), |r| r.map(Some))?,
            timing: timing.map_or(Some(None), |t| t.map(Some))?,
        })
    }
}

const KINDS: [(&str, GateKind); 4] = [
    ("correctness", GateKind::Correctness),
    ("baseline", GateKind::Baseline),
    ("graph", GateKind::Graph),
    ("sanitizer", GateKind::Sanitizer),
];
const LEVELS: [(&str, Level); 2] =
    [("required", Level::Required), ("informative", Level::Informative)];

fn id_of(path: &str, sink: &mut Sink) -> Option<GateId> {
    let text = path.strip_suffix(".toml").unwrap_or(path).replace('/', ".");
    match GateId::new(text) {
        Ok(id) => Some(id),
        Err(error) => {
            sink.push(0..0, bad_id(&error));
            None
        }
    }
}

fn bad_id(error: &IdError) -> Fault {
    Fault::BadId { what: error.what, found: error.found.clone(), accepted: error.accepted }
}

/// The value of a word; notes an unknown one.
pub(crate) fn word<T: Copy>(
    found: &Sited<String>,
    what: &'static str,
    words: &[(&str, T)],
    sink: &mut Sink,
) -> Option<T> {
    let value = words.iter().find(|(word, _)| *word == found.value).map(|(_, value)| *value);
    if value.is_none() {
        let accepted = words.iter().map(|(word, _)| (*word).to_owned()).collect();
        let fault = Fault::UnknownName { what, found: found.value.clone(), accepted };
        sink.push(found.span.clone(), fault);
    }
    value
}

/// A checked id; notes one that does not follow its grammar.
pub(crate) fn sited_id<T>(
    found: &Sited<String>,
    new: impl Fn(String) -> Result<T, IdError>,
    sink: &mut Sink,
) -> Option<Sited<T>> {
    match new(found.value.clone()) {
        Ok(id) => Some(Sited::new(id, found.span.clone())),
        Err(error) => {
            sink.push(found.span.clone(), bad_id(&error));
            None
        }
    }
}

fn provider_ids(axis: &Axis<String>, sink: &mut Sink) -> Option<Vec<Sited<ProviderId>>> {
    let ids: Vec<_> = axis.values.iter().map(|id| sited_id(id, ProviderId::new, sink)).collect();
    let ids: Vec<Sited<ProviderId>> = ids.into_iter().collect::<Option<_>>()?;
    for (at, id) in ids.iter().enumerate() {
        if ids[..at].iter().any(|before| before.value == id.value) {
            sink.push(id.span.clone(), Fault::SameProvider { provider: id.value.to_string() });
        }
    }
    Some(ids)
}

fn non_empty(text: &Sited<String>, what: &'static str, accepted: &str, sink: &mut Sink) {
    if text.value.trim().is_empty() {
        sink.push(text.span.clone(), Fault::Empty { what, accepted: accepted.to_owned() });
    }
}

fn keys_fit_kind(kind: GateKind, written: &GateFile, sink: &mut Sink) {
    match kind {
        GateKind::Baseline => {
            if written.baselines.is_none() {
                let accepted = "name the providers to compare with: baselines = [\"numpy\"]".into();
                sink.push(
                    written.kind.span.clone(),
                    Fault::Empty { what: "baselines in this baseline gate", accepted },
                );
            }
            if written.timing.is_none() {
                let fault = Fault::MissingKey { key: "timing", table: "a baseline gate" };
                sink.push(written.kind.span.clone(), fault);
            }
            if let Some(refusals) = &written.refusals {
                let accepted = "move [refusals] to the operator's correctness gate";
                let fault = Fault::NotForKind { key: "refusals", kind: "baseline", accepted };
                sink.push(refusals.span.clone(), fault);
            }
        }
        other => {
            if let (GateKind::Graph | GateKind::Sanitizer, Some(refusals)) =
                (kind, &written.refusals)
            {
                let accepted = "move [refusals] to the operator's correctness gate";
                let fault = Fault::NotForKind { key: "refusals", kind: other.as_str(), accepted };
                sink.push(refusals.span.clone(), fault);
            }
            if matches!(kind, GateKind::Graph | GateKind::Sanitizer)
                && written.device.as_ref().is_none_or(|device| device.value != "cuda")
            {
                let key =
                    Fault::MissingKey { key: "device = \"cuda\"", table: "a gate of this kind" };
                sink.push(written.kind.span.clone(), key);
            }
            let accepted = "only a gate with kind = \"baseline\" compares speeds";
            let found = [
                ("baselines", written.baselines.as_ref().map(|b| b.span.clone())),
                ("timing", written.timing.as_ref().map(|t| t.span.clone())),
            ];
            for (key, span) in found {
                if let Some(span) = span {
                    sink.push(span, Fault::NotForKind { key, kind: other.as_str(), accepted });
                }
            }
        }
    }
}

fn dtypes(axis: Option<Axis<String>>, sink: &mut Sink) -> Option<Option<Vec<Sited<Dtype>>>> {
    let Some(axis) = axis else { return Some(None) };
    let words = Dtype::ALL.map(|dtype| (dtype.as_str(), dtype));
    let read: Vec<_> = axis
        .values
        .iter()
        .map(|found| Some(Sited::new(word(found, "dtype", &words, sink)?, found.span.clone())))
        .collect();
    read.into_iter().collect::<Option<Vec<_>>>().map(Some)
}

fn profiles(axis: Option<Axis<String>>, sink: &mut Sink) -> Option<Option<Vec<Sited<ProfileId>>>> {
    let Some(axis) = axis else { return Some(None) };
    let read: Vec<_> =
        axis.values.iter().map(|found| sited_id(found, ProfileId::new, sink)).collect();
    read.into_iter().collect::<Option<Vec<_>>>().map(Some)
}

fn entries<T>(named: Option<Named<T>>) -> Vec<(Sited<String>, T)> {
    named.map(|named| named.entries).unwrap_or_default()
}

fn cells(table: CellsTable, sink: &mut Sink) -> Option<CellsSpec> {
    let file = match (table.file, table.tensors) {
        (Some(path), Some(tensors)) => {
            if escapes(&path.value) {
                let span = path.span.clone();
                let (path, folder) = (path.value.clone(), "the gates folder");
                let fault = Fault::EscapingPath { path, folder };
                sink.push(span, fault);
            }
            if tensors.entries.is_empty() {
                let accepted = "map at least one operator tensor: { x = \"name in the file\" }";
                let fault = Fault::Empty { what: "tensors", accepted: accepted.into() };
                sink.push(tensors.span.clone(), fault);
            }
            Some(FileSpec { path, tensors: tensors.entries, span: tensors.span })
        }
        (Some(path), None) => {
            sink.push(
                path.span,
                Fault::MissingKey { key: "tensors", table: "a [[cells]] with `file`" },
            );
            None
        }
        (None, Some(tensors)) => {
            sink.push(
                tensors.span,
                Fault::MissingKey { key: "file", table: "a [[cells]] with `tensors`" },
            );
            None
        }
        (None, None) => None,
    };
    if let (Some(_), Some(values)) = (&file, &table.values) {
        let fault = Fault::Conflict {
            key: "values",
            found: "cells with a `file` have no value class",
            accepted: "leave `values` out: tensors that the file lacks are drawn as `normal`",
        };
        sink.push(values.span.clone(), fault);
    }
    let dtypes = dtypes(table.dtypes, sink);
    let profiles = profiles(table.profiles, sink);
    let dims = entries(table.dims);
    for (name, axis) in &dims {
        axis.values.iter().for_each(|extent| narrow(name, extent.value, &extent.span, sink));
    }
    let params = entries(table.params);
    for (name, axis) in &params {
        axis.values.iter().for_each(|value| narrow_param(name, value, sink));
    }
    Some(CellsSpec {
        dims,
        dtypes: dtypes?,
        layouts: table.layouts,
        values: table.values,
        params,
        profiles: profiles?,
        seed: table.seed.map_or(1, |seed| seed.value),
        file,
        span: table.span,
    })
}

/// Refuses a whole number that canonical JSON does not hold.
fn narrow(key: &Sited<String>, size: u64, span: &Range<usize>, sink: &mut Sink) {
    if size > MAX_INTEGER {
        let (key, found) = (key.value.clone(), size.to_string());
        let accepted = format!("at most 2^53, {MAX_INTEGER}");
        sink.push(span.clone(), Fault::OutOfRange { key, found, accepted });
    }
}

fn narrow_param(key: &Sited<String>, value: &Sited<ParamValue>, sink: &mut Sink) {
    if let ParamValue::Integer(number) = value.value {
        narrow(key, number.unsigned_abs(), &value.span, sink);
    }
}

/// Whether a path could name a file outside the folder it is relative to.
pub(crate) fn escapes(path: &str) -> bool {
    path.is_empty()
        || path.starts_with('/')
        || path.contains('\\')
        || path.contains(':')
        || path.split('/').any(|part| part.is_empty() || part == "." || part == "..")
}

fn exclusion(table: ExcludeTable, sink: &mut Sink) -> Option<ExcludeSpec> {
    non_empty(&table.reason, "reason", "say why these cells are left out", sink);
    let WhenTable { dims, dtype, layout, values, refusal, span } = table.when;
    let dims = entries(dims);
    let bare = dims.is_empty()
        && dtype.is_none()
        && layout.is_none()
        && values.is_none()
        && refusal.is_none();
    if bare {
        let accepted = "name what the cells have in common: { dtype = \"F16\" }".to_owned();
        sink.push(span.clone(), Fault::Empty { what: "condition in `when`", accepted });
    }
    let dtype = dtypes(dtype, sink)?;
    Some(ExcludeSpec { dims, dtype, layout, values, refusal, reason: table.reason.value, span })
}

fn refusals(table: RefusalsTable, sink: &mut Sink) -> Option<RefusalsSpec> {
    let dtypes = dtypes(table.dtypes, sink);
    let profiles = profiles(table.profiles, sink);
    let dims = table.dims.entries;
    dims.iter().for_each(|(name, extent)| narrow(name, extent.value, &extent.span, sink));
    Some(RefusalsSpec { dims, dtypes: dtypes?, profiles: profiles?, span: table.span })
}

fn timing(table: TimingTable, sink: &mut Sink) -> Option<Sited<TimingRule>> {
    let cache = word(&table.cache, "cache", &[("hot", Cache::Hot), ("cold", Cache::Cold)], sink);
    let launches = [("eager", Launch::Eager), ("graph", Launch::Graph)];
    let launch = word(&table.launch, "launch", &launches, sink);
    let clocks = [("host", Clock::Host), ("device", Clock::Device)];
    let clock = word(&table.clock, "clock", &clocks, sink);
    let requires =
        [("win", Require::Win), ("no-loss", Require::NoLoss), ("measured", Require::Measured)];
    let require = word(&table.require, "requirement", &requires, sink);
    if let Some(threads) = table.threads.as_ref().filter(|t| t.value == 0) {
        let (key, found, accepted) = ("threads".into(), "0".into(), "at least 1".into());
        sink.push(threads.span.clone(), Fault::OutOfRange { key, found, accepted });
    }
    let margin = table.margin.as_ref().map_or(DEFAULT_MARGIN, |m| m.value);
    if let Some(written) = &table.margin
        && !(margin > 0.0 && margin <= MAX_MARGIN)
    {
        let (key, found) = ("margin".into(), margin.to_string());
        let accepted = format!("a fraction above 0 and at most {MAX_MARGIN}");
        sink.push(written.span.clone(), Fault::OutOfRange { key, found, accepted });
    }
    let mut includes: Vec<String> =
        table.includes.unwrap_or_default().into_iter().map(|item| item.value).collect();
    includes.sort();
    includes.dedup();
    let contract = TimingContract {
        cache: cache?,
        launch: launch?,
        clock: clock?,
        includes,
        threads: table.threads.map_or(1, |t| t.value),
        statistic: Statistic::MedianPerCall,
        clock_policy: ClockPolicy::AsFound,
    };
    Some(Sited::new(TimingRule { contract, margin, require: require? }, table.span))
}
