//! Reads spanned TOML into typed values and keeps going after an error, so that one run shows them all.

use std::ops::Range;
use std::sync::Arc;

use proofhouse_schema::catalog::ParamValue;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{DeclarationError, DeclarationErrors, Fault, SourceFile};
use super::sited::{Axis, Named, Sited};

/// The most errors of syntax that are told: the later ones follow from the first, and deep nesting gives thousands.
const MAX_SYNTAX_ERRORS: usize = 10;

/// Collects what is wrong in one file.
#[derive(Debug)]
pub(crate) struct Sink {
    file: Arc<SourceFile>,
    errors: Vec<DeclarationError>,
}

impl Sink {
    /// A sink for one file.
    pub(crate) fn new(file: Arc<SourceFile>) -> Self {
        Self { file, errors: Vec::new() }
    }

    /// Notes a fault.
    pub(crate) fn push(&mut self, span: Range<usize>, fault: Fault) {
        self.errors.push(DeclarationError {
            file: Arc::clone(&self.file),
            span,
            fault,
            related: None,
        });
    }

    /// Notes a fault that another place explains.
    pub(crate) fn push_related(
        &mut self,
        span: Range<usize>,
        fault: Fault,
        related: (Range<usize>, String),
    ) {
        let file = Arc::clone(&self.file);
        self.errors.push(DeclarationError { file, span, fault, related: Some(related) });
    }

    /// How many faults were noted.
    pub(crate) fn len(&self) -> usize {
        self.errors.len()
    }

    /// Whether anything was noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// The value if nothing was noted, else what was noted, in the order of places.
    pub(crate) fn finish<T>(mut self, value: Option<T>) -> Result<T, DeclarationErrors> {
        match value {
            Some(value) if self.is_empty() => Ok(value),
            _ => {
                self.errors.sort_by_key(|error| error.span.start);
                Err(DeclarationErrors(self.errors))
            }
        }
    }
}

/// Bytes as text, or the error of a file that is not UTF-8.
pub(crate) fn decode(path: &str, bytes: &[u8]) -> Result<Arc<SourceFile>, DeclarationErrors> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Arc::new(SourceFile { path: path.to_owned(), text: text.to_owned() })),
        Err(error) => {
            let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
            let end = good.len();
            let file = Arc::new(SourceFile { path: path.to_owned(), text: good });
            let fault = Fault::NotUtf8 { offset: error.valid_up_to() };
            Err(DeclarationErrors(vec![DeclarationError {
                file,
                span: end..end,
                fault,
                related: None,
            }]))
        }
    }
}

/// Parses text as TOML and reads it as a `T`, which may note several faults.
pub(crate) fn read_document<T>(
    file: &Arc<SourceFile>,
    read: impl FnOnce(Reader<'_, '_>, &mut Sink) -> Option<T>,
) -> Result<T, DeclarationErrors> {
    let mut sink = Sink::new(Arc::clone(file));
    let (table, errors) = DeTable::parse_recoverable(&file.text);
    for error in errors.iter().take(MAX_SYNTAX_ERRORS) {
        let message = error.message().to_owned();
        sink.push(error.span().unwrap_or(0..0), Fault::Syntax { message });
    }
    let value = if errors.is_empty() {
        read(Reader::new(table.get_ref(), 0..0, "the file"), &mut sink)
    } else {
        None
    };
    sink.finish(value)
}

/// Reads the keys of one table; [`Reader::finish`] refuses those that nothing asked for.
pub(crate) struct Reader<'a, 'i> {
    table: &'a DeTable<'i>,
    span: Range<usize>,
    what: &'static str,
    asked: Vec<&'static str>,
}

impl<'a, 'i> Reader<'a, 'i> {
    /// A reader of a table; `what` names it in errors.
    pub(crate) fn new(table: &'a DeTable<'i>, span: Range<usize>, what: &'static str) -> Self {
        Self { table, span, what, asked: Vec::new() }
    }

    /// The bytes of the table.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Names the table in errors.
    pub(crate) fn named(mut self, what: &'static str) -> Self {
        self.what = what;
        self
    }

    /// The value of a key that may be absent.
    pub(crate) fn optional<T: FromToml>(
        &mut self,
        key: &'static str,
        sink: &mut Sink,
    ) -> Option<T> {
        self.asked.push(key);
        let value = self.table.get(key)?;
        T::from_toml(value, key, sink)
    }

