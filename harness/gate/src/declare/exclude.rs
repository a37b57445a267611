//! Cells that a gate leaves out on purpose.

use proofhouse_schema::catalog::Operator;
use proofhouse_schema::gate::{CaseSpec, Expect, Inputs};

use super::fault::Fault;
use super::resolve::{Draft, Resolver};
use super::sited::{Axis, Sited};
use super::spec::ExcludeSpec;

impl Resolver<'_> {
    /// The reason for which each draft is excluded, if it is.
    pub(super) fn exclusions(
        &mut self,
        operator: &Operator,
        drafts: &[Draft],
    ) -> Vec<Option<String>> {
        let mut reasons = vec![None; drafts.len()];
        let spec = self.spec;
        for exclude in &spec.exclude {
            let before = self.sink.len();
            self.check_exclusion(operator, exclude);
            let mut used = self.sink.len() > before;
            for (draft, reason) in drafts.iter().zip(&mut reasons) {
                if matches(exclude, &draft.case) {
                    used = true;
                    reason.get_or_insert_with(|| exclude.reason.clone());
                }
            }
            if !used {
                self.sink.push(exclude.span.clone(), Fault::IdleExclusion);
            }
        }
        reasons
    }

    fn check_exclusion(&mut self, operator: &Operator, exclude: &ExcludeSpec) {
        let axis =
            |axis: &Option<Axis<String>>| axis.as_ref().map_or(Vec::new(), |a| a.values.clone());
        let refusals: Vec<String> = operator.refusals.iter().map(|r| r.name.clone()).collect();
        let dims: Vec<String> = operator.dims.iter().map(|dim| dim.name.clone()).collect();
        let written: Vec<Sited<String>> =
            exclude.dims.iter().map(|(name, _)| name.clone()).collect();
        self.check_names("dimension of this operator", &written, &dims);
        self.check_dtypes(exclude.dtype.as_deref().unwrap_or_default(), operator);
        self.check_names("layout of this operator", &axis(&exclude.layout), &operator.layouts);
        self.check_names("value class of this operator", &axis(&exclude.values), &operator.values);
        self.check_names("refusal of this operator", &axis(&exclude.refusal), &refusals);
    }
}

fn matches(exclude: &ExcludeSpec, case: &CaseSpec) -> bool {
    let has = |axis: &Option<Axis<String>>, found: Option<&str>| {
        axis.as_ref().is_none_or(|a| a.values.iter().any(|v| Some(v.value.as_str()) == found))
    };
    let refusal = match &case.expect {
        Expect::Refusal { name, .. } => Some(name.as_str()),
        Expect::Outputs => None,
    };
    let values = match (&case.inputs, refusal) {
        (Inputs::Seeded { values, .. }, None) => Some(values.as_str()),
        _ => None,
    };
    has(&exclude.layout, Some(&case.layout))
        && has(&exclude.values, values)
        && has(&exclude.refusal, refusal)
        && exclude.dtype.as_ref().is_none_or(|list| list.iter().any(|d| d.value == case.dtype))
        && exclude.dims.iter().all(|(name, axis)| {
            axis.values.iter().any(|v| case.dims.get(&name.value) == Some(&v.value))
        })
}
