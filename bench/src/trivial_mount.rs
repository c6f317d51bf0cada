//! Mounts the trivial file system for as long as a guard lives.

use std::io;
use std::path::{Path, PathBuf};

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::mount::UnmountFlags;

use crate::trivial_fs::{Answers, TrivialFs};

/// How the kernel and the dispatch threads are set up.
#[derive(Clone, Copy, Debug)]
pub struct MountSettings {
    /// Dispatch threads, at least one.
    pub threads: usize,
    /// A separate `/dev/fuse` descriptor for each thread.
    pub clone_fd: bool,
    /// The kernel checks permissions (and asks for more attributes to do so).
    pub default_permissions: bool,
    /// Users other than the mounting one may come in.
    pub allow_other: bool,
    /// The operations that the file system itself answers.
    pub answers: Answers,
}

impl Default for MountSettings {
    fn default() -> MountSettings {
        MountSettings {
            threads: 2,
            clone_fd: true,
            default_permissions: false,
            allow_other: false,
            answers: Answers::default(),
        }
    }
}

/// A mounted trivial file system; dropping it unmounts.
pub struct TrivialMount {
    session: Option<BackgroundSession>,
    dir: PathBuf,
}

impl TrivialMount {
    /// Mounts on `dir` with the fastest settings.
    ///
    /// # Errors
    /// `dir` is not a directory, or `/dev/fuse` or the right to mount is missing.
    pub fn spawn(dir: &Path) -> io::Result<TrivialMount> {
        TrivialMount::spawn_with(dir, &MountSettings::default())
    }

    /// Mounts on `dir` with the given settings.
    ///
    /// # Errors
    /// As [`TrivialMount::spawn`].
    pub fn spawn_with(dir: &Path, settings: &MountSettings) -> io::Result<TrivialMount> {
        assert!(settings.threads >= 1, "a mount needs a dispatch thread");
        let dir = dir.canonicalize()?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("trivial".into()), MountOption::NoAtime];
        if settings.default_permissions {
            config.mount_options.push(MountOption::DefaultPermissions);
        }
        if settings.allow_other {
            config.acl = SessionACL::All;
        }
        config.n_threads = Some(settings.threads);
        config.clone_fd = settings.clone_fd;
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let session = fuser::spawn_mount(TrivialFs::new(uid, gid, settings.answers), &dir, &config)?;
        Ok(TrivialMount { session: Some(session), dir })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts and waits until the dispatch threads are gone.
    ///
    /// # Errors
    /// A process still has files open there; the mount is then detached, and ends when they are closed.
    pub fn unmount(mut self) -> io::Result<()> {
        self.end()
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    /// A dispatch thread failed.
    pub fn wait(mut self) -> io::Result<()> {
        self.session.take().map_or(Ok(()), BackgroundSession::join)
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let ended = session.umount_and_join();
        if ended.is_err() {
            // A busy mount would outlive this process, and hang every process that touches it.
            rustix::mount::unmount(&self.dir, UnmountFlags::DETACH)?;
        }
        ended
    }
}

impl Drop for TrivialMount {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("trivial file system at {}: unmounting failed: {error}", self.dir.display());
        }
    }
}
