//! The index's tables and views, and the number that names their layout.
//!
//! Column names carry units as suffixes (`_ns`, `_bytes`). `record` numbers a row of `evidence` inside one
//! index and means nothing outside it; `digest` is a record's id everywhere.

use duckdb::Connection;

use crate::error::{StoreError, doing};

/// The layout that this program writes. Any change of a table or view raises it; an index of an older
/// layout is made again from the evidence.
pub const LAYOUT: i64 = 2;

const TABLES: &str = "
CREATE TABLE index_layout (layout BIGINT NOT NULL);

CREATE TABLE evidence (
    record INTEGER NOT NULL, digest VARCHAR NOT NULL, file VARCHAR NOT NULL, reuse_key VARCHAR NOT NULL,
    gate VARCHAR NOT NULL, kind VARCHAR NOT NULL, level VARCHAR NOT NULL, gate_digest VARCHAR NOT NULL,
    operator VARCHAR NOT NULL, cell VARCHAR NOT NULL, shape VARCHAR NOT NULL, dtype VARCHAR NOT NULL,
    layout VARCHAR NOT NULL, value_class VARCHAR NOT NULL, profile VARCHAR NOT NULL,
    provider VARCHAR NOT NULL, provider_version VARCHAR, provider_source VARCHAR NOT NULL,
    grade VARCHAR NOT NULL, outcome VARCHAR NOT NULL, outcome_detail VARCHAR,
    session VARCHAR NOT NULL, revision VARCHAR, dirty BOOLEAN,
    contract VARCHAR, contract_digest VARCHAR, inputs_digest VARCHAR NOT NULL, margin DOUBLE,
    read_bytes UBIGINT, written_bytes UBIGINT, started_ns UBIGINT, max_ulp DOUBLE, body JSON NOT NULL
);

CREATE TABLE attempts (
    record INTEGER NOT NULL, provider VARCHAR NOT NULL, replicate UINTEGER NOT NULL, started_ns UBIGINT NOT NULL,
    ended_ns UBIGINT, hello_ns DOUBLE, ending VARCHAR, ending_code INTEGER, peak_memory_bytes UBIGINT,
    orphans UINTEGER NOT NULL, argv JSON NOT NULL, stderr VARCHAR NOT NULL
);

CREATE TABLE samples (
    record INTEGER NOT NULL, provider VARCHAR NOT NULL, replicate USMALLINT NOT NULL, block USMALLINT NOT NULL,
    position UTINYINT NOT NULL, measured BOOLEAN NOT NULL, calls UINTEGER NOT NULL, elapsed_ns DOUBLE NOT NULL,
    per_call_ns DOUBLE NOT NULL
);

CREATE TABLE arms (
    record INTEGER NOT NULL, provider VARCHAR NOT NULL, replicate UINTEGER NOT NULL, calls UINTEGER NOT NULL,
    sets UINTEGER NOT NULL, count UBIGINT NOT NULL, min_ns DOUBLE, p10_ns DOUBLE, p50_ns DOUBLE, p90_ns DOUBLE,
    max_ns DOUBLE, mean_ns DOUBLE, cv DOUBLE, supervisor_wall_ns DOUBLE, worker_wall_ns DOUBLE, invalid VARCHAR
);

CREATE TABLE outputs (
    record INTEGER NOT NULL, provider VARCHAR NOT NULL, pass UINTEGER NOT NULL, purpose VARCHAR NOT NULL,
    tensor VARCHAR NOT NULL, elements UBIGINT NOT NULL, finite UBIGINT NOT NULL, class_mismatches UBIGINT NOT NULL,
    out_of_tolerance UBIGINT NOT NULL, max_ulp DOUBLE, max_abs DOUBLE, max_rel DOUBLE
);

CREATE TABLE verdicts (
    digest VARCHAR NOT NULL, file VARCHAR NOT NULL, evidence VARCHAR NOT NULL, gate VARCHAR NOT NULL,
    cell VARCHAR NOT NULL, provider VARCHAR NOT NULL, judge VARCHAR NOT NULL, verdict VARCHAR NOT NULL,
    grade VARCHAR NOT NULL, required BOOLEAN NOT NULL, reasons VARCHAR NOT NULL, body JSON NOT NULL
);

CREATE TABLE comparisons (
    verdict_digest VARCHAR NOT NULL, evidence VARCHAR NOT NULL, candidate VARCHAR NOT NULL,
    baseline VARCHAR NOT NULL, baseline_version VARCHAR NOT NULL, speed VARCHAR NOT NULL, ratio DOUBLE, low DOUBLE,
    high DOUBLE, half_width DOUBLE, p_value DOUBLE, margin DOUBLE NOT NULL, replicates UINTEGER,
    order_effect DOUBLE, reasons VARCHAR NOT NULL
);

