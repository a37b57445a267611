//! Spoiled declarations: every error points inside its file and can be drawn, and what is accepted has one meaning.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../../schema/tests/mutation/mod.rs"]
mod mutation;
mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mutation::{cases, mutants, peak_memory, timely};
use proofhouse_gate::declare::{
    Bindings, DeclarationErrors, Declarations, Style, bind_provider, parse_profiles,
    parse_provider, read_catalog,
};
use proofhouse_schema::canonical;
use proofhouse_schema::gate::ResolvedGate;
use proofhouse_schema::ids::ProfileId;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestError, TestRunner};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A small gate with every kind of table, in the words of the support's catalog.
const EVERYTHING: &str = r#"about = "it holds — everywhere"
kind = "correctness"
operator = "rms_norm"
level = "required"
candidates = ["cpu", "numpy"]
params = { eps = 1e-5 }

[[cells]]
dims = { rows = [1, 7], hidden = [64, 4096] }
dtypes = ["F32", "F16"]
layouts = ["contiguous"]
values = ["normal"]
seed = 3
profiles = ["quick"]
params = { eps = [1e-6, 0.5] }

[[cells]]
file = "inputs/real.safetensors"
tensors = { x = "hidden", w = "norm" }
dtypes = "F32"

[[exclude]]
reason = "too small to say anything"
when = { dims = { rows = 1 }, dtype = "F16" }

[refusals]
dims = { rows = 3, hidden = 64 }
dtypes = ["F32"]
"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below a folder whose name ends so.
fn files(folder: &Path, ending: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(std::fs::read(path).unwrap());
            }
        }
    }
    found.sort();
    found
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
    assert!(peak_memory() < 1 << 30, "{} bytes of memory", peak_memory());
}

/// Every error has a place in its file, a code and a drawing.
fn points_inside(errors: &DeclarationErrors) -> TestCaseResult {
    prop_assert!(!errors.0.is_empty(), "refused without a reason");
    for error in &errors.0 {
        let text = &error.file.text;
        let related = error.related.iter().map(|(span, _)| span);
        for span in std::iter::once(&error.span).chain(related) {
            let inside = span.start <= span.end && span.end <= text.len();
            prop_assert!(inside, "{span:?} of {} bytes: {error}", text.len());
            let whole = text.is_char_boundary(span.start) && text.is_char_boundary(span.end);
            prop_assert!(whole, "{span:?} cuts a character: {error}");
        }
        let (line, column) = error.place();
        prop_assert!(line >= 1 && line <= text.matches('\n').count() + 1 && column >= 1);
        let plain = error.render(Style::Plain);
        prop_assert!(plain.contains(error.fault.code()), "{plain}");
        prop_assert!(plain.contains(&error.file.path), "{plain}");
        prop_assert!(!error.render(Style::Colored).is_empty());
        prop_assert!(error.to_string().starts_with(&error.file.path));
    }
    prop_assert!(!errors.to_string().is_empty());
    Ok(())
}

/// An accepted value has canonical bytes, and they give it again.
fn has_one_meaning<T: Serialize + DeserializeOwned>(value: &T) -> TestCaseResult {
    let bytes = canonical::to_bytes(value);
    prop_assert!(bytes.is_ok(), "accepted and without a digest: {:?}", bytes.err());
    let bytes = bytes.unwrap();
    let (read, _) = canonical::parse_canonical(&bytes).unwrap();
    let again: Result<T, _> = serde_json::from_value(read);
    prop_assert!(again.is_ok(), "written and not read: {:?}", again.err());
    prop_assert_eq!(canonical::to_bytes(&again.unwrap()).unwrap(), bytes);
    Ok(())
}

fn resolved(result: Result<Vec<ResolvedGate>, DeclarationErrors>) -> TestCaseResult {
    match result {
        Err(errors) => points_inside(&errors),
        Ok(gates) => gates.iter().try_for_each(|gate| {
            let keys: BTreeSet<&str> = gate.cells.iter().map(|cell| cell.key.as_str()).collect();
            prop_assert_eq!(keys.len(), gate.cells.len(), "cells with one key");
            prop_assert!(!gate.cells.is_empty());
            has_one_meaning(gate)
        }),
    }
}

fn gates() -> Vec<Vec<u8>> {
    let mut seeds = files(&repository().join("harness/gate/tests/refusals"), ".toml");
    // Half of the mutants begin with a gate that is accepted.
    seeds.extend(vec![EVERYTHING.as_bytes().to_vec(); seeds.len()]);
    seeds
}

#[test]
fn gates_are_refused_at_a_place_or_mean_one_thing() {
    let sound = support::folder("rms_norm/test.toml", EVERYTHING.as_bytes());
    let sound = support::resolve(&sound, "quick").map_err(|errors| errors.render(Style::Plain));
    assert!(sound.unwrap()[0].cells.len() > 10);
    holds(800, gates(), |bytes| {
        resolved(support::resolve(&support::folder("rms_norm/test.toml", bytes), "quick"))
    });
}

