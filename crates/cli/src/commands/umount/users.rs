//! Which processes use a mount, as far as `/proc` shows. Only links are read, so the mount itself is not asked.

use std::fs;
use std::path::{Path, PathBuf};

/// A process that keeps a mount in use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct User {
    pid: u32,
    name: String,
    /// How it uses the directory.
    how: &'static str,
    at: PathBuf,
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({}) {} {}", self.pid, self.name, self.how, self.at.display())
    }
}

/// A process that uses a path below `dir`, which is a full path; `None` if none is visible (those of other users
/// are not).
pub(super) fn user_of(dir: &Path) -> Option<User> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.find_map(|pid| {
        let (how, at) = use_by(pid, dir)?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some(User { pid, name: name.trim_end().to_owned(), how, at })
    })
}

fn use_by(pid: u32, dir: &Path) -> Option<(&'static str, PathBuf)> {
    let process = Path::new("/proc").join(pid.to_string());
    let below = |link: PathBuf| fs::read_link(link).ok().filter(|at| at.starts_with(dir));
    let links = [("cwd", "works in"), ("root", "has as its root directory"), ("exe", "runs")];
    let link = links.iter().find_map(|(link, how)| Some((*how, below(process.join(link))?)));
    link.or_else(|| {
        let mut files = fs::read_dir(process.join("fd")).ok()?.flatten();
        files.find_map(|file| Some(("has open", below(file.path())?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_a_file_open_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = fs::canonicalize(dir.path()).expect("a full path");
        assert_eq!(user_of(&path), None);
        let file = fs::File::create(path.join("file")).expect("a file");
        let found = user_of(&path).expect("it is this process");
        assert_eq!((found.pid, found.how), (std::process::id(), "has open"));
        assert!(found.to_string().ends_with("/file"), "{found}");
        drop(file);
        assert_eq!(user_of(&path), None);
    }
}
