//! The version of the interface: a digest of the header that describes it.

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

/// The text of the header that this library was built with.
pub const HEADER: &str = include_str!("../include/proofhouse_kernels.h");

/// What the line begins with that holds the version in the header.
pub const VERSION_DEFINE: &str = "#define PROOFHOUSE_KERNELS_VERSION ";

/// The version of a header: the SHA-256 digest of its text in hexadecimal, without the line that holds it.
#[must_use]
pub fn version_of(header: &str) -> String {
    let mut digest = Sha256::new();
    for line in header.split_inclusive('\n').filter(|line| !line.starts_with(VERSION_DEFINE)) {
        digest.update(line.as_bytes());
    }
    hex::encode(digest.finalize())
}

/// The version of [`HEADER`].
#[must_use]
pub fn version() -> &'static CStr {
    static VERSION: OnceLock<CString> = OnceLock::new();
    // Hexadecimal digits hold no zero byte.
    VERSION.get_or_init(|| CString::new(version_of(HEADER)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_holds_the_version_does_not_change_it_and_any_other_does() {
        let without = "a\nb\n";
        let with = format!("a\n{VERSION_DEFINE}\"1234\"\nb\n");
        assert_eq!(version_of(without), version_of(&with));
        assert_ne!(version_of(without), version_of("a\nc\n"));
        assert_eq!(version_of(without).len(), 64);
    }
}
