//! The operators, safe: every call is accepted by the contract before a kernel sees it.

use proofhouse_contract::{
    Call, CallPlan, ContractError, ErrorKind, Mode, TensorMut, TensorPlan, TensorView,
};

use crate::check::{Operand, accept};
use crate::path::Path;
use crate::simd::{Kind, Target};
use crate::vocabulary::{Setting, TopkOperands};
use crate::{gated, normalized, quantized, vocabulary};

/// The operators on one path.
///
/// Inputs and outputs are those of the contract, in calling order. An operator allocates only for an error. Work
/// of more than about half a megabyte is spread over the threads of the current rayon pool; results do not
/// depend on how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    path: Path,
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new(Path::best())
    }
}

impl Cpu {
    /// The operators on a given path.
    #[must_use]
    pub const fn new(path: Path) -> Self {
        Self { path }
    }

    /// The path in use.
    #[must_use]
    pub const fn path(self) -> Path {
        self.path
    }

    /// The operators that [`Cpu::run`] knows, by name.
    pub const OPERATORS: [&'static str; 8] = [
        "rms_norm",
        "add_rms_norm",
        "rms_norm_dynamic_fp8",
        "silu_and_mul",
        "greedy_logprob",
        "selected_logprob_rank",
        "topk_logprobs",
        "min_p",
    ];

    /// Bytes of workspace that a call needs from its caller: none, for every operator here.
    #[must_use]
    pub const fn workspace_bytes(self, _call: &Call) -> u64 {
        0
    }

    pub(crate) fn target(
        self,
        operator: &'static str,
        dtype: proofhouse_contract::Dtype,
    ) -> Result<Target, ContractError> {
        let kind = Kind::of(dtype).ok_or_else(|| {
            ContractError::new(operator, "dtype", ErrorKind::Unsupported)
                .found(dtype)
                .accepted("F32, F16, BF16")
        })?;
        Ok(Target { path: self.path, kind })
    }

    /// Refuses what is refused before launch: what [`CallPlan::validate`] refuses.
    ///
    /// # Errors
    /// The first fault.
    pub fn refuse(self, plan: &CallPlan) -> Result<(), ContractError> {
        let tensors = |written: bool| {
            let of_role = move |tensor: &&TensorPlan| tensor.role.is_written() == written;
            plan.tensors.iter().filter(of_role).map(Operand::from)
        };
        accept(&plan.call, tensors(false), tensors(true))
    }

    /// Runs any operator: `inputs` are the read-only tensors and `outputs` the written ones, in calling order.
    ///
    /// # Errors
    /// What the contract refuses; in checked mode the first bad device value, after which the outputs are
    /// unspecified; `Unsupported` for an operator that is not in [`Cpu::OPERATORS`].
    pub fn run(
        self,
        call: &Call,
        mode: Mode,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<(), ContractError> {
        accept(call, inputs.iter().map(Operand::from), outputs.iter().map(Operand::from))?;
        self.run_accepted(call, mode, inputs, outputs)
    }

    fn run_accepted(
        self,
        call: &Call,
        mode: Mode,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<(), ContractError> {
        let operator = call.operator.name;
        let target = self.target(operator, call.dtype)?;
        let setting = Setting { target, mode, operator };
        match (operator, inputs, outputs) {
            ("rms_norm", [x, w], [y]) => normalized::rms_norm(target, x, w, y, call.float("eps")?),
            ("add_rms_norm", [w], [x, residual]) => {
                normalized::add_rms_norm(target, x, residual, w, call.float("eps")?);
            }
            ("rms_norm_dynamic_fp8", [x, w], [q, scale]) => {
                let operands = quantized::Operands { x, w, residual: None, q, scale };
                quantized::rms_norm_dynamic_fp8(target, operands, call.float("eps")?);
            }
            ("rms_norm_dynamic_fp8", [x, w], [residual, q, scale]) => {
                let operands = quantized::Operands { x, w, residual: Some(residual), q, scale };
                quantized::rms_norm_dynamic_fp8(target, operands, call.float("eps")?);
            }
            ("silu_and_mul", [x], [y]) => gated::silu_and_mul(target, x, y),
            ("greedy_logprob", [logits], [token, logprob, rank]) => {
                vocabulary::greedy_logprob(setting, logits, token, logprob, rank)?;
            }
            ("selected_logprob_rank", [logits, selected], [logprob, rank]) => {
                vocabulary::selected_logprob_rank(setting, logits, selected, logprob, rank)?;
            }
            ("topk_logprobs", [logits, selected], [ids, logprobs, rank]) => {
                let operands = TopkOperands { logits, selected, ids, logprobs, rank };
                vocabulary::topk_logprobs(setting, operands, call.int("k")? as usize)?;
            }
            ("min_p", [p], [logits]) => vocabulary::min_p(setting, logits, p)?,
            _ => {
                return Err(ContractError::new(operator, "operator", ErrorKind::Unsupported)
                    .found(operator)
                    .accepted(Self::OPERATORS.join(", ")));
            }
        }
        Ok(())
    }
}
