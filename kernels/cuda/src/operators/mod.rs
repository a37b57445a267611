//! What each operator's kernel takes, and which variant of it a call gets.

mod gate;
mod norm;
mod vocabulary;

use proofhouse_contract::{Call, CallPlan, ContractError, Dtype, ErrorKind, TensorPlan};

use crate::compile::{Arch, Variant};
use crate::error::CudaError;
use crate::launch::{Geometry, Kernel};
use crate::memory::Stream;
use crate::tuning::{ChunkShape, GateShape, Overlap, RowShape, RowWork, Target, Tuning};

pub(crate) use vocabulary::{STATUS_BYTES, Workspace, decode_status};

/// Most rows that the kernels count, with room for what they add to a row's number.
const MOST_ROWS: u64 = 1 << 30;

/// The structure of one launch, whichever kernel it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArgumentSet {
    RmsNorm(norm::RmsNormArguments),
    AddRmsNorm(norm::AddRmsNormArguments),
    RmsNormDynamicFp8(norm::RmsNormDynamicFp8Arguments),
    SiluAndMul(gate::SiluAndMulArguments),
    Greedy(vocabulary::GreedyArguments),
    Selected(vocabulary::SelectedArguments),
}

impl ArgumentSet {
    /// Gathers a call's arguments; the plan must have been validated.
    pub(crate) fn gather(
        plan: &CallPlan,
        tuning: Tuning,
        workspace: Option<Workspace>,
    ) -> Result<Self, CudaError> {
        let operator = plan.call.operator.name;
        Ok(match (operator, tuning, workspace) {
            ("rms_norm", ..) => Self::RmsNorm(norm::RmsNormArguments::gather(plan)?),
            ("add_rms_norm", ..) => Self::AddRmsNorm(norm::AddRmsNormArguments::gather(plan)?),
            ("rms_norm_dynamic_fp8", ..) => {
                Self::RmsNormDynamicFp8(norm::RmsNormDynamicFp8Arguments::gather(plan)?)
            }
            ("silu_and_mul", ..) => Self::SiluAndMul(gate::SiluAndMulArguments::gather(plan)?),
            ("greedy_logprob", Tuning::Chunks(shape), Some(workspace)) => {
                Self::Greedy(vocabulary::GreedyArguments::gather(plan, shape, workspace)?)
            }
            ("selected_logprob_rank", Tuning::Chunks(shape), Some(workspace)) => {
                Self::Selected(vocabulary::SelectedArguments::gather(plan, shape, workspace)?)
            }
            _ => return Err(no_kernel(operator)),
        })
    }

    /// Bytes of the structure that an operator's kernel takes.
    fn bytes(operator: &'static str) -> Result<usize, CudaError> {
        Ok(match operator {
            "rms_norm" => size_of::<norm::RmsNormArguments>(),
            "add_rms_norm" => size_of::<norm::AddRmsNormArguments>(),
            "rms_norm_dynamic_fp8" => size_of::<norm::RmsNormDynamicFp8Arguments>(),
            "silu_and_mul" => size_of::<gate::SiluAndMulArguments>(),
            "greedy_logprob" => size_of::<vocabulary::GreedyArguments>(),
            "selected_logprob_rank" => size_of::<vocabulary::SelectedArguments>(),
            _ => return Err(no_kernel(operator)),
        })
    }

    /// The same launch, writing bad device values to the word at `address`, or nowhere for 0.
    pub(crate) fn with_status(mut self, address: u64) -> Self {
        match &mut self {
            Self::Greedy(arguments) => arguments.set_status(address),
            Self::Selected(arguments) => arguments.set_status(address),
            _ => {}
        }
        self
    }

    /// Puts the launch into a stream.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    #[allow(unsafe_code, reason = "passes the launch's promise on to the kernel at hand")]
    pub(crate) unsafe fn launch(
        &self,
        kernel: &Kernel,
        geometry: Geometry,
        stream: Stream,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise, in every arm.
        unsafe {
            match self {
                Self::RmsNorm(arguments) => kernel.launch(geometry, stream, arguments),
                Self::AddRmsNorm(arguments) => kernel.launch(geometry, stream, arguments),
                Self::RmsNormDynamicFp8(arguments) => kernel.launch(geometry, stream, arguments),
                Self::SiluAndMul(arguments) => kernel.launch(geometry, stream, arguments),
                Self::Greedy(arguments) => kernel.launch(geometry, stream, arguments),
                Self::Selected(arguments) => kernel.launch(geometry, stream, arguments),
            }
        }
    }
}

fn no_kernel(operator: &'static str) -> CudaError {
    CudaError::NoKernel { operator, accepted: crate::OPERATORS.join(", ") }
}

/// Name of an operator's second dimension, the length of its rows.
fn row_dimension(call: &Call) -> Result<&'static str, ContractError> {
    call.operator.dims.get(1).map(|dim| dim.name).ok_or_else(|| {
        ContractError::new(call.operator.name, "operator", ErrorKind::Unsupported)
            .found("no row length")
            .accepted("an operator over rows")
    })
}

/// Rows and length of a row.
pub(crate) fn sizes(call: &Call) -> Result<(u64, u64), ContractError> {
    Ok((call.dim("rows")?, call.dim(row_dimension(call)?)?))
}

