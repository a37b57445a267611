//! Fills the index from a source, once per record.

use std::collections::HashSet;

use duckdb::{Appender, Connection, ToSql};
use proofhouse_evidence::Stored;
use proofhouse_schema::evidence::{Observation, Record};
use proofhouse_schema::samples::Samples;

use crate::error::{StoreError, doing};
use crate::records;
use crate::source::{Source, SourceError};
use crate::store::{Access, Store};

/// Every table that a record can add rows to.
const TABLES: [&str; 11] = [
    "evidence",
    "attempts",
    "samples",
    "arms",
    "outputs",
    "verdicts",
    "comparisons",
    "sessions",
    "controls",
    "selftests",
    "calibrations",
];

/// What an ingest did.
#[derive(Debug, Default)]
pub struct Ingested {
    /// Records that were new.
    pub added: u64,
    /// Records that the index had already.
    pub known: u64,
    /// Samples that were new.
    pub samples: u64,
    /// Whether the index was emptied first, since it held records that the source no longer has.
    pub rebuilt: bool,
    /// Records that were left out, each with its reason; the others are all in.
    pub refused: Vec<Refused>,
}

/// A record that was left out of the index.
#[derive(Debug)]
pub struct Refused {
    /// Its file, relative to the evidence folder.
    pub file: String,
    /// Why, with its causes.
    pub source: SourceError,
}

impl Store {
    /// Adds every record of `source` that the index lacks; all of them or, on an error, none.
    ///
    /// A record that cannot be read is left out and told in [`Ingested::refused`]; it is tried again by the
    /// next ingest. An index that holds a record which the source lacks is emptied and filled anew.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`], [`StoreError::List`], [`StoreError::Database`].
    pub fn ingest(&mut self, source: &dyn Source) -> Result<Ingested, StoreError> {
        if self.access == Access::Read {
            return Err(StoreError::ReadOnly);
        }
        let files = source.files().map_err(StoreError::List)?;
        let mut known = self.known_files()?;
        let listed: HashSet<&str> = files.iter().map(String::as_str).collect();
        let rebuilt = known.iter().any(|file| !listed.contains(file.as_str()));
        self.connection.execute_batch("BEGIN TRANSACTION").map_err(doing("beginning an ingest"))?;
        let done = (|| {
            if rebuilt {
                self.empty()?;
                known.clear();
            }
            let fresh: Vec<&str> =
                files.iter().map(String::as_str).filter(|file| !known.contains(*file)).collect();
            let done = self.append(source, &fresh)?;
            self.connection.execute_batch("COMMIT").map_err(doing("committing an ingest"))?;
            Ok(Ingested { rebuilt, known: known.len() as u64, ..done })
        })();
        if done.is_err() {
            // The transaction is gone in any case; the first error is the one that says why.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        done
    }

    /// Empties the index and fills it anew.
    ///
    /// # Errors
    /// As [`Store::ingest`].
    pub fn rebuild(&mut self, source: &dyn Source) -> Result<Ingested, StoreError> {
        if self.access == Access::Read {
            return Err(StoreError::ReadOnly);
        }
        self.empty()?;
        Ok(Ingested { rebuilt: true, ..self.ingest(source)? })
    }

    fn known_files(&self) -> Result<HashSet<String>, StoreError> {
        let failed = "listing the records it has";
        let sql = "SELECT file FROM evidence UNION ALL SELECT file FROM verdicts
                   UNION ALL SELECT file FROM sessions UNION ALL SELECT file FROM selftests
                   UNION ALL SELECT file FROM calibrations";
        let mut statement = self.connection.prepare(sql).map_err(doing(failed))?;
        let files = statement.query_map([], |row| row.get(0)).map_err(doing(failed))?;
        files.collect::<Result<_, _>>().map_err(doing(failed))
    }

    fn empty(&self) -> Result<(), StoreError> {
        let sql: String = TABLES.iter().map(|table| format!("DELETE FROM {table};")).collect();
        self.connection.execute_batch(&sql).map_err(doing("emptying it"))
    }

    fn append(&self, source: &dyn Source, files: &[&str]) -> Result<Ingested, StoreError> {
        let next: i64 = self
            .connection
            .query_row("SELECT coalesce(max(record) + 1, 0) FROM evidence", [], |row| row.get(0))
            .map_err(doing("numbering records"))?;
        let mut tables = Tables::open(&self.connection, i32::try_from(next).unwrap_or(i32::MAX))?;
        let mut done = Ingested::default();
        for file in files {
            match read(source, file) {
                Ok((stored, samples)) => {
                    done.added += 1;
                    done.samples += samples.as_ref().map_or(0, |samples| samples.rows.len() as u64);
                    tables.add(&stored, samples.as_ref())?;
                }
                Err(source) => done.refused.push(Refused { file: (*file).to_owned(), source }),
            }
        }
        tables.flush()?;
        Ok(done)
    }
}

/// Reads a record and its samples before any row is made, so that a refused record leaves none behind.
fn read(source: &dyn Source, file: &str) -> Result<(Stored, Option<Samples>), SourceError> {
    let stored = source.load(file)?;
    let samples = match &stored.record {
        Record::Cell(cell) => match &cell.observation {
            Observation::Baseline(seen) => {
                let samples = source.samples(&seen.samples)?;
                if samples.rows.len() as u64 != seen.samples.rows {
                    let (found, promised) = (samples.rows.len(), seen.samples.rows);
                    return Err(format!(
                        "{file}: the blob holds {found} samples, the record says {promised}"
                    )
                    .into());
                }
                Some(samples)
            }
            _ => None,
        },
        _ => None,
    };
    records::check(&stored)?;
    Ok((stored, samples))
}

/// One appender per table.
pub(crate) struct Tables<'a> {
    pub(crate) evidence: Appender<'a>,
    pub(crate) attempts: Appender<'a>,
    pub(crate) samples: Appender<'a>,
    pub(crate) arms: Appender<'a>,
    pub(crate) outputs: Appender<'a>,
    pub(crate) verdicts: Appender<'a>,
    pub(crate) comparisons: Appender<'a>,
    pub(crate) sessions: Appender<'a>,
    pub(crate) controls: Appender<'a>,
    pub(crate) selftests: Appender<'a>,
    pub(crate) calibrations: Appender<'a>,
    next_record: i32,
}

