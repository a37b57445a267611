//! What `docs/kernels.md` says of the operators is what the catalog says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::{Path, PathBuf};

use proofhouse_gate::declare::{DiskFolder, read_catalog};
use proofhouse_gate::document::{BEGIN, END, KERNELS, NoPlaceError, draw, redraw};
use proofhouse_schema::catalog::Catalog;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn catalog() -> Catalog {
    read_catalog(&DiskFolder(repository().join("gates"))).unwrap()
}

#[test]
fn the_committed_document_shows_the_committed_catalog() {
    let text = std::fs::read_to_string(repository().join(KERNELS)).unwrap();
    let drawn = redraw(&text, &catalog()).unwrap();
    assert!(drawn == text, "{KERNELS} is stale: proofhouse schema --write");
}

#[test]
fn a_catalog_that_changed_makes_the_document_stale() {
    let text = std::fs::read_to_string(repository().join(KERNELS)).unwrap();
    let changes: [fn(&mut Catalog); 4] = [
        |catalog| drop(catalog.operators.pop_first()),
        |catalog| drop(catalog.values.pop_last()),
        |catalog| catalog.operators.values_mut().for_each(|o| drop(o.refusals.pop())),
        |catalog| {
            let tensors = catalog.operators.values_mut().flat_map(|o| &mut o.tensors);
            tensors.flat_map(|t| t.tolerance.values_mut()).for_each(|t| t.rule.push('!'));
        },
    ];
    for change in changes {
        let mut catalog = catalog();
        change(&mut catalog);
        assert_ne!(redraw(&text, &catalog).unwrap(), text);
    }
}

#[test]
fn every_name_of_the_catalog_is_drawn() {
    let catalog = catalog();
    let drawn = draw(&catalog);
    for (name, operator) in &catalog.operators {
        assert!(drawn.contains(&format!("\n### `{name}`\n")));
        let params = operator.params.iter().map(|param| &param.name);
        let tensors = operator.tensors.iter().map(|tensor| &tensor.name);
        for name in params.chain(tensors).chain(operator.dims.iter().map(|dim| &dim.name)) {
            assert!(drawn.contains(&format!("| `{name}` |")), "{name}");
        }
        let whats = operator.refusals.iter().map(|refusal| &refusal.what);
        assert!(whats.into_iter().all(|what| drawn.contains(&what.replace('|', "\\|"))));
    }
    for name in catalog.values.keys().chain(catalog.layouts.keys()) {
        assert!(drawn.contains(&format!("| `{name}` |")), "{name}");
    }
}

#[test]
fn only_what_is_between_the_markers_is_drawn_anew() {
    let catalog = catalog();
    let text = format!("above\n{BEGIN}\nold\n{END}\nbelow\n");
    let drawn = redraw(&text, &catalog).unwrap();
    assert_eq!(drawn, format!("above\n{BEGIN}\n{}{END}\nbelow\n", draw(&catalog)));
    assert_eq!(redraw(&drawn, &catalog).unwrap(), drawn);
}

#[test]
fn markers_that_are_missing_doubled_or_exchanged_are_refused() {
    let catalog = catalog();
    for text in [
        String::new(),
        BEGIN.to_owned(),
        END.to_owned(),
        format!("{END}\n{BEGIN}\n"),
        format!("{BEGIN}\n{BEGIN}\n{END}\n"),
        format!("{BEGIN}\n{END}\n{END}\n"),
        format!("{BEGIN}\n{END}\n{BEGIN}\n{END}\n"),
    ] {
        assert_eq!(redraw(&text, &catalog), Err(NoPlaceError), "{text:?}");
    }
}
