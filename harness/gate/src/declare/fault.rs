//! What can be wrong with a declaration: typed, with its place; how it looks is in [`super::render`].

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use proofhouse_schema::device::DeviceKind;

use super::nearest::nearest;

/// A declaration's text and the path that people know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// The path as it is shown.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl SourceFile {
    /// Line and column of a byte offset, both from 1; columns count characters.
    #[must_use]
    pub fn place(&self, offset: usize) -> (usize, usize) {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &self.text[..end];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclarationError {
    /// The file.
    pub file: Arc<SourceFile>,
    /// The bytes to underline; empty where the whole file is meant.
    pub span: Range<usize>,
    /// What is wrong.
    pub fault: Fault,
    /// A second place that explains the first: where a cell was declared before.
    pub related: Option<(Range<usize>, String)>,
}

impl DeclarationError {
    /// Line and column, both from 1.
    #[must_use]
    pub fn place(&self) -> (usize, usize) {
        self.file.place(self.span.start)
    }
}

impl fmt::Display for DeclarationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.place();
        write!(
            f,
            "{}:{line}:{column}: {}: {}",
            self.file.path,
            self.fault.title(),
            self.fault.label()
        )
    }
}

impl std::error::Error for DeclarationError {}

/// Everything that is wrong with a set of declarations, in the order of files and places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclarationErrors(pub Vec<DeclarationError>);

impl fmt::Display for DeclarationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("no declaration error"),
            [only] => write!(f, "{only}"),
            [first, rest @ ..] => write!(f, "{first} (and {} more)", rest.len()),
        }
    }
}

impl std::error::Error for DeclarationErrors {}

/// What is wrong with a declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Not TOML.
    Syntax {
        /// The parser's sentence.
        message: String,
    },
    /// Not UTF-8.
    NotUtf8 {
        /// The offset of the first bad byte.
        offset: usize,
    },
    /// The file cannot be read.
    Unreadable {
        /// Why.
        why: String,
    },
    /// A key that its table does not have.
    UnknownKey {
        /// The key.
        key: String,
        /// The table.
        table: &'static str,
        /// The keys it has.
        accepted: Vec<String>,
    },
    /// A key that must be there.
    MissingKey {
        /// The key.
        key: &'static str,
        /// The table.
        table: &'static str,
    },
    /// A value of another type.
    WrongType {
        /// The key.
        key: String,
        /// The type found.
        found: String,
        /// The type accepted.
        accepted: String,
    },
    /// A name that nothing has.
    UnknownName {
        /// What is named.
        what: &'static str,
        /// The name found.
        found: String,
        /// The names there are.
        accepted: Vec<String>,
    },
    /// An id that does not follow its grammar.
    BadId {
        /// Which id.
        what: &'static str,
        /// The text found.
        found: String,
        /// The grammar.
        accepted: &'static str,
    },
    /// A number outside its range.
    OutOfRange {
        /// The key.
        key: String,
        /// The value found.
        found: String,
        /// The range accepted.
        accepted: String,
    },
    /// Something that must hold at least one thing holds none.
    Empty {
        /// What is empty.
        what: &'static str,
        /// What to write.
        accepted: String,
    },
    /// A key that this kind of gate does not have.
    NotForKind {
        /// The key.
        key: &'static str,
        /// The gate's kind.
        kind: &'static str,
        /// What to do.
        accepted: &'static str,
    },
    /// Two keys that exclude each other, or one that needs another.
    Conflict {
        /// The key.
        key: &'static str,
        /// The sentence.
        found: &'static str,
        /// What to do.
        accepted: &'static str,
    },
    /// Names that must be given and are not.
    MissingNames {
        /// What they name.
        what: &'static str,
        /// The names.
        names: Vec<String>,
    },
    /// Inputs of low entropy in a speed comparison.
    ConstantInputs {
        /// The value class.
        values: String,
        /// The classes accepted.
        accepted: Vec<String>,
    },
    /// A provider on both sides of a comparison, or twice on one.
    SameProvider {
        /// The provider.
        provider: String,
    },
    /// Two cells of one gate and profile with the same key.
    DuplicateCell {
        /// The key.
        key: String,
    },
    /// Two files that declare the same id.
    DuplicateId {
        /// The id.
        id: String,
        /// The other file.
        other: String,
    },
    /// An exclusion that excludes no cell.
    IdleExclusion,
    /// A path that leaves its folder.
    EscapingPath {
        /// The path.
        path: String,
        /// The folder.
        folder: &'static str,
    },
    /// A file that is no whole safetensors file.
    TensorFile {
        /// What is wrong with it.
        why: String,
    },
    /// A case whose oracle has no finite element in some output, so that no error could be measured.
    NothingFinite {
        /// What the case holds.
        found: String,
        /// What to do.
        accepted: String,
    },
    /// An environment variable that the harness keeps for itself.
    ReservedVariable {
        /// Its name.
        name: String,
        /// What it does.
        why: &'static str,
    },
    /// A tensor file that does not fit the operator.
    Tensor {
        /// What does not fit.
        found: String,
        /// What would.
        accepted: String,
    },
    /// Cells that no baseline of the gate can run.
    NoBaselineRuns {
        /// The dtype.
        dtype: String,
        /// The dtypes that some baseline runs.
        accepted: Vec<String>,
    },
    /// A provider that does not run on the gate's device.
    OtherDevice {
        /// The provider.
        provider: String,
        /// The device of the gate.
        found: DeviceKind,
    },
    /// A provider that times more than the gate's contract names.
    IncludesDiffer {
        /// The provider.
        provider: String,
        /// What it times besides.
        found: String,
    },
}

