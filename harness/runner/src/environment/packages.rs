//! Packages that a provider takes from the machine: found by the Python that its worker gets, in the version that
//! `provider.toml` names.

use std::collections::BTreeMap;
use std::path::Path;

use proofhouse_schema::provider::Provider;

use super::EnvironmentError;
use super::program::{Program, Runner};
use crate::provider::{ProviderHome, launch};

/// The version that stands for any.
const ANY: &str = "*";
const STEP: &str = "asking Python for its packages";

/// Prints Python's version and, as its last line, the versions of the packages that are named; of one that is not there,
/// null. It needs the standard library only.
const SCRIPT: &str = "\
import importlib.metadata, json, platform, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = None
print()
print(json.dumps({'python': platform.python_version(), 'packages': found}))
";

/// What the script says.
#[derive(Debug, serde::Deserialize)]
struct Answer {
    python: String,
    packages: BTreeMap<String, Option<String>>,
}

/// Checks every package that `provider.toml` names. Python runs with the variables of the provider's worker and in the
/// provider's folder, where the worker's script lies: it finds what the worker would find.
pub(super) async fn check(
    home: &ProviderHome,
    python: &Path,
    runner: &Runner<'_>,
) -> Result<(), EnvironmentError> {
    let packages = &home.provider.packages;
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.keys().map(String::as_str);
    let arguments: Vec<&str> = ["-c", SCRIPT].into_iter().chain(names).collect();
    let said = runner
        .output(Program {
            path: python,
            arguments: &arguments,
            variables: launch(home, runner.options, Some(python), &Default::default()).environment,
            folder: Some(&home.folder),
            step: STEP,
        })
        .await?;
    let last = said.lines().last().unwrap_or_default();
    let answer: Answer = serde_json::from_str(last).map_err(|error| EnvironmentError::Program {
        step: STEP.to_owned(),
        detail: format!("its answer {last:?} is not readable: {error}"),
    })?;
    let misses = misses(&home.provider, &answer.packages);
    if misses.is_empty() {
        return Ok(());
    }
    Err(EnvironmentError::Packages { python: answer.python, misses })
}

/// Each package that is not there or of another version, in words.
fn misses(provider: &Provider, found: &BTreeMap<String, Option<String>>) -> Vec<String> {
    let told = |(name, wanted): (&String, &String)| {
        let found = found.get(name).and_then(Option::as_deref);
        let words = if wanted == ANY { "any version" } else { wanted };
        match found {
            Some(version) if is_wanted(version, wanted) => None,
            Some(version) => Some(format!("{name}: found {version}, wanted {words}")),
            None => Some(format!("{name}: not installed, wanted {words}")),
        }
    };
    provider.packages.iter().filter_map(told).collect()
}

/// Whether a version is the one wanted. A build's local label (`2.11.0+cpu`) counts only where one is wanted.
fn is_wanted(found: &str, wanted: &str) -> bool {
    let public = found.split('+').next().unwrap_or(found);
    wanted == ANY || found == wanted || public == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_any_the_same_or_a_build_of_the_same() {
        for wanted in ["*", "2.11.0", "2.11.0+cpu"] {
            assert!(is_wanted("2.11.0+cpu", wanted), "{wanted}");
        }
        for wanted in ["2.11", "2.11.1", "2.11.0+cu130", "", "2"] {
            assert!(!is_wanted("2.11.0+cpu", wanted), "{wanted}");
        }
        assert!(!is_wanted("2.11.0", "2.11.0+cpu"));
    }
}
