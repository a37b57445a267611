//! One safe entry per operator: sizes are read from the tensors, and the contract accepts the rest.

use proofhouse_contract::{
    ContractError, Dtype, Mode, ParamValue, TensorLayout, TensorMut, TensorView, find_operator,
};

use crate::check::{Operand, Signature, accept};
use crate::cpu::Cpu;
use crate::vocabulary::{Setting, TopkOperands};
use crate::{gated, normalized, quantized, vocabulary};

/// One axis of a tensor; 0 where there is none, which the contract then refuses.
fn axis(layout: &TensorLayout, place: usize) -> u64 {
    layout.shape.get(place).copied().unwrap_or(0)
}

/// Rows and width of a matrix, under the names that an operator gives them.
fn sizes(layout: &TensorLayout, width: &'static str) -> [(&'static str, u64); 2] {
    [("rows", axis(layout, 0)), (width, axis(layout, 1))]
}

/// An operator's name, dtype, sizes and parameters, to be accepted with operands.
struct Entry<'a> {
    name: &'static str,
    dtype: Dtype,
    dims: &'a [(&'static str, u64)],
    params: &'a [(&'static str, ParamValue)],
}

impl Entry<'_> {
    fn accept<const IN: usize, const OUT: usize>(
        &self,
        inputs: [Operand<'_>; IN],
        outputs: [Operand<'_>; OUT],
    ) -> Result<(), ContractError> {
        let Self { name, dtype, dims, params } = *self;
        let signature = Signature { operator: find_operator(name)?, dtype, dims, params };
        accept(&signature, inputs.into_iter(), outputs.into_iter())
    }
}

/// Operands of [`Cpu::rms_norm_dynamic_fp8`].
#[derive(Debug)]
pub struct DynamicFp8<'a, 'b, 'c> {
    /// Activations `[rows, hidden]`.
    pub x: &'a TensorView<'b>,
    /// Gain `[hidden]`.
    pub w: &'a TensorView<'b>,
    /// Residual stream `[rows, hidden]`, when it is added in front; replaced by the rounded sum.
    pub residual: Option<&'a mut TensorMut<'c>>,
    /// Quantized activations `[rows, hidden]`, E4M3.
    pub q: &'a mut TensorMut<'c>,
    /// Scale of each row `[rows, 1]`, F32.
    pub scale: &'a mut TensorMut<'c>,
}

/// Operands of [`Cpu::topk_logprobs`].
#[derive(Debug)]
pub struct TopkLogprobs<'a, 'b, 'c> {
    /// Logits `[rows, vocab]`.
    pub logits: &'a TensorView<'b>,
    /// The given token of each row `[rows]`, I64.
    pub selected: &'a TensorView<'b>,
    /// The given token, then the `k` best `[rows, k + 1]`, I64.
    pub ids: &'a mut TensorMut<'c>,
    /// Their log-probabilities `[rows, k + 1]`, F32.
    pub logprobs: &'a mut TensorMut<'c>,
    /// Rank of the given token `[rows]`, I64.
    pub rank: &'a mut TensorMut<'c>,
}

impl Cpu {
    /// `y = x / sqrt(mean(x²) + eps) * w`: `x` and `y` are `[rows, hidden]`, `w` is `[hidden]`.
    ///
    /// # Errors
    /// What the contract refuses.
    pub fn rms_norm(
        self,
        x: &TensorView<'_>,
        w: &TensorView<'_>,
        y: &mut TensorMut<'_>,
        eps: f64,
    ) -> Result<(), ContractError> {
        let entry = Entry {
            name: "rms_norm",
            dtype: x.layout.dtype,
            dims: &sizes(&x.layout, "hidden"),
            params: &[("eps", ParamValue::Float(eps))],
        };
        entry.accept([x.into(), w.into()], [(&*y).into()])?;
        normalized::rms_norm(self.target(entry.name, entry.dtype)?, x, w, y, eps);
        Ok(())
    }

    /// `residual = round(x + residual)`, then `x` is the normalized residual: both `[rows, hidden]`.
    ///
    /// # Errors
    /// What the contract refuses.
    pub fn add_rms_norm(
        self,
        x: &mut TensorMut<'_>,
        residual: &mut TensorMut<'_>,
        w: &TensorView<'_>,
        eps: f64,
    ) -> Result<(), ContractError> {
        let entry = Entry {
            name: "add_rms_norm",
            dtype: x.layout.dtype,
            dims: &sizes(&x.layout, "hidden"),
            params: &[("eps", ParamValue::Float(eps))],
        };
        entry.accept([w.into()], [(&*x).into(), (&*residual).into()])?;
        normalized::add_rms_norm(self.target(entry.name, entry.dtype)?, x, residual, w, eps);
        Ok(())
    }

