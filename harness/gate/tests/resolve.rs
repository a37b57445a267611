//! A good gate becomes the cells that it says, and no others.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use proofhouse_gate::declare::{GateSpec, parse_profiles};
use proofhouse_schema::canonical;
use proofhouse_schema::gate::{Expect, Inputs, ResolvedGate};
use proofhouse_schema::units::Wide;
use support::resolve_one;

const HEAD: &str = "about = \"a gate\"\nkind = \"correctness\"\noperator = \"rms_norm\"\nlevel = \"required\"\n\
    candidates = [\"cpu\"]\n";

fn keys(gate: &ResolvedGate) -> Vec<&str> {
    gate.cells.iter().map(|cell| cell.key.as_str()).collect()
}

#[test]
fn axes_multiply_and_keys_are_readable_and_unique() {
    let gate = resolve_one(
        &format!(
            "{HEAD}[[cells]]\ndims = {{ rows = [1, 3], hidden = 64 }}\ndtypes = [\"F32\", \"BF16\"]\n\
             layouts = [\"contiguous\", \"offset:1\"]\nvalues = \"huge\"\n"
        ),
        "quick",
    )
    .unwrap();
    assert_eq!(
        keys(&gate),
        [
            "rows=1 hidden=64 F32 contiguous huge",
            "rows=1 hidden=64 F32 offset:1 huge",
            "rows=1 hidden=64 BF16 contiguous huge",
            "rows=1 hidden=64 BF16 offset:1 huge",
            "rows=3 hidden=64 F32 contiguous huge",
            "rows=3 hidden=64 F32 offset:1 huge",
            "rows=3 hidden=64 BF16 contiguous huge",
            "rows=3 hidden=64 BF16 offset:1 huge",
        ]
    );
    assert_eq!(gate.header.id.as_str(), "rms_norm.test");
}

#[test]
fn what_is_not_written_gets_its_default_and_is_spelled_out() {
    let gate =
        resolve_one(&format!("{HEAD}[[cells]]\ndims = {{ rows = 3, hidden = 64 }}\n"), "quick")
            .unwrap();
    assert_eq!(gate.cells.len(), 3, "every dtype of the operator");
    let case = &gate.cells[0].case;
    assert_eq!(case.layout, "contiguous");
    assert_eq!(case.inputs, Inputs::Seeded { values: "normal".into(), seed: Wide(1) });
    assert_eq!(case.params["eps"].as_f64(), Some(1e-6));
    assert_eq!(case.params["k"].as_i64(), Some(8));
    assert_eq!(case.expect, Expect::Outputs);
}

#[test]
fn parameters_and_seeds_that_differ_from_the_default_are_in_the_key() {
    let gate = resolve_one(
        &format!(
            "{HEAD}[params]\neps = 1e-5\n[[cells]]\ndims = {{ rows = 3, hidden = 64 }}\ndtypes = \"F32\"\n\
             params = {{ k = [8, 9] }}\nseed = 7\n"
        ),
        "quick",
    )
    .unwrap();
    assert_eq!(
        keys(&gate),
        [
            "rows=3 hidden=64 eps=0.00001 F32 contiguous normal seed=7",
            "rows=3 hidden=64 eps=0.00001 k=9 F32 contiguous normal seed=7",
        ]
    );
}

#[test]
fn a_whole_number_for_a_real_parameter_is_that_real_number() {
    let gate = |eps: &str| {
        resolve_one(
            &format!(
                "{HEAD}[params]\neps = {eps}\n[[cells]]\ndims = {{ rows = 3, hidden = 64 }}\n"
            ),
            "quick",
        )
        .unwrap()
    };
    assert_eq!(canonical::digest(&gate("1")).unwrap(), canonical::digest(&gate("1.0")).unwrap());
}

#[test]
fn cells_belong_to_their_profiles() {
    let text = format!(
        "{HEAD}[[cells]]\ndims = {{ rows = 3, hidden = 64 }}\ndtypes = \"F32\"\n\
         [[cells]]\ndims = {{ rows = 3, hidden = 4096 }}\ndtypes = \"F32\"\nprofiles = [\"full\"]\n"
    );
    assert_eq!(resolve_one(&text, "quick").unwrap().cells.len(), 1);
    assert_eq!(resolve_one(&text, "full").unwrap().cells.len(), 2);
}

#[test]
fn a_gate_without_cells_in_a_profile_is_left_out_of_it() {
    let text =
        format!("{HEAD}[[cells]]\ndims = {{ rows = 3, hidden = 64 }}\nprofiles = [\"full\"]\n");
    let folder = support::folder("rms_norm/test.toml", text.as_bytes());
    assert!(support::resolve(&folder, "quick").unwrap().is_empty());
    assert_eq!(support::resolve(&folder, "full").unwrap().len(), 1);
}

#[test]
fn one_cell_may_be_declared_by_two_profiles() {
    let text = format!(
        "{HEAD}[[cells]]\ndims = {{ rows = 3, hidden = 64 }}\nprofiles = [\"full\"]\n\
         [[cells]]\ndims = {{ rows = 3, hidden = 64 }}\nprofiles = [\"quick\"]\n"
    );
    assert_eq!(resolve_one(&text, "quick").unwrap().cells.len(), 3);
}