/// Refuses what the contract accepts and the kernels do not.
pub(crate) fn refuse_unsupported(call: &Call) -> Result<(), CudaError> {
    let operator = call.operator.name;
    if !crate::OPERATORS.contains(&operator) {
        return Err(no_kernel(operator));
    }
    let (rows, width) = sizes(call)?;
    let unsupported = |argument, found: u64, most: u64| {
        Err(ContractError::new(operator, argument, ErrorKind::Unsupported)
            .found(found)
            .accepted(format_args!("at most {most}"))
            .into())
    };
    if rows > MOST_ROWS {
        return unsupported("rows", rows, MOST_ROWS);
    }
    let longest = match operator {
        "rms_norm" | "add_rms_norm" | "rms_norm_dynamic_fp8" => {
            crate::tuning::longest_row(call.dtype)
        }
        // Places in a row are counted in 31 bits, and a chunk may end behind the row.
        _ => 1 << 30,
    };
    if width > longest {
        return unsupported(row_dimension(call)?, width, longest);
    }
    Ok(())
}

/// The tuning that a call gets where the caller has none.
pub(crate) fn choose(call: &Call, target: Target) -> Result<Tuning, CudaError> {
    let (rows, width) = sizes(call)?;
    let of_rows = |work| Tuning::Rows(RowShape::choose(rows, width, call.dtype, work, target));
    Ok(match call.operator.name {
        "rms_norm" => of_rows(RowWork::Plain),
        "add_rms_norm" => of_rows(RowWork::Added),
        "rms_norm_dynamic_fp8" => of_rows(RowWork::Quantized),
        "silu_and_mul" => Tuning::Gate(GateShape::choose(rows, width, call.dtype, target)),
        _ => Tuning::Chunks(ChunkShape::choose(target)),
    })
}

/// Refuses a tuning that the operator's kernel cannot be built with.
pub(crate) fn check(call: &Call, tuning: Tuning, arch: Arch) -> Result<(), CudaError> {
    let operator = call.operator.name;
    if tuning.overlap() != Overlap::Off && !arch.has_dependent_launch() {
        return Err(CudaError::Tuning {
            operator,
            what: "the overlap of launches",
            found: format!("{:?} on {arch}", tuning.overlap()),
            accepted: "Off below compute capability 9.0".to_owned(),
        });
    }
    let (_, width) = sizes(call)?;
    match (operator, tuning) {
        ("rms_norm" | "add_rms_norm" | "rms_norm_dynamic_fp8", Tuning::Rows(shape)) => {
            shape.check(operator, width, call.dtype)
        }
        ("silu_and_mul", Tuning::Gate(shape)) => shape.check(operator),
        ("greedy_logprob" | "selected_logprob_rank", Tuning::Chunks(shape)) => {
            shape.check(operator)
        }
        (_, found) => Err(CudaError::Tuning {
            operator,
            what: "the kind of tuning",
            found: format!("{found:?}"),
            accepted: "the kind that the operator has".to_owned(),
        }),
    }
}

/// The variant of a call's kernel.
pub(crate) fn variant(call: &Call, tuning: Tuning, aligned: bool) -> Result<Variant, CudaError> {
    let operator = call.operator.name;
    let (_, width) = sizes(call)?;
    let mut numbers = match tuning {
        Tuning::Rows(shape) => shape.numbers(width, call.dtype, aligned),
        Tuning::Gate(shape) => shape.numbers(width, call.dtype, aligned),
        Tuning::Chunks(shape) => shape.numbers(aligned),
    };
    if operator == "rms_norm_dynamic_fp8" {
        numbers.push(("ADD_RESIDUAL", u32::from(call.flag("add-residual")?)));
    }
    let argument_bytes = ArgumentSet::bytes(operator)?;
    Ok(Variant { operator, dtype: call.dtype, argument_bytes, numbers })
}

/// Blocks and threads of a call's launch.
pub(crate) fn geometry(
    call: &Call,
    tuning: Tuning,
    multiprocessors: u32,
) -> Result<Geometry, CudaError> {
    let operator = call.operator.name;
    let (rows, width) = sizes(call)?;
    let (grid, threads) = match tuning {
        Tuning::Rows(shape) => {
            ([shape.blocks(rows, multiprocessors), 1], shape.threads * shape.rows)
        }
        Tuning::Gate(shape) => (shape.blocks(rows, width, call.dtype), shape.threads * shape.rows),
        Tuning::Chunks(shape) => (shape.blocks(rows, width), 32 * shape.warps),
    };
    Geometry::new(operator, grid, u64::from(threads), tuning.overlap() != Overlap::Off)
}

/// Whether all activations of a call can be accessed in 16-byte vectors, and what belongs to one in one piece.
pub(crate) fn is_aligned(plan: &CallPlan) -> bool {
    let activation = plan.call.dtype;
    plan.tensors.iter().all(|tensor| {
        let bytes = match tensor.layout.dtype {
            dtype if dtype == activation => 16,
            // The codes of one vector of activations.
            Dtype::F8E4M3 => crate::tuning::per_vector(activation),
            _ => return true,
        };
        // Scales and results of a row are single values, F32 ones too.
        if tensor.layout.shape.len() < 2 && tensor.name != "w" || tensor.name == "scale" {
            return true;
        }
        let size = tensor.layout.dtype.size() as u64;
        let layout = &tensor.layout;
        tensor.first_element().is_multiple_of(bytes)
            && (layout.width() * size).is_multiple_of(bytes)
            && (layout.rows() <= 1 || (layout.row_stride * size).is_multiple_of(bytes))
    })
}

/// A tensor of a plan.
fn tensor<'a>(plan: &'a CallPlan, name: &'static str) -> Result<&'a TensorPlan, ContractError> {
    plan.tensor(name).ok_or_else(|| {
        ContractError::new(plan.call.operator.name, name, ErrorKind::Missing).accepted("a tensor")
    })
}

/// Address of a tensor's first element, and bytes from row to row.
fn place(plan: &CallPlan, name: &'static str) -> Result<(u64, i64), ContractError> {
    let tensor = tensor(plan, name)?;
    let stride = tensor.layout.row_stride * tensor.layout.dtype.size() as u64;
    Ok((tensor.first_element(), stride as i64))
}
