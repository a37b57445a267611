//! Extents that follow from the shapes of tensors, and shapes that follow from extents.

use std::collections::BTreeMap;

use proofhouse_schema::catalog::Operator;
/// Extends `dims` by what follows from the shapes of the given operator tensors.
pub(crate) fn infer(
    operator: &Operator,
    shapes: &[(&str, &[u64])],
    dims: &mut BTreeMap<String, u64>,
) -> Result<(), String> {
    // The second round holds what the first one found against every tensor.
    for (name, shape) in shapes.iter().chain(shapes) {
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

/// The extent that an expression has, as far as numbers reach; `None` when a name in it has no value.
pub(crate) fn extent(expression: &str, value_of: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    expression.split('+').try_fold(0u64, |sum, term| {
        let product = term.split('*').map(str::trim).try_fold(1u64, |product, factor| {
            let value = factor.parse().ok().or_else(|| value_of(factor))?;
            Some(product.saturating_mul(value))
        })?;
        Some(sum.saturating_add(product))
    })
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
    fn an_extent_follows_from_its_names_and_saturates() {
        let value_of = |name: &str| {
            [("k", 8), ("width", u64::MAX)].into_iter().find(|(n, _)| *n == name).map(|(_, v)| v)
        };
        assert_eq!(extent("k+1", value_of), Some(9));
        assert_eq!(extent("2*k", value_of), Some(16));
        assert_eq!(extent("2*width", value_of), Some(u64::MAX));
        assert_eq!(extent("rows", value_of), None);
    }

    #[test]
    fn extents_that_disagree_are_refused() {
        assert!(solve("rows", 5, &mut dims(&[("rows", 4)])).is_err());
        assert!(solve("2*width", 3073, &mut dims(&[])).is_err());
        assert!(solve("k+1", 0, &mut dims(&[])).is_err());
    }
}
