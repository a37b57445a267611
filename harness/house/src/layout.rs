//! Where things are: the repository, the target folder, the cache.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::HouseError;

/// The folders that one call works with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The repository (the workspace's root).
    pub root: PathBuf,
    /// Cargo's target folder, wherever the user has put it.
    pub target: PathBuf,
    /// The folder of release binaries in it: this program's own.
    pub binaries: PathBuf,
    /// Where fetched packages are kept between clones; none when there is no home folder.
    pub cache: Option<PathBuf>,
}

impl Layout {
    /// The folder the library is put in and linked from.
    pub fn library_folder(&self) -> PathBuf {
        self.target.join("house").join("duckdb")
    }

    /// Reads the layout from this program's own path and from cargo's variables.
    ///
    /// The target folder is the nearest folder above the program with cargo's `CACHEDIR.TAG`, so
    /// `CARGO_TARGET_DIR`, `build.target-dir` and cross-compilation need no knowledge here.
    pub fn discover(
        program: &Path,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, HouseError> {
        let missing = |what| HouseError::NoLayout { what, from: program.to_owned() };
        let binaries = program.parent().ok_or_else(|| missing("the folder of binaries"))?;
        let target = binaries
            .ancestors()
            .find(|folder| folder.join("CACHEDIR.TAG").is_file())
            .or_else(|| binaries.parent())
            .ok_or_else(|| missing("the target folder"))?;
        let manifest = variable("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .ancestors()
            .find(|folder| folder.join("Cargo.lock").is_file())
            .ok_or_else(|| missing("the repository"))?;
        Ok(Layout {
            root: root.to_owned(),
            target: target.to_owned(),
            binaries: binaries.to_owned(),
            cache: cache_folder(variable),
        })
    }
}

fn cache_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("PROOFHOUSE_CACHE_DIR")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("proofhouse")))
        .or_else(|| Some(set("HOME")?.join(".cache").join("proofhouse")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn the_target_folder_is_found_by_cargos_tag_however_deep_the_binary_is() {
        let folder = Folder::new();
        let binaries = folder.path("elsewhere/some-triple/release");
        std::fs::create_dir_all(&binaries).unwrap();
        std::fs::write(folder.path("elsewhere/CACHEDIR.TAG"), "").unwrap();
        let layout = Layout::discover(&binaries.join("proofhouse-house"), |_| None).unwrap();
        assert_eq!(layout.target, folder.path("elsewhere"));
        assert_eq!(layout.binaries, binaries);
        assert_eq!(layout.cache, None);
        assert!(layout.root.join("Cargo.lock").is_file());
    }

    #[test]
    fn the_cache_variable_wins_over_the_users_cache_and_home() {
        let all = |name: &str| Some(OsString::from(format!("/{name}")));
        assert_eq!(cache_folder(all), Some("/PROOFHOUSE_CACHE_DIR".into()));
        let home = |name: &str| (name == "HOME").then(|| OsString::from("/home/u"));
        assert_eq!(cache_folder(home), Some("/home/u/.cache/proofhouse".into()));
    }

    #[test]
    fn a_program_outside_any_repository_is_told_how_to_be_run() {
        let folder = Folder::new();
        let nowhere = folder.path("nowhere").into_os_string();
        let error = Layout::discover(&folder.path("bin/house"), |name| {
            (name == "CARGO_MANIFEST_DIR").then(|| nowhere.clone())
        })
        .unwrap_err();
        assert!(error.to_string().contains("cargo house"), "{error}");
    }
}
