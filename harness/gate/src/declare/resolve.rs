//! The third stage: a gate bound to catalog, providers and profiles, with every cell spelled out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use proofhouse_schema::catalog::{Catalog, Operator, ParamValue};
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::gate::{
    CaseSpec, Cell, Exclusion, Expect, GateHeader, GateKind, Inputs, Profile, ResolvedGate,
};
use proofhouse_schema::ids::{ProfileId, ProviderId};
use proofhouse_schema::provider::Provider;
use proofhouse_schema::units::Wide;

use super::domain::Shapes;
use super::fault::{DeclarationErrors, Fault};
use super::folder::FileSource;
use super::product::{Axes, typed};
use super::reader::Sink;
use super::sited::{Axis, Sited};
use super::spec::{CellsSpec, GateSpec, RefusalsSpec};
use super::tensor_file::TensorFile;

/// The value class of cells that name none, and of tensors that a file lacks.
const DEFAULT_VALUES: &str = "normal";
/// The layout of cells that name none.
const DEFAULT_LAYOUT: &str = "contiguous";
/// The seed of cells that name none; it is left out of their keys.
pub(super) const DEFAULT_SEED: u64 = 1;
/// Value classes with so little entropy that a speed measured on them says nothing.
const LOW_ENTROPY: [&str; 5] = ["all-equal", "signed-zero", "one-hot", "heavy-ties", "masked-rows"];

/// The most cells of one table: a slip in an axis must not take all memory.
const MAX_CELLS: usize = 100_000;

/// What gates are bound to.
pub struct Bindings<'a> {
    /// The operators.
    pub catalog: &'a Catalog,
    /// The providers that have a folder.
    pub providers: &'a BTreeMap<ProviderId, Provider>,
    /// The profiles.
    pub profiles: &'a BTreeMap<ProfileId, Profile>,
    /// Where files of real inputs are.
    pub files: &'a dyn FileSource,
}

/// A cell before profile and exclusions are applied.
pub(super) struct Draft {
    pub(super) key: String,
    pub(super) case: CaseSpec,
    profiles: Option<BTreeSet<ProfileId>>,
    span: Range<usize>,
}

impl Draft {
    fn in_profile(&self, profile: &ProfileId) -> bool {
        self.profiles.as_ref().is_none_or(|profiles| profiles.contains(profile))
    }
}

/// Binds one gate. A gate that has cells, but none in this profile, gives `None`.
///
/// # Errors
/// Everything that does not fit: names that catalog, providers or profiles lack, cells declared twice, exclusions that
/// exclude nothing, no cells at all.
pub fn resolve(
    spec: &GateSpec,
    bindings: &Bindings<'_>,
    profile: &ProfileId,
) -> Result<Option<ResolvedGate>, DeclarationErrors> {
    let mut sink = Sink::new(Arc::clone(&spec.file));
    let resolved = Resolver { spec, bindings, sink: &mut sink, read: HashMap::new() }.run(profile);
    sink.finish(resolved)
}

/// Binds one gate; every fault goes to the sink.
pub(super) struct Resolver<'a> {
    pub(super) spec: &'a GateSpec,
    pub(super) bindings: &'a Bindings<'a>,
    pub(super) sink: &'a mut Sink,
    pub(super) read: HashMap<String, Option<TensorFile>>,
}

