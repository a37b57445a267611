//! Valid bytes and ways to spoil them: what the fuzz tests of every crate draw from.
//!
//! A mutant is a seed with a few edits. Edits know the shape of text formats (numbers, quoted text, brackets), so that
//! many mutants get past the first byte of a parser. Runs draw the same mutants every time, unless `PROPTEST_CASES` asks
//! for a number of its own: then they are new each time.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::ops::Range;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed};

/// The longest that one input may have of a processor.
const LONGEST: Duration = Duration::from_secs(10);
/// The longest mutant, in bytes; edits that would pass it are left out.
const LARGEST: usize = 1 << 20;

/// Numbers that readers trip over.
const NUMBERS: [&str; 22] = [
    "0",
    "-0",
    "-1",
    "+5",
    "007",
    "1.0",
    "1e3",
    "1e999",
    "-1e999",
    "5e-324",
    "1e-400",
    "4294967296",
    "9007199254740993",
    "-9007199254740993",
    "30000000000000000",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999",
    "0.1000000000000000055511151231257827021181583404541015625",
    "1_000",
];

/// Bytes that readers trip over.
const SCRAPS: [&[u8]; 36] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\n",
    b"\r\n",
    b"\0",
    b"\t",
    b" ",
    b"=",
    b"#",
    b"'",
    b"/",
    b"..",
    b"../",
    b"null",
    b"true",
    b"nan",
    b"inf",
    b"\x80",
    b"\xff\xfe",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    "é".as_bytes(),
    "\u{2028}".as_bytes(),
    "\u{202e}".as_bytes(),
    "👩‍👩‍👧".as_bytes(),
    b"\\ud800",
    b"\\u0000",
    b"\x1b[31m",
];

/// Pairs that nest.
const BRACKETS: [(&[u8], &[u8]); 5] =
    [(b"[", b"]"), (b"{\"a\":", b"}"), (b"{a=", b"}"), (b"[[", b"]]"), (b"(", b")")];