#[test]
fn excluded_cells_are_kept_with_their_reason() {
    let gate = resolve_one(
        &format!(
            "{HEAD}[[cells]]\ndims = {{ rows = [3, 5], hidden = 64 }}\ndtypes = \"F32\"\n\
             [[exclude]]\nwhen = {{ dims = {{ rows = 5 }} }}\nreason = \"too slow\"\n"
        ),
        "quick",
    )
    .unwrap();
    assert_eq!(keys(&gate), ["rows=3 hidden=64 F32 contiguous normal"]);
    assert_eq!(gate.exclusions[0].cell, "rows=5 hidden=64 F32 contiguous normal");
    assert_eq!(gate.exclusions[0].reason, "too slow");
}

#[test]
fn every_refusal_of_the_catalog_is_a_cell_unless_excluded() {
    let text = format!("{HEAD}[refusals]\ndims = {{ rows = 4, hidden = 64 }}\n");
    let gate = resolve_one(&text, "quick").unwrap();
    assert_eq!(
        keys(&gate),
        [
            "rows=4 hidden=64 F32 contiguous refusal=hidden-zero",
            "rows=4 hidden=64 F32 contiguous refusal=eps-zero",
        ]
    );
    let Expect::Refusal { name, kind, argument } = &gate.cells[1].case.expect else {
        panic!("not a refusal");
    };
    assert_eq!(
        (name.as_str(), kind.as_str(), argument.as_str()),
        ("eps-zero", "out_of_range", "eps")
    );
    let fewer =
        format!("{text}[[exclude]]\nwhen = {{ refusal = \"eps-zero\" }}\nreason = \"a test\"\n");
    let gate = resolve_one(&fewer, "quick").unwrap();
    assert_eq!((gate.cells.len(), gate.exclusions.len()), (1, 1));
}

#[test]
fn extents_follow_from_the_tensors_of_a_file() {
    let text = format!(
        "{HEAD}[[cells]]\nfile = \"inputs/real.safetensors\"\ntensors = {{ x = \"hidden\", w = \"norm\" }}\n\
         dtypes = \"F32\"\n"
    );
    let gate = resolve_one(&text, "quick").unwrap();
    assert_eq!(keys(&gate), ["rows=16 hidden=576 F32 contiguous real:x=hidden,w=norm"]);
    let Inputs::File { path, sha256, tensors, .. } = &gate.cells[0].case.inputs else {
        panic!("not a file");
    };
    let bytes = &support::folder("x/y.toml", b"")["inputs/real.safetensors"];
    assert_eq!(path, "inputs/real.safetensors");
    assert_eq!(*sha256, canonical::Digest::of(bytes));
    assert_eq!(tensors["w"], "norm");
    let silu = text
        .replace("rms_norm", "silu_and_mul")
        .replace("x = \"hidden\", w = \"norm\"", "x = \"gate_up\"");
    let gate = resolve_one(&silu, "quick").unwrap();
    assert_eq!(keys(&gate), ["rows=16 width=1536 F32 contiguous real:x=gate_up"]);
}

#[test]
fn a_changed_file_of_tensors_changes_the_case() {
    let text = format!(
        "{HEAD}[[cells]]\nfile = \"inputs/real.safetensors\"\ntensors = {{ x = \"hidden\", w = \"norm\" }}\n"
    );
    let mut folder = support::folder("rms_norm/test.toml", text.as_bytes());
    let digest = |folder: &support::Folder| {
        let gates = support::resolve(folder, "quick").unwrap();
        canonical::digest(&gates[0].cells[0].case).unwrap()
    };
    let before = digest(&folder);
    folder.get_mut("inputs/real.safetensors").unwrap().last_mut().map(|byte| *byte ^= 1).unwrap();
    assert_ne!(before, digest(&folder));
}

#[test]
fn the_timing_contract_is_part_of_the_header() {
    let text = "about = \"a gate\"\nkind = \"baseline\"\noperator = \"rms_norm\"\nlevel = \"informative\"\n\
        candidates = \"cpu\"\nbaselines = [\"numpy\", \"onnxruntime\"]\n[timing]\ncache = \"cold\"\n\
        launch = \"eager\"\nclock = \"host\"\nrequire = \"no-loss\"\nincludes = [\"layout\", \"allocation\"]\n\
        [[cells]]\ndims = { rows = 3, hidden = 64 }\ndtypes = [\"F32\", \"F16\"]\n";
    let gate = resolve_one(text, "quick").unwrap();
    let timing = gate.header.timing.unwrap();
    assert!((timing.margin - 0.01).abs() < 1e-15);
    assert_eq!(timing.contract.threads, 1);
    assert_eq!(timing.contract.includes, ["allocation", "layout"]);
    assert_eq!(gate.header.baselines.len(), 2);
}

#[test]
fn ten_thousand_cells_are_spelled_out() {
    let list =
        |from: u32, to: u32| (from..to).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!(
        "{HEAD}[[cells]]\ndims = {{ rows = [{}], hidden = [{}] }}\n",
        list(1, 51),
        list(1, 68)
    );
    // How long it takes is the bench verb's to say: a test on a busy machine cannot.
    let gate = resolve_one(&text, "quick").unwrap();
    assert_eq!(gate.cells.len(), 50 * 67 * 3);
}

#[test]
fn stages_are_separate_types() {
    let spec = GateSpec::parse(
        "rms_norm/test.toml",
        "gates/rms_norm/test.toml",
        format!("{HEAD}[[cells]]\ndims = {{ nothing = 1 }}\n").as_bytes(),
    );
    assert!(spec.is_ok(), "names are bound later");
}

#[test]
fn the_profiles_of_the_fixture_differ() {
    let profiles =
        parse_profiles("profiles.toml", include_bytes!("support/profiles.toml")).unwrap();
    let replicates: Vec<u32> = profiles.values().map(|profile| profile.replicates).collect();
    assert_eq!(replicates, [3, 1]);
}