impl<'a> Resolver<'a> {
    fn run(mut self, profile: &ProfileId) -> Option<Option<ResolvedGate>> {
        self.check_providers();
        let Some(operator) = self.bindings.catalog.operators.get(&self.spec.operator.value) else {
            let accepted =
                self.bindings.catalog.operators.keys().map(ToString::to_string).collect();
            self.unknown("operator", &self.spec.operator.clone_text(), accepted);
            return None;
        };
        self.check_shared_params(operator);
        let mut drafts = Vec::new();
        for cells in &self.spec.cells {
            self.expand(operator, cells, &mut drafts);
        }
        if let Some(refusals) = &self.spec.refusals {
            self.expand_refusals(operator, refusals, &mut drafts);
        }
        self.refuse_duplicates(&drafts);
        let reasons = self.exclusions(operator, &drafts);
        if !self.sink.is_empty() {
            return None;
        }
        let excluded = |at: usize| reasons[at].is_some();
        if (0..drafts.len()).all(excluded) {
            let accepted =
                "every cell of this gate is excluded: keep one, or remove the gate".to_owned();
            self.sink.push(0..0, Fault::Empty { what: "cells in this gate", accepted });
            return None;
        }
        let mut cells = Vec::new();
        let mut exclusions = Vec::new();
        for (draft, reason) in drafts.into_iter().zip(reasons) {
            if !draft.in_profile(profile) {
                continue;
            }
            match reason {
                Some(reason) => exclusions.push(Exclusion { cell: draft.key, reason }),
                None => cells.push(Cell { key: draft.key, case: draft.case }),
            }
        }
        let header = self.header();
        Some((!cells.is_empty()).then_some(ResolvedGate { header, cells, exclusions }))
    }

    fn header(&self) -> GateHeader {
        let ids = |list: &[Sited<ProviderId>]| list.iter().map(|id| id.value.clone()).collect();
        GateHeader {
            id: self.spec.id.clone(),
            kind: self.spec.kind,
            level: self.spec.level,
            about: self.spec.about.clone(),
            device: self.spec.device,
            operator: self.spec.operator.value.clone(),
            candidates: ids(&self.spec.candidates),
            baselines: ids(&self.spec.baselines),
            timing: self.spec.timing.as_ref().map(|timing| timing.value.clone()),
        }
    }

    fn unknown(&mut self, what: &'static str, found: &Sited<String>, accepted: Vec<String>) {
        let fault = Fault::UnknownName { what, found: found.value.clone(), accepted };
        self.sink.push(found.span.clone(), fault);
    }

    fn check_providers(&mut self) {
        let spec = self.spec;
        for (what, list) in [("provider", &spec.candidates), ("baseline", &spec.baselines)] {
            for id in list {
                if !self.bindings.providers.contains_key(&id.value) {
                    let accepted =
                        self.bindings.providers.keys().map(ToString::to_string).collect();
                    self.unknown(what, &id.clone_text(), accepted);
                }
            }
        }
        for id in spec.candidates.iter().chain(&spec.baselines) {
            let Some(provider) = self.bindings.providers.get(&id.value) else { continue };
            if !provider.devices.contains(&spec.device) {
                let (provider, found) = (id.value.to_string(), spec.device);
                self.sink.push(id.span.clone(), Fault::OtherDevice { provider, found });
            }
        }
        let Some(timing) = &spec.timing else { return };
        for id in spec.candidates.iter().chain(&spec.baselines) {
            let Some(provider) = self.bindings.providers.get(&id.value) else { continue };
            for include in &provider.includes {
                if !timing.value.contract.includes.contains(include) {
                    let (provider, found) = (id.value.to_string(), include.clone());
                    let fault = Fault::IncludesDiffer { provider, found };
                    self.sink.push(id.span.clone(), fault);
                }
            }
        }
    }

    pub(super) fn check_names(
        &mut self,
        what: &'static str,
        found: &[Sited<String>],
        accepted: &[String],
    ) {
        for name in found {
            if !accepted.contains(&name.value) {
                self.unknown(what, name, accepted.to_vec());
            }
        }
    }

    pub(super) fn check_dtypes(&mut self, found: &[Sited<Dtype>], operator: &Operator) {
        for dtype in found {
            if !operator.dtypes.contains(&dtype.value) {
                let text = Sited::new(dtype.value.to_string(), dtype.span.clone());
                let accepted = operator.dtypes.iter().map(ToString::to_string).collect();
                self.unknown("dtype of this operator", &text, accepted);
            }
        }
    }

