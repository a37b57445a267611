//! An error as a person reads it, and as an event for a program.

use proofhouse_gate::declare::{DeclarationError, DeclarationErrors, Fault, Style};
use proofhouse_report::plain;
use serde_json::{Value, json};

use super::{Paint, print, tell};
use crate::error::CliError;

/// Prints an error and its causes on stderr, once, and what to do about it where that is known.
pub fn explain(error: &CliError, paint: Paint) {
    if let CliError::Declarations(errors) = error {
        let style = if paint.on() { Style::Colored } else { Style::Plain };
        tell(&errors.render(style));
        return;
    }
    explain_chain(error, paint);
    if let Some(hint) = error.hint() {
        tell(&format!("  {} {hint}", paint.faint("hint")));
    }
}

/// Prints an error and its causes.
pub fn explain_chain(error: &dyn std::error::Error, paint: Paint) {
    tell(&format!("{} {}", paint.bad("error:"), printable(&error.to_string())));
    for cause in causes(error) {
        tell(&format!("  {} {}", paint.faint("because"), printable(&cause)));
    }
}

/// An error and its causes in one line.
pub fn explain_causes(error: &dyn std::error::Error) -> String {
    let parts: Vec<String> = std::iter::once(error.to_string()).chain(causes(error)).collect();
    plain(&parts.join(": "))
}

/// The lines of a text, which may hold names that others chose.
fn printable(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

fn causes(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(error.source(), |cause| cause.source()).map(ToString::to_string).collect()
}

/// Prints an error as `error` events on stdout, one for each thing that is wrong.
pub fn announce(error: &CliError) {
    let events = match error {
        CliError::Declarations(DeclarationErrors(errors)) => {
            errors.iter().map(of_declaration).collect()
        }
        other => vec![of_chain(other, other.hint())],
    };
    for event in events {
        // A reader that went away misses it; the exit code says it, too.
        let _ = print(&format!("{event}\n"));
    }
}

/// The event of an error that is about no place in a file.
pub fn of_chain(error: &dyn std::error::Error, hint: Option<&str>) -> Value {
    json!({ "event": "error", "message": error.to_string(), "because": causes(error), "help": hint })
}

fn of_declaration(error: &DeclarationError) -> Value {
    let (line, column) = error.place();
    let fault = &error.fault;
    let (key, found, accepted) = parts(fault);
    json!({
        "event": "error", "code": fault.code(), "message": fault.title(), "detail": fault.label(),
        "file": error.file.path, "line": line, "column": column,
        "key": key.or_else(|| key_at(&error.file.text, error.span.start)),
        "found": found.or_else(|| written(error)), "accepted": accepted, "help": fault.help(),
    })
}

type Parts = (Option<String>, Option<String>, Vec<String>);

/// Key, what was found and what is accepted, as far as the fault itself says them.
fn parts(fault: &Fault) -> Parts {
    let some = |text: &str| Some(text.to_owned());
    let one = |text: &str| vec![text.to_owned()];
    match fault {
        Fault::UnknownKey { key, accepted, .. } => (some(key), some(key), accepted.clone()),
        Fault::MissingKey { key, .. } => (some(key), None, one(key)),
        Fault::WrongType { key, found, accepted } | Fault::OutOfRange { key, found, accepted } => {
            (some(key), some(found), one(accepted))
        }
        Fault::UnknownName { found, accepted, .. } => (None, some(found), accepted.clone()),
        Fault::BadId { found, accepted, .. } => (None, some(found), one(accepted)),
        Fault::Empty { accepted, .. } => (None, None, one(accepted)),
        Fault::NotForKind { key, accepted, .. } => (some(key), some(key), one(accepted)),
        Fault::Conflict { key, found, accepted } => (some(key), some(found), one(accepted)),
        Fault::MissingNames { names, .. } => (None, None, names.clone()),
        Fault::ConstantInputs { values, accepted } => (None, some(values), accepted.clone()),
        Fault::NoBaselineRuns { dtype, accepted } => (None, some(dtype), accepted.clone()),
        Fault::Tensor { found, accepted } => (None, some(found), one(accepted)),
        Fault::IncludesDiffer { found, .. } => (None, some(found), Vec::new()),
        _ => (None, None, Vec::new()),
    }
}

/// The bytes that are meant, cut to their first line.
fn written(error: &DeclarationError) -> Option<String> {
    let text = error.file.text.get(error.span.clone())?;
    text.lines().next().filter(|line| !line.is_empty()).map(str::to_owned)
}

/// The key whose value holds a place; none for a place that is a table.
fn key_at(text: &str, at: usize) -> Option<String> {
    let before = text.get(..at)?;
    let is_table = text[at..].starts_with('[') && before.trim_end_matches(' ').ends_with(['\n']);
    let (key, value) = before.rsplit_once('=').filter(|_| at > 0 && !is_table)?;
    // A value that ended before the place, on an earlier line, is another key's.
    let open = value.matches(['[', '{']).count() > value.matches([']', '}']).count();
    if value.contains('\n') && !open {
        return None;
    }
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-.\"".contains(c);
    let name = key.trim_end().rsplit(|c| !bare(c)).next().unwrap_or_default();
    Some(name.trim_matches('"').to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::key_at;

    #[test]
    fn the_key_of_a_place_is_that_of_its_value() {
        let text = "kind = \"x\"\n[[cells]]\ndims = { rows = [1, 0] }\ndtypes = [\n  \"F32\",\n  \"F99\",\n]\n";
        let at = |needle: &str| text.find(needle).unwrap();
        assert_eq!(key_at(text, at("\"x\"")).as_deref(), Some("kind"));
        assert_eq!(key_at(text, at("[[cells]]")), None);
        assert_eq!(key_at(text, at("0]")).as_deref(), Some("rows"));
        assert_eq!(key_at(text, at("{ rows")).as_deref(), Some("dims"));
        assert_eq!(key_at(text, at("\"F99\"")).as_deref(), Some("dtypes"));
        assert_eq!(key_at(text, 0), None);
        assert_eq!(key_at("", 0), None);
    }
}
