//! What the tensors of a case hold before a run: made from a seed, or read from a file.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use proofhouse_contract::inputs::mix;
use proofhouse_contract::spec::Extent;
use proofhouse_contract::tensor::decode_row;
use proofhouse_contract::{
    Call, Case, CaseTensors, Dtype, Layout, OwnedTensor, TensorLayout, TensorSpec, TensorView,
    ValueClass,
};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::gate::{CaseSpec, Inputs};
use safetensors::SafeTensors;

use crate::error::CheckerError;

/// Input files that were read and whose digest was right.
#[derive(Debug, Default)]
pub struct InputFiles {
    known: HashMap<(PathBuf, Digest), Rc<Vec<u8>>>,
}

impl InputFiles {
    fn get(
        &mut self,
        gates: &Path,
        relative: &str,
        sha256: &Digest,
    ) -> Result<(PathBuf, Rc<Vec<u8>>), CheckerError> {
        let below =
            Path::new(relative).components().all(|part| matches!(part, Component::Normal(_)));
        if !below {
            return Err(CheckerError::Outside(relative.to_owned()));
        }
        let path = gates.join(relative);
        let key = (path.clone(), sha256.clone());
        if let Some(bytes) = self.known.get(&key) {
            return Ok((path, Rc::clone(bytes)));
        }
        let bytes = std::fs::read(&path)
            .map_err(|source| CheckerError::Read { path: path.clone(), source })?;
        let found = Digest::of(&bytes);
        if found != *sha256 {
            return Err(CheckerError::OtherFile { path, found, expected: sha256.clone() });
        }
        let bytes = Rc::new(bytes);
        self.known.insert(key, Rc::clone(&bytes));
        Ok((path, bytes))
    }
}

/// The seed of the `contents`-th contents of a case; 0 is the case's own.
#[must_use]
pub fn derived_seed(seed: u64, contents: u32) -> u64 {
    if contents == 0 { seed } else { mix(seed ^ mix(u64::from(contents))) }
}

/// Makes all tensors of a case, in calling order; outputs hold zeros.
///
/// # Errors
/// [`CheckerError::Contract`] for a case that the contract does not have, and those of input files.
pub fn make(
    call: &Call,
    spec: &CaseSpec,
    gates: &Path,
    contents: u32,
    files: &mut InputFiles,
) -> Result<Vec<OwnedTensor>, CheckerError> {
    let layout: Layout = spec.layout.parse()?;
    let (values, seed) = match &spec.inputs {
        Inputs::Seeded { values, seed } => (values.parse()?, seed.0),
        Inputs::File { seed, .. } => (ValueClass::Normal, seed.0),
    };
    let case = Case { call: call.clone(), layout, values, seed: derived_seed(seed, contents) };
    let mut tensors = CaseTensors::generate(&case, 0, 0)?.tensors;
    if let Inputs::File { path, sha256, tensors: names, .. } = &spec.inputs {
        let (path, bytes) = files.get(gates, path, sha256)?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|source| CheckerError::NotSafetensors { path, source })?;
        for (tensor, name) in names {
            let (target, spec) = input_of(call, &mut tensors, tensor)?;
            overlay(call, spec, target, &file, name, contents)?;
        }
    }
    Ok(tensors)
}

fn input_of<'a>(
    call: &Call,
    tensors: &'a mut [OwnedTensor],
    name: &str,
) -> Result<(&'a mut OwnedTensor, &'static TensorSpec), CheckerError> {
    let spec = call
        .tensors()
        .find(|spec| spec.name == name && spec.role != proofhouse_contract::Role::Out);
    let target = tensors.iter_mut().find(|tensor| tensor.name == name);
    target.zip(spec).ok_or_else(|| CheckerError::NotAnInput {
        operator: call.operator.name.to_owned(),
        tensor: name.to_owned(),
    })
}

/// Fills one tensor from the file: its first rows, or for other contents those behind them, in a circle.
fn overlay(
    call: &Call,
    spec: &TensorSpec,
    target: &mut OwnedTensor,
    file: &SafeTensors<'_>,
    name: &str,
    contents: u32,
) -> Result<(), CheckerError> {
    let misfit = |found: String, accepted: String| CheckerError::Misfit {
        operator: call.operator.name.to_owned(),
        tensor: spec.name.to_owned(),
        name: name.to_owned(),
        found,
        accepted,
    };
    let shape = target.layout.shape.clone();
    let by_row = spec.shape.first() == Some(&Extent::Dim("rows"));
    let wanted = format!("shape {shape:?}{}", if by_row { ", or more rows" } else { "" });
    let view = file.tensor(name).map_err(|error| misfit(error.to_string(), wanted.clone()))?;
    let found: Vec<u64> = view.shape().iter().map(|extent| *extent as u64).collect();
    let fits = found.len() == shape.len()
        && found.iter().zip(&shape).enumerate().all(|(axis, (found, wanted))| {
            found == wanted || (axis == 0 && by_row && found > wanted)
        });
    if !fits {
        return Err(misfit(format!("shape {found:?}"), wanted));
    }
    let dtype = file_dtype(view.dtype()).ok_or_else(|| {
        misfit(
            format!("dtype {:?}", view.dtype()),
            "F32, F16, BF16, F8_E4M3, I32, I64 or U8".into(),
        )
    })?;
    if dtype.is_float() != target.layout.dtype.is_float() {
        return Err(misfit(format!("dtype {dtype}"), format!("dtype {}", target.layout.dtype)));
    }
    let source = TensorView::new(TensorLayout::contiguous(dtype, &found), view.data());
    copy_rotated(&source, target, if by_row { contents } else { 0 });
    Ok(())
}

/// Copies rows with one rounding per element. `shift` moves the source's rows, or its columns where it has one row.
fn copy_rotated(source: &TensorView<'_>, target: &mut OwnedTensor, shift: u32) {
    let (rows, count) = (source.layout.rows(), target.layout.rows());
    let shift = u64::from(shift);
    let (mut values, mut integers) = (Vec::new(), Vec::new());
    for row in 0..count {
        let from = (row + shift) % rows.max(1);
        let bytes = source.row_bytes(from);
        let columns = if rows == 1 { shift % source.layout.width().max(1) } else { 0 } as usize;
        if source.layout.dtype.is_float() {
            decode_row(source.layout.dtype, bytes, &mut values);
            values.rotate_left(columns);
            // A vector of a longer file keeps its first elements.
            values.truncate(target.layout.width() as usize);
            target.view_mut().write_row(row, &values);
        } else {
            source.read_integers(from, &mut integers);
            integers.rotate_left(columns);
            integers.truncate(target.layout.width() as usize);
            target.view_mut().write_integers(row, &integers);
        }
    }
}

fn file_dtype(dtype: safetensors::Dtype) -> Option<Dtype> {
    use safetensors::Dtype as File;
    Some(match dtype {
        File::F32 => Dtype::F32,
        File::F16 => Dtype::F16,
        File::BF16 => Dtype::BF16,
        File::F8_E4M3 => Dtype::F8E4M3,
        File::I32 => Dtype::I32,
        File::I64 => Dtype::I64,
        File::U8 => Dtype::U8,
        _ => return None,
    })
}
