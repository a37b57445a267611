//! Axes to cells: every combination, with its readable key.

use proofhouse_schema::catalog::{Operator, ParamKind, ParamValue};
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::gate::{CaseSpec, Expect, Inputs};
use proofhouse_schema::ids::OperatorName;

use super::resolve::DEFAULT_SEED;
use super::sited::Sited;

/// The axes of a set of cells.
pub(super) struct Axes<'a> {
    pub(super) name: &'a OperatorName,
    pub(super) operator: &'a Operator,
    pub(super) shapes: Vec<(String, Vec<u64>)>,
    pub(super) params: Vec<(String, Vec<ParamValue>)>,
    pub(super) dtypes: Vec<Dtype>,
    pub(super) layouts: Vec<Sited<String>>,
    pub(super) inputs: Vec<(String, Inputs)>,
    pub(super) seed: u64,
}

impl Axes<'_> {
    /// How many cells there are.
    pub(super) fn count(&self) -> usize {
        let shapes = self.shapes.iter().map(|(_, axis)| axis.len());
        let params = self.params.iter().map(|(_, axis)| axis.len());
        let rest = [self.dtypes.len(), self.layouts.len(), self.inputs.len()];
        shapes.chain(params).chain(rest).fold(1, usize::saturating_mul)
    }

    /// Every combination, the first dimension slowest, with its key.
    pub(super) fn product(&self, mut each: impl FnMut(String, CaseSpec)) {
        let shapes = combinations(&self.shapes);
        let params = combinations(&self.params);
        for shape in &shapes {
            let shape_words: Vec<String> =
                shape.iter().map(|(name, extent)| format!("{name}={extent}")).collect();
            for param in &params {
                let mut head = shape_words.join(" ");
                for (value, declared) in param.iter().zip(&self.operator.params) {
                    if typed(declared.kind, declared.default) != Some(value.1) {
                        head.push_str(&format!(" {}={}", value.0, value.1));
                    }
                }
                self.inner(&head, shape, param, &mut each);
            }
        }
    }

    fn inner(
        &self,
        head: &str,
        shape: &[(String, u64)],
        param: &[(String, ParamValue)],
        each: &mut impl FnMut(String, CaseSpec),
    ) {
        for dtype in &self.dtypes {
            for layout in &self.layouts {
                for (word, inputs) in &self.inputs {
                    let mut key = format!("{head} {dtype} {} {word}", layout.value);
                    if self.seed != DEFAULT_SEED {
                        key.push_str(&format!(" seed={}", self.seed));
                    }
                    let case = CaseSpec {
                        operator: self.name.clone(),
                        dims: shape.iter().cloned().collect(),
                        dtype: *dtype,
                        layout: layout.value.clone(),
                        params: param.iter().cloned().collect(),
                        inputs: inputs.clone(),
                        expect: Expect::Outputs,
                    };
                    each(key, case);
                }
            }
        }
    }
}

/// The product of named axes, the first slowest.
fn combinations<T: Clone>(axes: &[(String, Vec<T>)]) -> Vec<Vec<(String, T)>> {
    axes.iter().fold(vec![Vec::new()], |heads, (name, values)| {
        heads
            .iter()
            .flat_map(|head| {
                values.iter().map(move |value| {
                    let mut row = head.clone();
                    row.push((name.clone(), value.clone()));
                    row
                })
            })
            .collect()
    })
}

/// A parameter's value in its declared type.
pub(super) fn typed(kind: ParamKind, value: ParamValue) -> Option<ParamValue> {
    match kind {
        ParamKind::Float => value.as_f64().map(ParamValue::Float),
        ParamKind::Integer => value.as_i64().map(ParamValue::Integer),
        ParamKind::Boolean => value.as_bool().map(ParamValue::Boolean),
    }
}
