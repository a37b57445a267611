//! Gates: from TOML to a resolved gate, and from evidence to a verdict. Pure.
