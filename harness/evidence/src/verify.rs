//! Verification: everything that can be wrong with a folder, all at once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{Observation, Record};

use crate::error::{EvidenceError, chain};
use crate::folder::{Folder, Stored};
use crate::log;
use crate::survey::{Odd, Survey};

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
    /// What no writer makes: a link, a pipe, a folder in a file's place, a name that is not UTF-8.
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

impl Finding {
    pub(crate) fn new(kind: FindingKind, file: &str, detail: impl Into<String>) -> Self {
        Self { kind, file: file.to_owned(), detail: detail.into() }
    }

    pub(crate) fn odd(odd: &Odd) -> Self {
        Self::new(FindingKind::Path, &odd.file, format!("no writer makes it: {}", odd.what))
    }

    pub(crate) fn unlogged(file: &str) -> Self {
        Self::new(FindingKind::Unlogged, file, "no log names it: it was added by hand")
    }

    pub(crate) fn missing(file: &str, log: &str) -> Self {
        Self::new(FindingKind::Missing, file, format!("{log} names it, it is not there"))
    }
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
    /// Checks every record, blob, log and reference. Unreadable and odd things are findings, not errors.
    ///
    /// What a run writes meanwhile looks wrong: see [`Folder::verify_calmly`].
    ///
    /// # Errors
    /// Only when the folder itself cannot be listed.
    pub fn verify(&self) -> Result<Verification, EvidenceError> {
        let survey = self.survey()?;
        let mut check =
            Check { folder: self, out: Verification::default(), digests: HashMap::new() };
        check.out.findings.extend(survey.odd.iter().map(Finding::odd));
        check.records(&survey);
        check.blobs(&survey);
        check.logs(&survey);
        check.references();
        check.out.findings.sort_by(|a, b| (&a.file, a.kind).cmp(&(&b.file, b.kind)));
        check.out.not_shown.push(
            "a log that lost its last lines together with their files, or a folder rewritten as a whole: \
             only a signature over the chain heads shows that"
                .to_owned(),
        );
        Ok(check.out)
    }
}

impl Folder {
    /// As [`Folder::verify`], in a folder that no run holds: what a run has not finished looks wrong.
    ///
    /// # Errors
    /// [`EvidenceError::Busy`] when a run holds the folder, [`EvidenceError::Disturbed`] when one wrote meanwhile and
    /// something is found, and those of [`Folder::verify`].
    pub fn verify_calmly(&self) -> Result<Verification, EvidenceError> {
        let before = self.calm()?;
        let check = self.verify()?;
        // What is right stays right: records never change.
        if !check.findings.is_empty() && self.calm()? != before {
            return Err(EvidenceError::Disturbed { path: self.root().to_owned() });
        }
        Ok(check)
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
        self.out.findings.push(Finding::new(kind, file, detail));
    }

    fn records(&mut self, survey: &Survey) {
        for file in &survey.files {
            match self.folder.read(file) {
                Ok(stored) => {
                    self.out.records += 1;
                    self.digests.insert(file.clone(), stored.digest.clone());
                    let expected = crate::writer::room(&stored.record);
                    if file.split('/').next() != Some(expected.as_str()) {
                        let detail = format!("it belongs to {expected}/");
                        self.find(FindingKind::Misplaced, file, detail);
                    }
                    self.out.stored.push(stored);
                }
                Err(error @ EvidenceError::Schema { .. }) => {
                    self.find(FindingKind::NewerSchema, file, chain(&error));
                }
                Err(error) => self.find(FindingKind::Edited, file, chain(&error)),
            }
        }
    }

    fn blobs(&mut self, survey: &Survey) {
        for file in &survey.blobs {
            let name = file.trim_start_matches("blobs/").to_owned();
            match (self.folder.bytes(file), Digest::parse(&name)) {
                (Ok(bytes), Ok(named)) if Digest::of(&bytes) == named => {
                    self.out.blobs += 1;
                    self.digests.insert(file.clone(), named);
                }
                (Ok(bytes), _) => {
                    let detail = format!("its bytes have digest {}", Digest::of(&bytes));
                    self.find(FindingKind::Blob, file, detail);
                }
                (Err(error), _) => self.find(FindingKind::Blob, file, chain(&error)),
            }
        }
    }

    fn logs(&mut self, survey: &Survey) {
        let told: HashSet<String> = self.out.findings.iter().map(|f| f.file.clone()).collect();
        let mut named = BTreeSet::new();
        for file in &survey.logs {
            let read = self.folder.bytes(file).and_then(|bytes| {
                Ok((log::read(&self.folder.root().join(file), &bytes)?, bytes.len()))
            });
            let (log, size) = match read {
                Ok(read) => read,
                Err(error) => {
                    self.find(FindingKind::BrokenChain, file, chain(&error));
                    continue;
                }
            };
            if log.whole < size {
                let detail = "its last line is torn: a writer was killed";
                self.find(FindingKind::TornLog, file, detail);
            }
            for line in log.lines {
                match self.digests.get(&line.file) {
                    Some(digest) if *digest == line.sha256 => {}
                    Some(_) => {
                        let detail = format!("{file} names other bytes");
                        self.find(FindingKind::Edited, &line.file, detail);
                    }
                    None if told.contains(&line.file) => {}
                    None => self.out.findings.push(Finding::missing(&line.file, file)),
                }
                named.insert(line.file);
            }
            self.out.heads.insert(file.clone(), log.head.digest);
        }
        let unlogged = self.digests.keys().filter(|file| !named.contains(*file));
        self.out.findings.extend(unlogged.map(|file| Finding::unlogged(file)));
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
