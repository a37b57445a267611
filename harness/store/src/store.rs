//! Opening an index: locks, layouts, and what the connection may touch.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use duckdb::{AccessMode, Config, Connection};

use crate::error::{StoreError, doing};
use crate::layout::{self, Found, LAYOUT};

/// The DuckDB index of an evidence folder.
///
/// One handle writes or many read, across processes: a second writer gets [`StoreError::Locked`].
/// The connection cannot reach files other than the index and its scratch folder, whatever a query says.
#[derive(Debug)]
pub struct Store {
    pub(crate) connection: Connection,
    pub(crate) access: Access,
    /// Where a Parquet file is made before it goes to its place; none in memory.
    pub(crate) scratch: Option<PathBuf>,
    _lock: Option<File>,
}

/// What a handle may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Query only.
    Read,
    /// Ingest and query.
    Write,
}

impl Store {
    /// Opens the index at `path` for writing and makes it where there is none.
    ///
    /// An index of an older layout is emptied: the next ingest fills it again.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::NotAnIndex`], [`StoreError::ForeignDatabase`],
    /// [`StoreError::NewerLayout`], [`StoreError::Unwritable`].
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(unwritable(folder))?;
        }
        let lock = lock(path, Access::Write)?;
        let mut connection = connect(path, Access::Write)?;
        match layout::inspect(&connection).map_err(not_an_index(path))? {
            Found::Index(LAYOUT) => {}
            Found::Empty => layout::create(&connection)?,
            Found::Foreign => return Err(StoreError::ForeignDatabase { path: path.to_owned() }),
            Found::Index(found) if found > LAYOUT => {
                return Err(StoreError::NewerLayout {
                    path: path.to_owned(),
                    found,
                    known: LAYOUT,
                });
            }
            Found::Index(_) => {
                drop(connection);
                remove(path)?;
                connection = connect(path, Access::Write)?;
                layout::create(&connection)?;
            }
        }
        Ok(Store { connection, access: Access::Write, scratch: Some(scratch(path)), _lock: lock })
    }

    /// Opens the index at `path` for queries only.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::OlderLayout`], and those of [`Store::open`].
    pub fn open_read_only(path: &Path) -> Result<Store, StoreError> {
        if !path.is_file() {
            return Err(StoreError::NotFound { path: path.to_owned() });
        }
        let lock = lock(path, Access::Read)?;
        let connection = connect(path, Access::Read)?;
        let known = LAYOUT;
        match layout::inspect(&connection).map_err(not_an_index(path))? {
            Found::Index(LAYOUT) => {}
            Found::Empty | Found::Foreign => {
                return Err(StoreError::ForeignDatabase { path: path.to_owned() });
            }
            Found::Index(found) if found > known => {
                return Err(StoreError::NewerLayout { path: path.to_owned(), found, known });
            }
            Found::Index(found) => {
                return Err(StoreError::OlderLayout { path: path.to_owned(), found, known });
            }
        }
        Ok(Store { connection, access: Access::Read, scratch: Some(scratch(path)), _lock: lock })
    }

    /// An index in memory: it is gone when dropped, and cannot export Parquet.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn in_memory() -> Result<Store, StoreError> {
        let failed = "opening a database in memory";
        let config = offline(Config::default()).map_err(doing(failed))?;
        let connection = Connection::open_in_memory_with_flags(config).map_err(doing(failed))?;
        confine(&connection, None)?;
        layout::create(&connection)?;
        Ok(Store { connection, access: Access::Write, scratch: None, _lock: None })
    }

    /// The version of the DuckDB library in use, e.g. `v1.5.6`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn duckdb_version(&self) -> Result<String, StoreError> {
        self.connection.version().map_err(doing("reading its version"))
    }

    /// How many rows a table or view of the index has.
    ///
    /// # Errors
    /// [`StoreError::Database`], also when there is no such table.
    pub fn count(&self, table: &str) -> Result<u64, StoreError> {
        let name = table.replace('"', "\"\"");
        self.connection
            .query_row(&format!("SELECT count(*) FROM \"{name}\""), [], |row| row.get(0))
            .map_err(doing("counting rows"))
    }
}