#[test]
fn committed_gates_are_refused_at_a_place_when_they_are_spoiled() {
    let mut seeds = files(&repository().join("gates"), ".toml");
    seeds.retain(|seed| seed.starts_with(b"#:schema"));
    assert!(!seeds.is_empty());
    holds(300, seeds, |bytes| {
        resolved(support::resolve(&support::folder("rms_norm/test.toml", bytes), "full"))
    });
}

#[test]
fn a_product_that_no_run_can_take_is_refused_before_it_is_made() {
    let axis = format!("{:?}", (1..=3000).collect::<Vec<_>>());
    let dims = format!("dims = {{ rows = {axis}, hidden = {axis} }}");
    let gate = EVERYTHING.replace("dims = { rows = [1, 7], hidden = [64, 4096] }", &dims);
    let folder = support::folder("rms_norm/test.toml", gate.as_bytes());
    let errors = timely(|| support::resolve(&folder, "quick")).unwrap_err();
    assert!(errors.0.iter().any(|error| error.fault.code() == "out-of-range"), "{errors}");
}

#[test]
fn profiles_are_refused_at_a_place_or_mean_one_thing() {
    let seeds = vec![
        include_bytes!("support/profiles.toml").to_vec(),
        std::fs::read(repository().join("gates/profiles.toml")).unwrap(),
    ];
    holds(3000, seeds, |bytes| match parse_profiles("gates/profiles.toml", bytes) {
        Ok(profiles) => has_one_meaning(&profiles),
        Err(errors) => points_inside(&errors),
    });
}

#[test]
fn providers_are_refused_at_a_place_or_mean_one_thing() {
    let seeds = files(&repository().join("baselines"), "provider.toml");
    let catalog = support::catalog();
    holds(3000, seeds, |bytes| {
        if let Err(errors) = bind_provider("baselines/x/provider.toml", bytes, &catalog) {
            points_inside(&errors)?;
        }
        match parse_provider("baselines/x/provider.toml", bytes) {
            Ok(provider) => has_one_meaning(&provider),
            Err(errors) => points_inside(&errors),
        }
    });
}

fn with_catalog(bytes: &[u8]) -> TestCaseResult {
    let mut folder = support::folder("rms_norm/test.toml", EVERYTHING.as_bytes());
    folder.insert("catalog.json".to_owned(), bytes.to_vec());
    let catalog = match read_catalog(&folder) {
        Ok(catalog) => catalog,
        Err(errors) => return points_inside(&errors),
    };
    let declarations = Declarations::load(&folder).unwrap();
    let providers = support::providers();
    let bindings = Bindings {
        catalog: &catalog,
        providers: &providers,
        profiles: &declarations.profiles,
        files: &folder,
    };
    resolved(declarations.resolve(&bindings, &ProfileId::new("quick").unwrap()))
}

#[test]
fn catalogs_are_refused_or_gates_are_bound_to_them() {
    let committed = std::fs::read(repository().join("gates/catalog.json")).unwrap();
    let small = include_bytes!("support/catalog.json").to_vec();
    with_catalog(&small).unwrap();
    holds(300, vec![small.clone(), small, committed], with_catalog);
}

#[test]
fn files_of_real_tensors_are_refused_at_their_name_or_give_extents() {
    let sound = support::safetensors(&[("hidden", &[4, 8]), ("norm", &[8])]);
    let length = u64::from_le_bytes(*sound.first_chunk::<8>().unwrap()) as usize;
    let (header, data) = (sound[8..8 + length].to_vec(), sound[8 + length..].to_vec());
    let gates = |file: Vec<u8>| {
        let mut folder = support::folder("rms_norm/test.toml", EVERYTHING.as_bytes());
        folder.insert("inputs/real.safetensors".to_owned(), file);
        support::resolve(&folder, "quick")
    };
    assert!(gates(sound.clone()).is_ok());
    holds(1000, vec![sound], |bytes| resolved(gates(bytes.to_vec())));
    holds(1500, vec![header], |header| {
        let length = (header.len() as u64).to_le_bytes();
        resolved(gates([&length, header, &data].concat()))
    });
}

#[test]
fn an_error_that_points_outside_is_found_out() {
    let broken = parse_profiles("p", b"[quick]\nno-such-key = 1\n").unwrap_err();
    points_inside(&broken).unwrap();
    let spoil = |change: fn(&mut proofhouse_gate::declare::DeclarationError)| {
        let mut errors = broken.clone();
        change(&mut errors.0[0]);
        points_inside(&errors).unwrap_err()
    };
    spoil(|error| error.span.end = error.file.text.len() + 1);
    spoil(|error| error.span.start = error.span.end + 1);
    spoil(|error| error.related = Some((0..999, "there".to_owned())));
    points_inside(&DeclarationErrors(Vec::new())).unwrap_err();
    assert!(has_one_meaning(&vec![(1_u64 << 53) + 1]).is_err());
}
