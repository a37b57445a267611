//! Verification: everything that can be wrong with a folder, all at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{Observation, Record};

use crate::error::EvidenceError;
use crate::folder::{Folder, Stored};
use crate::log;

/// Which way something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// The bytes are not canonical, not those of the name, or not a record.
    Edited,
    /// A record of a schema that this version does not read.
    NewerSchema,
    /// A log's chain is broken.
    BrokenChain,
    /// A log's last line is torn: a writer was killed; the next one mends it.
    TornLog,
    /// A log names a file that is not there.
    Missing,
    /// A file that no log names.
    Unlogged,
    /// A record lies in another gate's folder.
    Misplaced,
    /// A verdict, a cell or a blob reference names something that is not there.
    Dangling,
    /// A blob is edited, or is not what the record says.
    Blob,
    /// A path that no writer makes.
    Path,
}

impl FindingKind {
    /// The stable, kebab-case code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            FindingKind::Edited => "edited",
            FindingKind::NewerSchema => "newer-schema",
            FindingKind::BrokenChain => "broken-chain",
            FindingKind::TornLog => "torn-log",
            FindingKind::Missing => "missing",
            FindingKind::Unlogged => "unlogged",
            FindingKind::Misplaced => "misplaced",
            FindingKind::Dangling => "dangling",
            FindingKind::Blob => "blob",
            FindingKind::Path => "path",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which way.
    pub kind: FindingKind,
    /// The file, relative to the folder.
    pub file: String,
    /// The sentence.
    pub detail: String,
}

/// What a verification checked and found.
#[derive(Debug, Default)]
pub struct Verification {
    /// Records that were read.
    pub records: usize,
    /// Blobs that were read.
    pub blobs: usize,
    /// Chain heads by log: what a signature would have to cover.
    pub heads: BTreeMap<String, Digest>,
    /// What is wrong; empty: nothing was found.
    pub findings: Vec<Finding>,
    /// What this check cannot show, in sentences.
    pub not_shown: Vec<String>,
    /// Every record that could be read, for checks that need the judge.
    pub stored: Vec<Stored>,
}

impl Folder {
    /// Checks every record, blob, log and reference. Unreadable things are findings, not errors.
    ///
    /// # Errors
    /// Only when the folder itself cannot be listed.
    pub fn verify(&self) -> Result<Verification, EvidenceError> {
        let mut check =
            Check { folder: self, out: Verification::default(), digests: HashMap::new() };
        check.records()?;
        check.blobs()?;
        check.logs()?;
        check.references();
        check.out.not_shown.push(
            "a log that lost its last lines together with their files, or a folder rewritten as a whole: \
             only a signature over the chain heads shows that"
                .to_owned(),
        );
        Ok(check.out)
    }
}

struct Check<'a> {
    folder: &'a Folder,
    out: Verification,
    /// Digest of every file that could be read, by its relative path.
    digests: HashMap<String, Digest>,
}