impl Fault {
    /// A stable code for machines, kebab-case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Fault::Syntax { .. } => "syntax",
            Fault::NotUtf8 { .. } => "not-utf8",
            Fault::Unreadable { .. } => "unreadable",
            Fault::UnknownKey { .. } => "unknown-key",
            Fault::MissingKey { .. } => "missing-key",
            Fault::WrongType { .. } => "wrong-type",
            Fault::UnknownName { .. } => "unknown-name",
            Fault::BadId { .. } => "bad-id",
            Fault::OutOfRange { .. } => "out-of-range",
            Fault::Empty { .. } => "empty",
            Fault::NotForKind { .. } => "not-for-kind",
            Fault::Conflict { .. } => "conflict",
            Fault::MissingNames { .. } => "missing-names",
            Fault::ConstantInputs { .. } => "constant-inputs",
            Fault::SameProvider { .. } => "same-provider",
            Fault::DuplicateCell { .. } => "duplicate-cell",
            Fault::DuplicateId { .. } => "duplicate-id",
            Fault::IdleExclusion => "idle-exclusion",
            Fault::EscapingPath { .. } => "escaping-path",
            Fault::TensorFile { .. } => "tensor-file",
            Fault::NothingFinite { .. } => "nothing-finite",
            Fault::ReservedVariable { .. } => "reserved-variable",
            Fault::Tensor { .. } => "tensor",
            Fault::NoBaselineRuns { .. } => "no-baseline-runs",
            Fault::OtherDevice { .. } => "other-device",
            Fault::IncludesDiffer { .. } => "includes-differ",
        }
    }

    /// The headline: what is wrong and what was found.
    #[must_use]
    pub fn title(&self) -> String {
        match self {
            Fault::Syntax { .. } => "this is not TOML".into(),
            Fault::NotUtf8 { .. } => "this file is not UTF-8".into(),
            Fault::Unreadable { .. } => "this file cannot be read".into(),
            Fault::UnknownKey { key, table, .. } => format!("unknown key `{key}` in {table}"),
            Fault::MissingKey { key, table } => format!("{table} lacks the key `{key}`"),
            Fault::WrongType { key, found, accepted } => {
                format!("`{key}` must be {accepted}, found {found}")
            }
            Fault::UnknownName { what, found, .. } => format!("unknown {what} `{found}`"),
            Fault::BadId { what, found, .. } => format!("`{found}` is not a {what}"),
            Fault::OutOfRange { key, found, .. } => format!("`{key}` is out of range: {found}"),
            Fault::Empty { what, .. } => format!("no {what}"),
            Fault::NotForKind { key, kind, .. } => format!("a {kind} gate has no `{key}`"),
            Fault::Conflict { found, .. } => (*found).to_owned(),
            Fault::MissingNames { what, names } => {
                format!("no {what} `{}`", names.join("`, `"))
            }
            Fault::ConstantInputs { values, .. } => {
                format!("inputs of the class `{values}` make speeds that real data never see")
            }
            Fault::SameProvider { provider } => format!("`{provider}` is named twice"),
            Fault::DuplicateCell { key } => format!("the cell `{key}` is declared twice"),
            Fault::DuplicateId { id, .. } => format!("the id `{id}` is declared twice"),
            Fault::IdleExclusion => "this exclusion excludes no cell".into(),
            Fault::EscapingPath { path, folder } => format!("the path `{path}` leaves {folder}"),
            Fault::TensorFile { .. } => "this is not a whole safetensors file".into(),
            Fault::NothingFinite { found, .. } => format!("nothing could be compared: {found}"),
            Fault::ReservedVariable { name, .. } => {
                format!("the variable `{name}` is not a provider's to set")
            }
            Fault::Tensor { found, .. } => format!("the tensors do not fit: {found}"),
            Fault::NoBaselineRuns { dtype, .. } => format!("no baseline of this gate runs {dtype}"),
            Fault::OtherDevice { provider, found } => {
                format!("`{provider}` does not run on {found}")
            }
            Fault::IncludesDiffer { provider, found } => {
                format!("`{provider}` times more than this contract names: {found}")
            }
        }
    }

    /// The words beside the underlined place.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Fault::Syntax { message } => message.clone(),
            Fault::NotUtf8 { offset } => format!("the first bad byte is at offset {offset}"),
            Fault::Unreadable { why } => why.clone(),
            Fault::UnknownKey { key, accepted, .. } => match nearest(key, accepted) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "nothing reads this key".into(),
            },
            Fault::MissingKey { key, .. } => format!("`{key}` belongs here"),
            Fault::WrongType { accepted, .. } => format!("expected {accepted}"),
            Fault::UnknownName { found, what, accepted } => match nearest(found, accepted) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there is no such {what}"),
            },
            Fault::BadId { .. } => "does not follow the grammar".into(),
            Fault::OutOfRange { accepted, .. } => format!("accepted: {accepted}"),
            Fault::Empty { .. } => "at least one is needed".into(),
            Fault::NotForKind { .. } => "has no meaning here".into(),
            Fault::Conflict { key, .. } => format!("`{key}` cannot stand like this"),
            Fault::MissingNames { names, .. } => format!("`{}` belongs here", names.join("`, `")),
            Fault::ConstantInputs { .. } => "low entropy".into(),
            Fault::SameProvider { .. } => "named before".into(),
            Fault::DuplicateCell { .. } => "declared again here".into(),
            Fault::DuplicateId { other, .. } => format!("also declared by {other}"),
            Fault::IdleExclusion => "matches nothing".into(),
            Fault::EscapingPath { folder, .. } => format!("must stay below {folder}"),
            Fault::TensorFile { why } => why.clone(),
            Fault::NothingFinite { .. } => "may leave the oracle no finite element".into(),
            Fault::ReservedVariable { why, .. } => (*why).to_owned(),
            Fault::Tensor { .. } => "does not fit".into(),
            Fault::NoBaselineRuns { .. } => "nothing to compare with".into(),
            Fault::OtherDevice { .. } => "is not for this device".into(),
            Fault::IncludesDiffer { .. } => "would be an unfair comparison".into(),
        }
    }

    /// What is accepted, or what to do.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        let listed = |names: &[String]| match names {
            [] => "accepted: none".to_owned(),
            names => format!("accepted: {}", names.join(", ")),
        };
        match self {
            Fault::UnknownKey { accepted, .. }
            | Fault::UnknownName { accepted, .. }
            | Fault::ConstantInputs { accepted, .. }
            | Fault::NoBaselineRuns { accepted, .. } => Some(listed(accepted)),
            Fault::BadId { accepted, .. } => Some(format!("accepted: {accepted}")),
            Fault::Empty { accepted, .. }
            | Fault::Tensor { accepted, .. }
            | Fault::NothingFinite { accepted, .. } => Some(accepted.clone()),
            Fault::NotForKind { accepted, .. } | Fault::Conflict { accepted, .. } => {
                Some((*accepted).to_owned())
            }
            Fault::SameProvider { .. } => {
                Some("a provider is compared with others, never with itself".into())
            }
            Fault::DuplicateCell { .. } => {
                Some("let the two lists not overlap, or give the second another `seed`".into())
            }
            Fault::IdleExclusion => {
                Some("remove it, or mend `when` so that it names a declared cell".into())
            }
            Fault::EscapingPath { .. } => {
                Some("write a relative path without `..`, with `/` between folders".into())
            }
            Fault::TensorFile { .. } => {
                Some("write the file again, whole: tensors lie end to end behind the header".into())
            }
            Fault::ReservedVariable { .. } => Some("remove it".into()),
            Fault::OtherDevice { found, .. } => Some(format!(
                "name a provider whose provider.toml has devices = [\"{found}\"], or change the gate's `device`"
            )),
            Fault::IncludesDiffer { found, .. } => {
                Some(format!("name it in the contract: timing.includes = [\"{found}\"]"))
            }
            Fault::NotUtf8 { .. } => Some("save the file as UTF-8".into()),
            Fault::Syntax { .. }
            | Fault::Unreadable { .. }
            | Fault::MissingKey { .. }
            | Fault::MissingNames { .. }
            | Fault::WrongType { .. }
            | Fault::OutOfRange { .. }
            | Fault::DuplicateId { .. } => None,
        }
    }
}
