//! The checker: generates inputs, holds the oracle, judges outputs.

fn main() {}
