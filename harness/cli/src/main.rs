//! The proofhouse command.

fn main() {}
