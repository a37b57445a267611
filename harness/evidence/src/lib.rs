//! The evidence folder: immutable records, hash-chained log, blobs, verification. No database.
