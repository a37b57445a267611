//! The part of `docs/kernels.md` that is drawn from the catalog, between two markers.

use std::collections::BTreeMap;

use proofhouse_schema::catalog::{Catalog, Operator, ParamKind, Refusal, Role, Tensor, Tolerance};
use proofhouse_schema::dtype::Dtype;

/// The document, below the repository.
pub const KERNELS: &str = "docs/kernels.md";
/// The line before the generated part.
pub const BEGIN: &str = "<!-- generated from gates/catalog.json: proofhouse schema --write -->";
/// The line after the generated part.
pub const END: &str = "<!-- end of the generated part -->";

/// The document has no place for the generated part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a document needs each of the lines {BEGIN:?} and {END:?} once, in this order")]
pub struct NoPlaceError;

/// The document with its generated part drawn anew; everything outside the markers is kept.
///
/// # Errors
/// [`NoPlaceError`] when a marker is missing, doubled or out of order.
pub fn redraw(document: &str, catalog: &Catalog) -> Result<String, NoPlaceError> {
    let (before, rest) = document.split_once(BEGIN).ok_or(NoPlaceError)?;
    let (_, after) = rest.split_once(END).ok_or(NoPlaceError)?;
    let stray = [before, after].iter().any(|part| part.contains(BEGIN) || part.contains(END));
    if stray || rest.split(END).next().is_some_and(|drawn| drawn.contains(BEGIN)) {
        return Err(NoPlaceError);
    }
    Ok(format!("{before}{BEGIN}\n{}{END}{after}", draw(catalog)))
}

/// Every operator with its tables, then layouts and value classes.
#[must_use]
pub fn draw(catalog: &Catalog) -> String {
    let mut out = String::new();
    for (name, operator) in &catalog.operators {
        out.push_str(&format!("\n### `{name}`\n{}\n", sentences(&operator.summary)));
        out.push_str(&operator_tables(operator));
    }
    let layouts = catalog.layouts.iter().map(|(name, meaning)| {
        vec![code(name), meaning.clone(), without(catalog, |operator| &operator.layouts, name)]
    });
    out.push_str("\n### Layouts\n");
    out.push_str(&table(&["layout", "meaning", "not for"], layouts));
    let values = catalog.values.iter().map(|(name, meaning)| {
        vec![code(name), meaning.clone(), without(catalog, |operator| &operator.values, name)]
    });
    out.push_str("\n### Value classes\n");
    out.push_str(&table(&["class", "values", "not for"], values));
    out.push('\n');
    out
}

fn operator_tables(operator: &Operator) -> String {
    let dtypes: Vec<&str> = operator.dtypes.iter().map(|dtype| dtype.as_str()).collect();
    let mut out = format!("\nActivation dtypes: {}.\n\n", dtypes.join(", "));
    let dims = operator.dims.iter().map(|dim| vec![code(&dim.name), dim.meaning.clone()]);
    out.push_str(&table(&["dimension", "meaning"], dims));
    if !operator.params.is_empty() {
        let params = operator.params.iter().map(|param| {
            let kind = match param.kind {
                ParamKind::Float => "float",
                ParamKind::Integer => "integer",
                ParamKind::Boolean => "boolean",
            };
            let default = format!("{kind}, {}", param.default);
            vec![code(&param.name), default, param.accepted.clone(), param.meaning.clone()]
        });
        out.push('\n');
        out.push_str(&table(&["parameter", "type, default", "accepted", "meaning"], params));
    }
    out.push('\n');
    let heads = ["tensor", "role", "dtype", "shape", "bytes read, written", "tolerance"];
    out.push_str(&table(&heads, operator.tensors.iter().map(tensor_row)));
    out.push('\n');
    let reasons = operator.tensors.iter().flat_map(|tensor| {
        let one = |(dtypes, tolerance): (String, &Tolerance)| {
            format!("- `{}` ({dtypes}): {}.\n", tensor.name, tolerance.reason)
        };
        grouped(&tensor.tolerance).into_iter().map(one).collect::<Vec<_>>()
    });
    out.extend(reasons);
    out.push('\n');
    out.push_str(&table(&["error", "argument", "refused inputs"], refusal_rows(operator)));
    out
}

fn tensor_row(tensor: &Tensor) -> Vec<String> {
    let role = match tensor.role {
        Role::In => "in",
        Role::Out => "out",
        Role::InOut => "in and out",
    };
    let role = match &tensor.present_when {
        Some(param) => format!("{role}, with `{param}`"),
        None => role.to_owned(),
    };
    let dtype = tensor.dtype.map_or("activation", |dtype| dtype.as_str());
    let shape = format!("`[{}]`", tensor.shape.join(", "));
    let rules: Vec<String> = grouped(&tensor.tolerance)
        .into_iter()
        .map(|(dtypes, tolerance)| format!("{dtypes}: {}", tolerance.rule))
        .collect();
    let traffic = format!("{}×, {}×", tensor.reads, tensor.writes);
    vec![code(&tensor.name), role, dtype.to_owned(), shape, traffic, rules.join("; ")]
}

/// Equal tolerances with the dtypes that share them, in the order of dtypes.
fn grouped(tolerance: &BTreeMap<Dtype, Tolerance>) -> Vec<(String, &Tolerance)> {
    let mut groups: Vec<(String, &Tolerance)> = Vec::new();
    for (dtype, this) in tolerance {
        match groups.iter_mut().find(|(_, known)| *known == this) {
            Some((dtypes, _)) => dtypes.push_str(&format!(", {dtype}")),
            None => groups.push((dtype.to_string(), this)),
        }
    }
    groups
}

/// One row per kind of error and argument, in the catalog's order; those seen only on values are marked.
fn refusal_rows(operator: &Operator) -> Vec<Vec<String>> {
    let mut rows: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for Refusal { what, kind, argument, device_value, .. } in &operator.refusals {
        let what = format!("{what}{}", if *device_value { " (checked mode)" } else { "" });
        match rows.iter_mut().find(|row| row.0 == kind && row.1 == argument) {
            Some(row) => row.2.push(what),
            None => rows.push((kind, argument, vec![what])),
        }
    }
    let cells = |row: (&str, &str, Vec<String>)| vec![code(row.0), code(row.1), row.2.join("; ")];
    rows.into_iter().map(cells).collect()
}

/// The operators that lack a name, so that the many that have it need no list.
fn without(catalog: &Catalog, names: impl Fn(&Operator) -> &Vec<String>, name: &str) -> String {
    let lacking = catalog
        .operators
        .iter()
        .filter(|(_, operator)| !names(operator).iter().any(|known| known == name));
    lacking.map(|(operator, _)| code(operator.as_str())).collect::<Vec<_>>().join(", ")
}

fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let mut out = line(&heads);
    out.push_str(&format!("|{}\n", "---|".repeat(heads.len())));
    rows.into_iter().for_each(|row| out.push_str(&line(&row)));
    out
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

/// One sentence a line.
fn sentences(text: &str) -> String {
    text.replace(". ", ".\n")
}
