//! Operator contracts: shapes, dtypes, layouts, seeded inputs, tolerance and f64 oracles, with no GPU, no IO and no harness.
