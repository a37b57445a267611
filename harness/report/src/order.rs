//! The order in which people look for cells: numbers by their value, dtypes from wide to narrow.

use proofhouse_schema::report::CellRow;

/// A stretch of a text: a number, compared by its value, or anything else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    /// Digits without leading zeros; more digits are a larger number.
    Number(usize, String),
    /// No digit.
    Text(String),
}

/// What a text is sorted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Natural(Vec<Piece>);

/// The key under which `rows=2` comes before `rows=16`.
pub(crate) fn natural(text: &str) -> Natural {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let digits = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        let number = piece.trim_start_matches('0');
        pieces.push(match digits {
            true => Piece::Number(number.len(), number.to_owned()),
            false => Piece::Text(piece.to_owned()),
        });
        rest = after;
    }
    Natural(pieces)
}

/// Cells by shape, dtype, key and candidate.
pub(crate) fn by_shape(cells: &mut [&CellRow]) {
    cells
        .sort_by_cached_key(|c| (natural(&c.shape), c.dtype, natural(&c.cell), c.provider.clone()));
}

/// Cells by operator, gate, shape, dtype, key and candidate.
pub(crate) fn by_gate(cells: &mut [&CellRow]) {
    by_shape(cells);
    cells.sort_by(|a, b| (&a.operator, &a.gate).cmp(&(&b.operator, &b.gate)));
}

#[cfg(test)]
mod tests {
    use super::natural;

    #[test]
    fn numbers_are_ordered_by_value_however_long_they_are() {
        let mut shapes = [
            "rows=16 hidden=64",
            "rows=2 hidden=4096",
            "rows=2 hidden=768",
            "rows=100000000000000000000000",
        ];
        shapes.sort_by_key(|shape| natural(shape));
        let expected = [
            "rows=2 hidden=768",
            "rows=2 hidden=4096",
            "rows=16 hidden=64",
            "rows=100000000000000000000000",
        ];
        assert_eq!(shapes, expected);
    }

    #[test]
    fn texts_without_numbers_and_with_zeros_are_ordered_too() {
        assert!(natural("") < natural("a") && natural("a") < natural("b"));
        assert!(natural("rows=0") < natural("rows=1"));
        assert_eq!(natural("seed=007"), natural("seed=7"));
    }
}
