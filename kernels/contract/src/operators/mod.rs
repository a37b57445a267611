//! The catalog: one file per operator, with its spec, oracle, own refusals and hand-computed tests.
//!
//! To add an operator, write its file and add its line to the `CATALOG` below.

mod add_rms_norm;
mod greedy_logprob;
mod logits;
mod min_p;
mod norm;
mod rms_norm;
mod rms_norm_dynamic_fp8;
mod selected_logprob_rank;
mod silu_and_mul;
mod topk_logprobs;

use crate::call::{Call, Mode};
use crate::error::{ContractError, ErrorKind};
use crate::operands::Operands;
use crate::spec::OperatorSpec;
use crate::tensor::{TensorMut, TensorView};

/// Every operator of the contract.
static CATALOG: &[OperatorSpec] = &[
    rms_norm::SPEC,
    add_rms_norm::SPEC,
    rms_norm_dynamic_fp8::SPEC,
    silu_and_mul::SPEC,
    greedy_logprob::SPEC,
    selected_logprob_rank::SPEC,
    topk_logprobs::SPEC,
    min_p::SPEC,
];

/// Every operator of the contract.
#[must_use]
pub fn catalog() -> &'static [OperatorSpec] {
    CATALOG
}

/// The operator of that name.
///
/// # Errors
/// `Unknown` when there is none.
pub fn find_operator(name: &str) -> Result<&'static OperatorSpec, ContractError> {
    CATALOG.iter().find(|spec| spec.name == name).ok_or_else(|| {
        let names: Vec<_> = CATALOG.iter().map(|spec| spec.name).collect();
        ContractError::new("", "operator", ErrorKind::Unknown)
            .found(name)
            .accepted(names.join(", "))
    })
}

/// Computes an operator in f64, with only the roundings that its contract states.
///
/// `inputs` are the read-only tensors and `outputs` the written ones, each in calling order.
///
/// # Errors
/// Whatever [`crate::CallPlan::validate`] refuses, before anything is written; in checked mode also the first
/// bad device value, after which the outputs are unspecified.
pub fn run_oracle(
    call: &Call,
    mode: Mode,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorMut<'_>],
) -> Result<(), ContractError> {
    // Shorten both lifetimes to one, so that operands can hold inputs and outputs side by side.
    let inputs: Vec<TensorView<'_>> = inputs.to_vec();
    let mut outputs: Vec<TensorMut<'_>> = outputs
        .iter_mut()
        .map(|tensor| TensorMut { layout: tensor.layout.clone(), bytes: &mut *tensor.bytes })
        .collect();
    let mut operands = Operands::new(call, mode, &inputs, &mut outputs)?;
    (call.operator.oracle)(&mut operands)
}