    /// The value of a key that must be there.
    pub(crate) fn required<T: FromToml>(
        &mut self,
        key: &'static str,
        sink: &mut Sink,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            self.asked.push(key);
            sink.push(self.span.clone(), Fault::MissingKey { key, table: self.what });
            return None;
        }
        self.optional(key, sink)
    }

    /// Every key with its value, for tables whose keys are names.
    pub(crate) fn entries(self) -> impl Iterator<Item = (Sited<String>, &'a Spanned<DeValue<'i>>)> {
        let mut entries: Vec<_> = self.table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
            .into_iter()
            .map(|(key, value)| (Sited::new(key.get_ref().to_string(), key.span()), value))
    }

    /// Refuses keys that were not asked for.
    pub(crate) fn finish(self, sink: &mut Sink) {
        for key in self.table.keys() {
            if !self.asked.contains(&key.get_ref().as_ref()) {
                let fault = Fault::UnknownKey {
                    key: key.get_ref().to_string(),
                    table: self.what,
                    accepted: self.asked.iter().map(|&k| k.to_owned()).collect(),
                };
                sink.push(key.span(), fault);
            }
        }
    }
}

/// A type that can be read from a TOML value.
pub(crate) trait FromToml: Sized {
    /// Reads the value of `key`; notes what is wrong.
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self>;
}

/// Notes a value of the wrong type.
pub(crate) fn wrong_type<T>(
    value: &Spanned<DeValue<'_>>,
    key: &str,
    accepted: &str,
    sink: &mut Sink,
) -> Option<T> {
    let found = match value.get_ref() {
        DeValue::String(text) => format!("the text {text:?}"),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => format!("{value}"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    let fault = Fault::WrongType { key: key.to_owned(), found, accepted: accepted.to_owned() };
    sink.push(value.span(), fault);
    None
}

impl FromToml for String {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => wrong_type(value, key, "text", sink),
        }
    }
}

impl FromToml for bool {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        match value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            _ => wrong_type(value, key, "true or false", sink),
        }
    }
}

impl FromToml for i64 {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        number.or_else(|| wrong_type(value, key, "a whole number", sink))
    }
}

impl FromToml for u64 {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        let accepted = "a whole number of at least 0";
        let number = match value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        number.or_else(|| wrong_type(value, key, accepted, sink))
    }
}

impl FromToml for u32 {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        let wide = u64::from_toml(value, key, sink)?;
        match u32::try_from(wide) {
            Ok(number) => Some(number),
            Err(_) => wrong_type(value, key, "a whole number below 2^32", sink),
        }
    }
}

impl FromToml for f64 {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        match value.get_ref() {
            DeValue::Float(number) => {
                number.as_str().parse().ok().or_else(|| wrong_type(value, key, "a number", sink))
            }
            DeValue::Integer(_) => i64::from_toml(value, key, sink).map(|v| v as f64),
            _ => wrong_type(value, key, "a number", sink),
        }
    }
}

impl FromToml for ParamValue {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        match value.get_ref() {
            DeValue::Boolean(value) => Some(ParamValue::Boolean(*value)),
            DeValue::Integer(_) => i64::from_toml(value, key, sink).map(ParamValue::Integer),
            DeValue::Float(_) => f64::from_toml(value, key, sink).map(ParamValue::Float),
            _ => wrong_type(value, key, "a number, true or false", sink),
        }
    }
}

impl<T: FromToml> FromToml for Sited<T> {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        Some(Sited::new(T::from_toml(value, key, sink)?, value.span()))
    }
}

impl<T: FromToml> FromToml for Vec<T> {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        let DeValue::Array(items) = value.get_ref() else {
            return wrong_type(value, key, "a list", sink);
        };
        let read: Vec<Option<T>> = items.iter().map(|item| T::from_toml(item, key, sink)).collect();
        read.into_iter().collect()
    }
}

impl<T: FromToml> FromToml for Axis<T> {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        let values = match value.get_ref() {
            DeValue::Array(items) if items.is_empty() => {
                let accepted = format!("give `{key}` at least one value, or leave the key out");
                sink.push(value.span(), Fault::Empty { what: "values in this list", accepted });
                return None;
            }
            DeValue::Array(_) => Vec::<Sited<T>>::from_toml(value, key, sink)?,
            _ => vec![Sited::<T>::from_toml(value, key, sink)?],
        };
        Some(Axis { values, span: value.span() })
    }
}

impl<T: FromToml> FromToml for Named<T> {
    fn from_toml(value: &Spanned<DeValue<'_>>, key: &str, sink: &mut Sink) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            return wrong_type(value, key, "a table", sink);
        };
        let read: Vec<Option<(Sited<String>, T)>> = Reader::new(table, value.span(), "the table")
            .entries()
            .map(|(name, value)| {
                let read = T::from_toml(value, &name.value, sink)?;
                Some((name, read))
            })
            .collect();
        Some(Named { entries: read.into_iter().collect::<Option<_>>()?, span: value.span() })
    }
}

/// Reads a value that must be a table.
pub(crate) fn read_table<T>(
    value: &Spanned<DeValue<'_>>,
    key: &str,
    sink: &mut Sink,
    read: impl FnOnce(Reader<'_, '_>, &mut Sink) -> Option<T>,
) -> Option<T> {
    match value.get_ref() {
        DeValue::Table(table) => read(Reader::new(table, value.span(), "the table"), sink),
        _ => wrong_type(value, key, "a table", sink),
    }
}
