//! cargo house: provides what the build needs, then runs the real thing.

fn main() {}
