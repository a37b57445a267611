//! `render`: tables of Markdown files, filled from the evidence.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use proofhouse_gate::declare::{Declarations, DiskFolder};
use proofhouse_report::{Filled, difference, fill};
use proofhouse_runner::Selection;
use proofhouse_schema::exit::Exit;
use proofhouse_schema::ids::GateId;

use super::orderings::{Ordered, ordered};
use super::out;
use crate::arguments::{Common, RenderArguments};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::{Paint, counted, warn_of_gaps};

/// A document before and after.
struct Document {
    path: PathBuf,
    shown: String,
    old: String,
    new: Filled,
}

/// Fills the tables of every file, or says where they are not what the evidence says. Nothing is written unless every file
/// can be filled, and nothing over evidence that is not whole.
pub fn render(
    project: &Project,
    common: &Common,
    asked: &RenderArguments,
) -> Result<Exit, CliError> {
    let declared = declared(project)?;
    let Ordered { gates, gaps } = ordered(project, &Selection::default())?;
    warn_of_gaps(&gaps, Paint::stderr(common.color));
    if !gaps.is_empty() {
        return Err(CliError::NotWhole { path: project.evidence.clone() });
    }
    let read = |path: &PathBuf| -> Result<Document, CliError> {
        let at = |source| CliError::Read { path: path.clone(), source };
        // A pipe or a device has no end to read to.
        if !fs::metadata(path).map_err(at)?.is_file() {
            let what = "not a regular file; accepted: a Markdown file";
            return Err(at(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let old = fs::read_to_string(path).map_err(at)?;
        let shown = path.display().to_string();
        let new = fill(&shown, &old, &gates, &declared)?;
        Ok(Document { path: path.clone(), shown, old, new })
    };
    let documents: Vec<Document> = asked.files.iter().map(read).collect::<Result<_, _>>()?;
    let paint = Paint::stdout(common.color);
    let mut stale = false;
    for document in &documents {
        let Document { path, shown, old, new } = document;
        let same = *old == new.text;
        stale |= !same;
        let tables = counted(new.tables as u64, "table");
        let word = match (same, asked.check) {
            (true, _) => paint.good("as the evidence says"),
            (false, true) => paint.bad("not what the evidence says"),
            (false, false) => "filled anew".to_owned(),
        };
        if !same && asked.check {
            out(&difference(shown, old, &new.text))?;
        }
        if !same && !asked.check {
            write(path, &new.text)?;
        }
        out(&format!("{shown}: {tables}, {word}\n"))?;
    }
    Ok(if stale && asked.check { Exit::Failed } else { Exit::Passed })
}

/// The ids of all declared gates.
fn declared(project: &Project) -> Result<BTreeSet<GateId>, CliError> {
    let declarations =
        Declarations::load(&DiskFolder(project.gates.clone())).map_err(CliError::Declarations)?;
    Ok(declarations.gates.into_iter().map(|gate| gate.id).collect())
}

/// Writes a file whole or not at all. A link stays one, the file keeps its permissions, and one that is read-only is left
/// as it is.
fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let whole = || -> io::Result<()> {
        let path = path.canonicalize()?;
        let permissions = fs::metadata(&path)?.permissions();
        if permissions.readonly() {
            let what = "it is read-only; accepted: a file that its owner may write";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let mut beside = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
        beside.write_all(text.as_bytes())?;
        beside.as_file().set_permissions(permissions)?;
        beside.persist(&path)?;
        Ok(())
    };
    whole().map_err(|source| CliError::Write { path: path.to_owned(), source })
}
