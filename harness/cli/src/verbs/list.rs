//! `list`: gates and their cells.

use proofhouse_schema::exit::Exit;
use proofhouse_schema::gate::{Level, ResolvedGate};
use serde_json::json;

use super::out;
use crate::arguments::{Common, ListArguments, Output};
use crate::error::CliError;
use crate::project::{Project, names};
use crate::terminal::{Paint, Table};

/// Lists gates, and on request every cell.
pub fn list(project: &Project, common: &Common, asked: &ListArguments) -> Result<Exit, CliError> {
    let declared = project.declared(&asked.profile)?;
    match asked.format {
        Output::Json => out(&json_lines(&declared.gates, asked.cells))?,
        Output::Human => out(&human(&declared.gates, asked.cells, Paint::stdout(common.color)))?,
    }
    Ok(if declared.gates.is_empty() { Exit::NothingSelected } else { Exit::Passed })
}

fn human(gates: &[ResolvedGate], cells: bool, paint: Paint) -> String {
    let mut table =
        Table::new(&["gate", "kind", "level", ">cells", ">excluded", "candidates", "against"]);
    for gate in gates {
        let header = &gate.header;
        table.row(vec![
            header.id.to_string(),
            header.kind.to_string(),
            level(header.level).to_owned(),
            gate.cells.len().to_string(),
            gate.exclusions.len().to_string(),
            names(header.candidates.iter()),
            names(header.baselines.iter()),
        ]);
    }
    let mut text = table.render(|head| paint.faint(head));
    if cells {
        for gate in gates {
            text.push_str(&format!(
                "\n{}\n  {}\n",
                paint.bold(gate.header.id.as_str()),
                gate.header.about
            ));
            for cell in &gate.cells {
                text.push_str(&format!("  {}\n", cell.key));
            }
            for excluded in &gate.exclusions {
                let reason = paint.faint(&format!("excluded: {}", excluded.reason));
                text.push_str(&format!("  {}  {reason}\n", excluded.cell));
            }
        }
    }
    text
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Required => "required",
        Level::Informative => "informative",
    }
}

fn json_lines(gates: &[ResolvedGate], cells: bool) -> String {
    let line = |gate: &ResolvedGate| {
        let mut value = json!({
            "gate": gate.header.id, "kind": gate.header.kind, "level": gate.header.level,
            "about": gate.header.about, "candidates": gate.header.candidates,
            "baselines": gate.header.baselines, "cells": gate.cells.len(),
            "excluded": gate.exclusions,
        });
        if cells {
            value["cells"] = json!(gate.cells);
        }
        format!("{value}\n")
    };
    gates.iter().map(line).collect()
}
