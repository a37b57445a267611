//! The worker that runs our CPU operators.

fn main() {}
