//! Spoiled bytes against every reader of this crate: nothing panics, and what is accepted is written again alike.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod mutation;

use std::error::Error;

use mutation::{cases, mutants, peak_memory, timely};
use proofhouse_schema::canonical::{self, CanonicalError, Digest};
use proofhouse_schema::evidence::Record;
use proofhouse_schema::ids::{GateId, OperatorName, ProviderId};
use proofhouse_schema::protocol::{ReplyLine, RequestLine};
use proofhouse_schema::real::Real;
use proofhouse_schema::samples::{Sample, Samples};
use proofhouse_schema::units::Wide;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestError, TestRunner};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// More than any test here needs; a reader that believes a promise of many rows needs far more.
const MEMORY: u64 = 1 << 30;

const RECORDS: [&str; 7] = [
    include_str!("seeds/cell_correctness.json"),
    include_str!("seeds/cell_baseline.json"),
    include_str!("seeds/cell_errored.json"),
    include_str!("seeds/verdict.json"),
    include_str!("seeds/session.json"),
    include_str!("seeds/selftest.json"),
    include_str!("seeds/selftest-cuda.json"),
];
const REQUESTS: &str = include_str!("seeds/requests.jsonl");
const REPLIES: &str = include_str!("seeds/replies.jsonl");

fn lines(text: &str) -> Vec<Vec<u8>> {
    text.lines().map(|line| line.as_bytes().to_vec()).collect()
}

/// The records as people indent them, and as evidence holds them.
fn records() -> Vec<Vec<u8>> {
    let indented = RECORDS.map(|text| text.as_bytes().to_vec());
    let canonical = indented
        .clone()
        .map(|text| canonical::value_to_bytes(&canonical::parse_value(&text).unwrap()).unwrap());
    indented.into_iter().chain(canonical).collect()
}

fn samples() -> Vec<Vec<u8>> {
    let row = Sample {
        provider: 1,
        replicate: 2,
        block: 3,
        position: 1,
        measured: true,
        calls: 40,
        elapsed_ns: 1234.5,
    };
    let providers: Vec<ProviderId> = vec!["cpu".parse().unwrap(), "numpy".parse().unwrap()];
    let many = Samples { providers: providers.clone(), rows: vec![row; 40], ..Samples::default() };
    let none = Samples { providers, ..Samples::default() };
    [many, none, Samples::default()].map(|samples| samples.encode().unwrap()).to_vec()
}

fn check(
    usual: u32,
    seeds: Vec<Vec<u8>>,
    property: impl Fn(&[u8]) -> TestCaseResult,
) -> Result<(), TestError<Vec<u8>>> {
    TestRunner::new(cases(usual)).run(&mutants(seeds), |bytes| timely(|| property(&bytes)))
}

/// Fails with the smallest mutant for which the property does not hold.
fn holds(usual: u32, seeds: Vec<Vec<u8>>, property: impl Fn(&[u8]) -> TestCaseResult) {
    if let Err(error) = check(usual, seeds, property) {
        if let TestError::Fail(reason, bytes) = &error {
            panic!("{reason}\nfor {:?}", String::from_utf8_lossy(bytes));
        }
        panic!("{error}");
    }
    assert!(peak_memory() < MEMORY, "{} bytes of memory", peak_memory());
}

/// An error that can be shown with its causes.
fn shown(error: &dyn Error) {
    let mut next = Some(error);
    while let Some(error) = next {
        assert!(!error.to_string().is_empty());
        next = error.source();
    }
}

/// Whoever reads the canonical bytes of an accepted value reads the same value.
fn settles(value: &Value) -> TestCaseResult {
    match canonical::value_to_bytes(value) {
        Ok(bytes) => {
            let read = canonical::parse_canonical(&bytes);
            prop_assert!(read.is_ok(), "written and not read: {read:?}");
            let (again, digest) = read.unwrap();
            prop_assert_eq!(canonical::value_to_bytes(&again).unwrap(), bytes.clone());
            prop_assert_eq!(digest, Digest::of(&bytes));
        }
        Err(error) => prop_assert!(matches!(error, CanonicalError::WideInteger(_)), "{error:?}"),
    }
    Ok(())
}

fn canonical_reader(read: impl Fn(&[u8]) -> Option<Value>) -> impl Fn(&[u8]) -> TestCaseResult {
    move |bytes| match read(bytes) {
        None => Ok(()),
        Some(value) => {
            prop_assert_eq!(canonical::value_to_bytes(&value).ok(), Some(bytes.to_vec()));
            Ok(())
        }
    }
}

#[test]
fn a_value_that_is_parsed_is_what_another_parser_sees_and_settles() {
    holds(3000, records(), |bytes| match canonical::parse_value(bytes) {
        Ok(value) => {
            let other: Value = serde_json::from_slice(bytes).unwrap();
            prop_assert_eq!(&value, &other);
            settles(&value)
        }
        Err(error) => {
            shown(&error);
            Ok(())
        }
    });
}

#[test]
fn canonical_bytes_that_are_accepted_are_written_again_alike() {
    holds(
        3000,
        records(),
        canonical_reader(|bytes| match canonical::parse_canonical(bytes) {
            Ok((value, _)) => Some(value),
            Err(error) => {
                shown(&error);
                None
            }
        }),
    );
}

#[test]
fn a_reader_that_takes_any_json_is_found_out() {
    let lax = canonical_reader(|bytes| serde_json::from_slice(bytes).ok());
    assert!(matches!(check(3000, records(), lax), Err(TestError::Fail(..))));
}

