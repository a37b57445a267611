//! A case: a call, how its tensors lie in memory, and what they hold.

use std::fmt;

use crate::call::Call;
use crate::error::{ContractError, ErrorKind};
use crate::layout::Layout;
use crate::plan::CallPlan;
use crate::values::ValueClass;

/// One point of a correctness gate's axes; its inputs follow from it alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Operator, dtype, sizes and parameters.
    pub call: Call,
    /// How the tensors lie in their storage.
    pub layout: Layout,
    /// What the tensors hold.
    pub values: ValueClass,
    /// Seed of the inputs.
    pub seed: u64,
}

impl Case {
    /// A case with a contiguous layout, normal values and seed 0.
    #[must_use]
    pub const fn new(call: Call) -> Self {
        Self { call, layout: Layout::Contiguous, values: ValueClass::Normal, seed: 0 }
    }

    /// Checks the call, the layout and that the operator's contract speaks of the value class.
    ///
    /// # Errors
    /// As [`Call::plan`], and `Unsupported` for `values`.
    pub fn validate(&self) -> Result<CallPlan, ContractError> {
        let spec = self.call.operator;
        if !spec.values.contains(&self.values) {
            let names: Vec<_> = spec.values.iter().map(|class| class.name()).collect();
            return Err(ContractError::new(spec.name, "values", ErrorKind::Unsupported)
                .found(self.values)
                .accepted(names.join(", ")));
        }
        let plan = self.call.plan(self.layout)?;
        plan.validate()?;
        Ok(plan)
    }
}

impl fmt::Display for Case {
    /// `rms_norm F16 hidden=64 rows=3 eps=0.000001 offset:3 normal seed=7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.call.operator.name, self.call.dtype)?;
        for (name, size) in &self.call.dims {
            write!(f, " {name}={size}")?;
        }
        for (name, value) in &self.call.params {
            write!(f, " {name}={value}")?;
        }
        write!(f, " {} {} seed={}", self.layout, self.values, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    #[test]
    fn a_class_outside_the_contract_is_refused() {
        let call = Call::new("rms_norm", Dtype::F16, &[("rows", 1), ("hidden", 4)], &[]).unwrap();
        let mut case = Case::new(call);
        assert!(case.validate().is_ok());
        case.values = ValueClass::MaskedRows;
        let error = case.validate().unwrap_err();
        assert_eq!((error.kind, error.argument.as_ref()), (ErrorKind::Unsupported, "values"));
        assert_eq!(case.to_string(), "rms_norm F16 hidden=4 rows=1 contiguous masked-rows seed=0");
    }
}
