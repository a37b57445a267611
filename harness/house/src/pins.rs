//! The one DuckDB library this repository links, pinned for each kind of machine.
//!
//! A pin names the npm package that carries the official library, the sha512 of the package's
//! tarball (the registry's `integrity`, in hex) and the sha256 of the library inside it.
//! To move to another DuckDB: change the `duckdb` crate in the root `Cargo.toml`, fetch each
//! package with `npm pack`, and put the new digests here.
//! The Linux x86-64 library is built and tested against; the others are pinned by digest only.

use std::borrow::Cow;

/// DuckDB's own version, for messages.
pub const DUCKDB_VERSION: &str = "1.5.6";

/// The version of the npm packages that carry it.
const PACKAGE_VERSION: &str = "1.5.6-r.1";

/// The file name the linker and the loader look for on this system.
pub const LIBRARY_FILE: &str =
    if cfg!(target_os = "macos") { "libduckdb.dylib" } else { "libduckdb.so" };

/// What is fetched for one kind of machine and what its bytes must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// npm package name.
    pub package: Cow<'static, str>,
    /// npm package version.
    pub version: Cow<'static, str>,
    /// sha512 of the tarball, hex.
    pub tarball_sha512: Cow<'static, str>,
    /// sha256 of the library, hex.
    pub library_sha256: Cow<'static, str>,
    /// Size of the library in bytes: stops a tarball that would unpack without end.
    pub library_bytes: u64,
}

impl Pin {
    /// The pin for one kind of machine, by Rust's names for it (`linux`, `x86_64`, `gnu`).
    pub fn find(os: &str, arch: &str, env: &str) -> Option<Pin> {
        let row = ROWS.iter().find(|row| (row.os, row.arch, row.env) == (os, arch, env))?;
        Some(Pin {
            package: Cow::Owned(format!("@duckdb/node-bindings-{}", row.package_suffix)),
            version: Cow::Borrowed(PACKAGE_VERSION),
            tarball_sha512: Cow::Borrowed(row.tarball_sha512),
            library_sha256: Cow::Borrowed(row.library_sha256),
            library_bytes: row.library_bytes,
        })
    }

    /// The pin for the machine this was compiled for.
    pub fn for_this_machine() -> Option<Pin> {
        Pin::find(std::env::consts::OS, std::env::consts::ARCH, this_env())
    }
}

/// `OS ARCH ENV` of the machine this was compiled for, for messages.
pub fn this_machine() -> String {
    [std::env::consts::OS, std::env::consts::ARCH, this_env()].join(" ").trim().to_owned()
}

fn this_env() -> &'static str {
    match () {
        () if cfg!(target_env = "gnu") => "gnu",
        () if cfg!(target_env = "musl") => "musl",
        () => "",
    }
}

struct Row {
    os: &'static str,
    arch: &'static str,
    env: &'static str,
    package_suffix: &'static str,
    tarball_sha512: &'static str,
    library_sha256: &'static str,
    library_bytes: u64,
}

const ROWS: &[Row] = &[
    Row {
        os: "linux",
        arch: "x86_64",
        env: "gnu",
        package_suffix: "linux-x64",
        tarball_sha512: "21772b64913a904a8cd19e30c1d5671811d7fdface4b7dd53cd0300d743f43e1\
                         6cf386f4e7c41ef78721ac208870d2651bc6375072145387817824315b998dd5",
        library_sha256: "3f4962cdd266eab2b479a5b5a4a6d063d279b2954ae814ed00385d553b747633",
        library_bytes: 70_546_800,
    },
    Row {
        os: "linux",
        arch: "aarch64",
        env: "gnu",
        package_suffix: "linux-arm64",
        tarball_sha512: "de39d46838a5d41ac5ffabc067055a227275c6805a5861c1e0f0e2527cc958a0\
                         a8f1af132f1f63eff80fc8f97f5064417edad822e4e28516527c5e2658c82d58",
        library_sha256: "23686593dba4ec22c6e581bb1c843b3964e84c4bc4d0063d8b4daddd2e20e30a",
        library_bytes: 62_945_312,
    },
    Row {
        os: "macos",
        arch: "aarch64",
        env: "",
        package_suffix: "darwin-arm64",
        tarball_sha512: "2854ff27fa72a2eb800f58dfb4021f716551768ae0f9cff2551fc124bf0b24aa\
                         d24fe9980b877b412b90fa25d261b1691c435401e6546a05eb30fb594fc5f3b2",
        library_sha256: "75a519cb914ae36ca22cff0995a8a2e8c9a46990b8c0a479514f741a0d93f344",
        library_bytes: 117_008_720,
    },
    Row {
        os: "macos",
        arch: "x86_64",
        env: "",
        package_suffix: "darwin-x64",
        tarball_sha512: "b55c1464dbdd42868f261ae1dead9eea3c66d4c85a84d1c940afe9bc2c9ca38e\
                         8d5f4984b86ce5c3d8b49f6300ae0b32cdc71d0b049c38af5cb5bcabfb7a0c6d",
        library_sha256: "75a519cb914ae36ca22cff0995a8a2e8c9a46990b8c0a479514f741a0d93f344",
        library_bytes: 117_008_720,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pin_holds_whole_lowercase_digests() {
        for row in ROWS {
            for (digest, digits) in [(row.tarball_sha512, 128), (row.library_sha256, 64)] {
                assert_eq!(digest.len(), digits, "{} {digest}", row.package_suffix);
                assert!(digest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
            }
        }
    }

    #[test]
    fn a_machine_without_a_prebuilt_library_has_no_pin() {
        assert_eq!(Pin::find("linux", "riscv64", "gnu"), None);
        assert_eq!(Pin::find("linux", "x86_64", "musl"), None);
        assert!(Pin::find("linux", "x86_64", "gnu").is_some());
    }
}
