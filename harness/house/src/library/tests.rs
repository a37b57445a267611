use std::cell::{Cell, RefCell};
use std::ffi::OsString;

use super::*;
use crate::fetch::{FetchError, Npm};
use crate::testing::{Folder, pin_for, tarball_with};

const LIBRARY: &[u8] = b"the bytes of the library";

fn entry() -> String {
    format!("package/{LIBRARY_FILE}")
}

/// Hands out a copy of one tarball and counts the calls.
struct CopyingFetch {
    tarball: PathBuf,
    calls: Cell<u32>,
}

impl Fetch for CopyingFetch {
    fn describe(&self, pin: &Pin) -> String {
        format!("a copy of {}", pin.package)
    }

    fn fetch(&self, _pin: &Pin, into: &Path) -> Result<PathBuf, FetchError> {
        self.calls.set(self.calls.get() + 1);
        let to = into.join("fetched.tgz");
        fs::copy(&self.tarball, &to).unwrap();
        Ok(to)
    }
}

struct Fixture {
    folder: Folder,
    pin: Pin,
    fetch: CopyingFetch,
    said: RefCell<Vec<String>>,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = Folder::new();
        let tarball = tarball_with(&folder, &[(&entry(), LIBRARY)]);
        let pin = pin_for(&tarball, LIBRARY);
        let fetch = CopyingFetch { tarball, calls: Cell::new(0) };
        Fixture { folder, pin, fetch, said: RefCell::new(Vec::new()) }
    }

    fn ensure(&self, edit: impl FnOnce(&mut Request<'_>)) -> Result<Origin, HouseError> {
        let say = |line: &str| self.said.borrow_mut().push(line.to_owned());
        let mut request = Request {
            folder: self.folder.path("target/house/duckdb"),
            cache: Some(self.folder.path("cache")),
            pin: Some(self.pin.clone()),
            brought: Brought::default(),
            fetch: &self.fetch,
            say: &say,
        };
        edit(&mut request);
        ensure(&request)
    }

    fn library(&self) -> PathBuf {
        self.folder.path("target/house/duckdb").join(LIBRARY_FILE)
    }
}

#[test]
fn the_first_call_fetches_the_second_finds_it_and_another_clone_needs_no_network() {
    let fixture = Fixture::new();
    assert_eq!(fixture.ensure(|_| ()).unwrap(), Origin::Fetched);
    assert_eq!(fs::read(fixture.library()).unwrap(), LIBRARY);
    assert_eq!(fixture.ensure(|_| ()).unwrap(), Origin::InPlace);
    let other = fixture.folder.path("other-clone");
    let origin = fixture.ensure(|request| request.folder = other).unwrap();
    assert!(matches!(origin, Origin::Cache(_)), "{origin:?}");
    assert_eq!(fixture.fetch.calls.get(), 1);
}

#[test]
fn nothing_unfinished_is_left_beside_the_library() {
    let fixture = Fixture::new();
    fixture.ensure(|_| ()).unwrap();
    let mut names: Vec<String> = fs::read_dir(fixture.library().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [LIBRARY_FILE, "libduckdb.stamp"]);
}

#[test]
fn a_library_changed_after_set_up_is_noticed_and_replaced() {
    let fixture = Fixture::new();
    fixture.ensure(|_| ()).unwrap();
    fs::write(fixture.library(), b"other").unwrap();
    let origin = fixture.ensure(|_| ()).unwrap();
    assert!(matches!(origin, Origin::Cache(_)), "{origin:?}");
    assert_eq!(fs::read(fixture.library()).unwrap(), LIBRARY);
    assert!(fixture.said.borrow().iter().any(|line| line.contains("replaced")));
}

#[test]
fn a_right_library_without_a_stamp_is_kept_after_a_full_digest() {
    let fixture = Fixture::new();
    fixture.ensure(|_| ()).unwrap();
    fs::remove_file(stamp_path(&fixture.library())).unwrap();
    assert_eq!(fixture.ensure(|_| ()).unwrap(), Origin::InPlace);
    assert!(stamp_path(&fixture.library()).is_file());
}

#[test]
fn a_fetched_tarball_with_other_bytes_is_refused_and_not_cached() {
    let fixture = Fixture::new();
    tarball_with(&fixture.folder, &[(&entry(), b"an impostor")]);
    let error = fixture.ensure(|_| ()).unwrap_err();
    assert!(matches!(error, HouseError::DigestMismatch { algorithm: "sha512", .. }), "{error}");
    assert!(!fixture.library().exists());
    assert!(!cached_tarball(&fixture.folder.path("cache"), &fixture.pin).exists());
}

