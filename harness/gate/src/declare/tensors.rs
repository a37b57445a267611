//! Extents that follow from the tensors of a safetensors file. Only the header is read.

use std::collections::BTreeMap;

use proofhouse_schema::catalog::Operator;
use serde::Deserialize;

/// The longest header accepted, in bytes.
const MAX_HEADER: usize = 16 << 20;

/// The largest extent: canonical JSON holds no wider integer.
const MAX_EXTENT: u64 = 1 << 53;

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct FileTensor {
    /// Its dtype, in safetensors' spelling.
    #[allow(dead_code, reason = "the checker converts it; the gate needs the extents")]
    pub(crate) dtype: String,
    /// Its extents.
    pub(crate) shape: Vec<u64>,
}

/// Reads the tensors of a safetensors file.
pub(crate) fn header(bytes: &[u8]) -> Result<BTreeMap<String, FileTensor>, String> {
    let length = bytes
        .first_chunk::<8>()
        .map(|first| u64::from_le_bytes(*first))
        .and_then(|length| usize::try_from(length).ok())
        .filter(|length| *length <= MAX_HEADER && length + 8 <= bytes.len())
        .ok_or("not a safetensors file: its header's length does not fit")?;
    let value: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&bytes[8..8 + length])
        .map_err(|error| {
            format!("not a safetensors file: its header is no JSON object ({error})")
        })?;
    value
        .into_iter()
        .filter(|(name, _)| name != "__metadata__")
        .map(|(name, value)| {
            let tensor = FileTensor::deserialize(value)
                .map_err(|error| format!("tensor {name:?} has no dtype and shape ({error})"))?;
            if let Some(extent) = tensor.shape.iter().find(|extent| **extent > MAX_EXTENT) {
                return Err(format!(
                    "tensor {name:?} has an extent of {extent}, at most 2^53 are accepted"
                ));
            }
            Ok((name, tensor))
        })
        .collect()
}

/// Extends `dims` by what follows from the shapes of the given operator tensors.
pub(crate) fn infer(
    operator: &Operator,
    shapes: &[(&str, &[u64])],
    dims: &mut BTreeMap<String, u64>,
) -> Result<(), String> {
    for (name, shape) in shapes {
        let Some(tensor) = operator.tensors.iter().find(|t| t.name == *name) else { continue };
        if tensor.shape.len() != shape.len() {
            let (found, accepted) = (shape.len(), tensor.shape.len());
            return Err(format!(
                "`{name}` has {found} axes in the file, the operator's {accepted}"
            ));
        }
        for (expression, &extent) in tensor.shape.iter().zip(*shape) {
            solve(expression, extent, dims).map_err(|why| format!("`{name}`: {why}"))?;
        }
    }
    Ok(())
}

/// Makes `expression` equal `extent`: checks it, or finds its one unknown dimension.
fn solve(expression: &str, extent: u64, dims: &mut BTreeMap<String, u64>) -> Result<(), String> {
    let mut constant = 0u64;
    let mut unknown: Option<(String, u64)> = None;
    for term in expression.split('+') {
        let mut known = 1u64;
        let mut open = None;
        for factor in term.split('*').map(str::trim) {
            match factor.parse::<u64>().ok().or_else(|| dims.get(factor).copied()) {
                Some(value) => known = known.saturating_mul(value),
                None if open.is_none() && unknown.is_none() => open = Some(factor.to_owned()),
                None => return Ok(()),
            }
        }
        match open {
            Some(name) => unknown = Some((name, known)),
            None => constant = constant.saturating_add(known),
        }
    }
    let rest = extent.checked_sub(constant);
    match (unknown, rest) {
        (None, Some(0)) => Ok(()),
        (Some((name, factor)), Some(rest)) if factor > 0 && rest % factor == 0 => {
            dims.insert(name, rest / factor);
            Ok(())
        }
        (None, _) => {
            Err(format!("its extent is {extent} in the file, and {expression} is {constant}"))
        }
        _ => Err(format!("its extent is {extent} in the file, which {expression} cannot be")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn an_unknown_extent_follows_from_sums_and_products() {
        let mut found = dims(&[("rows", 4)]);
        solve("2*width", 3072, &mut found).unwrap();
        solve("k+1", 21, &mut found).unwrap();
        solve("rows", 4, &mut found).unwrap();
        assert_eq!(found, dims(&[("rows", 4), ("width", 1536), ("k", 20)]));
    }

    #[test]
    fn extents_that_disagree_are_refused() {
        assert!(solve("rows", 5, &mut dims(&[("rows", 4)])).is_err());
        assert!(solve("2*width", 3073, &mut dims(&[])).is_err());
        assert!(solve("k+1", 0, &mut dims(&[])).is_err());
    }

    #[test]
    fn a_header_that_promises_too_much_is_refused() {
        assert!(header(b"").is_err());
        assert!(header(&u64::MAX.to_le_bytes()).is_err());
        assert!(header(&[9, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']).is_err());
        let good = br#"{"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"__metadata__":{"a":"b"}}"#;
        let mut bytes = (good.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(good);
        assert_eq!(header(&bytes).unwrap()["x"].shape, [2, 3]);
    }
}
