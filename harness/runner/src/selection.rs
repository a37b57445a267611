//! Which cells of the gates a run takes.

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::gate::GateKind;
use proofhouse_schema::ids::{GateId, ProviderId};

/// Which cells a run takes. The default takes all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Every filter must hold.
    pub filters: Vec<Filter>,
    /// Only this part.
    pub shard: Option<Shard>,
}

/// A filter over cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All of these texts (whole words where they hold `=`) occur in `GATE CELL PROVIDER`.
    Text(String),
    /// The gate's kind.
    Kind(GateKind),
    /// The candidate.
    Provider(ProviderId),
}

impl Selection {
    /// Whether a cell is taken, shards aside.
    #[must_use]
    pub fn takes(&self, gate: &GateId, kind: GateKind, cell: &str, provider: &ProviderId) -> bool {
        self.filters.iter().all(|filter| match filter {
            Filter::Text(text) => text_matches(text, gate.as_str(), cell, provider.as_str()),
            Filter::Kind(wanted) => *wanted == kind,
            Filter::Provider(wanted) => wanted == provider,
        })
    }
}

fn text_matches(text: &str, gate: &str, cell: &str, provider: &str) -> bool {
    let words: Vec<&str> =
        [gate, provider].into_iter().chain(cell.split_ascii_whitespace()).collect();
    text.split_ascii_whitespace().all(|wanted| {
        let whole = wanted.contains('=') || wanted.contains('.');
        words.iter().any(|word| if whole { *word == wanted } else { begins(word, wanted) })
    })
}

/// Whether a word, or one of a gate's parts, begins with a text: `rms_norm` finds `rms_norm.baseline`, and not
/// `add_rms_norm.baseline`.
fn begins(word: &str, wanted: &str) -> bool {
    word.split('.').any(|part| part.starts_with(wanted))
}

/// Part `index` of `count`, counted from 1. Which part a cell belongs to depends on the digest of gate, cell and
/// candidate alone, so that machines agree without talking and a new cell moves no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: u32,
}

/// A shard that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shard {found:?} is not valid: accepted is i/n with 1 <= i <= n, e.g. 2/4")]
pub struct ShardError {
    /// What was found.
    pub found: String,
}

impl Shard {
    /// Part `index` of `count`.
    ///
    /// # Errors
    /// [`ShardError`] unless 1 <= index <= count.
    pub fn new(index: u32, count: u32) -> Result<Self, ShardError> {
        if index == 0 || index > count {
            return Err(ShardError { found: format!("{index}/{count}") });
        }
        Ok(Self { index, count })
    }

    /// Whether the cell with this digest belongs to the part.
    #[must_use]
    pub fn holds(&self, key: &Digest) -> bool {
        let head = u64::from_str_radix(&key.as_str()[..12], 16).unwrap_or(0);
        head % u64::from(self.count) == u64::from(self.index - 1)
    }
}

impl std::str::FromStr for Shard {
    type Err = ShardError;
    fn from_str(text: &str) -> Result<Self, ShardError> {
        let error = || ShardError { found: text.to_owned() };
        let (index, count) = text.split_once('/').ok_or_else(error)?;
        let index = index.parse().map_err(|_| error())?;
        let count = count.parse().map_err(|_| error())?;
        Shard::new(index, count).map_err(|_| error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> GateId {
        "rms_norm.correctness".parse().unwrap()
    }

    #[test]
    fn every_cell_belongs_to_exactly_one_part() {
        let parts: Vec<Shard> = (1..=3).map(|i| Shard::new(i, 3).unwrap()).collect();
        let mut sizes = [0; 3];
        for i in 0..300_u32 {
            let key = Digest::of(&i.to_le_bytes());
            let owners: Vec<usize> = (0..3).filter(|p| parts[*p].holds(&key)).collect();
            assert_eq!(owners.len(), 1);
            sizes[owners[0]] += 1;
        }
        assert!(sizes.iter().all(|s| *s > 60), "{sizes:?}");
    }

    #[test]
    fn a_shard_out_of_range_is_refused() {
        for text in ["0/3", "4/3", "1/0", "1", "a/b", "-1/2"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        assert_eq!("2/4".parse::<Shard>().unwrap(), Shard::new(2, 4).unwrap());
    }

    #[test]
    fn a_word_with_an_equals_sign_must_match_whole() {
        let takes = |text: &str| {
            let selection = Selection { filters: vec![Filter::Text(text.to_owned())], shard: None };
            let cpu = "cpu".parse().unwrap();
            selection.takes(&gate(), GateKind::Correctness, "rows=1 hidden=64 F32", &cpu)
        };
        assert!(takes("rows=1"));
        assert!(!takes("rows=12"));
        assert!(!takes("ows=1"));
        assert!(takes("rms F32 cpu"));
        assert!(takes("correct"));
        assert!(takes("rms_norm.correctness"));
        assert!(!takes("norm.correctness"));
        assert!(!takes("norm"));
        assert!(!takes("rms BF16"));
    }
}
