//! `compare`: all providers of every timed cell in order, and over each gate.

use std::fs;
use std::path::{Path, PathBuf};

use proofhouse_report::{sizes, standings};
use proofhouse_runner::{Filter, Selection};
use proofhouse_schema::exit::Exit;
use proofhouse_schema::ordering::GateOrdering;
use serde_json::{Value, json};

use super::orderings::{Ordered, ordered};
use super::out;
use crate::arguments::{Common, CompareArguments, Output};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::{Paint, cells, gates, tell, warn_of_gaps};

/// Ranks the newest record of every timed cell. Evidence that is not whole is told, and is no success.
pub fn compare(
    project: &Project,
    common: &Common,
    asked: &CompareArguments,
) -> Result<Exit, CliError> {
    let selection = Selection {
        filters: asked.filter.iter().cloned().map(Filter::Text).collect(),
        shard: None,
    };
    if let Some(folder) = &asked.plots {
        fs::create_dir_all(folder)
            .map_err(|source| CliError::Write { path: folder.clone(), source })?;
    }
    let Ordered { gates: found, gaps } = ordered(project, &selection)?;
    warn_of_gaps(&gaps, Paint::stderr(common.color));
    if found.is_empty() {
        tell(&nothing(project, asked));
        return Ok(if gaps.is_empty() { Exit::NothingSelected } else { Exit::Failed });
    }
    match asked.format {
        Output::Json => out(&found.iter().flat_map(lines).collect::<String>())?,
        Output::Human => {
            let paint = Paint::stdout(common.color);
            out(&found.iter().map(|gate| cells(gate, paint)).collect::<String>())?;
            out(&format!("{}\n\n", paint.bold("Over each gate")))?;
            out(&found.iter().map(|gate| gates(gate, paint)).collect::<String>())?;
        }
    }
    if let Some(folder) = &asked.plots {
        for path in draw(&found, folder)? {
            tell(&format!("plot      {}", path.display()));
        }
    }
    let ranked = found.iter().any(|gate| !gate.cells.is_empty());
    Ok(match () {
        () if !gaps.is_empty() => Exit::Failed,
        () if !ranked => Exit::NothingSelected,
        () => Exit::Passed,
    })
}

/// Why nothing is shown, and what to do about it.
fn nothing(project: &Project, asked: &CompareArguments) -> String {
    let evidence = project.shown(&project.evidence);
    match asked.filter.as_slice() {
        [] => format!(
            "no timed cell is in {evidence}: `proofhouse run --filter baseline` measures some"
        ),
        words => format!(
            "no timed cell in {evidence} has {}: accepted are beginnings of words of `GATE CELL PROVIDER`, or whole \
             words with = or ., e.g. `rms_norm`, `rms_norm.baseline`, `rows=8`; without a filter every cell is shown",
            words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" and ")
        ),
    }
}

/// Draws each gate's times against what varies, and who stands where.
fn draw(gates: &[GateOrdering], folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| CliError::Write { path, source }
    };
    let mut written: Vec<PathBuf> = Vec::new();
    for gate in gates {
        for (what, svg) in [("time", sizes(gate)?), ("standings", standings(gate)?)] {
            let Some(svg) = svg else { continue };
            let named = |number: usize| {
                let number = if number == 1 { String::new() } else { format!(".{number}") };
                folder.join(format!("{}.{}{number}.{what}.svg", gate.gate, gate.candidate))
            };
            // One gate may have been measured in several places.
            let path = (1..).map(named).find(|path| !written.contains(path));
            let path = path.unwrap_or_else(|| folder.join(what));
            fs::write(&path, svg).map_err(at(&path))?;
            written.push(path);
        }
    }
    Ok(written)
}

/// One object a line; each says what it is in `line`, and of which gate, candidate and place.
fn lines(gate: &GateOrdering) -> Vec<String> {
    let line = |what: &str, value: Value| {
        let mut line = json!({
            "line": what, "gate": gate.gate, "operator": gate.operator, "candidate": gate.candidate,
            "device": gate.device, "place": gate.place, "timing": gate.timing,
        });
        if let (Some(line), Value::Object(value)) = (line.as_object_mut(), value) {
            line.extend(value);
        }
        format!("{line}\n")
    };
    let cells = gate.cells.iter().map(|cell| line("cell", json!(cell)));
    let unranked = gate.unranked.iter().map(|cell| line("unranked", json!(cell)));
    let overall = gate.overall.iter().map(|overall| line("overall", json!(overall)));
    let best = gate.against_best.iter().map(|best| line("against_best", json!(best)));
    let absences = gate.absences.iter().map(|absence| line("absence", json!(absence)));
    let flips = gate.flips.iter().map(|flip| line("flip", json!(flip)));
    let crossovers = gate.crossovers.iter().map(|crossover| line("crossover", json!(crossover)));
    let all = cells.chain(unranked).chain(overall).chain(best);
    all.chain(absences).chain(flips).chain(crossovers).collect()
}
