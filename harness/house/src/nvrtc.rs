//! The compiler of the CUDA kernels for tests on a machine without CUDA: NVRTC from its Python package, pinned by digest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::layout::Layout;
use crate::python::run;

/// The package with its version and digest, as pip takes it.
const LOCK: &str = include_str!("../nvrtc.lock");
/// Where the library lies in the package.
const LIBRARY: &str = "nvidia/cu13/lib";
/// The variable by which tests find it.
pub const VARIABLE: &str = "PROOFHOUSE_NVRTC";

/// The folder of the library; it is fetched on first need and kept.
///
/// The error says in words why there is none.
pub fn folder(layout: &Layout) -> Result<PathBuf, String> {
    if let Some(brought) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        return Ok(PathBuf::from(brought));
    }
    let key = hex::encode(&Sha256::digest(LOCK)[..6]);
    let home = layout.target.join("house").join(format!("nvrtc-{key}"));
    let library = home.join(LIBRARY);
    if home.join("finished").is_file() {
        return Ok(library);
    }
    // What an interrupted call left is not trusted.
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let lock = home.join("nvrtc.lock");
    fs::write(&lock, LOCK).map_err(|error| format!("{}: {error}", lock.display()))?;
    run(&mut install(&home, &lock))?;
    fs::write(home.join("finished"), "").map_err(|error| format!("{}: {error}", home.display()))?;
    Ok(library)
}

fn install(home: &Path, lock: &Path) -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .args(["--require-hashes", "--only-binary", ":all:", "--target"])
        .arg(home)
        .arg("--requirement")
        .arg(lock);
    pip
}