impl Check<'_> {
    fn find(&mut self, kind: FindingKind, file: &str, detail: impl Into<String>) {
        self.out.findings.push(Finding { kind, file: file.to_owned(), detail: detail.into() });
    }

    fn records(&mut self) -> Result<(), EvidenceError> {
        for file in self.folder.files()? {
            match self.folder.read(&file) {
                Ok(stored) => {
                    self.out.records += 1;
                    self.digests.insert(file.clone(), stored.digest.clone());
                    let expected = crate::writer::room(&stored.record);
                    if file.split('/').next() != Some(expected.as_str()) {
                        self.find(
                            FindingKind::Misplaced,
                            &file,
                            format!("it belongs to {expected}/"),
                        );
                    }
                    self.out.stored.push(stored);
                }
                Err(error @ EvidenceError::Schema { .. }) => {
                    self.find(FindingKind::NewerSchema, &file, chain(&error));
                }
                Err(error) => self.find(FindingKind::Edited, &file, chain(&error)),
            }
        }
        Ok(())
    }

    fn blobs(&mut self) -> Result<(), EvidenceError> {
        for file in self.folder.blobs()? {
            let name = file.trim_start_matches("blobs/").to_owned();
            match (self.folder.bytes(&file), Digest::parse(&name)) {
                (Ok(bytes), Ok(named)) if Digest::of(&bytes) == named => {
                    self.out.blobs += 1;
                    self.digests.insert(file, named);
                }
                (Ok(bytes), _) => {
                    let detail = format!("its bytes have digest {}", Digest::of(&bytes));
                    self.find(FindingKind::Blob, &file, detail);
                }
                (Err(error), _) => self.find(FindingKind::Blob, &file, chain(&error)),
            }
        }
        Ok(())
    }

    fn logs(&mut self) -> Result<(), EvidenceError> {
        let mut named = BTreeSet::new();
        for file in self.folder.logs()? {
            let read = self.folder.bytes(&file).and_then(|bytes| {
                Ok((log::read(&self.folder.root().join(&file), &bytes)?, bytes.len()))
            });
            let (log, size) = match read {
                Ok(read) => read,
                Err(error) => {
                    self.find(FindingKind::BrokenChain, &file, chain(&error));
                    continue;
                }
            };
            if log.whole < size {
                self.find(
                    FindingKind::TornLog,
                    &file,
                    "its last line is torn: a writer was killed",
                );
            }
            for line in log.lines {
                match self.digests.get(&line.file) {
                    Some(digest) if *digest == line.sha256 => {}
                    Some(_) => {
                        self.find(
                            FindingKind::Edited,
                            &line.file,
                            format!("{file} names other bytes"),
                        );
                    }
                    None if self.out.findings.iter().any(|f| f.file == line.file) => {}
                    None => {
                        self.find(
                            FindingKind::Missing,
                            &line.file,
                            format!("{file} names it, it is not there"),
                        );
                    }
                }
                named.insert(line.file);
            }
            self.out.heads.insert(file, log.head.digest);
        }
        let unlogged: Vec<String> =
            self.digests.keys().filter(|file| !named.contains(*file)).cloned().collect();
        for file in unlogged {
            self.find(FindingKind::Unlogged, &file, "no log names it: it was added by hand");
        }
        self.out.findings.sort_by(|a, b| (&a.file, a.kind).cmp(&(&b.file, b.kind)));
        Ok(())
    }

    fn references(&mut self) {
        let cells: BTreeSet<Digest> = self.of(|r| matches!(r, Record::Cell(_)));
        let sessions: BTreeSet<Digest> = self.of(|r| matches!(r, Record::Session(_)));
        let mut dangling = Vec::new();
        let mut wrong_blobs = Vec::new();
        for stored in &self.out.stored {
            match &stored.record {
                Record::Cell(cell) => {
                    if !sessions.contains(&cell.session) {
                        dangling.push((stored.file.clone(), format!("session {}", cell.session)));
                    }
                    if let Observation::Baseline(seen) = &cell.observation {
                        match self.folder.samples(&seen.samples) {
                            Ok(samples) if samples.rows.len() as u64 == seen.samples.rows => {}
                            Ok(samples) => wrong_blobs.push((
                                stored.file.clone(),
                                format!(
                                    "the record says {} samples, the blob has {}",
                                    seen.samples.rows,
                                    samples.rows.len()
                                ),
                            )),
                            Err(error) => wrong_blobs.push((stored.file.clone(), chain(&error))),
                        }
                    }
                }
                Record::Verdict(verdict) if !cells.contains(&verdict.evidence) => {
                    dangling.push((stored.file.clone(), format!("evidence {}", verdict.evidence)));
                }
                _ => {}
            }
        }
        for (file, what) in dangling {
            self.find(FindingKind::Dangling, &file, format!("it names {what}, which is not there"));
        }
        for (file, what) in wrong_blobs {
            self.find(FindingKind::Blob, &file, what);
        }
    }

    fn of(&self, kind: fn(&Record) -> bool) -> BTreeSet<Digest> {
        self.out.stored.iter().filter(|s| kind(&s.record)).map(|s| s.digest.clone()).collect()
    }
}

/// The error with its causes, for findings, which are sentences.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
