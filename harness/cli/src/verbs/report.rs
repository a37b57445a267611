//! `report`: HTML, Markdown and JUnit from the same rows.

use std::fs;
use std::path::{Path, PathBuf};

use proofhouse_evidence::{now, utc_rfc3339};
use proofhouse_report::{html, junit, markdown};
use proofhouse_schema::exit::Exit;
use proofhouse_schema::report::ReportModel;
use proofhouse_store::{Heading, Selection};

use super::index::indexed_with_gaps;
use super::{TOOL, out};
use crate::arguments::ReportArguments;
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::tell;

/// Samples of one provider in one cell that a scatter plot shows.
const POINTS: u32 = 48;

/// Draws the newest record of every cell. Evidence that cannot be trusted is left out, which is no success.
pub fn report(project: &Project, asked: &ReportArguments) -> Result<Exit, CliError> {
    let (store, gaps) = indexed_with_gaps(project)?;
    let model = store.report(Selection::Latest, heading(&asked.title))?;
    if model.cells.is_empty() {
        out("no evidence: there is nothing to report\n")?;
        return Ok(Exit::NothingSelected);
    }
    let base = asked.output.clone().unwrap_or_else(|| project.reports.join("report"));
    for path in write(&model, &base)? {
        out(&format!("{}\n", project.shown(&path)))?;
    }
    if gaps > 0 {
        tell(&format!(
            "the report is not whole: files left out: {gaps}; `proofhouse verify` says more"
        ));
        return Ok(Exit::Failed);
    }
    Ok(Exit::Passed)
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
pub fn write(model: &ReportModel, base: &Path) -> Result<Vec<PathBuf>, CliError> {
    let at = |source| CliError::Write { path: base.to_owned(), source };
    let page = html(model)?.into_bytes();
    let xml = junit(model).map_err(at)?;
    if let Some(folder) = base.parent() {
        fs::create_dir_all(folder).map_err(at)?;
    }
    let mut paths = Vec::new();
    for (ending, bytes) in [("html", page), ("md", markdown(model).into_bytes()), ("xml", xml)] {
        let path = base.with_extension(ending);
        let beside = base.with_extension(format!("{ending}.part"));
        fs::write(&beside, bytes)
            .and_then(|()| fs::rename(&beside, &path))
            .map_err(|source| CliError::Write { path: path.clone(), source })?;
        paths.push(path);
    }
    Ok(paths)
}
