//! `report`: HTML, Markdown and JUnit from the same rows.

use std::fs;
use std::path::{Path, PathBuf};

use proofhouse_evidence::{Folder, now, utc_rfc3339};
use proofhouse_gate::orderings::Orderings;
use proofhouse_report::{Remarks, html, junit, markdown};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::exit::Exit;
use proofhouse_schema::gate::GateKind;
use proofhouse_schema::ordering::GateOrdering;
use proofhouse_schema::report::ReportModel;
use proofhouse_schema::verdict::Verdict;
use proofhouse_store::{Heading, Selection, Store};

use super::index::{Indexed, indexed};
use super::orderings::add;
use super::{TOOL, out};
use crate::arguments::{Common, ReportArguments};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::{Paint, warn_of_gaps};

/// Samples of one provider in one cell that a scatter plot shows.
const POINTS: u32 = 48;

/// Draws the newest record of every cell. Evidence that is not whole is told, in the report too, and is no success.
pub fn report(
    project: &Project,
    common: &Common,
    asked: &ReportArguments,
) -> Result<Exit, CliError> {
    let Indexed { store, gaps } = indexed(project)?;
    warn_of_gaps(&gaps, Paint::stderr(common.color));
    let model = store.report(Selection::Latest, heading(&asked.title))?;
    if model.cells.is_empty() {
        out("no evidence: there is nothing to report\n")?;
        return Ok(Exit::NothingSelected);
    }
    let base = asked.output.clone().unwrap_or_else(|| project.reports.join("report"));
    let remarks = remarks(project, &store, &model, gaps)?;
    for path in write(&model, &remarks, &base)? {
        out(&format!("{}\n", project.shown(&path)))?;
    }
    Ok(if remarks.gaps.is_empty() { Exit::Passed } else { Exit::Failed })
}

/// What a report says besides its rows: what is wrong with the evidence, the processes of what did not pass, and the
/// providers of timed cells in order.
///
/// # Errors
/// When the index cannot be read.
pub fn remarks(
    project: &Project,
    store: &Store,
    model: &ReportModel,
    gaps: Vec<String>,
) -> Result<Remarks, CliError> {
    let open = model.cells.iter().filter(|cell| cell.verdict != Verdict::Pass);
    let digests: Vec<Digest> = open.map(|cell| cell.evidence.clone()).collect();
    Ok(Remarks {
        gaps,
        attempts: store.attempts(&digests)?,
        orderings: orderings(project, store, model)?,
    })
}

/// The providers of a report's timed cells in order.
fn orderings(
    project: &Project,
    store: &Store,
    model: &ReportModel,
) -> Result<Vec<GateOrdering>, CliError> {
    let timed = model.cells.iter().filter(|cell| cell.kind == GateKind::Baseline);
    let digests: Vec<Digest> = timed.map(|cell| cell.evidence.clone()).collect();
    let folder = Folder::new(&project.evidence);
    let mut orderings = Orderings::default();
    for (digest, cell) in store.cells(&digests)? {
        // The report lists the cell with its reason.
        let _ = add(&mut orderings, &folder, &digest, &cell, model.sessions.get(&cell.session));
    }
    Ok(orderings.finish())
}

/// What a report says besides its rows.
pub fn heading(title: &str) -> Heading {
    Heading {
        title: title.to_owned(),
        generated: utc_rfc3339(now()),
        tool: TOOL.to_owned(),
        points: POINTS,
    }
}

/// Writes `BASE.html`, `BASE.md` and `BASE.xml`, each whole or not at all.
///
/// # Errors
/// [`CliError::Write`], [`CliError::Plot`].
pub fn write(
    model: &ReportModel,
    remarks: &Remarks,
    base: &Path,
) -> Result<Vec<PathBuf>, CliError> {
    let at = |source| CliError::Write { path: base.to_owned(), source };
    let page = html(model, remarks)?.into_bytes();
    let text = markdown(model, remarks).into_bytes();
    let xml = junit(model, remarks).map_err(at)?;
    if let Some(folder) = base.parent() {
        fs::create_dir_all(folder).map_err(at)?;
    }
    let mut paths = Vec::new();
    for (ending, bytes) in [("html", page), ("md", text), ("xml", xml)] {
        let path = base.with_extension(ending);
        let beside = base.with_extension(format!("{ending}.part"));
        fs::write(&beside, bytes)
            .and_then(|()| fs::rename(&beside, &path))
            .map_err(|source| CliError::Write { path: path.clone(), source })?;
        paths.push(path);
    }
    Ok(paths)
}
