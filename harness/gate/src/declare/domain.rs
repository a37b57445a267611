//! Values that a case cannot have: parameters and extents outside their domains, cases that fit no memory, inputs that
//! leave nothing to compare.

use std::ops::Range;

use proofhouse_schema::catalog::{Operator, Param, ParamKind, ParamValue};

use super::fault::Fault;
use super::product::typed;
use super::resolve::Resolver;
use super::sited::{Axis, Sited};
use super::tensors::extent;

/// Extents by dimension, each an axis.
pub(super) type Shapes = Vec<(String, Vec<u64>)>;

/// The most bytes that the tensors of a case may take together; the checker refuses more.
const MAX_CASE_BYTES: u64 = 1 << 40;
/// The least rows of a case that refusals spoil: some spoil the second row.
const LEAST_REFUSAL_ROWS: u64 = 2;

impl Resolver<'_> {
    /// A parameter's value in its declared type and inside its domain.
    pub(super) fn param(&mut self, param: &Param, found: &Sited<ParamValue>) -> Option<ParamValue> {
        let key = param.name.clone();
        let Some(value) = typed(param.kind, found.value) else {
            let accepted = match param.kind {
                ParamKind::Float => "a number",
                ParamKind::Integer => "a whole number",
                ParamKind::Boolean => "true or false",
            };
            let (found, span) = (found.value.to_string(), found.span.clone());
            self.sink.push(span, Fault::WrongType { key, found, accepted: accepted.to_owned() });
            return None;
        };
        if !param.domain.admits(value) {
            self.out_of_range(&found.span, key, value.to_string(), param.accepted.clone());
            return None;
        }
        Some(value)
    }

    /// Extents below their least ones.
    pub(super) fn check_least(
        &mut self,
        operator: &Operator,
        written: &[(Sited<String>, Axis<u64>)],
    ) {
        for (name, axis) in written {
            let least = operator.dims.iter().find(|dim| dim.name == name.value);
            let least = least.map_or(0, |dim| dim.least);
            for found in axis.values.iter().filter(|found| found.value < least) {
                let (key, accepted) = (name.value.clone(), format!("at least {least}"));
                self.out_of_range(&found.span, key, found.value.to_string(), accepted);
            }
        }
    }

    /// The extents of the case that refusals spoil.
    pub(super) fn check_refusal_dims(
        &mut self,
        operator: &Operator,
        written: &[(Sited<String>, Sited<u64>)],
    ) {
        for (name, found) in written {
            let least = operator.dims.iter().find(|dim| dim.name == name.value);
            let rows = if name.value == "rows" { LEAST_REFUSAL_ROWS } else { 0 };
            let least = least.map_or(0, |dim| dim.least).max(rows);
            if found.value < least {
                let (key, accepted) = (name.value.clone(), format!("at least {least}"));
                self.out_of_range(&found.span, key, found.value.to_string(), accepted);
            }
        }
    }

    /// Parameters above the dimension that bounds them. `own` are the table's, and `span` is where it stands.
    pub(super) fn check_beside_dims(
        &mut self,
        operator: &Operator,
        own: &[(Sited<String>, Axis<ParamValue>)],
        shapes: &Shapes,
        params: &[(String, Vec<ParamValue>)],
        span: &Range<usize>,
    ) {
        for param in &operator.params {
            let Some(dim) = &param.domain.most_dim else { continue };
            let axis = shapes.iter().find(|(name, _)| name == dim);
            let Some(most) = axis.and_then(|(_, axis)| axis.iter().min().copied()) else {
                continue;
            };
            let values = params.iter().filter(|(name, _)| *name == param.name);
            let above = |value: &&ParamValue| value.as_f64().is_some_and(|v| v > most as f64);
            for value in values.flat_map(|(_, values)| values).filter(above) {
                let place = self.place_of(&param.name, *value, own).unwrap_or(span.clone());
                let found = format!("{value} where {dim} is {most}");
                self.out_of_range(&place, param.name.clone(), found, param.accepted.clone());
            }
        }
    }

    /// Where a parameter's value was written; nowhere for a default.
    fn place_of(
        &self,
        name: &str,
        value: ParamValue,
        own: &[(Sited<String>, Axis<ParamValue>)],
    ) -> Option<Range<usize>> {
        let same = |found: &&Sited<ParamValue>| found.value.as_f64() == value.as_f64();
        let own = own.iter().filter(|(key, _)| key.value == name);
        let shared = self.spec.params.iter().filter(|(key, _)| key.value == name);
        let written = own.flat_map(|(_, axis)| &axis.values).chain(shared.map(|(_, value)| value));
        written.into_iter().find(same).map(|found| found.span.clone())
    }

    /// Refuses a table whose largest case fits no memory. Gives whether it fits.
    pub(super) fn check_size(
        &mut self,
        operator: &Operator,
        shapes: &Shapes,
        params: &[(String, Vec<ParamValue>)],
        span: &Range<usize>,
    ) -> bool {
        let bytes = largest_case(operator, shapes, params);
        if bytes <= MAX_CASE_BYTES {
            return true;
        }
        let found =
            if bytes == u64::MAX { "2^64 bytes or more".into() } else { format!("{bytes} bytes") };
        let found = format!("the largest case takes {found}");
        let accepted = format!("at most {MAX_CASE_BYTES} bytes a case, all its tensors together");
        self.out_of_range(span, "dims".to_owned(), found, accepted);
        false
    }

    /// Refuses value classes that leave some case nothing finite to compare.
    pub(super) fn check_finite(
        &mut self,
        operator: &Operator,
        values: &[Sited<String>],
        shapes: &Shapes,
    ) {
        for class in values {
            let Some(enough) = operator.finite_from.get(&class.value) else { continue };
            let smallest = |dim: &str| {
                let axis = shapes.iter().find(|(name, _)| name == dim);
                axis.and_then(|(_, axis)| axis.iter().copied().filter(|extent| *extent > 0).min())
            };
            // A case without rows has nothing to compare, and is judged as such.
            if smallest("rows").is_none()
                || enough.iter().any(|(dim, extent)| smallest(dim) >= Some(*extent))
            {
                continue;
            }
            let name = &class.value;
            let small = enough.keys().filter_map(|dim| Some(format!("{dim} = {}", smallest(dim)?)));
            let ways = enough.iter().map(|(dim, extent)| format!("{dim} of at least {extent}"));
            let (small, ways): (Vec<_>, Vec<_>) = (small.collect(), ways.collect());
            let found = format!("`{name}` with {}", small.join(", "));
            let accepted = format!("give these cells {}, or leave `{name}` out", ways.join(" or "));
            self.sink.push(class.span.clone(), Fault::NothingFinite { found, accepted });
        }
    }

    fn out_of_range(&mut self, span: &Range<usize>, key: String, found: String, accepted: String) {
        self.sink.push(span.clone(), Fault::OutOfRange { key, found, accepted });
    }
}

