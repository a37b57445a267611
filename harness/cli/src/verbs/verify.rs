//! `verify`: re-hash every record, follow the logs, judge again.

use std::collections::HashMap;

use proofhouse_evidence::{EvidenceError, Folder, Stored, Verification};
use proofhouse_gate::judge::{Evidence, JUDGE, judge};
use proofhouse_report::plain;
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{CellRecord, Observation, Record, SessionRecord};
use proofhouse_schema::exit::Exit;
use proofhouse_schema::verdict::VerdictBody;

use super::out;
use crate::arguments::Common;
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::{Paint, Table};

/// Checks the evidence folder and says what is shown and what is not. A folder that a run holds is not judged.
pub fn verify(project: &Project, common: &Common) -> Result<Exit, CliError> {
    let paint = Paint::stdout(common.color);
    let folder = Folder::new(&project.evidence);
    let before = folder.calm()?;
    let check = folder.verify()?;
    let verdicts = again(&folder, &check.stored);
    let wrong = check.findings.len() + verdicts.wrong.len();
    // What is right stays right; what is wrong may be what a run that came meanwhile had not finished.
    if wrong > 0 && folder.calm()? != before {
        return Err(EvidenceError::Disturbed { path: project.evidence.clone() }.into());
    }
    out(&findings(&check, &verdicts, paint))?;
    if check.records == 0 && check.findings.is_empty() {
        out("no evidence: nothing is shown\n")?;
        return Ok(Exit::NothingSelected);
    }
    let judged = verdicts.same + verdicts.older;
    out(&format!(
        "{} records and {} blobs re-hashed, {} logs followed, {judged} verdicts judged again by {JUDGE}\n",
        check.records,
        check.blobs,
        check.heads.len(),
    ))?;
    if verdicts.older > 0 {
        out(&format!("{} verdicts are by an earlier judge; this one agrees\n", verdicts.older))?;
    }
    for sentence in &check.not_shown {
        out(&paint.faint(&format!("not shown: {sentence}\n")))?;
    }
    let line =
        if wrong == 0 { paint.good("verified") } else { paint.bad(&format!("{wrong} findings")) };
    out(&format!("{line}\n"))?;
    Ok(if wrong == 0 { Exit::Passed } else { Exit::Failed })
}

fn findings(check: &Verification, verdicts: &Verdicts, paint: Paint) -> String {
    let mut table = Table::new(&["finding", "file", "what"]);
    let mut row = |kind: &str, file: &str, detail: &str| {
        table.painted(vec![
            (kind.to_owned(), Some(paint.bad(kind))),
            (plain(file), None),
            (plain(detail), None),
        ]);
    };
    check.findings.iter().for_each(|f| row(f.kind.as_str(), &f.file, &f.detail));
    verdicts.wrong.iter().for_each(|(file, detail)| row("verdict", file, detail));
    if table.is_empty() { String::new() } else { table.render(|head| paint.faint(head)) }
}

/// Verdicts that were judged again.
#[derive(Debug, Default)]
struct Verdicts {
    same: usize,
    older: usize,
    wrong: Vec<(String, String)>,
}

/// Judges every stored cell again and compares with the stored verdicts. A cell without a verdict is wrong.
fn again(folder: &Folder, stored: &[Stored]) -> Verdicts {
    let mut sessions: HashMap<&Digest, &SessionRecord> = HashMap::new();
    let mut cells: HashMap<&Digest, (&CellRecord, &str)> = HashMap::new();
    let mut bodies: Vec<(&VerdictBody, &str)> = Vec::new();
    for item in stored {
        match &item.record {
            Record::Session(session) => drop(sessions.insert(&item.digest, session)),
            Record::Cell(cell) => drop(cells.insert(&item.digest, (cell, &item.file))),
            Record::Verdict(body) => bodies.push((body, &item.file)),
            Record::Selftest(_) | Record::Calibration(_) => {}
        }
    }
    let mut done = Verdicts::default();
    for (body, file) in bodies {
        // A verdict on nothing is a finding already.
        let Some((cell, _)) = cells.remove(&body.evidence) else { continue };
        let fresh = judged(folder, cell, &body.evidence, sessions.get(&cell.session).copied());
        match difference(body, &fresh) {
            None if body.judge == JUDGE => done.same += 1,
            None => done.older += 1,
            Some(what) => done.wrong.push((file.to_owned(), what)),
        }
    }
    for (_, (_, file)) in cells {
        done.wrong.push((
            file.to_owned(),
            "the cell has no verdict: its run was ended in between".to_owned(),
        ));
    }
    done.wrong.sort();
    done
}

/// The verdict of this version's judge on a stored cell. A blob that cannot be read is a finding of its own; the
/// judge then sees no samples.
pub fn judged(
    folder: &Folder,
    cell: &CellRecord,
    digest: &Digest,
    session: Option<&SessionRecord>,
) -> VerdictBody {
    let samples = match &cell.observation {
        Observation::Baseline(seen) => folder.samples(&seen.samples).ok(),
        _ => None,
    };
    judge(cell, &Evidence { digest, samples: samples.as_ref(), session })
}

fn difference(stored: &VerdictBody, fresh: &VerdictBody) -> Option<String> {
    if stored.verdict != fresh.verdict {
        return Some(format!("it says {}, the evidence says {}", stored.verdict, fresh.verdict));
    }
    // Numbers do not depend on the judge's version, and what is said of them is to be told where it changed.
    let numbers = |body: &VerdictBody| {
        let said =
            body.comparisons.iter().map(|c| (c.baseline.clone(), c.speed, c.estimate.clone()));
        said.collect::<Vec<_>>()
    };
    let by_name = stored.judge == fresh.judge || numbers(stored) != numbers(fresh);
    (by_name && stored != fresh)
        .then(|| "its reasons or numbers are not those that the evidence gives".to_owned())
}