    /// Normalizes rows and quantizes them to E4M3 with one scale each.
    ///
    /// # Errors
    /// What the contract refuses.
    pub fn rms_norm_dynamic_fp8(
        self,
        operands: DynamicFp8<'_, '_, '_>,
        eps: f64,
    ) -> Result<(), ContractError> {
        let DynamicFp8 { x, w, residual, q, scale } = operands;
        let entry = Entry {
            name: "rms_norm_dynamic_fp8",
            dtype: x.layout.dtype,
            dims: &sizes(&x.layout, "hidden"),
            params: &[
                ("eps", ParamValue::Float(eps)),
                ("add-residual", ParamValue::Bool(residual.is_some())),
            ],
        };
        match residual.as_deref() {
            None => entry.accept([x.into(), w.into()], [(&*q).into(), (&*scale).into()])?,
            Some(sum) => {
                entry.accept([x.into(), w.into()], [sum.into(), (&*q).into(), (&*scale).into()])?
            }
        }
        let target = self.target(entry.name, entry.dtype)?;
        quantized::rms_norm_dynamic_fp8(
            target,
            quantized::Operands { x, w, residual, q, scale },
            eps,
        );
        Ok(())
    }

    /// `y = round(round(silu(g)) * u)`: `x` is `[rows, 2 * width]` with the gates in front, `y` is `[rows, width]`.
    ///
    /// # Errors
    /// What the contract refuses.
    pub fn silu_and_mul(
        self,
        x: &TensorView<'_>,
        y: &mut TensorMut<'_>,
    ) -> Result<(), ContractError> {
        let entry = Entry {
            name: "silu_and_mul",
            dtype: x.layout.dtype,
            dims: &sizes(&y.layout, "width"),
            params: &[],
        };
        entry.accept([x.into()], [(&*y).into()])?;
        gated::silu_and_mul(self.target(entry.name, entry.dtype)?, x, y);
        Ok(())
    }

    /// The best token of each row (I64), its log-probability (F32) and its rank (I64), each `[rows]`.
    ///
    /// # Errors
    /// What the contract refuses; in checked mode the first row with a NaN.
    pub fn greedy_logprob(
        self,
        mode: Mode,
        logits: &TensorView<'_>,
        token: &mut TensorMut<'_>,
        logprob: &mut TensorMut<'_>,
        rank: &mut TensorMut<'_>,
    ) -> Result<(), ContractError> {
        let entry = Entry {
            name: "greedy_logprob",
            dtype: logits.layout.dtype,
            dims: &sizes(&logits.layout, "vocab"),
            params: &[],
        };
        entry.accept([logits.into()], [(&*token).into(), (&*logprob).into(), (&*rank).into()])?;
        vocabulary::greedy_logprob(self.setting(mode, &entry)?, logits, token, logprob, rank)
    }

    /// Log-probability (F32) and rank (I64) of a given token (I64) in each row, each `[rows]`.
    ///
    /// # Errors
    /// What the contract refuses; in checked mode the first row with a bad token or a NaN.
    pub fn selected_logprob_rank(
        self,
        mode: Mode,
        logits: &TensorView<'_>,
        selected: &TensorView<'_>,
        logprob: &mut TensorMut<'_>,
        rank: &mut TensorMut<'_>,
    ) -> Result<(), ContractError> {
        let entry = Entry {
            name: "selected_logprob_rank",
            dtype: logits.layout.dtype,
            dims: &sizes(&logits.layout, "vocab"),
            params: &[],
        };
        entry.accept([logits.into(), selected.into()], [(&*logprob).into(), (&*rank).into()])?;
        vocabulary::selected_logprob_rank(
            self.setting(mode, &entry)?,
            logits,
            selected,
            logprob,
            rank,
        )
    }

    /// A given token and the `k` best of each row (1 to 128), with log-probabilities and the given token's rank.
    ///
    /// # Errors
    /// What the contract refuses; in checked mode the first row with a bad token or a NaN.
    pub fn topk_logprobs(
        self,
        mode: Mode,
        operands: TopkLogprobs<'_, '_, '_>,
        k: usize,
    ) -> Result<(), ContractError> {
        let TopkLogprobs { logits, selected, ids, logprobs, rank } = operands;
        let entry = Entry {
            name: "topk_logprobs",
            dtype: logits.layout.dtype,
            dims: &sizes(&logits.layout, "vocab"),
            params: &[("k", ParamValue::Int(i64::try_from(k).unwrap_or(i64::MAX)))],
        };
        let outputs = [(&*ids).into(), (&*logprobs).into(), (&*rank).into()];
        entry.accept([logits.into(), selected.into()], outputs)?;
        let setting = self.setting(mode, &entry)?;
        vocabulary::topk_logprobs(
            setting,
            TopkOperands { logits, selected, ids, logprobs, rank },
            k,
        )
    }

    /// In place: logits `[rows, vocab]` below `max + ln(p)` become minus infinity; `p` is `[rows]`, F32.
    ///
    /// # Errors
    /// What the contract refuses; in checked mode the first row with a bad `p` or a NaN.
    pub fn min_p(
        self,
        mode: Mode,
        logits: &mut TensorMut<'_>,
        p: &TensorView<'_>,
    ) -> Result<(), ContractError> {
        let entry = Entry {
            name: "min_p",
            dtype: logits.layout.dtype,
            dims: &sizes(&logits.layout, "vocab"),
            params: &[],
        };
        entry.accept([p.into()], [(&*logits).into()])?;
        vocabulary::min_p(self.setting(mode, &entry)?, logits, p)
    }

    fn setting(self, mode: Mode, entry: &Entry<'_>) -> Result<Setting, ContractError> {
        Ok(Setting { target: self.target(entry.name, entry.dtype)?, mode, operator: entry.name })
    }
}