    fn check_profiles(
        &mut self,
        found: Option<&[Sited<ProfileId>]>,
    ) -> Option<BTreeSet<ProfileId>> {
        let found = found?;
        for id in found {
            if !self.bindings.profiles.contains_key(&id.value) {
                let accepted = self.bindings.profiles.keys().map(ToString::to_string).collect();
                self.unknown("profile", &id.clone_text(), accepted);
            }
        }
        Some(found.iter().map(|id| id.value.clone()).collect())
    }

    fn expand(&mut self, operator: &Operator, cells: &CellsSpec, drafts: &mut Vec<Draft>) {
        let profiles = self.check_profiles(cells.profiles.as_deref());
        let layouts = plain(cells.layouts.as_ref(), DEFAULT_LAYOUT, &cells.span);
        self.check_names("layout of this operator", &layouts, &operator.layouts);
        let values = plain(cells.values.as_ref(), DEFAULT_VALUES, &cells.span);
        self.check_names("value class of this operator", &values, &operator.values);
        self.refuse_low_entropy(&values, operator);
        let dtypes = self.dtypes(operator, cells);
        let Some(shapes) = self.shapes(operator, cells) else { return };
        let params = self.params(operator, &cells.params);
        self.check_beside_dims(operator, &cells.params, &shapes, &params, &cells.span);
        self.check_finite(operator, &values, &shapes);
        if !self.check_size(operator, &shapes, &params, &cells.span) {
            return;
        }
        let Some(inputs) = self.file_inputs(operator, cells, &shapes, &params) else { return };
        let inputs = if cells.file.is_some() {
            inputs
        } else {
            let seed = Wide(cells.seed);
            let seeded = |v: &Sited<String>| {
                (v.value.clone(), Inputs::Seeded { values: v.value.clone(), seed })
            };
            values.iter().map(seeded).collect()
        };
        let (name, seed) = (&self.spec.operator.value, cells.seed);
        let axes = Axes { name, operator, shapes, params, dtypes, layouts, inputs, seed };
        if axes.count() > MAX_CELLS {
            let (key, found) = ("cells".to_owned(), format!("{} cells in one table", axes.count()));
            let accepted = format!("at most {MAX_CELLS}");
            self.sink.push(cells.span.clone(), Fault::OutOfRange { key, found, accepted });
            return;
        }
        axes.product(|key, case| {
            drafts.push(Draft { key, case, profiles: profiles.clone(), span: cells.span.clone() });
        });
    }

    fn dtypes(&mut self, operator: &Operator, cells: &CellsSpec) -> Vec<Dtype> {
        let written = cells.dtypes.as_deref();
        self.check_dtypes(written.unwrap_or_default(), operator);
        let dtypes: Vec<Sited<Dtype>> = match written {
            Some(dtypes) => dtypes.to_vec(),
            None => operator.dtypes.iter().map(|&d| Sited::new(d, cells.span.clone())).collect(),
        };
        if self.spec.kind == GateKind::Baseline {
            self.refuse_dtypes_without_baseline(&dtypes);
        }
        dtypes.into_iter().map(|dtype| dtype.value).collect()
    }

    fn refuse_dtypes_without_baseline(&mut self, dtypes: &[Sited<Dtype>]) {
        if self.spec.baselines.iter().any(|id| !self.bindings.providers.contains_key(&id.value)) {
            return;
        }
        let runs: BTreeSet<Dtype> = self
            .spec
            .baselines
            .iter()
            .filter_map(|id| self.bindings.providers.get(&id.value))
            .filter_map(|provider| provider.operators.get(&self.spec.operator.value))
            .flatten()
            .copied()
            .collect();
        for dtype in dtypes.iter().filter(|dtype| !runs.contains(&dtype.value)) {
            let accepted = runs.iter().map(ToString::to_string).collect();
            let fault = Fault::NoBaselineRuns { dtype: dtype.value.to_string(), accepted };
            self.sink.push(dtype.span.clone(), fault);
        }
    }

