//! `query`: SQL over the evidence.

use std::fs::File;
use std::io::{self, Write as _};

use proofhouse_schema::exit::Exit;
use proofhouse_store::{Format, StoreError};

use super::index::{Indexed, indexed};
use crate::arguments::{Common, QueryArguments, RowFormat};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::{Paint, warn_of_gaps};

/// Brings the index up to date and answers one query.
pub fn query(project: &Project, common: &Common, asked: &QueryArguments) -> Result<Exit, CliError> {
    if asked.format == RowFormat::Parquet && asked.output.is_none() {
        let why = "--format parquet needs --output FILE: it is no format for a terminal";
        return Err(CliError::Usage(why.to_owned()));
    }
    let Indexed { store, gaps } = indexed(project)?;
    warn_of_gaps(&gaps, Paint::stderr(common.color));
    let format = match asked.format {
        RowFormat::Table => Format::Table,
        RowFormat::Csv => Format::Csv,
        RowFormat::Json => Format::Json,
        RowFormat::Parquet => Format::Parquet,
    };
    match (&asked.output, format) {
        (Some(path), Format::Parquet) => store.export_parquet(&asked.sql, path)?,
        (Some(path), format) => {
            let write = |source| CliError::Write { path: path.clone(), source };
            let mut file = io::BufWriter::new(File::create(path).map_err(write)?);
            store.write_query(&asked.sql, format, &mut file)?;
            file.flush().map_err(write)?;
        }
        (None, format) => {
            let mut out = io::BufWriter::new(io::stdout().lock());
            match store.write_query(&asked.sql, format, &mut out) {
                Err(StoreError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
                other => drop(other?),
            }
        }
    }
    Ok(Exit::Passed)
}
