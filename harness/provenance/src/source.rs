//! The source tree: revision, tree hash, and the digest of what differs.

use std::path::Path;

use git2::{DiffFormat, DiffOptions, Repository};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::SourceFacts;
use proofhouse_schema::probe::Probe;
use sha2::{Digest as _, Sha256};

/// What a run writes itself does not make a tree dirty.
const WRITTEN: [&[u8]; 2] = [b"evidence/", b"reports/"];

/// Probes the repository that holds `folder`, or the bundle that it is.
#[must_use]
pub fn source(folder: &Path) -> SourceFacts {
    if let Some(bundled) = crate::bundle::source(folder) {
        return bundled.unwrap_or_else(|why| unavailable(&why));
    }
    let repository = match Repository::discover(folder) {
        Ok(repository) => repository,
        Err(error) => return unavailable(&format!("no git repository: {}", error.message())),
    };
    let head = repository.head().and_then(|head| head.peel_to_commit());
    let commit = match head {
        Ok(commit) => commit,
        Err(error) => return unavailable(&format!("no commit: {}", error.message())),
    };
    let (dirty, diff) = match difference(&repository, &commit) {
        Ok(None) => (Probe::Known(false), None),
        Ok(Some(digest)) => (Probe::Known(true), Some(digest)),
        Err(error) => (Probe::Unavailable(error.message().to_owned()), None),
    };
    SourceFacts {
        revision: Probe::Known(commit.id().to_string()),
        tree: Probe::Known(commit.tree_id().to_string()),
        dirty,
        diff,
    }
}

fn unavailable(why: &str) -> SourceFacts {
    SourceFacts {
        revision: Probe::Unavailable(why.to_owned()),
        tree: Probe::Unavailable(why.to_owned()),
        dirty: Probe::Unavailable(why.to_owned()),
        diff: None,
    }
}

/// The digest of the difference between the commit and the working tree, untracked files with their contents
/// included and ignored ones not; none where there is no difference.
fn difference(
    repository: &Repository,
    commit: &git2::Commit<'_>,
) -> Result<Option<Digest>, git2::Error> {
    let mut options = DiffOptions::new();
    options
        .include_untracked(true)
        .recurse_untracked_dirs(true)
        .show_untracked_content(true)
        .show_binary(true);
    let tree = commit.tree()?;
    let diff = repository.diff_tree_to_workdir_with_index(Some(&tree), Some(&mut options))?;
    let mut hash = Sha256::new();
    let mut any = false;
    diff.print(DiffFormat::Patch, |delta, _, line| {
        let path = delta.new_file().path_bytes().unwrap_or_default();
        if !WRITTEN.iter().any(|folder| path.starts_with(folder)) {
            any = true;
            hash.update(path);
            hash.update(line.content());
        }
        true
    })?;
    Ok(any.then(|| Digest::from_hash(hash.finalize().into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A repository with one commit.
    fn repository() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::init(dir.path()).unwrap();
        fs::write(dir.path().join("kernel.rs"), "one").unwrap();
        let mut index = repository.index().unwrap();
        index.add_path(Path::new("kernel.rs")).unwrap();
        index.write().unwrap();
        let tree = repository.find_tree(index.write_tree().unwrap()).unwrap();
        let who = git2::Signature::now("a", "a@example.org").unwrap();
        repository.commit(Some("HEAD"), &who, &who, "one", &tree, &[]).unwrap();
        dir
    }

    #[test]
    fn a_clean_tree_has_a_revision_and_no_difference() {
        let dir = repository();
        let facts = source(dir.path());
        assert_eq!(facts.dirty, Probe::Known(false));
        assert!(facts.revision.known().is_some_and(|r| r.len() == 40));
        assert_eq!(facts.diff, None);
    }

    #[test]
    fn changed_and_untracked_files_change_the_difference() {
        let dir = repository();
        fs::write(dir.path().join("kernel.rs"), "two").unwrap();
        let changed = source(dir.path());
        fs::write(dir.path().join("new.rs"), "three").unwrap();
        let untracked = source(dir.path());
        fs::write(dir.path().join("new.rs"), "four").unwrap();
        let other = source(dir.path());
        assert_eq!(changed.dirty, Probe::Known(true));
        assert!(changed.diff != untracked.diff && untracked.diff != other.diff);
    }

    #[test]
    fn written_evidence_does_not_make_a_tree_dirty() {
        let dir = repository();
        for folder in ["evidence/rms_norm.correctness", "reports"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
            fs::write(dir.path().join(folder).join("x.json"), "{}").unwrap();
        }
        assert_eq!(source(dir.path()).dirty, Probe::Known(false));
    }

    #[test]
    fn no_repository_is_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(source(dir.path()).revision, Probe::Unavailable(_)));
    }
}
