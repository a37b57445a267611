//! Providers in order, from the evidence folder and no database.

use std::collections::HashMap;

use proofhouse_evidence::{Folder, Stored};
use proofhouse_gate::orderings::{Orderings, Seen, newest};
use proofhouse_report::plain;
use proofhouse_runner::Selection;
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{CellRecord, Observation, Record, SessionRecord};
use proofhouse_schema::gate::GateKind;
use proofhouse_schema::ordering::GateOrdering;

use super::gaps::{gaps, sentence};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::explain_causes;

/// The orderings of an evidence folder.
#[derive(Debug)]
pub struct Ordered {
    /// By gate, candidate and place.
    pub gates: Vec<GateOrdering>,
    /// Why the evidence is not whole, in sentences.
    pub gaps: Vec<String>,
}

/// Ranks the newest timed record of every cell that the selection takes.
///
/// # Errors
/// When the evidence folder cannot be listed.
pub fn ordered(project: &Project, selection: &Selection) -> Result<Ordered, CliError> {
    let folder = Folder::new(&project.evidence);
    let mut gaps = gaps(&folder.gaps()?);
    let mut refused = Vec::new();
    let (mut cells, mut sessions) = (Vec::new(), HashMap::new());
    for file in folder.survey()?.files {
        match folder.read(&file) {
            Ok(Stored { digest, record: Record::Cell(cell), .. }) => {
                if cell.gate.kind == GateKind::Baseline {
                    cells.push((digest, *cell));
                }
            }
            Ok(Stored { digest, record: Record::Session(session), .. }) => {
                sessions.insert(digest, *session);
            }
            Ok(_) => {}
            Err(error) => refused.push(format!("{} ({})", plain(&file), plain(&error.to_string()))),
        }
    }
    gaps.extend(sentence("left out, since what they hold is not evidence", refused));
    // The newest is looked for before the selection, so that no filter brings an older record back.
    let records: Vec<&CellRecord> = cells.iter().map(|(_, cell)| cell).collect();
    let (mut orderings, mut damaged) = (Orderings::default(), Vec::new());
    for at in newest(&records) {
        let (digest, cell) = &cells[at];
        let gate = &cell.gate;
        if selection.takes(&gate.id, gate.kind, &cell.cell, &cell.candidate.id) {
            let session = sessions.get(&cell.session);
            if let Some(fault) = add(&mut orderings, &folder, digest, cell, session) {
                damaged.push(format!("{} {} ({fault})", gate.id, plain(&cell.cell)));
            }
        }
    }
    gaps.extend(sentence("cells whose samples are not what the record says", damaged));
    Ok(Ordered { gates: orderings.finish(), gaps })
}

/// Takes one record in, with its samples; tells why these cannot be read.
pub fn add(
    orderings: &mut Orderings,
    folder: &Folder,
    digest: &Digest,
    record: &CellRecord,
    session: Option<&SessionRecord>,
) -> Option<String> {
    let samples = match &record.observation {
        Observation::Baseline(seen) => Some(folder.samples(&seen.samples)),
        _ => None,
    };
    let (samples, fault) = match samples {
        Some(Ok(samples)) => (Some(samples), None),
        Some(Err(error)) => (None, Some(explain_causes(&error))),
        None => (None, None),
    };
    orderings.add(&Seen {
        digest,
        record,
        samples: samples.as_ref(),
        fault: fault.as_deref(),
        session,
    });
    fault
}