fn connect(path: &Path, access: Access) -> Result<Connection, StoreError> {
    if path.to_str().is_none() {
        return Err(StoreError::PathNotUtf8 { path: path.to_owned() });
    }
    let mode = match access {
        Access::Read => AccessMode::ReadOnly,
        Access::Write => AccessMode::ReadWrite,
    };
    let config = offline(Config::default())
        .and_then(|config| config.access_mode(mode))
        .map_err(doing("configuring DuckDB"))?;
    let connection = Connection::open_with_flags(path, config).map_err(not_opened(path))?;
    confine(&connection, Some(&scratch(path)))?;
    Ok(connection)
}

/// No extension is looked for on the network, ever.
fn offline(config: Config) -> Result<Config, duckdb::Error> {
    config.enable_autoload_extension(false)
}

/// From here on the connection reaches the index and its scratch folder only; DuckDB has no way back.
fn confine(connection: &Connection, scratch: Option<&Path>) -> Result<(), StoreError> {
    let mut sql = String::new();
    if let Some(scratch) = scratch.and_then(Path::to_str) {
        sql.push_str(&format!("SET allowed_directories = [{}];", quoted(scratch)));
    }
    sql.push_str("SET enable_external_access = false; SET lock_configuration = true;");
    connection.execute_batch(&sql).map_err(doing("confining the connection"))
}

/// A string as a SQL literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn scratch(path: &Path) -> PathBuf {
    suffixed(path, ".scratch")
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Takes the lock file beside the index: exclusive for a writer, shared for readers.
///
/// DuckDB's own lock is per process and is lost when any handle of the process closes the file; this one is
/// per handle, and a killed process frees it.
///
/// A reader where nothing can be written takes none: nobody can write there.
fn lock(path: &Path, access: Access) -> Result<Option<File>, StoreError> {
    let beside = suffixed(path, ".lock");
    let opened = File::options().create(true).truncate(false).read(true).write(true).open(&beside);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if access == Access::Read && forbidden(&error) => return Ok(None),
        Err(error) => return Err(unwritable(&beside)(error)),
    };
    let taken = match access {
        Access::Read => file.try_lock_shared(),
        Access::Write => file.try_lock(),
    };
    match taken {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only for the message; an unreadable lock file still means that the index is in use.
            let _ = file.read_to_string(&mut holder);
            let holder = Some(holder.trim().to_owned()).filter(|holder| !holder.is_empty());
            return Err(StoreError::Locked { path: path.to_owned(), holder });
        }
        Err(TryLockError::Error(source)) => return Err(unwritable(&beside)(source)),
    }
    if access == Access::Write {
        write_holder(&mut file).map_err(unwritable(&beside))?;
    }
    Ok(Some(file))
}

fn forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

fn remove(path: &Path) -> Result<(), StoreError> {
    for file in [path.to_owned(), suffixed(path, ".wal")] {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(unwritable(&file)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
    move |source| StoreError::Unwritable { path: path.to_owned(), source }
}

fn not_an_index(path: &Path) -> impl FnOnce(duckdb::Error) -> StoreError + '_ {
    move |source| StoreError::NotAnIndex { path: path.to_owned(), source: source.into() }
}

/// DuckDB tells a foreign lock, a folder it may not write and a damaged file apart by text only.
fn not_opened(path: &Path) -> impl FnOnce(duckdb::Error) -> StoreError + '_ {
    move |source| {
        let said = source.to_string();
        if said.contains("Conflicting lock") || said.contains("Could not set lock") {
            return StoreError::Locked { path: path.to_owned(), holder: None };
        }
        if said.contains("Cannot open file") || said.contains("Permission denied") {
            let source = io::Error::other(said);
            return StoreError::Unwritable { path: path.to_owned(), source };
        }
        StoreError::NotAnIndex { path: path.to_owned(), source: source.into() }
    }
}
