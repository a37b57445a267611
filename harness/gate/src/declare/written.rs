//! The first stage: a gate file as it is written, with the place of every value. Nothing is bound yet.

use std::ops::Range;

use proofhouse_schema::catalog::ParamValue;
use schemars::JsonSchema;
use toml::Spanned;
use toml::de::DeValue;

use super::fault::DeclarationErrors;
use super::reader::{FromToml, Reader, Sink, decode, read_document, read_table};
use super::sited::{Axis, Named, Sited};

/// A gate: what must hold of an operator, over which cases. Its id is its path: `gates/rms_norm/correctness.toml`
/// declares `rms_norm.correctness`.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields, title = "Proofhouse gate")]
pub struct GateFile {
    /// One sentence: what holds when the gate passes.
    pub about: Sited<String>,
    /// `correctness` compares outputs with the oracle's; `baseline` compares speeds with named providers'; `graph` captures
    /// the call in a device graph and replays it; `sanitizer` runs it under compute-sanitizer.
    #[schemars(extend("enum" = ["correctness", "baseline", "graph", "sanitizer"]))]
    pub kind: Sited<String>,
    /// The device that the candidates run on; default: `cpu`.
    #[schemars(extend("enum" = ["cpu", "cuda"]))]
    pub device: Option<Sited<String>>,
    /// The operator's name in `gates/catalog.json`.
    pub operator: Sited<String>,
    /// `required` decides the exit code; `informative` is told only.
    #[schemars(extend("enum" = ["required", "informative"]))]
    pub level: Sited<String>,
    /// The providers that are judged.
    pub candidates: Axis<String>,
    /// Baseline gates: the providers that each candidate is compared with.
    pub baselines: Option<Axis<String>>,
    /// Parameters of every cell; the rest keep the catalog's defaults.
    pub params: Option<Named<Sited<ParamValue>>>,
    /// Sets of cells: the product of their axes.
    pub cells: Option<Vec<CellsTable>>,
    /// Cells that are left out on purpose, each with a reason.
    pub exclude: Option<Vec<ExcludeTable>>,
    /// Correctness gates: every invalid input that the catalog lists must get its typed refusal.
    pub refusals: Option<RefusalsTable>,
    /// Baseline gates: the timing contract and what is required.
    pub timing: Option<TimingTable>,
}

/// A set of cells: the product of its axes. A single value is an axis of one.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CellsTable {
    /// Extents by dimension; with `file` those that follow from the tensors may be left out.
    pub dims: Option<Named<Axis<u64>>>,
    /// Activation dtypes; default: every one of the operator's.
    #[schemars(with = "Option<Axis<DtypeName>>")]
    pub dtypes: Option<Axis<String>>,
    /// Layouts; default: `contiguous`.
    pub layouts: Option<Axis<String>>,
    /// Value classes; default: `normal`.
    pub values: Option<Axis<String>>,
    /// Parameters of these cells; a list is an axis.
    pub params: Option<Named<Axis<ParamValue>>>,
    /// Profiles that these cells belong to; default: all.
    pub profiles: Option<Axis<String>>,
    /// The seed of the inputs; default: 1.
    pub seed: Option<Sited<u64>>,
    /// A safetensors file below `gates/` that holds real inputs; excludes `values`.
    pub file: Option<Sited<String>>,
    /// With `file`: operator tensor to tensor in the file. Tensors left out are made from the seed.
    pub tensors: Option<Named<Sited<String>>>,
    /// The table's place.
    #[schemars(skip)]
    pub span: Range<usize>,
}

/// Cells that are left out on purpose.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ExcludeTable {
    /// Which cells: those that every given key matches.
    pub when: WhenTable,
    /// Why; it is printed with the plan and kept in the evidence.
    pub reason: Sited<String>,
}

/// What a cell must look like to be excluded. A list matches any of its values.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WhenTable {
    /// Extents by dimension.
    pub dims: Option<Named<Axis<u64>>>,
    /// Activation dtypes.
    #[schemars(with = "Option<Axis<DtypeName>>")]
    pub dtype: Option<Axis<String>>,
    /// Layouts.
    pub layout: Option<Axis<String>>,
    /// Value classes.
    pub values: Option<Axis<String>>,
    /// Refusals of the catalog, by name.
    pub refusal: Option<Axis<String>>,
    /// The table's place.
    #[schemars(skip)]
    pub span: Range<usize>,
}

/// The cells whose pass is the right typed refusal.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RefusalsTable {
    /// The valid case that each refusal spoils: one extent per dimension.
    pub dims: Named<Sited<u64>>,
    /// Activation dtypes; default: the operator's first.
    #[schemars(with = "Option<Axis<DtypeName>>")]
    pub dtypes: Option<Axis<String>>,
    /// Profiles; default: all.
    pub profiles: Option<Axis<String>>,
    /// The table's place.
    #[schemars(skip)]
    pub span: Range<usize>,
}

