//! What is generated is what is committed, and what is committed resolves.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proofhouse_gate::declare::{
    Bindings, DeclarationErrors, Declarations, DiskFolder, Fault, GateSpec, Style, bind_provider,
    parse_profiles, parse_provider, read_catalog, resolve,
};
use proofhouse_schema::gate::{GateKind, ResolvedGate};
use proofhouse_schema::ids::{ProfileId, ProviderId};
use proofhouse_schema::provider::Provider;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn committed_schemas_are_the_generated_ones() {
    for (path, text) in proofhouse_gate::schemas() {
        let committed = std::fs::read_to_string(repository().join(&path)).unwrap_or_default();
        assert!(
            committed == text,
            "{path} is stale: cargo run -p proofhouse-gate --example regenerate"
        );
    }
}

fn accepted(errors: &DeclarationErrors) -> Vec<String> {
    let found = errors.0.iter().find_map(|error| match &error.fault {
        Fault::UnknownKey { accepted, .. } => Some(accepted.clone()),
        _ => None,
    });
    let mut keys = found.expect("an unknown key");
    keys.sort();
    keys
}

fn properties(schema: &serde_json::Value, definition: Option<&str>) -> Vec<String> {
    let object = definition.map_or(schema, |name| &schema["$defs"][name]);
    let mut keys: Vec<String> =
        object["properties"].as_object().expect("properties").keys().cloned().collect();
    keys.sort();
    keys
}

#[test]
fn the_schemas_have_the_keys_that_the_reader_reads() {
    let schemas: BTreeMap<String, serde_json::Value> = proofhouse_gate::schemas()
        .into_iter()
        .map(|(path, text)| (path, serde_json::from_str(&text).unwrap()))
        .collect();
    let gate = &schemas["gates/schema/gate.schema.json"];
    let of_gate = |text: &str| {
        accepted(
            &support::resolve(&support::folder("a/b.toml", text.as_bytes()), "quick").unwrap_err(),
        )
    };
    assert_eq!(of_gate("no-such-key = 1\n"), properties(gate, None));
    let tables = [
        ("[[cells]]\nno-such-key = 1\n", "CellsTable"),
        ("[[exclude]]\nno-such-key = 1\n", "ExcludeTable"),
        ("[[exclude]]\nreason = \"\"\nwhen = { no-such-key = 1 }\n", "WhenTable"),
        ("[refusals]\nno-such-key = 1\n", "RefusalsTable"),
        ("[timing]\nno-such-key = 1\n", "TimingTable"),
    ];
    for (text, definition) in tables {
        assert_eq!(of_gate(text), properties(gate, Some(definition)), "{definition}");
    }
    let profiles = parse_profiles("p", b"[quick]\nno-such-key = 1\n").unwrap_err();
    let schema = &schemas["gates/schema/profiles.schema.json"];
    assert_eq!(accepted(&profiles), properties(schema, Some("ProfileTable")));
    let provider = parse_provider("p", b"no-such-key = 1\n").unwrap_err();
    assert_eq!(
        accepted(&provider),
        properties(&schemas["gates/schema/provider.schema.json"], None)
    );
}

fn committed_providers() -> BTreeMap<ProviderId, Provider> {
    let mut providers = BTreeMap::new();
    let catalog = read_catalog(&DiskFolder(repository().join("gates"))).unwrap();
    for entry in std::fs::read_dir(repository().join("baselines")).unwrap() {
        let path = entry.unwrap().path().join("provider.toml");
        if let Ok(bytes) = std::fs::read(&path) {
            let provider = bind_provider(&path.display().to_string(), &bytes, &catalog)
                .unwrap_or_else(|errors| panic!("{}", errors.render(Style::Plain)));
            let folder = path.parent().and_then(Path::file_name).unwrap();
            assert_eq!(folder, provider.id.as_str(), "a provider's folder has its name");
            providers.insert(provider.id.clone(), provider);
        }
    }
    providers
}

fn committed(profile: &str) -> Vec<ResolvedGate> {
    let files = DiskFolder(repository().join("gates"));
    let shown = |errors: DeclarationErrors| -> ! { panic!("{}", errors.render(Style::Plain)) };
    let declarations = Declarations::load(&files).unwrap_or_else(|errors| shown(errors));
    let catalog = read_catalog(&files).unwrap_or_else(|errors| shown(errors));
    let bindings = Bindings {
        catalog: &catalog,
        providers: &committed_providers(),
        profiles: &declarations.profiles,
        files: &files,
    };
    declarations
        .resolve(&bindings, &ProfileId::new(profile).unwrap())
        .unwrap_or_else(|errors| shown(errors))
}

/// Cells of that kind that run on every machine; those of a device take no time where it is absent.
fn count(gates: &[ResolvedGate], kind: GateKind) -> usize {
    gates
        .iter()
        .filter(|gate| gate.header.kind == kind && gate.header.device.is_cpu())
        .map(|gate| gate.cells.len() * gate.header.candidates.len())
        .sum()
}

#[test]
fn committed_gates_resolve_in_every_profile() {
    let quick = committed("quick");
    assert!(count(&quick, GateKind::Correctness) <= 900, "the default suite must stay quick");
    assert!(count(&quick, GateKind::Baseline) <= 80, "the default suite must stay quick");
    for profile in ["full", "claim"] {
        let more = committed(profile);
        for kind in [GateKind::Correctness, GateKind::Baseline] {
            assert!(count(&more, kind) > count(&quick, kind), "{profile} {kind}");
        }
    }
}

