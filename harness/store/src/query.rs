//! Queries of a user: one statement, reading only, with cells as JSON values.

use std::collections::HashSet;

use duckdb::types::ValueRef;
use duckdb::{Connection, Row};
use serde_json::Value;

use crate::error::{StoreError, refused};
use crate::reals::{nested, real};
use crate::store::Store;

/// How much of a refused text a message shows, in characters.
const SHOWN: usize = 60;

/// A column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name; a repeated name has a suffix `_2`, `_3`, ...
    pub name: String,
    /// Its DuckDB type, e.g. `DOUBLE`.
    pub kind: String,
}

impl Column {
    /// Whether its cells are numbers, which tables align to the right.
    #[must_use]
    pub fn numeric(&self) -> bool {
        let kind = self.kind.split('(').next().unwrap_or_default();
        kind.ends_with("INT")
            || kind.ends_with("INTEGER")
            || matches!(kind, "DOUBLE" | "FLOAT" | "DECIMAL")
    }
}

/// A result, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// The rows; each has one value per column. NaN and infinities have the tagged form of records, e.g. `{"real": "nan"}`.
    pub rows: Vec<Vec<Value>>,
}

impl Store {
    /// Runs one query and collects its rows.
    ///
    /// # Errors
    /// [`StoreError::Syntax`], [`StoreError::NotAQuery`], [`StoreError::Statements`] before anything
    /// runs; [`StoreError::Query`] when it fails.
    pub fn query(&self, sql: &str) -> Result<Rows, StoreError> {
        let mut rows = Vec::new();
        let columns = self.stream(
            sql,
            |_| Ok(()),
            |row| {
                rows.push(row);
                Ok(())
            },
        )?;
        Ok(Rows { columns, rows })
    }

    /// Runs one query and hands out its columns, then its rows one by one.
    ///
    /// # Errors
    /// As [`Store::query`], and what `head` and `each` return.
    pub fn stream(
        &self,
        sql: &str,
        head: impl FnOnce(&[Column]) -> Result<(), StoreError>,
        mut each: impl FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<Vec<Column>, StoreError> {
        let sql = vetted(&self.connection, sql)?;
        let _reading = Reading::begin(&self.connection)?;
        let described = describe(&self.connection, &sql)?;
        head(&described.columns)?;
        let text = format!("SELECT {} FROM ({sql})", described.projection());
        let mut statement = self.connection.prepare(&text).map_err(refused)?;
        let mut rows = statement.query([]).map_err(refused)?;
        while let Some(row) = rows.next().map_err(refused)? {
            let cells = described.shapes.iter().enumerate();
            let cells = cells.map(|(at, shape)| shape.read(row, at)).collect::<Result<_, _>>();
            each(cells.map_err(refused)?)?;
        }
        Ok(described.columns)
    }
}

/// Checks that the text is exactly one query and gives it in DuckDB's own spelling, without comments.
pub(crate) fn vetted(connection: &Connection, sql: &str) -> Result<String, StoreError> {
    let syntax = |message: String| StoreError::Syntax { message };
    let parsed: String = connection
        .query_row("SELECT json_serialize_sql(?::VARCHAR)", [sql], |row| row.get(0))
        .map_err(|error| syntax(error.to_string()))?;
    let parsed: Value = serde_json::from_str(&parsed).map_err(|error| syntax(error.to_string()))?;
    if parsed["error"] == Value::Bool(true) {
        let message = parsed["error_message"].as_str().unwrap_or("unknown").to_owned();
        return Err(match parsed["error_type"].as_str() {
            Some("not implemented") => StoreError::NotAQuery { found: beginning(sql) },
            _ => syntax(message),
        });
    }
    match parsed["statements"].as_array().map_or(0, Vec::len) {
        1 => {}
        count => return Err(StoreError::Statements { count }),
    }
    connection
        .query_row("SELECT json_deserialize_sql(json_serialize_sql(?::VARCHAR))", [sql], |row| {
            row.get(0)
        })
        .map_err(refused)
}

fn beginning(sql: &str) -> String {
    let mut shown: String = sql.trim().chars().take(SHOWN).collect();
    if sql.trim().chars().count() > SHOWN {
        shown.push_str("...");
    }
    shown
}

/// A transaction in which DuckDB itself refuses every write, ended when dropped.
pub(crate) struct Reading<'a>(&'a Connection);

