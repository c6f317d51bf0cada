//! A real source tree as test input: the sources of the project's own dependencies, which every build brings along.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Result, captured};

/// Packs source trees of dependencies until `files_max` files are reached; returns the archive, and a checksum for
/// each file by its path in it.
pub(crate) fn pack(work: &Path, files_max: usize) -> Result<(PathBuf, BTreeMap<String, String>)> {
    let sources = sources()?;
    let mut chosen = Vec::new();
    let mut files = 0;
    for dir in list(&sources)? {
        if files >= files_max {
            break;
        }
        files += count(&dir)?;
        chosen.push(dir.file_name().expect("listed from a folder").to_string_lossy().into_owned());
    }
    let archive = work.join("sources.tar");
    captured(Command::new("tar").arg("-C").arg(&sources).arg("-cf").arg(&archive).args(&chosen))?;
    Ok((archive, checksums(&sources, &chosen)?))
}

/// SHA-256 of every regular file below some folders of `dir`, by path relative to it.
pub(crate) fn checksums(dir: &Path, below: &[String]) -> Result<BTreeMap<String, String>> {
    let script = "find \"$@\" -type f -print0 | xargs -0 -r sha256sum";
    let said = captured(Command::new("sh").current_dir(dir).args(["-c", script, "sh"]).args(below))?;
    let pair = |line: &str| line.split_once("  ").map(|(sum, path)| (path.to_string(), sum.to_string()));
    Ok(said.lines().filter_map(pair).collect())
}

/// The folder of unpacked dependencies with the most entries.
fn sources() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let registry = home.ok_or("neither CARGO_HOME nor HOME is set")?.join("registry/src");
    let mut all: Vec<(usize, PathBuf)> = Vec::new();
    for dir in list(&registry)? {
        all.push((list(&dir)?.len(), dir));
    }
    all.sort();
    all.pop()
        .map(|(_, dir)| dir)
        .ok_or_else(|| format!("no dependencies are unpacked in {}", registry.display()))
}

fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(dir).map_err(|e| format!("cannot list {}: {e}", dir.display()))?;
    let mut all: Vec<PathBuf> =
        read.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.is_dir()).collect();
    all.sort();
    Ok(all)
}

fn count(dir: &Path) -> Result<usize> {
    Ok(captured(Command::new("find").arg(dir).args(["-type", "f"]))?.lines().count())
}