#[test]
fn every_operator_of_the_catalog_has_both_required_gates() {
    let catalog = read_catalog(&DiskFolder(repository().join("gates"))).unwrap();
    let gates = committed("quick");
    for operator in catalog.operators.keys() {
        for name in ["correctness", "baseline"] {
            let id = format!("{operator}.{name}");
            assert!(gates.iter().any(|gate| gate.header.id.as_str() == id), "{id}");
        }
    }
}

#[test]
fn every_committed_gate_names_its_schema_for_editors() {
    let files = DiskFolder(repository().join("gates"));
    for path in proofhouse_gate::declare::FileSource::list(&files).unwrap() {
        if path.ends_with(".toml") {
            let text = std::fs::read_to_string(files.0.join(&path)).unwrap();
            assert!(text.starts_with("#:schema "), "{path}");
        }
    }
}

/// The fenced TOML blocks of the document, in order.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    document
        .split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .map(str::to_owned)
        .collect()
}

/// Binds a gate that a document shows, in a profile; gives how many cells it has there.
fn shown_gate(text: &str, providers: &BTreeMap<ProviderId, Provider>, profile: &str) -> usize {
    let files = DiskFolder(repository().join("gates"));
    let catalog = read_catalog(&files).unwrap();
    let declared = Declarations::load(&files).unwrap();
    let bindings =
        Bindings { catalog: &catalog, providers, profiles: &declared.profiles, files: &files };
    let profile = ProfileId::new(profile).unwrap();
    GateSpec::parse("a/b.toml", "a/b.toml", text.as_bytes())
        .and_then(|spec| resolve(&spec, &bindings, &profile))
        .unwrap_or_else(|errors| panic!("{}", errors.render(Style::Plain)))
        .map_or(0, |gate| gate.cells.len())
}

#[test]
fn the_document_shows_gates_that_resolve_and_errors_as_they_are_rendered() {
    let document = std::fs::read_to_string(repository().join("docs/gates.md")).unwrap();
    let providers = committed_providers();
    let (mut gates, mut profiles) = (0, 0);
    for text in blocks(&document, "toml") {
        if text.contains("\nkind = ") {
            gates += 1;
            for profile in ["quick", "full", "claim"] {
                assert!(shown_gate(&text, &providers, profile) > 0, "{profile}:\n{text}");
            }
        } else {
            profiles += 1;
            let read = parse_profiles("profiles.toml", text.as_bytes());
            read.unwrap_or_else(|errors| panic!("{}", errors.render(Style::Plain)));
        }
    }
    assert!(gates >= 2 && profiles >= 1, "{gates} gates, {profiles} files of profiles");
    let refusals = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refusals");
    let rendered: Vec<String> = std::fs::read_dir(refusals)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let shown = blocks(&document, "text");
    assert!(shown.len() >= 3, "{}", shown.len());
    for error in shown {
        assert!(rendered.contains(&error), "no refusal is rendered as\n{error}");
    }
}

#[test]
fn a_gate_of_nothing_but_real_tensors_has_a_cell_for_each_dtype() {
    let document = std::fs::read_to_string(repository().join("docs/gates.md")).unwrap();
    let first = blocks(&document, "toml").remove(0);
    let (head, rest) = first.split_once("[[cells]]").unwrap();
    let (_, real) = rest.split_once("[[cells]]").unwrap();
    let (real, _) = real.split_once("[[exclude]]").unwrap();
    let gate = format!("{head}[[cells]]{real}");
    assert_eq!(shown_gate(&gate, &committed_providers(), "quick"), 3, "{gate}");
}

#[test]
fn the_readmes_gate_resolves_where_its_provider_is_and_says_what_is_missing_where_not() {
    let document = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let [gate] = blocks(&document, "toml").try_into().expect("one gate");
    let mut providers = committed_providers();
    let mine = std::fs::read(repository().join("docs/examples/my_provider/provider.toml")).unwrap();
    let mine = parse_provider("provider.toml", &mine).unwrap();
    let (id, files) = (mine.id.clone(), DiskFolder(repository().join("gates")));
    providers.insert(id.clone(), mine);
    assert_eq!(shown_gate(&gate, &providers, "quick"), 12);
    providers.remove(&id);
    let catalog = read_catalog(&files).unwrap();
    let profiles = Declarations::load(&files).unwrap().profiles;
    let bindings =
        Bindings { catalog: &catalog, providers: &providers, profiles: &profiles, files: &files };
    let spec = GateSpec::parse("a/b.toml", "gates/a/b.toml", gate.as_bytes()).unwrap();
    let errors = resolve(&spec, &bindings, &ProfileId::new("quick").unwrap()).unwrap_err();
    assert!(errors.render(Style::Plain).contains("unknown provider `my_provider`"), "{errors}");
}

#[test]
fn the_document_names_every_key_that_is_read() {
    let document = std::fs::read_to_string(repository().join("docs/gates.md")).unwrap();
    for (path, text) in proofhouse_gate::schemas() {
        if path.contains("evidence") || path.contains("provider") {
            continue;
        }
        let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
        let tables = schema["$defs"].as_object().unwrap().values().chain([&schema]);
        for key in tables.filter_map(|table| table["properties"].as_object()).flat_map(|p| p.keys())
        {
            let named = [
                format!("`{key}`"),
                format!("`[{key}]`"),
                format!("`[[{key}]]`"),
                format!("`when.{key}`"),
            ];
            assert!(named.iter().any(|name| document.contains(name)), "{path}: {key}");
        }
    }
}
