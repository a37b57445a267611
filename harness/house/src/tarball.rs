//! Takes the library out of a package tarball, after the tarball's own digest is checked.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Component, Path};

use flate2::read::GzDecoder;

use crate::digest;
use crate::error::HouseError;
use crate::pins::{LIBRARY_FILE, Pin};

/// Writes the library of `tarball` to `into` and checks both digests of the pin.
///
/// Nothing is written before the tarball's sha512 is the pinned one. Every entry's path is checked,
/// also of entries that are not used: a tarball with one that leads out of its folder is refused whole.
pub fn unpack_library(tarball: &Path, pin: &Pin, into: &Path) -> Result<(), HouseError> {
    digest::require_sha512(tarball, &pin.tarball_sha512)?;
    let wanted = format!("package/{LIBRARY_FILE}");
    let file = File::open(tarball)
        .map_err(|source| HouseError::Unreadable { path: tarball.to_owned(), source })?;
    let bad = |source| HouseError::BadTarball { path: tarball.to_owned(), source };
    let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(file)));
    let mut found = 0;
    for entry in archive.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        let path = entry.path().map_err(bad)?.into_owned();
        if !stays_inside(&path) {
            let entry = path.display().to_string();
            return Err(HouseError::UnsafeEntry { path: tarball.to_owned(), entry });
        }
        if path != Path::new(&wanted) || !entry.header().entry_type().is_file() {
            continue;
        }
        found += 1;
        if entry.size() != pin.library_bytes {
            return Err(HouseError::EntrySize {
                path: tarball.to_owned(),
                entry: wanted,
                expected: pin.library_bytes,
                found: entry.size(),
            });
        }
        write_entry(&mut entry, into).map_err(|error| match error {
            CopyError::Read(source) => bad(source),
            CopyError::Write(source) => HouseError::Unwritable { path: into.to_owned(), source },
        })?;
    }
    if found != 1 {
        return Err(HouseError::EntryCount { path: tarball.to_owned(), entry: wanted, found });
    }
    digest::require_sha256(into, &pin.library_sha256)
}

fn stays_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

fn write_entry(from: &mut impl io::Read, into: &Path) -> Result<(), CopyError> {
    use io::Write;
    let mut out = File::create(into).map_err(CopyError::Write)?;
    let mut piece = vec![0_u8; 1 << 20];
    loop {
        let read = from.read(&mut piece).map_err(CopyError::Read)?;
        if read == 0 {
            break;
        }
        out.write_all(&piece[..read]).map_err(CopyError::Write)?;
    }
    out.sync_all().map_err(CopyError::Write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Folder, pin_for, tarball_with};

    #[test]
    fn the_library_is_taken_out_of_a_good_tarball() {
        let folder = Folder::new();
        let tarball = tarball_with(&folder, &[("package/package.json", b"{}"), LIBRARY]);
        let into = folder.path("out.so");
        unpack_library(&tarball, &pin_for(&tarball, LIBRARY.1), &into).unwrap();
        assert_eq!(std::fs::read(into).unwrap(), LIBRARY.1);
    }

    #[test]
    fn a_truncated_tarball_is_refused_before_anything_is_written() {
        let folder = Folder::new();
        let tarball = tarball_with(&folder, &[LIBRARY]);
        let pin = pin_for(&tarball, LIBRARY.1);
        let bytes = std::fs::read(&tarball).unwrap();
        std::fs::write(&tarball, &bytes[..bytes.len() / 2]).unwrap();
        let into = folder.path("out.so");
        let error = unpack_library(&tarball, &pin, &into).unwrap_err();
        assert!(matches!(error, HouseError::DigestMismatch { algorithm: "sha512", .. }), "{error}");
        assert!(!into.exists());
    }

    #[test]
    fn a_truncated_tarball_with_a_matching_digest_is_refused_by_the_decoder() {
        let folder = Folder::new();
        let tarball = tarball_with(&folder, &[LIBRARY]);
        let bytes = std::fs::read(&tarball).unwrap();
        std::fs::write(&tarball, &bytes[..bytes.len() * 2 / 3]).unwrap();
        let pin = pin_for(&tarball, LIBRARY.1);
        let error = unpack_library(&tarball, &pin, &folder.path("out.so")).unwrap_err();
        assert!(matches!(error, HouseError::BadTarball { .. }), "{error}");
    }

    #[test]
    fn a_path_that_climbs_out_is_refused() {
        let folder = Folder::new();
        let tarball = tarball_with(&folder, &[("../../escape.so", b"x"), LIBRARY]);
        let error = unpack_library(&tarball, &pin_for(&tarball, LIBRARY.1), &folder.path("out.so"))
            .unwrap_err();
        assert!(
            matches!(&error, HouseError::UnsafeEntry { entry, .. } if entry == "../../escape.so"),
            "{error}"
        );
        assert!(!folder.path("out.so").exists());
    }

    #[test]
    fn another_library_in_the_pinned_tarball_is_refused() {
        let folder = Folder::new();
        let tarball = tarball_with(&folder, &[LIBRARY]);
        let pin = Pin { library_sha256: "0".repeat(64).into(), ..pin_for(&tarball, LIBRARY.1) };
        let error = unpack_library(&tarball, &pin, &folder.path("out.so")).unwrap_err();
        assert!(matches!(error, HouseError::DigestMismatch { algorithm: "sha256", .. }), "{error}");
    }

    #[test]
    fn a_tarball_without_or_with_two_libraries_is_refused() {
        let folder = Folder::new();
        for (entries, count) in
            [(vec![("package/package.json", b"{}".as_slice())], 0), (vec![LIBRARY, LIBRARY], 2)]
        {
            let tarball = tarball_with(&folder, &entries);
            let error =
                unpack_library(&tarball, &pin_for(&tarball, LIBRARY.1), &folder.path("out.so"))
                    .unwrap_err();
            assert!(
                matches!(error, HouseError::EntryCount { found, .. } if found == count),
                "{error}"
            );
        }
    }

    #[test]
    fn a_library_of_another_size_is_refused() {
        let folder = Folder::new();
        let tarball = tarball_with(&folder, &[LIBRARY]);
        let pin = Pin { library_bytes: 3, ..pin_for(&tarball, LIBRARY.1) };
        let error = unpack_library(&tarball, &pin, &folder.path("out.so")).unwrap_err();
        assert!(matches!(error, HouseError::EntrySize { expected: 3, .. }), "{error}");
    }

    const LIBRARY: (&str, &[u8]) = (
        if cfg!(target_os = "macos") { "package/libduckdb.dylib" } else { "package/libduckdb.so" },
        b"not really a library, but long enough to be compressed: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    );
}
