//! The log of a background process: a file in its user's state directory, in a folder that no other user may enter.
//!
//! Invariants:
//! - The log is never written where another user can plant a link: not in the system's temporary directory, not
//!   through a link, and not to a file that another user owns or that has further names.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};
use crate::target;

/// Where the messages of a mount go that is in the background. `state_dir`: as the user named it.
pub(crate) fn path(state_dir: Option<&Path>, mountpoint: &Path) -> Outcome<PathBuf> {
    let state_dir = state_dir.map(Path::to_owned).or_else(chiton_decoupled::default_state_dir);
    let dir = match state_dir {
        Some(state_dir) => {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&state_dir);
            made.map_err(|e| Failure::failed(format!("cannot make {}: {e}", state_dir.display())))?;
            target::made(state_dir.join("logs"), 0o700, "remove it, or name another place by --state-dir")?
        }
        // A user without a home.
        None => target::own_dir()?,
    };
    let name = mountpoint.display().to_string().trim_matches('/').replace('/', "-");
    Ok(dir.join(format!("{name}.log")))
}

/// Opens a log to write at its end.
///
/// # Errors
/// If it is a link, no regular file, another user's, or has further names.
pub(crate) fn open(path: &Path) -> Outcome<File> {
    let failed = |e: io::Error| {
        Failure::failed(format!(
            "cannot open the log {}: {e}; check the permissions of its directory, or mount with --foreground",
            path.display()
        ))
    };
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(flags).open(path);
    let file = file.map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() || meta.nlink() != 1 || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(Failure::failed(format!(
            "the log {} is not a regular file of this user with one name: remove it",
            path.display()
        )));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_planted_log_file_is_not_written_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "as it was").expect("written");
        let log = dir.path().join("log");
        std::os::unix::fs::symlink(&precious, &log).expect("planted");
        assert!(open(&log).is_err(), "a symbolic link");
        std::fs::remove_file(&log).expect("removed");
        std::os::unix::fs::symlink(dir.path().join("new"), &log).expect("planted");
        assert!(open(&log).is_err(), "a symbolic link to nothing");
        assert!(!dir.path().join("new").exists());
        std::fs::remove_file(&log).expect("removed");
        std::fs::hard_link(&precious, &log).expect("planted");
        assert!(open(&log).is_err(), "a further name");
        std::fs::remove_file(&log).expect("removed");
        rustix::fs::mknodat(rustix::fs::CWD, &log, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("planted");
        assert!(open(&log).is_err(), "a pipe, which nobody reads");
        std::fs::remove_file(&log).expect("removed");
        assert_eq!(std::fs::read_to_string(&precious).expect("read"), "as it was");
        for line in ["one\n", "two\n"] {
            open(&log).expect("a log").write_all(line.as_bytes()).expect("written");
        }
        assert_eq!(std::fs::read_to_string(&log).expect("read"), "one\ntwo\n");
        assert_eq!(std::fs::metadata(&log).expect("there").mode() & 0o777, 0o600);
    }

    #[test]
    fn logs_are_in_a_private_directory() {
        let state = tempfile::tempdir().expect("a directory");
        let log = path(Some(&state.path().join("chiton")), Path::new("/mnt/a b")).expect("a place");
        assert_eq!(log, state.path().join("chiton/logs/mnt-a b.log"));
        let logs = log.parent().expect("a directory");
        assert_eq!(std::fs::metadata(logs).expect("there").mode() & 0o777, 0o700);
        // One that was planted is not taken.
        std::fs::remove_dir(logs).expect("removed");
        std::os::unix::fs::symlink("/tmp", logs).expect("planted");
        assert!(path(Some(&state.path().join("chiton")), Path::new("/mnt/a b")).is_err());
    }
}