/// Accepted bytes have a form that is read and written alike from then on.
fn stable<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> TestCaseResult {
    match canonical::parse::<T>(bytes) {
        Err(error) => shown(&error),
        Ok(value) => {
            let written = serde_json::to_vec(&value).unwrap();
            prop_assert!(!written.contains(&b'\n'), "a line of its own");
            let again = canonical::parse::<T>(&written);
            prop_assert!(again.is_ok(), "written and not read: {:?}", again.err());
            let again = serde_json::to_vec(&again.unwrap()).unwrap();
            prop_assert_eq!(String::from_utf8(again), String::from_utf8(written));
        }
    }
    Ok(())
}

#[test]
fn requests_that_are_accepted_are_written_and_read_alike() {
    lines(REQUESTS).iter().for_each(|line| drop(canonical::parse::<RequestLine>(line).unwrap()));
    holds(6000, lines(REQUESTS), stable::<RequestLine>);
}

#[test]
fn replies_that_are_accepted_are_written_and_read_alike() {
    lines(REPLIES).iter().for_each(|line| drop(canonical::parse::<ReplyLine>(line).unwrap()));
    holds(6000, lines(REPLIES), stable::<ReplyLine>);
}

#[test]
fn records_that_are_accepted_have_canonical_bytes_that_give_them_again() {
    records().iter().for_each(|record| drop(canonical::parse::<Record>(record).unwrap()));
    holds(3000, records(), |bytes| {
        stable::<Record>(bytes)?;
        let Ok(record) = canonical::parse::<Record>(bytes) else { return Ok(()) };
        let Ok(written) = canonical::to_bytes(&record) else { return Ok(()) };
        let read = canonical::parse_canonical(&written);
        prop_assert!(read.is_ok(), "written and not read: {read:?}");
        let again: Result<Record, _> = serde_json::from_value(read.unwrap().0);
        prop_assert!(again.is_ok(), "written and no record: {:?}", again.err());
        prop_assert_eq!(canonical::to_bytes(&again.unwrap()).unwrap(), written);
        Ok(())
    });
}

#[test]
fn samples_that_are_accepted_are_encoded_again_alike() {
    holds(6000, samples(), |bytes| {
        match Samples::decode(bytes) {
            Ok(samples) => prop_assert_eq!(samples.encode().unwrap(), bytes),
            Err(error) => shown(&error),
        }
        Ok(())
    });
}

#[test]
fn a_sample_header_has_one_form() {
    let header = br#"{"providers":["cpu","numpy"],"rows":0}"#;
    holds(3000, vec![header.to_vec()], |header| {
        let mut bytes = b"PHS1".to_vec();
        bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
        bytes.extend_from_slice(header);
        match Samples::decode(&bytes) {
            Ok(samples) => prop_assert_eq!(samples.encode().unwrap(), bytes),
            Err(error) => shown(&error),
        }
        Ok(())
    });
}

#[test]
fn names_that_are_accepted_keep_to_their_grammar() {
    let seeds =
        ["rms_norm", "rms_norm.correctness", "a-b", "0123456789abcdef", &"0f".repeat(32), "7"];
    holds(6000, seeds.map(|seed| seed.as_bytes().to_vec()).to_vec(), |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return Ok(()) };
        let plain = |more: &str| {
            text.starts_with(|c: char| c.is_ascii_lowercase())
                && text.bytes().all(|b| {
                    b.is_ascii_lowercase() || b.is_ascii_digit() || more.contains(char::from(b))
                })
        };
        match ProviderId::new(text) {
            Ok(id) => prop_assert!(id.as_str() == text && plain("_-") && text.len() <= 64),
            Err(error) => shown(&error),
        }
        match OperatorName::new(text) {
            Ok(name) => prop_assert!(name.as_str() == text && plain("_") && text.len() <= 64),
            Err(error) => shown(&error),
        }
        match GateId::new(text) {
            // A gate's id names a folder: nothing in it may lead elsewhere.
            Ok(id) => prop_assert!(
                id.as_str() == text && plain("_-.") && !text.contains("..") && text.len() <= 128
            ),
            Err(error) => shown(&error),
        }
        match Digest::parse(text) {
            Ok(digest) => prop_assert!(
                digest.as_str() == text && text.len() == 64 && digest.short() == &text[..12]
            ),
            Err(error) => shown(&error),
        }
        let quoted = serde_json::to_string(text).unwrap();
        if let Ok(wide) = serde_json::from_str::<Wide>(&quoted) {
            prop_assert_eq!(serde_json::to_string(&wide).unwrap(), quoted);
        }
        Ok(())
    });
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn every_double_that_is_written_is_read_with_the_same_bits(bits: u64, near in -70_i32..1100) {
        for value in [f64::from_bits(bits), (bits as f64) * f64::powi(2.0, near - 64)] {
            let bytes = canonical::to_bytes(&Real(value)).unwrap();
            let read = canonical::parse_canonical(&bytes);
            prop_assert!(read.is_ok(), "{value:e} is written as {:?}: {read:?}", String::from_utf8_lossy(&bytes));
            let Real(again) = serde_json::from_value(read.unwrap().0).unwrap();
            // The canonical form has one zero and one NaN.
            let same = again == value || (again.is_nan() && value.is_nan());
            prop_assert!(same, "{value:e} is read as {again:e}");
        }
    }
}