CREATE TABLE sessions (
    digest VARCHAR NOT NULL, file VARCHAR NOT NULL, writer VARCHAR NOT NULL, tool VARCHAR NOT NULL,
    started_ns UBIGINT NOT NULL, profile VARCHAR NOT NULL, machine VARCHAR, cpu VARCHAR, cores UINTEGER,
    memory_bytes UBIGINT, kernel VARCHAR, distribution VARCHAR, container VARCHAR, governor VARCHAR,
    revision VARCHAR, dirty BOOLEAN, command JSON NOT NULL, body JSON NOT NULL
);

CREATE TABLE controls (
    session VARCHAR NOT NULL, name VARCHAR NOT NULL, planted DOUBLE NOT NULL, ratio DOUBLE, low DOUBLE, high DOUBLE,
    half_width DOUBLE, speed VARCHAR NOT NULL, correct BOOLEAN NOT NULL
);

CREATE TABLE selftests (
    digest VARCHAR NOT NULL, file VARCHAR NOT NULL, tool VARCHAR NOT NULL, started_ns UBIGINT NOT NULL,
    exploits UINTEGER NOT NULL, correct UINTEGER NOT NULL, body JSON NOT NULL
);

-- One row per rate of a calibration: how often the right thing was called where a slowdown was planted.
CREATE TABLE calibrations (
    digest VARCHAR NOT NULL, file VARCHAR NOT NULL, tool VARCHAR NOT NULL, started_ns UBIGINT NOT NULL,
    provider VARCHAR NOT NULL, planted DOUBLE NOT NULL, comparisons UINTEGER NOT NULL, wins UINTEGER NOT NULL,
    losses UINTEGER NOT NULL, parities UINTEGER NOT NULL, undecided UINTEGER NOT NULL, rate DOUBLE NOT NULL,
    low DOUBLE NOT NULL, high DOUBLE NOT NULL, median_half_width DOUBLE
);

CREATE TABLE claims (
    id VARCHAR NOT NULL, document VARCHAR NOT NULL, line UINTEGER NOT NULL, evidence VARCHAR, printed VARCHAR,
    status VARCHAR NOT NULL
);
";

const VIEWS: &str = "
-- One verdict per evidence: of the newest judge, and of that judge's the last one read.
CREATE VIEW current_verdicts AS
SELECT * EXCLUDE (place) FROM (
    SELECT *, row_number() OVER (
        PARTITION BY evidence
        ORDER BY list_transform(regexp_extract_all(judge, '[0-9]+'), lambda n: n::BIGINT) DESC, rowid DESC
    ) AS place
    FROM verdicts
) WHERE place = 1;

-- Every cell with its verdict; a cell that nobody judged has a null verdict.
CREATE VIEW cells AS
SELECT e.gate, e.kind, e.operator, e.cell, e.shape, e.dtype, e.layout, e.value_class, e.provider,
       v.verdict, v.reasons, v.required, coalesce(v.grade, e.grade) AS grade, e.outcome, e.max_ulp, e.profile,
       e.contract, e.session, e.started_ns, e.digest, e.file, e.record
FROM evidence e LEFT JOIN current_verdicts v ON v.evidence = e.digest;

-- The newest evidence of each gate, cell and candidate.
CREATE VIEW latest_cells AS
SELECT * FROM cells
QUALIFY row_number() OVER (
    PARTITION BY gate, cell, provider ORDER BY started_ns DESC NULLS LAST, record DESC
) = 1;

-- Ratios with their scope: numbers of different contracts or sessions are different statements.
CREATE VIEW speeds AS
SELECT e.gate, e.operator, e.shape, e.dtype, e.cell, c.candidate, c.baseline, c.baseline_version, c.speed,
       c.ratio, c.low, c.high, c.half_width, c.p_value, c.margin, e.contract, e.contract_digest,
       e.inputs_digest, e.session, e.digest
FROM comparisons c
JOIN current_verdicts v ON v.digest = c.verdict_digest
JOIN evidence e ON e.digest = c.evidence;
";

/// Makes every table and view in an empty database.
pub(crate) fn create(connection: &Connection) -> Result<(), StoreError> {
    let failed = "making its tables";
    connection.execute_batch(TABLES).map_err(doing(failed))?;
    connection.execute_batch(VIEWS).map_err(doing(failed))?;
    connection
        .execute("INSERT INTO index_layout VALUES (?)", [LAYOUT])
        .map_err(doing(failed))
        .map(drop)
}

/// What a database holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Empty,
    /// An index of this layout.
    Index(i64),
    /// Tables of somebody else's.
    Foreign,
}

/// Looks at what is there.
pub(crate) fn inspect(connection: &Connection) -> Result<Found, duckdb::Error> {
    let count = |filter: &str| -> Result<i64, duckdb::Error> {
        let sql = format!("SELECT count(*) FROM duckdb_tables() WHERE NOT internal {filter}");
        connection.query_row(&sql, [], |row| row.get(0))
    };
    if count("AND table_name = 'index_layout'")? == 1 {
        let layout =
            connection.query_row("SELECT max(layout) FROM index_layout", [], |row| row.get(0))?;
        return Ok(Found::Index(layout));
    }
    Ok(if count("")? == 0 { Found::Empty } else { Found::Foreign })
}