impl<'a> Reading<'a> {
    pub(crate) fn begin(connection: &'a Connection) -> Result<Self, StoreError> {
        connection.execute_batch("BEGIN TRANSACTION READ ONLY").map_err(refused)?;
        Ok(Reading(connection))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // Nothing was written, so a failure to end it loses nothing.
        let _ = self.0.execute_batch("ROLLBACK");
    }
}

struct Described {
    columns: Vec<Column>,
    shapes: Vec<Shape>,
}

impl Described {
    fn projection(&self) -> String {
        let part = |(at, shape): (usize, &Shape)| match shape {
            Shape::Native => format!("#{}", at + 1),
            Shape::Text | Shape::Number => format!("#{}::VARCHAR", at + 1),
            Shape::Nested => format!("to_json(#{})::VARCHAR", at + 1),
        };
        self.shapes.iter().enumerate().map(part).collect::<Vec<_>>().join(", ")
    }
}

/// How a column's cells travel: what has no plain Rust form goes through DuckDB's own text for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Native,
    Text,
    Number,
    Nested,
}

impl Shape {
    fn of(kind: &str) -> Shape {
        match kind {
            "BOOLEAN" | "TINYINT" | "SMALLINT" | "INTEGER" | "BIGINT" | "UTINYINT"
            | "USMALLINT" | "UINTEGER" | "UBIGINT" | "FLOAT" | "DOUBLE" | "VARCHAR" => {
                Shape::Native
            }
            "HUGEINT" | "UHUGEINT" => Shape::Number,
            "JSON" => Shape::Nested,
            _ if kind.ends_with(']') || kind.starts_with("STRUCT") || kind.starts_with("MAP") => {
                Shape::Nested
            }
            _ if kind.starts_with("DECIMAL") => Shape::Number,
            _ => Shape::Text,
        }
    }

    fn read(self, row: &Row<'_>, at: usize) -> Result<Value, duckdb::Error> {
        let cell = row.get_ref(at)?;
        Ok(match (self, cell) {
            (_, ValueRef::Null) => Value::Null,
            (Shape::Number, ValueRef::Text(text)) => number(&String::from_utf8_lossy(text)),
            (Shape::Nested, ValueRef::Text(text)) => {
                nested(text).unwrap_or_else(|| String::from_utf8_lossy(text).into_owned().into())
            }
            (_, ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned().into(),
            (_, other) => plain(other),
        })
    }
}

/// A number that fits a JSON number exactly enough to be printed again, else its digits.
fn number(text: &str) -> Value {
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    match text.parse::<f64>() {
        Ok(value) if text.contains('.') => real(value),
        _ => text.to_owned().into(),
    }
}

fn plain(cell: ValueRef<'_>) -> Value {
    match cell {
        ValueRef::Boolean(v) => v.into(),
        ValueRef::TinyInt(v) => v.into(),
        ValueRef::SmallInt(v) => v.into(),
        ValueRef::Int(v) => v.into(),
        ValueRef::BigInt(v) => v.into(),
        ValueRef::UTinyInt(v) => v.into(),
        ValueRef::USmallInt(v) => v.into(),
        ValueRef::UInt(v) => v.into(),
        ValueRef::UBigInt(v) => v.into(),
        ValueRef::Float(v) => real(f64::from(v)),
        ValueRef::Double(v) => real(v),
        other => format!("{other:?}").into(),
    }
}

fn describe(connection: &Connection, sql: &str) -> Result<Described, StoreError> {
    let mut statement = connection.prepare(&format!("DESCRIBE ({sql})")).map_err(refused)?;
    let found = statement
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(refused)?;
    let shapes = found.iter().map(|(_, kind)| Shape::of(kind)).collect();
    let mut taken = HashSet::new();
    let columns = found
        .into_iter()
        .map(|(name, kind)| Column { name: unique(name, &mut taken), kind })
        .collect();
    Ok(Described { columns, shapes })
}

fn unique(name: String, taken: &mut HashSet<String>) -> String {
    let mut candidate = name.clone();
    let mut number = 2;
    while !taken.insert(candidate.clone()) {
        candidate = format!("{name}_{number}");
        number += 1;
    }
    candidate
}