/// Whether every case has at least this extent of a dimension.
pub(super) fn reaches(shapes: &Shapes, dim: &str, extent: u64) -> bool {
    let axis = shapes.iter().find(|(name, _)| name == dim);
    axis.is_some_and(|(_, axis)| axis.iter().all(|found| *found >= extent))
}

/// Bytes of all tensors where every dimension and parameter is at its largest.
fn largest_case(operator: &Operator, shapes: &Shapes, params: &[(String, Vec<ParamValue>)]) -> u64 {
    let value_of = |name: &str| {
        let dim = shapes.iter().find(|(dim, _)| dim == name).map(|(_, axis)| axis);
        let param = || {
            let (_, values) = params.iter().find(|(param, _)| param == name)?;
            values.iter().filter_map(|value| u64::try_from(value.as_i64()?).ok()).max()
        };
        dim.and_then(|axis| axis.iter().max().copied()).or_else(param)
    };
    let widest = operator.dtypes.iter().map(|dtype| dtype.size()).max().unwrap_or(1);
    operator.tensors.iter().fold(0, |sum: u64, tensor| {
        let size = tensor.dtype.map_or(widest, |dtype| dtype.size());
        let elements = tensor
            .shape
            .iter()
            .map(|expression| extent(expression, value_of).unwrap_or(1))
            .fold(1, u64::saturating_mul);
        sum.saturating_add(elements.saturating_mul(size))
    })
}
