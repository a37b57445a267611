//! Spoiled safetensors files against the reader of real inputs: no panic, and what is accepted is what the file says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../../schema/tests/mutation/mod.rs"]
mod mutation;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use mutation::{cases, mutants, peak_memory, timely};
use proofhouse_contract::{Call, Dtype, OwnedTensor};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::gate::{CaseSpec, Expect, Inputs};
use proofhouse_schema::ids::OperatorName;
use proofhouse_schema::units::Wide;
use proofhouse_worker_oracle::CheckerError;
use proofhouse_worker_oracle::contents::{InputFiles, make};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestError, TestRunner};

const ROWS: u64 = 3;
const HIDDEN: u64 = 5;
const FILE: &str = "real.safetensors";

/// A safetensors file with tensors of counting bytes; an element has `size` bytes.
fn safetensors(tensors: &[(&str, &str, usize, &[u64])]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut entries = Vec::new();
    for (name, dtype, size, shape) in tensors {
        let start = data.len();
        let bytes = size * shape.iter().product::<u64>() as usize;
        data.extend((0..bytes).map(|at| (at % 63) as u8));
        let end = data.len();
        entries.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
        ));
    }
    file(format!("{{{}}}", entries.join(",")).as_bytes(), &data)
}

fn file(header: &[u8], data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header, data].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    vec![
        safetensors(&[("x", "F32", 4, &[ROWS, HIDDEN]), ("w", "F32", 4, &[HIDDEN])]),
        safetensors(&[("w", "F32", 4, &[HIDDEN]), ("x", "F32", 4, &[16, HIDDEN])]),
        safetensors(&[("x", "BF16", 2, &[ROWS, HIDDEN]), ("w", "F16", 2, &[HIDDEN])]),
        safetensors(&[("x", "F8_E4M3", 1, &[ROWS, HIDDEN]), ("w", "F32", 4, &[HIDDEN])]),
        safetensors(&[("x", "I64", 8, &[ROWS, HIDDEN]), ("w", "F64", 8, &[HIDDEN])]),
        safetensors(&[("x", "F32", 4, &[0, HIDDEN]), ("w", "F32", 4, &[])]),
    ]
}

/// Reads a file as the contents of an RMS norm's inputs.
fn read(gates: &Path, bytes: &[u8], contents: u32) -> Result<Vec<OwnedTensor>, CheckerError> {
    fs::write(gates.join(FILE), bytes).unwrap();
    let dims = [("rows", ROWS), ("hidden", HIDDEN)];
    let call = Call::new("rms_norm", Dtype::F32, &dims, &[]).unwrap();
    let names = ["x", "w"].map(|name| (name.to_owned(), name.to_owned()));
    let spec = CaseSpec {
        operator: OperatorName::new("rms_norm").unwrap(),
        dims: dims.map(|(name, extent)| (name.to_owned(), extent)).into(),
        dtype: proofhouse_schema::dtype::Dtype::F32,
        layout: "contiguous".to_owned(),
        params: BTreeMap::new(),
        inputs: Inputs::File {
            path: FILE.to_owned(),
            sha256: Digest::of(bytes),
            tensors: names.into(),
            seed: Wide(1),
        },
        expect: Expect::Outputs,
    };
    make(&call, &spec, gates, contents, &mut InputFiles::default())
}

/// The bytes of a tensor's first row, where the header says that it is of F32: told without the reader.
fn first_row(file: &[u8], name: &str) -> Option<Vec<u8>> {
    let length = u64::from_le_bytes(*file.first_chunk::<8>()?) as usize;
    let (header, data) = file[8..].split_at(length);
    let header: serde_json::Value = serde_json::from_slice(header).ok()?;
    let entry = &header[name];
    let start = entry["data_offsets"][0].as_u64()? as usize;
    let of_f32 = entry["dtype"] == "F32";
    of_f32.then(|| data[start..start + 4 * HIDDEN as usize].to_vec())
}