#[test]
fn a_damaged_cache_is_said_and_fetched_again() {
    let fixture = Fixture::new();
    fixture.ensure(|_| ()).unwrap();
    let cached = cached_tarball(&fixture.folder.path("cache"), &fixture.pin);
    fs::write(&cached, b"cut").unwrap();
    let other = fixture.folder.path("other-clone");
    assert_eq!(fixture.ensure(|request| request.folder = other).unwrap(), Origin::Fetched);
    assert!(fixture.said.borrow().iter().any(|line| line.contains("cached package is not used")));
    assert_ne!(fs::read(&cached).unwrap(), b"cut");
}

#[test]
fn a_library_brought_by_file_or_folder_is_taken_when_its_digest_is_right() {
    let fixture = Fixture::new();
    let own = fixture.folder.path("own");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join(LIBRARY_FILE), LIBRARY).unwrap();
    for (path, target) in [(own.clone(), "a"), (own.join(LIBRARY_FILE), "b")] {
        let folder = fixture.folder.path(target);
        let origin = fixture
            .ensure(|request| {
                request.folder = folder;
                request.brought.library = Some(path);
            })
            .unwrap();
        assert_eq!(origin, Origin::Brought(own.join(LIBRARY_FILE)));
    }
    assert_eq!(fixture.fetch.calls.get(), 0);
}

#[test]
fn a_brought_library_with_other_bytes_is_refused_by_its_own_path() {
    let fixture = Fixture::new();
    let own = fixture.folder.path("own.so");
    fs::write(&own, b"other").unwrap();
    let brought = own.clone();
    let error = fixture.ensure(|request| request.brought.library = Some(brought)).unwrap_err();
    assert!(matches!(&error, HouseError::DigestMismatch { path, .. } if *path == own), "{error}");
    assert!(!fixture.library().exists());
}

#[test]
fn a_brought_library_needs_somebody_to_vouch_for_it() {
    let fixture = Fixture::new();
    let own = fixture.folder.path("own.so");
    fs::write(&own, LIBRARY).unwrap();
    let error = fixture
        .ensure(|request| {
            request.pin = None;
            request.brought.library = Some(own.clone());
        })
        .unwrap_err();
    assert!(matches!(error, HouseError::NoDigest { .. }), "{error}");
    let digest = fixture.pin.library_sha256.to_string();
    let origin = fixture
        .ensure(|request| {
            request.pin = None;
            request.brought = Brought { library: Some(own.clone()), sha256: Some(digest) };
        })
        .unwrap();
    assert_eq!(origin, Origin::Brought(own));
}

#[test]
fn a_brought_path_that_is_not_there_is_named() {
    let fixture = Fixture::new();
    let error = fixture
        .ensure(|request| request.brought.library = Some("/no/such/libduckdb".into()))
        .unwrap_err();
    assert!(error.to_string().contains("/no/such/libduckdb"), "{error}");
}

#[test]
fn without_npm_the_message_lists_what_was_tried_and_what_to_do() {
    let fixture = Fixture::new();
    let npm = Npm { program: OsString::from("npm-that-is-not-installed") };
    let say = |_: &str| ();
    let request = Request {
        folder: fixture.folder.path("t"),
        cache: Some(fixture.folder.path("cache")),
        pin: Some(fixture.pin.clone()),
        brought: Brought::default(),
        fetch: &npm,
        say: &say,
    };
    let text = ensure(&request).unwrap_err().to_string();
    for part in [
        "PROOFHOUSE_DUCKDB_LIB: not set",
        "does not exist",
        "npm pack @example/library@1.0.0: npm-that-is-not-installed is not installed",
        "install npm",
        "PROOFHOUSE_DUCKDB_LIB=/path/to",
        "PROOFHOUSE_DUCKDB_FROM_SOURCE=1",
    ] {
        assert!(text.contains(part), "'{part}' is missing in:\n{text}");
    }
}

#[test]
fn a_machine_without_a_pin_is_told_so_before_any_fetch() {
    let fixture = Fixture::new();
    let error = fixture.ensure(|request| request.pin = None).unwrap_err();
    assert!(error.to_string().contains("no package is pinned for"), "{error}");
    assert_eq!(fixture.fetch.calls.get(), 0);
}

#[test]
fn an_unwritable_target_is_a_typed_error_with_its_path() {
    let fixture = Fixture::new();
    fs::write(fixture.folder.path("blocked"), b"a file where a folder is needed").unwrap();
    let folder = fixture.folder.path("blocked/house");
    let error = fixture.ensure(|request| request.folder = folder.clone()).unwrap_err();
    assert!(matches!(&error, HouseError::Unwritable { path, .. } if *path == folder), "{error}");
}

#[test]
fn an_unwritable_cache_does_not_stop_the_set_up() {
    let fixture = Fixture::new();
    fs::write(fixture.folder.path("blocked"), b"a file where a folder is needed").unwrap();
    let cache = fixture.folder.path("blocked/cache");
    let origin = fixture.ensure(|request| request.cache = Some(cache)).unwrap();
    assert_eq!(origin, Origin::Fetched);
    assert!(fixture.said.borrow().iter().any(|line| line.contains("not kept")));
}
