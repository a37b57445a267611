//! Operator contracts: shapes, dtypes, layouts, seeded inputs, tolerance and f64 oracles, with no GPU, no IO and no harness.
//!
//! The oracle of an operator is its meaning: f64 arithmetic and only the roundings that the contract states. A
//! kernel is right when [`check`] accepts its outputs, and when it refuses what the contract refuses.
//!
//! - [`catalog`] lists the operators as data; [`Call`] is one with its sizes, [`Case`] adds layout and values.
//! - [`CaseTensors`] makes a case's tensors from a seed; [`run_oracle`] computes it; [`check`] judges outputs.
//! - [`CallPlan::validate`] is the check before launch that every backend makes.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod call;
pub mod case;
pub mod compare;
pub mod dtype;
pub mod error;
pub mod inputs;
pub mod layout;
pub mod operators;
pub mod refusal;
pub mod rounding;
pub mod spec;
pub mod tensor;
#[cfg(test)]
mod testing;
pub mod values;

pub use call::{Call, CallPlan, Mode, Operands, TensorPlan, Traffic};
pub use case::Case;
pub use compare::{
    Agreement, Comparison, Element, Judging, Rule, Tolerance, check, expected_outputs, judge,
};
pub use dtype::Dtype;
pub use error::{ContractError, ErrorKind};
pub use inputs::CaseTensors;
pub use layout::Layout;
pub use operators::{catalog, find_operator, run_oracle};
pub use refusal::{DeviceValue, Mutation, Refusal};
pub use spec::{OperatorSpec, ParamValue, Role, TensorSpec};
pub use tensor::{AlignedBytes, OwnedTensor, TensorLayout, TensorMut, TensorView};
pub use values::ValueClass;
