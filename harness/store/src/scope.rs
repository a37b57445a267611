//! What a record is about, in words and digests: the identity that two results must share to be compared.

use proofhouse_schema::canonical::{self, CanonicalError, Digest};
use proofhouse_schema::evidence::{CellRecord, Observation, Pass};
use proofhouse_schema::gate::{CaseSpec, Expect, Inputs};
use proofhouse_schema::timing::TimingContract;

/// The timing contract in words: `hot eager host 1 thread`.
#[must_use]
pub fn contract_words(contract: &TimingContract) -> String {
    contract.to_string()
}

/// The timing contract of a record with its digest; none for gates that time nothing.
pub(crate) fn contract_of(
    cell: &CellRecord,
) -> Result<Option<(&TimingContract, Digest)>, CanonicalError> {
    let Some(timing) = &cell.gate.timing else { return Ok(None) };
    Ok(Some((&timing.contract, canonical::digest(&timing.contract)?)))
}

/// The digest of where the inputs come from: distribution and seed, or file.
pub(crate) fn inputs_digest(case: &CaseSpec) -> Result<Digest, CanonicalError> {
    canonical::digest(&case.inputs)
}

/// The shape part of a cell's key, in the key's order: `rows=8 hidden=4096`.
pub(crate) fn shape_words(cell: &str, case: &CaseSpec) -> String {
    let is_dimension =
        |word: &&str| word.split_once('=').is_some_and(|(name, _)| case.dims.contains_key(name));
    let words: Vec<&str> = cell.split_whitespace().filter(is_dimension).collect();
    if words.len() == case.dims.len() {
        return words.join(" ");
    }
    let all: Vec<String> = case.dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
    all.join(" ")
}

/// The value class, the input file's name, or `refusal: NAME`.
pub(crate) fn value_words(case: &CaseSpec) -> String {
    match (&case.expect, &case.inputs) {
        (Expect::Refusal { name, .. }, _) => format!("refusal: {name}"),
        (Expect::Outputs, Inputs::Seeded { values, .. }) => values.clone(),
        (Expect::Outputs, Inputs::File { path, .. }) => {
            path.rsplit('/').next().unwrap_or(path).to_owned()
        }
    }
}

/// The kind of an observation, and its sentence where it has one.
pub(crate) fn outcome_words(observation: &Observation) -> (&'static str, Option<String>) {
    match observation {
        Observation::Correctness(_) => ("correctness", None),
        Observation::Baseline(_) => ("baseline", None),
        Observation::Graph(_) => ("graph", None),
        Observation::Sanitizer(_) => ("sanitizer", None),
        Observation::Unsupported { reason } => ("unsupported", Some(reason.clone())),
        Observation::NotRun { reason } => ("not-run", Some(reason.clone())),
        Observation::Errored { provider, detail, .. } => {
            ("errored", Some(format!("{provider}: {detail}")))
        }
    }
}

/// Every pass of a record with the provider that made it.
pub(crate) fn passes(cell: &CellRecord) -> Vec<(&str, &Pass)> {
    match &cell.observation {
        Observation::Correctness(seen) => {
            seen.passes.iter().map(|pass| (cell.candidate.id.as_str(), pass)).collect()
        }
        Observation::Baseline(seen) => seen
            .timed
            .iter()
            .flat_map(|(provider, passes)| passes.iter().map(|pass| (provider.as_str(), pass)))
            .collect(),
        Observation::Graph(seen) => {
            let both = seen.replays.iter().flat_map(|pair| [&pair.replay, &pair.eager]);
            both.map(|pass| (cell.candidate.id.as_str(), pass)).collect()
        }
        Observation::Sanitizer(seen) => {
            seen.tools.iter().map(|run| (cell.candidate.id.as_str(), &run.pass)).collect()
        }
        _ => Vec::new(),
    }
}

/// The candidate's largest error over all compared outputs, in ulps; NaN counts as the largest.
pub(crate) fn max_ulp(cell: &CellRecord) -> Option<f64> {
    passes(cell)
        .into_iter()
        .filter(|(provider, _)| *provider == cell.candidate.id.as_str())
        .flat_map(|(_, pass)| &pass.outputs)
        .map(|output| output.max_ulp.0)
        .reduce(|a, b| if a.is_nan() || a > b { a } else { b })
}
