//! Words and numbers as every output prints them.

use proofhouse_schema::units::Nanos;
use proofhouse_schema::verdict::{Comparison, Verdict};

/// A mark that does not depend on color.
pub(crate) const fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "✓",
        Verdict::Fail => "✗",
        Verdict::Inconclusive => "?",
        Verdict::Invalid => "!",
        Verdict::Unsupported => "–",
        Verdict::NotRun => "·",
        Verdict::Errored => "☠",
        Verdict::Unqualified => "∅",
    }
}

/// `1.43x [1.38, 1.49]`, or why there is no number.
pub(crate) fn ratio(comparison: &Comparison) -> String {
    match &comparison.estimate {
        Some(e) => format!("{:.3}x [{:.3}, {:.3}]", e.ratio.0, e.low.0, e.high.0),
        None => "no estimate".to_owned(),
    }
}

/// `1.43x`, where there is no room for the interval.
pub(crate) fn ratio_alone(comparison: &Comparison) -> String {
    let estimate = comparison.estimate.as_ref();
    estimate.map_or_else(|| "no estimate".to_owned(), |e| format!("{:.2}x", e.ratio.0))
}

/// A time per call.
pub(crate) fn time(ns: f64) -> String {
    Nanos(ns).to_string()
}

/// Things in a row.
pub(crate) fn row<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// A command as one types it.
pub(crate) fn command(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    let quote = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    argv.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted() {
        let argv = ["proofhouse", "run", "--filter", "cell=rows=8 hidden=64", "it's"];
        let argv: Vec<String> = argv.iter().map(|s| (*s).to_owned()).collect();
        assert_eq!(command(&argv), r"proofhouse run --filter 'cell=rows=8 hidden=64' 'it'\''s'");
    }
}