/// The timing contract and what is required under it.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TimingTable {
    /// `hot`: the same buffers, on purpose. `cold`: 5x the last-level cache is touched between two uses.
    #[schemars(extend("enum" = ["hot", "cold"]))]
    pub cache: Sited<String>,
    /// `eager`: one call after another. `graph`: captured in a device graph.
    #[schemars(extend("enum" = ["eager", "graph"]))]
    pub launch: Sited<String>,
    /// `host`: the host's monotonic clock. `device`: the device's events.
    #[schemars(extend("enum" = ["host", "device"]))]
    pub clock: Sited<String>,
    /// Threads that every provider gets; default: 1.
    pub threads: Option<Sited<u32>>,
    /// What may be timed besides the operator: `allocation`, `layout`; default: nothing.
    pub includes: Option<Vec<Sited<String>>>,
    /// The margin as a fraction, in (0, 0.5]; default: 0.01.
    pub margin: Option<Sited<f64>>,
    /// What is required against each baseline.
    #[schemars(extend("enum" = ["win", "no-loss", "measured"]))]
    pub require: Sited<String>,
    /// The table's place.
    #[schemars(skip)]
    pub span: Range<usize>,
}

/// A dtype as it is written.
#[derive(JsonSchema)]
#[schemars(extend("enum" = ["F32", "F16", "BF16"]))]
#[allow(dead_code, reason = "only its schema is used")]
struct DtypeName(String);

impl GateFile {
    /// Reads a gate file; `path` is how errors name it.
    ///
    /// # Errors
    /// Everything that is wrong with its form: bytes, syntax, keys, types.
    pub fn parse(path: &str, bytes: &[u8]) -> Result<Self, DeclarationErrors> {
        read_document(&decode(path, bytes)?, Self::read)
    }

    pub(crate) fn read(reader: Reader<'_, '_>, sink: &mut Sink) -> Option<Self> {
        let mut r = reader.named("the gate");
        let about = r.required("about", sink);
        let kind = r.required("kind", sink);
        let device = r.optional("device", sink);
        let operator = r.required("operator", sink);
        let level = r.required("level", sink);
        let candidates = r.required("candidates", sink);
        let baselines = r.optional("baselines", sink);
        let params = r.optional("params", sink);
        let cells = r.optional("cells", sink);
        let exclude = r.optional("exclude", sink);
        let refusals = r.optional("refusals", sink);
        let timing = r.optional("timing", sink);
        r.finish(sink);
        Some(Self {
            about: about?,
            kind: kind?,
            device,
            operator: operator?,
            level: level?,
            candidates: candidates?,
            baselines,
            params,
            cells,
            exclude,
            refusals,
            timing,
        })
    }
}

impl FromToml for CellsTable {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        read_table(value, key, sink, |reader, sink| {
            let mut r = reader.named("[[cells]]");
            let read = Self {
                dims: r.optional("dims", sink),
                dtypes: r.optional("dtypes", sink),
                layouts: r.optional("layouts", sink),
                values: r.optional("values", sink),
                params: r.optional("params", sink),
                profiles: r.optional("profiles", sink),
                seed: r.optional("seed", sink),
                file: r.optional("file", sink),
                tensors: r.optional("tensors", sink),
                span: r.span(),
            };
            r.finish(sink);
            Some(read)
        })
    }
}

impl FromToml for ExcludeTable {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        read_table(value, key, sink, |reader, sink| {
            let mut r = reader.named("[[exclude]]");
            let when = r.required("when", sink);
            let reason = r.required("reason", sink);
            r.finish(sink);
            Some(Self { when: when?, reason: reason? })
        })
    }
}

impl FromToml for WhenTable {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        read_table(value, key, sink, |reader, sink| {
            let mut r = reader.named("`when`");
            let read = Self {
                dims: r.optional("dims", sink),
                dtype: r.optional("dtype", sink),
                layout: r.optional("layout", sink),
                values: r.optional("values", sink),
                refusal: r.optional("refusal", sink),
                span: r.span(),
            };
            r.finish(sink);
            Some(read)
        })
    }
}

impl FromToml for RefusalsTable {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        read_table(value, key, sink, |reader, sink| {
            let mut r = reader.named("[refusals]");
            let dims = r.required("dims", sink);
            let dtypes = r.optional("dtypes", sink);
            let profiles = r.optional("profiles", sink);
            let span = r.span();
            r.finish(sink);
            Some(Self { dims: dims?, dtypes, profiles, span })
        })
    }
}

impl FromToml for TimingTable {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        read_table(value, key, sink, |reader, sink| {
            let mut r = reader.named("[timing]");
            let cache = r.required("cache", sink);
            let launch = r.required("launch", sink);
            let clock = r.required("clock", sink);
            let threads = r.optional("threads", sink);
            let includes = r.optional("includes", sink);
            let margin = r.optional("margin", sink);
            let require = r.required("require", sink);
            let span = r.span();
            r.finish(sink);
            Some(Self {
                cache: cache?,
                launch: launch?,
                clock: clock?,
                threads,
                includes,
                margin,
                require: require?,
                span,
            })
        })
    }
}
