//! The contract's whole suite, on every path of this machine.
#![allow(clippy::unwrap_used)]

use proofhouse_contract::conformance::Backend;
use proofhouse_contract::{
    Call, CallPlan, ContractError, Mode, TensorMut, TensorView, conformance,
};
use proofhouse_cpu::{Cpu, Path};

/// The operators on one path, by name; a path that this machine lacks is replaced by the best one.
struct On(Cpu);

impl On {
    fn path(name: &str) -> Self {
        Self(Cpu::new(Path::named(name).unwrap_or_else(Path::best)))
    }
}

impl Backend for On {
    fn name(&self) -> &str {
        self.0.path().name()
    }

    fn supports(&self, call: &Call) -> bool {
        Cpu::OPERATORS.contains(&call.operator.name)
    }

    fn refuse(&mut self, plan: &CallPlan) -> Result<(), ContractError> {
        self.0.refuse(plan)
    }

    fn run(
        &mut self,
        call: &Call,
        mode: Mode,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<(), ContractError> {
        self.0.run(call, mode, inputs, outputs)
    }
}

conformance!(scalar, On::path("scalar"));
conformance!(avx2, On::path("avx2"));
conformance!(avx512, On::path("avx512"));

#[test]
fn every_operator_of_the_contract_is_run() {
    for spec in proofhouse_contract::catalog() {
        assert!(Cpu::OPERATORS.contains(&spec.name), "{}", spec.name);
    }
}