/// One edit; places are fractions of whatever the bytes are then.
#[derive(Debug, Clone)]
pub enum Edit {
    /// Flips one bit.
    Flip(Index, u8),
    /// Cuts the end off.
    Truncate(Index),
    /// Takes a stretch out.
    Remove(Index, u8),
    /// Repeats a stretch.
    Repeat(Index, u8, u8),
    /// Puts a stretch of another seed in.
    Splice(Index, Index, Index, u8),
    /// Puts a scrap in.
    Insert(Index, &'static [u8]),
    /// Replaces a run of digits.
    Number(Index, &'static str),
    /// Replaces quoted text by a scrap.
    Text(Index, &'static [u8]),
    /// Replaces a stretch by deep nesting, closed or not.
    Nest(Index, (&'static [u8], &'static [u8]), u16, bool),
    /// Exchanges two lines.
    Lines(Index, Index),
    /// Sets eight bytes to a little-endian number.
    Word(Index, u64),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    let words =
        vec![0, 1, 7, 1 << 16, 1 << 31, 1 << 32, (1 << 53) + 1, 1 << 63, u64::MAX - 7, u64::MAX];
    prop_oneof![
        3 => (at(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        1 => at().prop_map(Edit::Truncate),
        2 => (at(), any::<u8>()).prop_map(|(at, length)| Edit::Remove(at, length)),
        2 => (at(), any::<u8>(), 1..5_u8).prop_map(|(at, length, times)| Edit::Repeat(at, length, times)),
        2 => (at(), at(), at(), any::<u8>()).prop_map(|(at, seed, from, n)| Edit::Splice(at, seed, from, n)),
        3 => (at(), select(SCRAPS.to_vec())).prop_map(|(at, scrap)| Edit::Insert(at, scrap)),
        5 => (at(), select(NUMBERS.to_vec())).prop_map(|(at, number)| Edit::Number(at, number)),
        3 => (at(), select(SCRAPS.to_vec())).prop_map(|(at, scrap)| Edit::Text(at, scrap)),
        1 => (at(), select(BRACKETS.to_vec()), 1..20_000_u16, any::<bool>())
            .prop_map(|(at, pair, depth, closed)| Edit::Nest(at, pair, depth, closed)),
        1 => (at(), at()).prop_map(|(one, other)| Edit::Lines(one, other)),
        1 => (at(), select(words)).prop_map(|(at, word)| Edit::Word(at, word)),
    ]
}

/// Mutants of the seeds; some have no edit at all.
pub fn mutants(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    assert!(!seeds.is_empty(), "nothing to mutate");
    (any::<Index>(), vec(edit(), 0..6)).prop_map(move |(seed, edits)| {
        let mut bytes = seeds[seed.index(seeds.len())].clone();
        for edit in edits {
            apply(&edit, &mut bytes, &seeds);
        }
        bytes
    })
}

fn apply(edit: &Edit, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let size = bytes.len();
    let place = |at: &Index| at.index(size + 1);
    let stretch = |at: &Index, length: u8| {
        let start = place(at);
        start..(start + usize::from(length)).min(size)
    };
    match edit {
        Edit::Flip(at, bit) if size > 0 => bytes[at.index(size)] ^= 1 << bit,
        Edit::Truncate(at) => bytes.truncate(place(at)),
        Edit::Remove(at, length) => drop(bytes.drain(stretch(at, *length))),
        Edit::Repeat(at, length, times) => {
            let range = stretch(at, *length);
            replace(bytes, range.end..range.end, &bytes[range].repeat(usize::from(*times)));
        }
        Edit::Splice(at, seed, from, length) => {
            let other = &seeds[seed.index(seeds.len())];
            let start = from.index(other.len() + 1);
            let end = (start + usize::from(*length)).min(other.len());
            replace(bytes, place(at)..place(at), &other[start..end]);
        }
        Edit::Insert(at, scrap) => replace(bytes, place(at)..place(at), scrap),
        Edit::Number(at, number) => {
            let digit = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
            replace_run(bytes, at, &runs(bytes, digit, u8::is_ascii_digit), number.as_bytes());
        }
        Edit::Text(at, scrap) => replace_run(bytes, at, &quoted(bytes), scrap),
        Edit::Nest(at, (open, close), depth, closed) => {
            let mut nested = open.repeat(usize::from(*depth));
            if *closed {
                nested.push(b'1');
                nested.extend(close.repeat(usize::from(*depth)));
            }
            replace(bytes, stretch(at, 8), &nested);
        }
        Edit::Lines(one, other) => {
            let mut lines: Vec<Vec<u8>> =
                bytes.split_inclusive(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
            if !lines.is_empty() {
                let count = lines.len();
                lines.swap(one.index(count), other.index(count));
                *bytes = lines.concat();
            }
        }
        Edit::Word(at, word) => {
            let start = place(at) & !7;
            replace(bytes, start..(start + 8).min(size).max(start.min(size)), &word.to_le_bytes());
        }
        Edit::Flip(..) => {}
    }
}

fn replace(bytes: &mut Vec<u8>, range: Range<usize>, with: &[u8]) {
    if bytes.len() + with.len() <= LARGEST {
        let with = with.to_vec();
        drop(bytes.splice(range, with));
    }
}

fn replace_run(bytes: &mut Vec<u8>, at: &Index, runs: &[Range<usize>], with: &[u8]) {
    if !runs.is_empty() {
        replace(bytes, runs[at.index(runs.len())].clone(), with);
    }
}

/// Stretches of bytes that belong together, each with at least one that counts.
fn runs(
    bytes: &[u8],
    belongs: impl Fn(u8) -> bool,
    counts: impl Fn(&u8) -> bool,
) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for end in 0..=bytes.len() {
        if bytes.get(end).is_some_and(|&byte| belongs(byte)) {
            continue;
        }
        if bytes[start..end].iter().any(&counts) {
            found.push(start..end);
        }
        start = end + 1;
    }
    found
}

/// What lies between neighboring quotes.
fn quoted(bytes: &[u8]) -> Vec<Range<usize>> {
    let quotes: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] == b'"').collect();
    quotes.windows(2).map(|pair| pair[0] + 1..pair[1]).collect()
}

/// `usual` cases that are the same in every run, or as many new ones as `PROPTEST_CASES` asks for.
pub fn cases(usual: u32) -> Config {
    let asked = Config { failure_persistence: None, ..Config::default() };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => asked,
        None => Config { cases: usual, rng_seed: RngSeed::Fixed(1), ..asked },
    }
}

/// Gives what `parse` gives, and fails where it takes long.
pub fn timely<T>(parse: impl FnOnce() -> T) -> T {
    let started = processor_time();
    let parsed = parse();
    let took = processor_time().saturating_sub(started);
    assert!(took < LONGEST, "one input took {took:?}");
    parsed
}

/// What this thread had of a processor, in the kernel's hundredths of a second: a busy machine makes that no longer.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("a Linux kernel");
    let (_, behind_name) = stat.rsplit_once(')').expect("a name");
    // The 14th and 15th numbers of the line, of which the name is the second.
    let ticks = behind_name.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|number| number.parse::<u64>().expect("a whole number"));
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// The most memory that this process ever had resident, in bytes.
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux kernel");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    let number = line.split_whitespace().nth(1).expect("a number");
    number.parse::<u64>().expect("whole KiB") << 10
}