    fn refuse_low_entropy(&mut self, values: &[Sited<String>], operator: &Operator) {
        if self.spec.kind != GateKind::Baseline {
            return;
        }
        let low = |name: &str| LOW_ENTROPY.contains(&name);
        for value in values.iter().filter(|value| low(&value.value)) {
            let accepted = operator.values.iter().filter(|name| !low(name)).cloned().collect();
            let fault = Fault::ConstantInputs { values: value.value.clone(), accepted };
            self.sink.push(value.span.clone(), fault);
        }
    }

    /// One axis per dimension, in the catalog's order; `None` after an error.
    fn shapes(&mut self, operator: &Operator, cells: &CellsSpec) -> Option<Shapes> {
        let names: Vec<String> = operator.dims.iter().map(|dim| dim.name.clone()).collect();
        let written: Vec<Sited<String>> = cells.dims.iter().map(|(name, _)| name.clone()).collect();
        self.check_names("dimension of this operator", &written, &names);
        self.check_least(operator, &cells.dims);
        let mut axes: BTreeMap<String, Vec<u64>> = cells
            .dims
            .iter()
            .map(|(name, axis)| (name.value.clone(), axis.values.iter().map(|v| v.value).collect()))
            .collect();
        if let Some(file) = &cells.file {
            self.infer(operator, file, &mut axes)?;
        }
        if written.iter().any(|name| !names.contains(&name.value)) {
            return None;
        }
        let missing: Vec<String> =
            names.iter().filter(|n| !axes.contains_key(*n)).cloned().collect();
        if !missing.is_empty() {
            let fault = Fault::MissingNames { what: "extent of the dimension", names: missing };
            self.sink.push(cells.span.clone(), fault);
            return None;
        }
        names.into_iter().map(|name| axes.remove(&name).map(|axis| (name, axis))).collect()
    }

    /// One axis per parameter, in the catalog's order; what nothing sets keeps its default.
    fn params(
        &mut self,
        operator: &Operator,
        own: &[(Sited<String>, Axis<ParamValue>)],
    ) -> Vec<(String, Vec<ParamValue>)> {
        let names: Vec<String> = operator.params.iter().map(|param| param.name.clone()).collect();
        let spec = self.spec;
        let written: Vec<Sited<String>> = own.iter().map(|(name, _)| name.clone()).collect();
        self.check_names("parameter of this operator", &written, &names);
        let mut axes = Vec::new();
        for param in &operator.params {
            let axis: Vec<Sited<ParamValue>> =
                match own.iter().find(|(name, _)| name.value == param.name) {
                    Some((_, axis)) => axis.values.clone(),
                    None => spec
                        .params
                        .iter()
                        .filter(|(name, _)| name.value == param.name)
                        .map(|(_, value)| value.clone())
                        .collect(),
                };
            let own_axis = own.iter().any(|(name, _)| name.value == param.name);
            let mut values: Vec<ParamValue> = if own_axis {
                axis.iter().filter_map(|v| self.param(param, v)).collect()
            } else {
                axis.iter().filter_map(|v| typed(param.kind, v.value)).collect()
            };
            if axis.is_empty() {
                values.push(typed(param.kind, param.default).unwrap_or(param.default));
            }
            axes.push((param.name.clone(), values));
        }
        axes
    }

    fn check_shared_params(&mut self, operator: &Operator) {
        let spec = self.spec;
        let names: Vec<String> = operator.params.iter().map(|param| param.name.clone()).collect();
        let shared: Vec<Sited<String>> = spec.params.iter().map(|(name, _)| name.clone()).collect();
        self.check_names("parameter of this operator", &shared, &names);
        for (name, value) in &spec.params {
            if let Some(param) = operator.params.iter().find(|param| param.name == name.value) {
                self.param(param, value);
            }
        }
    }

