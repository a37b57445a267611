//! What two speeds must share before anyone compares them.

use std::collections::BTreeMap;

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::catalog::ParamValue;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::evidence::CellRecord;
use proofhouse_schema::gate::Inputs;
use proofhouse_schema::ids::OperatorName;
use proofhouse_schema::timing::TimingContract;

/// Everything that a speed is a statement about, except who ran.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeedIdentity {
    /// The operator.
    pub operator: OperatorName,
    /// Extents.
    pub dims: BTreeMap<String, u64>,
    /// The activation dtype.
    pub dtype: Dtype,
    /// The layout.
    pub layout: String,
    /// Parameters.
    pub params: BTreeMap<String, ParamValue>,
    /// Where the inputs come from: distribution and seed, or file.
    pub inputs: Inputs,
    /// sha256 of every input.
    pub digests: BTreeMap<String, Digest>,
    /// The timing contract.
    pub timing: TimingContract,
}

/// Why two speeds cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IncomparableError {
    /// A record without a timing contract is no speed.
    #[error("cell {cell:?} has no timing contract: it holds no speed")]
    NoSpeed {
        /// The cell.
        cell: String,
    },
    /// A part of the identity differs.
    #[error("speeds of different {part} are not compared: {left} and {right}")]
    Differs {
        /// Which part.
        part: &'static str,
        /// The left one.
        left: String,
        /// The right one.
        right: String,
    },
}

/// The identity of a record's speed.
///
/// # Errors
/// [`IncomparableError::NoSpeed`] when the record has no timing contract.
pub fn contract_of(record: &CellRecord) -> Result<SpeedIdentity, IncomparableError> {
    let timing = record
        .gate
        .timing
        .as_ref()
        .ok_or_else(|| IncomparableError::NoSpeed { cell: record.cell.clone() })?;
    let case = &record.case;
    Ok(SpeedIdentity {
        operator: case.operator.clone(),
        dims: case.dims.clone(),
        dtype: case.dtype,
        layout: case.layout.clone(),
        params: case.params.clone(),
        inputs: case.inputs.clone(),
        digests: record.inputs.clone(),
        timing: timing.contract.clone(),
    })
}

/// Refuses to compare two speeds whose identities differ.
///
/// # Errors
/// [`IncomparableError`] that names the first part that differs, with both values.
pub fn ensure_comparable(left: &CellRecord, right: &CellRecord) -> Result<(), IncomparableError> {
    let (a, b) = (contract_of(left)?, contract_of(right)?);
    same("operator", &a.operator, &b.operator)?;
    same("timing contract", &a.timing, &b.timing)?;
    same("extents", &a.dims, &b.dims)?;
    same("dtype", &a.dtype, &b.dtype)?;
    same("layout", &a.layout, &b.layout)?;
    same("parameters", &a.params, &b.params)?;
    same("input distribution", &a.inputs, &b.inputs)?;
    same("input bytes", &a.digests, &b.digests)
}

fn same<T: PartialEq + std::fmt::Debug>(
    part: &'static str,
    left: &T,
    right: &T,
) -> Result<(), IncomparableError> {
    if left == right {
        return Ok(());
    }
    Err(IncomparableError::Differs { part, left: format!("{left:?}"), right: format!("{right:?}") })
}
