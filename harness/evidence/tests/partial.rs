//! Parts that are kept between runs: they come back, are no evidence, and go.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod filled;

use std::fs;

use filled::{filled, writer};
use proofhouse_evidence::Folder;
use proofhouse_schema::canonical::Digest;

#[test]
fn parts_come_back_in_the_order_of_their_numbers_until_they_are_forgotten() {
    let dir = filled();
    let (key, other) = (Digest::of(b"key"), Digest::of(b"other"));
    let mut out = writer(dir.path(), "second");
    for number in [10, 2] {
        out.keep(&key, number, format!("part {number}").as_bytes()).unwrap();
    }
    out.keep(&key, 2, b"part 2 again").unwrap();
    let folder = Folder::new(dir.path());
    assert_eq!(folder.kept(&key), [b"part 2 again".to_vec(), b"part 10".to_vec()]);
    assert!(folder.kept(&other).is_empty());
    out.forget(&key).unwrap();
    out.forget(&other).unwrap();
    assert!(folder.kept(&key).is_empty());
}

#[test]
fn parts_are_no_evidence() {
    let (dir, to) = (filled(), tempfile::tempdir().unwrap());
    let key = Digest::of(b"key");
    let mut out = writer(dir.path(), "second");
    out.keep(&key, 0, b"{}").unwrap();
    drop(out);
    let folder = Folder::new(dir.path());
    let check = folder.verify().unwrap();
    assert_eq!((check.findings.len(), check.records), (0, 2));
    assert!(folder.gaps().unwrap().is_empty());
    writer(to.path(), "third").import(&folder).unwrap();
    assert!(Folder::new(to.path()).kept(&key).is_empty());
    assert_eq!(fs::read_to_string(dir.path().join(".partial/.gitignore")).unwrap(), "*\n");
    drop(writer(dir.path(), "fourth"));
    assert_eq!(folder.kept(&key).len(), 1, "a new writer leaves it there");
}

#[test]
fn what_is_no_part_is_passed_over() {
    let dir = filled();
    let key = Digest::of(b"key");
    let mut out = writer(dir.path(), "second");
    out.keep(&key, 1, b"one").unwrap();
    let place = dir.path().join(".partial").join(key.as_str());
    fs::write(place.join("x.json"), b"x").unwrap();
    fs::create_dir(place.join("2.json")).unwrap();
    std::os::unix::fs::symlink("1.json", place.join("3.json")).unwrap();
    assert_eq!(Folder::new(dir.path()).kept(&key), [b"one".to_vec()]);
    out.forget(&key).unwrap();
    assert!(!place.exists());
}