fn is_what_the_file_says(gates: &Path, bytes: &[u8]) -> TestCaseResult {
    let tensors = match read(gates, bytes, 0) {
        Ok(tensors) => tensors,
        Err(error) => {
            let mut next = Some(&error as &dyn Error);
            while let Some(error) = next {
                assert!(!error.to_string().is_empty());
                next = error.source();
            }
            return Ok(());
        }
    };
    for (tensor, shape) in tensors.iter().zip([&[ROWS, HIDDEN][..], &[HIDDEN], &[ROWS, HIDDEN]]) {
        prop_assert_eq!(&tensor.layout.shape, shape);
    }
    for (tensor, name) in tensors.iter().zip(["x", "w"]) {
        if let Some(row) = first_row(bytes, name) {
            // A NaN may lose its payload on the way through a double.
            let nan =
                |bytes: &[u8]| bytes.as_chunks().0.iter().any(|b| f32::from_le_bytes(*b).is_nan());
            let view = tensor.view();
            prop_assert!(nan(&row) || view.row_bytes(0) == row, "{name}");
        }
    }
    // Other contents of the same file are accepted too.
    prop_assert!((1..4).all(|contents| read(gates, bytes, contents).is_ok()));
    Ok(())
}

fn holds(usual: u32, seeds: Vec<Vec<u8>>, property: impl Fn(&[u8]) -> TestCaseResult) {
    let run =
        TestRunner::new(cases(usual)).run(&mutants(seeds), |bytes| timely(|| property(&bytes)));
    if let Err(error) = run {
        if let TestError::Fail(reason, bytes) = &error {
            panic!("{reason}\nfor {:?}", String::from_utf8_lossy(bytes));
        }
        panic!("{error}");
    }
    assert!(peak_memory() < 1 << 29, "{} bytes of memory", peak_memory());
}

#[test]
fn a_file_that_is_accepted_is_read_as_it_says() {
    let gates = tempfile::tempdir().unwrap();
    let accepted = seeds().iter().filter(|file| read(gates.path(), file, 0).is_ok()).count();
    assert_eq!(accepted, 4, "the last two do not fit");
    holds(600, seeds(), |bytes| is_what_the_file_says(gates.path(), bytes));
}

#[test]
fn a_header_of_the_right_length_promises_nothing_that_the_data_lack() {
    let gates = tempfile::tempdir().unwrap();
    let headers: Vec<Vec<u8>> = seeds()
        .iter()
        .map(|file| {
            let length = u64::from_le_bytes(*file.first_chunk::<8>().unwrap()) as usize;
            file[8..8 + length].to_vec()
        })
        .collect();
    holds(400, headers, |header| {
        for size in [0, 80, 340] {
            let data: Vec<u8> = (0..size).map(|at| (at % 63) as u8).collect();
            is_what_the_file_says(gates.path(), &file(header, &data))?;
        }
        Ok(())
    });
}

#[test]
fn a_path_that_leaves_the_gates_folder_is_not_opened() {
    let gates = tempfile::tempdir().unwrap();
    let seeds =
        ["../real.safetensors", "a/../../b", "/etc/hostname", "a//b", "inputs/x.safetensors"];
    holds(2000, seeds.map(|seed| seed.as_bytes().to_vec()).to_vec(), |path| {
        let Ok(path) = std::str::from_utf8(path) else { return Ok(()) };
        let call = Call::new("rms_norm", Dtype::F32, &[("rows", 1), ("hidden", 1)], &[]).unwrap();
        let spec = CaseSpec {
            operator: OperatorName::new("rms_norm").unwrap(),
            dims: [("rows".to_owned(), 1), ("hidden".to_owned(), 1)].into(),
            dtype: proofhouse_schema::dtype::Dtype::F32,
            layout: "contiguous".to_owned(),
            params: BTreeMap::new(),
            inputs: Inputs::File {
                path: path.to_owned(),
                sha256: Digest::of(b"another file"),
                tensors: BTreeMap::new(),
                seed: Wide(1),
            },
            expect: Expect::Outputs,
        };
        match make(&call, &spec, gates.path(), 0, &mut InputFiles::default()) {
            Err(CheckerError::Outside(_)) => {}
            Err(CheckerError::Read { path, .. } | CheckerError::OtherFile { path, .. }) => {
                prop_assert!(path.starts_with(gates.path()));
                prop_assert!(!path.components().any(|part| part.as_os_str() == ".."));
            }
            other => prop_assert!(false, "{other:?}"),
        }
        Ok(())
    });
}
