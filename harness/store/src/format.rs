//! A result as a table for people, CSV, JSON or Parquet.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::Value;

use crate::error::{StoreError, refused};
use crate::query::{self, Column, Reading, Rows};
use crate::reals::word;
use crate::store::{Store, quoted, unwritable};

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns for people.
    Table,
    /// RFC 4180 with a header line; null is an empty field, NaN and infinities are `nan`, `inf`, `-inf`.
    Csv,
    /// One array with an object per row, one row a line; NaN and infinities are tagged, e.g. `{"real": "nan"}`.
    Json,
    /// A Parquet file.
    Parquet,
}

impl Format {
    /// The names that are accepted.
    pub const NAMES: [&'static str; 4] = ["table", "csv", "json", "parquet"];
}

impl FromStr for Format {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table" => Ok(Format::Table),
            "csv" => Ok(Format::Csv),
            "json" => Ok(Format::Json),
            "parquet" => Ok(Format::Parquet),
            _ => {
                Err(format!("{text:?} is not a format: accepted are {}", Format::NAMES.join(", ")))
            }
        }
    }
}

impl Store {
    /// Runs one query and writes its rows to `out`; gives the number of rows (Parquet: none is counted).
    ///
    /// # Errors
    /// Those of [`Store::query`]; [`StoreError::Output`] when `out` fails; for Parquet also those of
    /// [`Store::export_parquet`].
    pub fn write_query(
        &self,
        sql: &str,
        format: Format,
        out: &mut dyn Write,
    ) -> Result<Option<u64>, StoreError> {
        match format {
            Format::Table => {
                let rows = self.query(sql)?;
                out.write_all(table(&rows).as_bytes()).map_err(StoreError::Output)?;
                Ok(Some(rows.rows.len() as u64))
            }
            Format::Csv => self.write_csv(sql, out).map(Some),
            Format::Json => self.write_json(sql, out).map(Some),
            Format::Parquet => {
                let made = self.make_parquet(sql)?;
                let mut file = fs::File::open(&made.path).map_err(unwritable(&made.path))?;
                io::copy(&mut file, out).map_err(StoreError::Output)?;
                Ok(None)
            }
        }
    }

    /// Runs one query into a new Parquet file; a file of that name is replaced whole or not at all.
    ///
    /// # Errors
    /// Those of [`Store::query`]; [`StoreError::Unwritable`] for the file or the scratch folder, also for an
    /// index in memory, which has none.
    pub fn export_parquet(&self, sql: &str, to: &Path) -> Result<(), StoreError> {
        let made = self.make_parquet(sql)?;
        let mut name = to.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        fs::copy(&made.path, &partial).map_err(unwritable(&partial))?;
        fs::rename(&partial, to).map_err(unwritable(to))
    }

    fn write_csv(&self, sql: &str, out: &mut dyn Write) -> Result<u64, StoreError> {
        let mut count = 0;
        let mut buffered = io::BufWriter::new(out);
        let lines = std::cell::RefCell::new(&mut buffered);
        let put = |line: String| {
            lines.borrow_mut().write_all(line.as_bytes()).map_err(StoreError::Output)
        };
        self.stream(
            sql,
            |columns| put(csv_line(columns.iter().map(|column| column.name.clone()))),
            |row| {
                count += 1;
                put(csv_line(row.iter().map(text)))
            },
        )?;
        buffered.flush().map_err(StoreError::Output)?;
        Ok(count)
    }

    fn write_json(&self, sql: &str, out: &mut dyn Write) -> Result<u64, StoreError> {
        let mut count = 0;
        let mut buffered = io::BufWriter::new(out);
        let names = std::cell::RefCell::new(Vec::new());
        self.stream(
            sql,
            |columns| {
                *names.borrow_mut() = columns.iter().map(|column| column.name.clone()).collect();
                Ok(())
            },
            |row| {
                let object: serde_json::Map<String, Value> =
                    names.borrow().iter().cloned().zip(row).collect();
                let lead = if count == 0 { "[\n" } else { ",\n" };
                count += 1;
                write!(buffered, "{lead}{}", Value::Object(object)).map_err(StoreError::Output)
            },
        )?;
        let end = if count == 0 { "[]\n" } else { "\n]\n" };
        buffered.write_all(end.as_bytes()).map_err(StoreError::Output)?;
        buffered.flush().map_err(StoreError::Output)?;
        Ok(count)
    }

