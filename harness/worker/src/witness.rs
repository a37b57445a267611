//! What is mapped in this process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::MappedLibrary;

/// Mapped files with code in them, each hashed once.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    digests: BTreeMap<PathBuf, Option<Digest>>,
}

impl Libraries {
    /// The shared objects and the executable that are mapped now, by name.
    ///
    /// # Errors
    /// When the process cannot read its own map.
    pub(crate) fn mapped(&mut self) -> std::io::Result<Vec<MappedLibrary>> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let mut libraries: Vec<_> = executable_files(&maps)
            .into_iter()
            .map(|path| MappedLibrary { name: name(&path), sha256: self.digest(&path) })
            .collect();
        libraries.sort();
        libraries.dedup();
        Ok(libraries)
    }

    fn digest(&mut self, path: &Path) -> Option<Digest> {
        if let Some(known) = self.digests.get(path) {
            return known.clone();
        }
        let digest = std::fs::read(path).ok().map(|bytes| Digest::of(&bytes));
        self.digests.insert(path.to_owned(), digest.clone());
        digest
    }
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Paths of mapped files that have an executable part.
fn executable_files(maps: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(6, ' ');
            let rights = fields.nth(1)?;
            let path = fields.nth(3)?.trim_start();
            (rights.contains('x') && path.starts_with('/')).then(|| PathBuf::from(path))
        })
        .collect();
    files.sort();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_code_are_listed_and_each_once() {
        let maps = "\
55d0-55d1 r-xp 00000000 fe:01 12                         /usr/bin/a b
55d1-55d2 r-xp 00001000 fe:01 12                         /usr/bin/a b
7f00-7f01 r--p 00000000 fe:01 13                         /lib/data.so
7f01-7f02 rwxp 00000000 00:00 0 
7f02-7f03 r-xp 00000000 00:00 0                          [vdso]
7f03-7f04 r-xp 00000000 fe:01 14                         /lib/libm.so.6
";
        let files = executable_files(maps);
        assert_eq!(files, [PathBuf::from("/lib/libm.so.6"), PathBuf::from("/usr/bin/a b")]);
    }

    #[test]
    fn this_process_names_its_own_executable_with_its_digest() {
        let libraries = Libraries::default().mapped().unwrap();
        let own = name(&std::env::current_exe().unwrap());
        let found = libraries.iter().find(|library| library.name == own).unwrap();
        let digest = Digest::of(&std::fs::read("/proc/self/exe").unwrap());
        assert_eq!(found.sha256.as_ref(), Some(&digest));
    }
}