impl<'a> Tables<'a> {
    fn open(connection: &'a Connection, next_record: i32) -> Result<Self, StoreError> {
        let table = |name: &str| connection.appender(name).map_err(doing("opening a table"));
        Ok(Tables {
            evidence: table("evidence")?,
            attempts: table("attempts")?,
            samples: table("samples")?,
            arms: table("arms")?,
            outputs: table("outputs")?,
            verdicts: table("verdicts")?,
            comparisons: table("comparisons")?,
            sessions: table("sessions")?,
            controls: table("controls")?,
            selftests: table("selftests")?,
            calibrations: table("calibrations")?,
            next_record,
        })
    }

    fn add(&mut self, stored: &Stored, samples: Option<&Samples>) -> Result<(), StoreError> {
        match &stored.record {
            Record::Cell(cell) => {
                let record = self.next_record;
                self.next_record += 1;
                records::cell(self, record, stored, cell)?;
                samples.map_or(Ok(()), |samples| records::samples(self, record, samples))
            }
            Record::Session(session) => records::session(self, stored, session),
            Record::Verdict(verdict) => records::verdict(self, stored, verdict),
            Record::Selftest(selftest) => records::selftest(self, stored, selftest),
            Record::Calibration(calibration) => records::calibration(self, stored, calibration),
        }
    }

    fn flush(mut self) -> Result<(), StoreError> {
        for table in [
            &mut self.evidence,
            &mut self.attempts,
            &mut self.samples,
            &mut self.arms,
            &mut self.outputs,
            &mut self.verdicts,
            &mut self.comparisons,
            &mut self.sessions,
            &mut self.controls,
            &mut self.selftests,
            &mut self.calibrations,
        ] {
            table.flush().map_err(doing("writing rows"))?;
        }
        Ok(())
    }
}

/// Adds one row.
pub(crate) fn add(table: &mut Appender<'_>, row: &[&dyn ToSql]) -> Result<(), StoreError> {
    table.append_row(row).map_err(doing("adding a row"))
}
