//! The DuckDB index over the evidence folder.