    fn make_parquet(&self, sql: &str) -> Result<Made, StoreError> {
        let sql = query::vetted(&self.connection, sql)?;
        let no_place = || io::Error::other("an index in memory has no scratch folder");
        let folder = self
            .scratch
            .clone()
            .ok_or_else(|| unwritable(Path::new("a Parquet file"))(no_place()))?;
        fs::create_dir_all(&folder).map_err(unwritable(&folder))?;
        let path = folder.join(format!("{}.parquet", std::process::id()));
        let made = Made { path, folder };
        let to = quoted(&made.path.to_string_lossy());
        let _reading = Reading::begin(&self.connection)?;
        self.connection
            .execute_batch(&format!("COPY ({sql}) TO {to} (FORMAT parquet, COMPRESSION zstd)"))
            .map_err(refused)?;
        Ok(made)
    }
}

/// A file in the scratch folder, removed with it when dropped.
struct Made {
    path: PathBuf,
    folder: PathBuf,
}

impl Drop for Made {
    fn drop(&mut self) {
        // Scratch is nobody's evidence; the folder goes only when no other export uses it.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(&self.folder);
    }
}

/// One CSV record.
fn csv_line(fields: impl Iterator<Item = String>) -> String {
    let quote = |field: String| {
        if field.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field
        }
    };
    let mut line = fields.map(quote).collect::<Vec<_>>().join(",");
    line.push_str("\r\n");
    line
}

fn text(cell: &Value) -> String {
    match (cell, word(cell)) {
        (_, Some(word)) => word.to_owned(),
        (Value::Null, _) => String::new(),
        (Value::String(text), _) => text.clone(),
        (other, _) => other.to_string(),
    }
}

/// Aligned columns: numbers to the right, six significant digits for fractions; ends with the number of rows.
#[must_use]
pub fn table(rows: &Rows) -> String {
    let shown: Vec<Vec<String>> =
        rows.rows.iter().map(|row| row.iter().map(for_people).collect()).collect();
    let widths: Vec<usize> = rows
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let cells = shown.iter().map(|row| row[at].chars().count());
            cells.chain([column.name.chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let names: Vec<String> = rows.columns.iter().map(|column| column.name.clone()).collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut out = String::new();
    for row in [&names, &rule].into_iter().chain(&shown) {
        out.push_str(aligned(row, &rows.columns, &widths).trim_end());
        out.push('\n');
    }
    let count = rows.rows.len();
    out.push_str(&format!("({count} row{})\n", if count == 1 { "" } else { "s" }));
    out
}

fn aligned(row: &[String], columns: &[Column], widths: &[usize]) -> String {
    let cell = |((text, column), width): ((&String, &Column), &usize)| {
        if column.numeric() { format!("{text:>width$}") } else { format!("{text:<width$}") }
    };
    row.iter().zip(columns).zip(widths).map(cell).collect::<Vec<_>>().join("  ")
}

fn for_people(cell: &Value) -> String {
    match cell {
        Value::Number(number) if number.is_f64() => {
            significant(number.as_f64().unwrap_or(f64::NAN))
        }
        // Control characters would break the alignment or the terminal.
        other => text(other).replace(|c: char| c.is_control(), " "),
    }
}

/// Six significant digits, plain for the sizes that times and ratios have.
fn significant(value: f64) -> String {
    let size = value.abs();
    if value != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{value:.5e}");
    }
    let before = if size < 1.0 { 1 } else { size.log10().floor() as usize + 1 };
    let text = format!("{value:.*}", 6_usize.saturating_sub(before));
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}
