//! The nearest of some names, for "did you mean".

/// The accepted name nearest to what was found, if it is near enough to be a slip.
pub(crate) fn nearest<'a>(found: &str, accepted: &'a [String]) -> Option<&'a str> {
    let limit = (found.chars().count() / 3).max(1);
    accepted
        .iter()
        .map(|name| (distance(&found.to_lowercase(), &name.to_lowercase()), name.as_str()))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

/// Insertions, deletions, substitutions and swaps of neighbors between two texts.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_near_and_another_word_is_not() {
        let names = ["hidden".to_owned(), "rows".to_owned(), "F16".to_owned()];
        assert_eq!(nearest("hiden", &names), Some("hidden"));
        assert_eq!(nearest("hiddne", &names), Some("hidden"));
        assert_eq!(nearest("f16", &names), Some("F16"));
        assert_eq!(nearest("columns", &names), None);
        assert_eq!(nearest("", &names), None);
    }
}
