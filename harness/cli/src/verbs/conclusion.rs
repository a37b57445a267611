//! What is shown at the end of a run: its report and its tables.

use proofhouse_runner::Outcome;
use proofhouse_schema::canonical::Digest;
use proofhouse_store::Selection as Rows;

use super::index::{Indexed, indexed};
use super::out;
use super::report::{heading, remarks, write};
use crate::arguments::{Common, Output, RunArguments};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::{Paint, counted, summary, warn_of_gaps};

/// Brings the index up to date, draws the report of this run, and prints the tables.
///
/// # Errors
/// When the index cannot be read or the report cannot be written.
pub fn show(
    project: &Project,
    common: &Common,
    asked: &RunArguments,
    outcome: &Outcome,
    title: &str,
) -> Result<(), CliError> {
    let Indexed { store, gaps } = indexed(project)?;
    warn_of_gaps(&gaps, Paint::stderr(common.color));
    let records: Vec<Digest> = outcome.verdicts.iter().map(|v| v.evidence.clone()).collect();
    let model = store.report(Rows::Records(&records), heading(title))?;
    let base = project.reports.join(format!("run-{}", asked.profile));
    let remarks = remarks(project, &store, &model, gaps)?;
    let paths = write(&model, &remarks, &base)?;
    if asked.format == Output::Human {
        out(&format!("\n{}", summary(&model, &remarks, Paint::stdout(common.color))))?;
        let page = paths.first().map(|path| project.shown(path)).unwrap_or_default();
        let (reused, all) = (outcome.reused, outcome.verdicts.len());
        out(&format!(
            "\n{} judged, {reused} from evidence used again\nreport    {page} (.md and .xml beside it)\nevidence  {}\n",
            counted(all as u64, "cell"),
            project.shown(&project.evidence)
        ))?;
    }
    Ok(())
}
