//! What is wrong with an evidence folder by its names alone, in sentences.

use proofhouse_evidence::{Finding, FindingKind};
use proofhouse_report::plain;

/// Names of one kind that a warning tells.
const NAMED: usize = 3;

/// One sentence for each kind of finding: how many, and the first names.
pub fn gaps(findings: &[Finding]) -> Vec<String> {
    findings
        .chunk_by(|a, b| a.kind == b.kind)
        .filter_map(|of| {
            let names = of.iter().map(|finding| plain(&finding.file)).collect();
            sentence(words(of[0].kind), names)
        })
        .collect()
}

fn words(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Missing => "missing, though a log names them",
        FindingKind::Unlogged => "unlogged: no log names them, they were added by hand",
        FindingKind::BrokenChain => "logs whose chain is broken",
        FindingKind::Path => "odd: no writer makes such things",
        other => other.as_str(),
    }
}

/// How many there are, and the first names; none for nothing.
pub fn sentence(what: &str, names: Vec<String>) -> Option<String> {
    let count = names.len();
    let first = names.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
    (count > 0).then(|| format!("{count} {what}: {first}{more}"))
}
