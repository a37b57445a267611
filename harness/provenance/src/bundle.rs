//! The source tree of a bundle: what its manifest says, as long as every file still has its digest.

use std::path::Path;

use proofhouse_schema::bundle::{MANIFEST, Manifest};
use proofhouse_schema::canonical;
use proofhouse_schema::evidence::SourceFacts;

use crate::digest::file_digest;

/// The facts of a bundle's manifest; none where the folder is no bundle, a sentence where it was changed.
pub(crate) fn source(folder: &Path) -> Option<Result<SourceFacts, String>> {
    let path = folder.join(MANIFEST);
    path.is_file().then(|| checked(folder, &path))
}

fn checked(folder: &Path, path: &Path) -> Result<SourceFacts, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{MANIFEST}: {error}"))?;
    let manifest: Manifest =
        canonical::parse(&bytes).map_err(|error| format!("{MANIFEST} is not readable: {error}"))?;
    if manifest.files.is_empty() {
        return Err(format!("{MANIFEST} names no file"));
    }
    for (name, digest) in &manifest.files {
        match file_digest(&folder.join(name)) {
            Ok(found) if found == *digest => {}
            Ok(_) => return Err(format!("{name} is not the file that was bundled")),
            Err(error) => return Err(format!("{name} was bundled and cannot be read: {error}")),
        }
    }
    Ok(manifest.source)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use proofhouse_schema::probe::Probe;

    use super::*;

    #[test]
    fn a_bundle_has_its_revision_until_a_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        assert!(source(dir.path()).is_none());
        fs::write(dir.path().join("gate.toml"), "one").unwrap();
        let manifest = Manifest {
            schema: proofhouse_schema::SCHEMA.to_owned(),
            tool: "test".to_owned(),
            source: SourceFacts {
                revision: Probe::Known("abc".to_owned()),
                tree: Probe::Known("def".to_owned()),
                dirty: Probe::Known(false),
                diff: None,
            },
            files: BTreeMap::from([(
                "gate.toml".to_owned(),
                file_digest(&dir.path().join("gate.toml")).unwrap(),
            )]),
        };
        let bytes = canonical::to_bytes(&manifest).unwrap();
        fs::write(dir.path().join(MANIFEST), bytes).unwrap();
        assert_eq!(source(dir.path()).unwrap().unwrap(), manifest.source);
        fs::write(dir.path().join("gate.toml"), "two").unwrap();
        let why = source(dir.path()).unwrap().unwrap_err();
        assert!(why.contains("gate.toml is not the file"), "{why}");
        fs::remove_file(dir.path().join("gate.toml")).unwrap();
        assert!(source(dir.path()).unwrap().is_err());
    }
}