    fn expand_refusals(
        &mut self,
        operator: &Operator,
        refusals: &RefusalsSpec,
        drafts: &mut Vec<Draft>,
    ) {
        let profiles = self.check_profiles(refusals.profiles.as_deref());
        self.check_dtypes(refusals.dtypes.as_deref().unwrap_or_default(), operator);
        let names: Vec<String> = operator.dims.iter().map(|dim| dim.name.clone()).collect();
        let written: Vec<Sited<String>> = refusals.dims.iter().map(|(n, _)| n.clone()).collect();
        self.check_names("dimension of this operator", &written, &names);
        self.check_refusal_dims(operator, &refusals.dims);
        let dims: BTreeMap<String, u64> =
            refusals.dims.iter().map(|(name, extent)| (name.value.clone(), extent.value)).collect();
        if written.iter().any(|name| !names.contains(&name.value)) {
            return;
        }
        let missing: Vec<String> =
            names.iter().filter(|n| !dims.contains_key(*n)).cloned().collect();
        if !missing.is_empty() {
            let fault = Fault::MissingNames { what: "extent of the dimension", names: missing };
            self.sink.push(refusals.span.clone(), fault);
            return;
        }
        if operator.refusals.is_empty() {
            let accepted = "the catalog lists no invalid input of this operator".to_owned();
            self.sink.push(refusals.span.clone(), Fault::Empty { what: "refusals", accepted });
        }
        let params = self.params(operator, &[]);
        let dtypes: Vec<Dtype> = match &refusals.dtypes {
            Some(dtypes) => dtypes.iter().map(|dtype| dtype.value).collect(),
            None => operator.dtypes.first().copied().into_iter().collect(),
        };
        let shapes: Shapes = names.iter().map(|name| (name.clone(), vec![dims[name]])).collect();
        self.check_beside_dims(operator, &[], &shapes, &params, &refusals.span);
        if !self.check_size(operator, &shapes, &params, &refusals.span) {
            return;
        }
        for refusal in &operator.refusals {
            let seeded = Inputs::Seeded { values: DEFAULT_VALUES.into(), seed: Wide(DEFAULT_SEED) };
            let axes = Axes {
                name: &self.spec.operator.value,
                operator,
                shapes: shapes.clone(),
                params: params.clone(),
                dtypes: dtypes.clone(),
                layouts: vec![Sited::new(DEFAULT_LAYOUT.to_owned(), 0..0)],
                inputs: vec![(format!("refusal={}", refusal.name), seeded)],
                seed: DEFAULT_SEED,
            };
            axes.product(|key, case| {
                let expect = Expect::Refusal {
                    name: refusal.name.clone(),
                    kind: refusal.kind.clone(),
                    argument: refusal.argument.clone(),
                };
                let case = CaseSpec { expect, ..case };
                let (profiles, span) = (profiles.clone(), refusals.span.clone());
                drafts.push(Draft { key, case, profiles, span });
            });
        }
    }

    fn refuse_duplicates(&mut self, drafts: &[Draft]) {
        let mut seen: HashMap<&str, Vec<&Draft>> = HashMap::with_capacity(drafts.len());
        let profiles: Vec<&ProfileId> = self.bindings.profiles.keys().collect();
        // One error per pair of tables: two overlapping axes share many cells.
        let mut told: BTreeSet<(usize, usize)> = BTreeSet::new();
        for draft in drafts {
            let before = seen.entry(draft.key.as_str()).or_default();
            let clash = before.iter().find(|other| {
                profiles.iter().any(|id| other.in_profile(id) && draft.in_profile(id))
            });
            if let Some(other) = clash
                && told.insert((other.span.start, draft.span.start))
            {
                let related = (other.span.clone(), "declared first here".to_owned());
                let fault = Fault::DuplicateCell { key: draft.key.clone() };
                self.sink.push_related(draft.span.clone(), fault, related);
            }
            before.push(draft);
        }
    }
}

fn plain(axis: Option<&Axis<String>>, default: &str, span: &Range<usize>) -> Vec<Sited<String>> {
    match axis {
        Some(axis) => axis.values.clone(),
        None => vec![Sited::new(default.to_owned(), span.clone())],
    }
}

impl<T: std::fmt::Display> Sited<T> {
    fn clone_text(&self) -> Sited<String> {
        Sited::new(self.value.to_string(), self.span.clone())
    }
}
