//! The suite against the oracle itself, and against backends that are each wrong in one way.

use proofhouse_contract::conformance::{
    self, Backend, Failure, Oracle, Problem, batch_invariance, correctness, refusals, repeatability,
};
use proofhouse_contract::{Call, CallPlan, ContractError, Mode, TensorMut, TensorView};

proofhouse_contract::conformance!(oracle, Oracle);

/// What a faulty backend does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    WritesNothing,
    ReadsOldMemory,
    WritesBehindTheEnd,
    AcceptsEverything,
    NamesTheWrongArgument,
    DriftsFromRunToRun,
    LooksAtTheBatch,
    RemembersTheFirstResult,
    SupportsNothing,
}

struct Faulty {
    fault: Fault,
    calls: u64,
    remembered: Vec<(usize, Vec<Vec<u8>>)>,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        Self { fault, calls: 0, remembered: Vec::new() }
    }

    /// Moves the last element of the first output by one code.
    fn nudge(outputs: &mut [TensorMut<'_>]) {
        let output = &mut outputs[0];
        let (rows, width) = (output.layout.rows(), output.layout.width());
        if rows > 0 {
            let bits = output.view().bits(rows - 1, width - 1);
            output.set_bits(rows - 1, width - 1, bits ^ 1);
        }
    }

    /// Gives the results of the first call at the same address again.
    fn replay(&mut self, outputs: &mut [TensorMut<'_>]) {
        let address = outputs[0].bytes.as_ptr() as usize;
        let known = self.remembered.iter().find(|(known, _)| *known == address);
        if let Some((_, results)) = known {
            for (output, result) in outputs.iter_mut().zip(results) {
                if output.bytes.len() == result.len() {
                    output.bytes.copy_from_slice(result);
                }
            }
        } else {
            let results = outputs.iter().map(|output| output.bytes.to_vec()).collect();
            self.remembered.push((address, results));
        }
    }
}

impl Backend for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn supports(&self, _: &Call) -> bool {
        self.fault != Fault::SupportsNothing
    }

    fn refuse(&mut self, plan: &CallPlan) -> Result<(), ContractError> {
        match self.fault {
            Fault::AcceptsEverything => Ok(()),
            Fault::NamesTheWrongArgument => plan.validate().map_err(|mut error| {
                error.argument = "something".into();
                error
            }),
            _ => plan.validate(),
        }
    }

    fn run(
        &mut self,
        call: &Call,
        mode: Mode,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<(), ContractError> {
        self.calls += 1;
        if self.fault == Fault::WritesNothing {
            return CallPlan::of_operands(call, inputs, outputs)?.validate();
        }
        Oracle.run(call, mode, inputs, outputs)?;
        match self.fault {
            Fault::WritesBehindTheEnd => {
                if let Some(last) = outputs[0].bytes.last_mut() {
                    *last ^= 1;
                }
            }
            Fault::ReadsOldMemory if outputs[0].bytes.last().is_some_and(|byte| byte & 1 == 1) => {
                Self::nudge(outputs);
            }
            Fault::DriftsFromRunToRun if self.calls.is_multiple_of(2) => Self::nudge(outputs),
            Fault::LooksAtTheBatch if outputs[0].layout.elements() > 1000 => Self::nudge(outputs),
            Fault::RemembersTheFirstResult => self.replay(outputs),
            _ => {}
        }
        Ok(())
    }
}

fn problem(result: Result<usize, Failure>) -> Problem {
    result.expect_err("the fault must be found").problem
}

#[test]
fn an_output_that_is_never_written_is_found() {
    let found = problem(correctness(&mut Faulty::new(Fault::WritesNothing)));
    assert!(matches!(found, Problem::Disagrees(_)), "{found:?}");
}

#[test]
fn an_output_that_depends_on_old_memory_is_found_even_within_tolerance() {
    let found = problem(correctness(&mut Faulty::new(Fault::ReadsOldMemory)));
    assert!(matches!(found, Problem::KeptPoison { .. }), "{found:?}");
}

#[test]
fn a_write_behind_the_end_is_found() {
    let found = problem(correctness(&mut Faulty::new(Fault::WritesBehindTheEnd)));
    assert!(matches!(found, Problem::StrayWrite { .. }), "{found:?}");
}

#[test]
fn a_backend_that_accepts_everything_is_found() {
    let found = problem(refusals(&mut Faulty::new(Fault::AcceptsEverything)));
    assert!(matches!(found, Problem::Accepted { .. }), "{found:?}");
}

#[test]
fn an_error_that_names_the_wrong_argument_is_found() {
    let found = problem(refusals(&mut Faulty::new(Fault::NamesTheWrongArgument)));
    assert!(matches!(found, Problem::WrongError { .. }), "{found:?}");
}

#[test]
fn drift_from_run_to_run_is_found() {
    let found = problem(repeatability(&mut Faulty::new(Fault::DriftsFromRunToRun)));
    assert!(matches!(found, Problem::NotRepeatable { .. }), "{found:?}");
}

#[test]
fn a_row_that_depends_on_its_batch_is_found() {
    let found = problem(batch_invariance(&mut Faulty::new(Fault::LooksAtTheBatch)));
    assert!(matches!(found, Problem::BatchDependent { .. }), "{found:?}");
}

#[test]
fn a_result_remembered_by_address_is_found() {
    let found = problem(repeatability(&mut Faulty::new(Fault::RemembersTheFirstResult)));
    assert!(matches!(found, Problem::Disagrees(_)), "{found:?}");
}

#[test]
fn a_backend_that_supports_nothing_does_not_pass() {
    let found = problem(conformance::zero_rows(&mut Faulty::new(Fault::SupportsNothing)));
    assert_eq!(found, Problem::NothingChecked);
}
