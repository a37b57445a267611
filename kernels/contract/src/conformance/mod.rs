//! The suite that every backend passes: agreement with the oracle, refusals, repeatability, batch invariance.
//!
//! Implement [`Backend`] and invoke [`conformance!`](crate::conformance!) in a test file.

mod cases;
mod failure;
mod suites;

use crate::call::{Call, Mode};
use crate::error::ContractError;
use crate::plan::CallPlan;
use crate::tensor::{TensorMut, TensorView};

pub use cases::{compact_cases, mode_of};
pub use failure::{Failure, Problem};
pub use suites::{batch_invariance, correctness, refusals, repeatability, zero_rows};

/// Something that runs operators.
pub trait Backend {
    /// Name for messages.
    fn name(&self) -> &str;

    /// Whether the backend runs this call at all; one that it does not is refused as `Unsupported`.
    fn supports(&self, call: &Call) -> bool;

    /// Refuses what is refused before launch.
    ///
    /// # Errors
    /// What the contract or the backend does not accept, see [`CallPlan::validate`].
    fn refuse(&mut self, plan: &CallPlan) -> Result<(), ContractError>;

    /// Runs a call: `inputs` are the read-only tensors and `outputs` the written ones, each in calling order.
    ///
    /// # Errors
    /// What `refuse` refuses, and in checked mode bad device values.
    fn run(
        &mut self,
        call: &Call,
        mode: Mode,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<(), ContractError>;
}

/// The oracle as a backend: the first one that must pass the suite.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oracle;

impl Backend for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }

    fn supports(&self, _: &Call) -> bool {
        true
    }

    fn refuse(&mut self, plan: &CallPlan) -> Result<(), ContractError> {
        plan.validate()
    }

    fn run(
        &mut self,
        call: &Call,
        mode: Mode,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<(), ContractError> {
        crate::run_oracle(call, mode, inputs, outputs)
    }
}

/// Makes a test module `$module` that runs the whole suite on the backend that `$backend` makes.
///
/// ```
/// proofhouse_contract::conformance!(oracle, proofhouse_contract::conformance::Oracle);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance {
    ($module:ident, $backend:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn every_compact_case_agrees_with_the_oracle() {
                $crate::conformance::assert($crate::conformance::correctness(&mut $backend));
            }

            #[test]
            fn every_invalid_call_gets_its_own_error() {
                $crate::conformance::assert($crate::conformance::refusals(&mut $backend));
            }

            #[test]
            fn the_same_inputs_give_the_same_bits() {
                $crate::conformance::assert($crate::conformance::repeatability(&mut $backend));
            }

            #[test]
            fn a_row_does_not_depend_on_its_batch() {
                $crate::conformance::assert($crate::conformance::batch_invariance(&mut $backend));
            }

            #[test]
            fn a_call_without_rows_does_nothing() {
                $crate::conformance::assert($crate::conformance::zero_rows(&mut $backend));
            }
        }
    };
}

/// Panics with a suite's failure, for tests.
///
/// # Panics
/// When the suite failed.
#[track_caller]
pub fn assert(result: Result<usize, Failure>) {
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
