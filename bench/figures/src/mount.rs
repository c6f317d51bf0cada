//! A site as a mount sees it, for figures whose jobs are other programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::site::Site;
use crate::{Result, Setting};

/// The command, if mounting is possible.
pub(crate) fn chiton(setting: &Setting) -> Option<PathBuf> {
    let chiton = setting.program.with_file_name("chiton");
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists() && chiton.exists();
    can.then_some(chiton)
}

/// A mount of a site by the command; taken away when dropped.
pub(crate) struct Mount {
    chiton: PathBuf,
    dir: PathBuf,
    is_there: bool,
}

impl Mount {
    /// `name` distinguishes it from other mounts of the site.
    pub(crate) fn start(chiton: &Path, site: &Site, name: &str) -> Result<Mount> {
        let dir = site.path(name);
        fs::create_dir(&dir)?;
        let mut command = Command::new(chiton);
        command.arg("mount").args(["--server", &site.address().to_string(), "--state-dir"]);
        done(command.arg(site.path(&format!("{name}.state"))).arg(&dir))?;
        Ok(Mount { chiton: chiton.to_owned(), dir, is_there: true })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts in order: data that were written there are durable.
    pub(crate) fn end(mut self) -> Result<()> {
        self.is_there = false;
        done(Command::new(&self.chiton).arg("umount").arg(&self.dir))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_there {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
    }
}

/// Runs a command to its end, which must be good.
pub(crate) fn done(command: &mut Command) -> Result<()> {
    let out = command.output()?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    Err(format!("{command:?}: {}: {said}", out.status).into())
}
