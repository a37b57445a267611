//! The hash-chained log of one writer.

use std::path::Path;

use proofhouse_schema::canonical::{self, Digest};
use proofhouse_schema::units::Wide;
use serde::{Deserialize, Serialize};

use crate::error::EvidenceError;

/// One line of a log, in canonical JSON. The chain is the sha256 of each line (without its newline) in the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLine {
    /// The line's number, from 0.
    pub n: u64,
    /// The digest of the line before; 64 zeros in the first.
    pub previous: Digest,
    /// When, nanoseconds since 1970.
    pub at: Wide,
    /// The file, relative to the evidence folder.
    pub file: String,
    /// The sha256 of the file.
    pub sha256: Digest,
}

/// The state of a chain: what the next line must say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) next: u64,
    pub(crate) digest: Digest,
}

impl Head {
    /// The head of an empty chain.
    pub(crate) fn start() -> Self {
        Self { next: 0, digest: Digest::from_hash([0; 32]) }
    }

    /// Makes the next line and moves on. The bytes end with a newline.
    pub(crate) fn append(
        &mut self,
        at: Wide,
        file: &str,
        sha256: &Digest,
    ) -> Result<Vec<u8>, canonical::CanonicalError> {
        let line = LogLine {
            n: self.next,
            previous: self.digest.clone(),
            at,
            file: file.to_owned(),
            sha256: sha256.clone(),
        };
        let mut bytes = canonical::to_bytes(&line)?;
        self.digest = Digest::of(&bytes);
        self.next += 1;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// A log that was read: its lines, the head, and whether the last line is torn.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) lines: Vec<LogLine>,
    pub(crate) head: Head,
    /// Bytes of whole lines; fewer than the file has when its last line was torn by a kill.
    pub(crate) whole: usize,
}

/// Whether a path is `<folder>/<file>`, as writers make them: recovery renames to it, so it must not lead elsewhere.
fn is_placed(file: &str) -> bool {
    let plain = |name: &str| {
        !name.starts_with('.')
            && !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    file.split_once('/').is_some_and(|(folder, name)| plain(folder) && plain(name))
}

/// Reads a log and follows its chain.
pub(crate) fn read(path: &Path, bytes: &[u8]) -> Result<Chain, EvidenceError> {
    let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    let mut head = Head::start();
    let mut lines = Vec::new();
    for (index, text) in bytes[..whole].split_inclusive(|&b| b == b'\n').enumerate() {
        let broken =
            |what: String| EvidenceError::Chain { path: path.to_owned(), line: index + 1, what };
        let text = &text[..text.len() - 1];
        let (value, digest) =
            canonical::parse_canonical(text).map_err(|error| broken(error.to_string()))?;
        let line: LogLine =
            serde_json::from_value(value).map_err(|error| broken(error.to_string()))?;
        if line.n != head.next {
            return Err(broken(format!("line number {} where {} is next", line.n, head.next)));
        }
        if !is_placed(&line.file) {
            return Err(broken(format!("{:?} is no file of an evidence folder", line.file)));
        }
        if line.previous != head.digest {
            return Err(broken(format!(
                "it follows a line with digest {}, the line before has {}",
                line.previous.short(),
                head.digest.short()
            )));
        }
        head = Head { next: line.n + 1, digest };
        lines.push(line);
    }
    Ok(Chain { lines, head, whole })
}
