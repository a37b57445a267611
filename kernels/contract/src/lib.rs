//! Operator contracts: shapes, dtypes, layouts, seeded inputs, tolerance and f64 oracles, with no GPU, no IO and no harness.
//!
//! The oracle of an operator is its meaning: f64 arithmetic and only the roundings that the contract states. A
//! kernel is right when [`check`] accepts its outputs, and when it refuses what the contract refuses.
//!
//! - [`catalog`] lists the operators as data; [`Call`] is one with its sizes, [`Case`] adds layout and values.
//! - [`CaseTensors`] makes a case's tensors from a seed; [`run_oracle`] computes it; [`check`] judges outputs.
//! - [`CallPlan::validate`] is the check before launch that every backend makes.
//! - [`conformance!`] is the test suite of a backend; [`mutants`] are the faults that the checker must find.
//!
//! ```
//! use proofhouse_contract::{
//!     Agreement, Call, Case, CaseTensors, Dtype, Mode, ValueClass, check, run_oracle,
//! };
//!
//! # fn main() -> Result<(), proofhouse_contract::ContractError> {
//! let call = Call::new("rms_norm", Dtype::BF16, &[("rows", 4), ("hidden", 768)], &[])?;
//! let case = Case { values: ValueClass::Uniform, seed: 7, ..Case::new(call) };
//!
//! // Inputs from the seed; outputs hold poison, and 64 bytes of it follow every tensor.
//! let before = CaseTensors::generate(&case, 0xa5, 64)?;
//!
//! // The candidate: here the oracle itself, in general the kernel under test.
//! let mut after = before.clone();
//! let (inputs, mut outputs) = after.split(&case.call);
//! run_oracle(&case.call, Mode::Checked, &inputs, &mut outputs)?;
//!
//! let (inputs, initial) = (before.views(&case.call, false), before.views(&case.call, true));
//! let candidate = after.views(&case.call, true);
//! let comparisons = check(&case.call, Mode::Checked, &inputs, &initial, &candidate)?;
//! assert_eq!(comparisons[0].agreement(), Agreement::Agree);
//!
//! // An output that was never written is found.
//! let comparisons = check(&case.call, Mode::Checked, &inputs, &initial, &initial)?;
//! assert_eq!(comparisons[0].agreement(), Agreement::Differ);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod call;
pub mod case;
pub mod compare;
pub mod conformance;
pub mod dtype;
pub mod error;
pub mod inputs;
pub mod layout;
pub mod mutants;
pub mod operands;
pub mod operators;
pub mod plan;
pub mod refusal;
pub mod rounding;
pub mod spec;
pub mod tensor;
#[cfg(test)]
mod testing;
pub mod values;

pub use call::{Call, Mode, Traffic};
pub use case::Case;
pub use compare::{
    Agreement, Comparison, Element, Judging, Rule, Tolerance, check, expected_outputs, judge,
};
pub use dtype::Dtype;
pub use error::{ContractError, ErrorKind};
pub use inputs::CaseTensors;
pub use layout::Layout;
pub use operands::Operands;
pub use operators::{catalog, find_operator, run_oracle};
pub use plan::{CallPlan, TensorPlan};
pub use refusal::{DeviceValue, Mutation, Refusal};
pub use spec::{OperatorSpec, ParamValue, Role, TensorSpec};
pub use tensor::{AlignedBytes, OwnedTensor, TensorLayout, TensorMut, TensorView};
pub use values::ValueClass;
