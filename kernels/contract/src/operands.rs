//! The operands of a call, by name, for the oracles.

use crate::call::{Call, Mode};
use crate::error::{ContractError, ErrorKind};
use crate::plan::CallPlan;
use crate::tensor::{TensorMut, TensorView};

/// The operands of one call, for an oracle: inputs by name, outputs by name and once each.
#[derive(Debug)]
pub struct Operands<'a, 'b> {
    /// The call, validated.
    pub call: &'a Call,
    /// Whether device values are checked.
    pub mode: Mode,
    inputs: Vec<(&'static str, &'a TensorView<'b>)>,
    outputs: Vec<(&'static str, Option<&'a mut TensorMut<'b>>)>,
}

impl<'a, 'b> Operands<'a, 'b> {
    /// Validates the call and names its operands.
    ///
    /// # Errors
    /// As [`CallPlan::of_operands`] and [`CallPlan::validate`].
    pub fn new(
        call: &'a Call,
        mode: Mode,
        inputs: &'a [TensorView<'b>],
        outputs: &'a mut [TensorMut<'b>],
    ) -> Result<Self, ContractError> {
        CallPlan::of_operands(call, inputs, outputs)?.validate()?;
        let names = |written: bool| {
            call.tensors()
                .filter(move |spec| spec.role.is_written() == written)
                .map(|spec| spec.name)
        };
        Ok(Self {
            call,
            mode,
            inputs: names(false).zip(inputs).collect(),
            outputs: names(true).zip(outputs.iter_mut().map(Some)).collect(),
        })
    }

    /// The input of that name.
    ///
    /// # Errors
    /// `Missing` when the call has none.
    pub fn input(&self, name: &'static str) -> Result<&'a TensorView<'b>, ContractError> {
        self.inputs
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, view)| *view)
            .ok_or_else(|| self.call.error(name, ErrorKind::Missing))
    }

    /// Takes the output of that name.
    ///
    /// # Errors
    /// `Missing` when the call has none, or it was taken before.
    pub fn output(&mut self, name: &'static str) -> Result<&'a mut TensorMut<'b>, ContractError> {
        self.outputs
            .iter_mut()
            .find(|(known, _)| *known == name)
            .and_then(|(_, tensor)| tensor.take())
            .ok_or_else(|| self.call.error(name, ErrorKind::Missing))
    }
}
