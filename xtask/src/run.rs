//! Running other programs, and the folders that automation works in.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why a step failed, in words.
pub(crate) type Result<T> = std::result::Result<T, String>;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_path_buf()
}

/// Cargo's target folder: everything that is built, installed or tried is below it.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs a command with its output shown; an exit code other than 0 is an error that names the command.
pub(crate) fn shown(command: &mut Command) -> Result<()> {
    let words = words(command);
    let status = command.status().map_err(|e| format!("cannot run {words}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{words} failed: {status}")) }
}

/// Runs a command and returns its standard output. Its standard error goes into the error.
pub(crate) fn captured(command: &mut Command) -> Result<String> {
    let words = words(command);
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("cannot run {words}: {e}"))?;
    if !out.status.success() {
        let stderr = String::from_utf8_lossy(&out.stderr);
        return Err(format!("{words} failed: {}\n{}", out.status, stderr.trim_end()));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// `cargo` as it runs us, in the repository's root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// As users run them, for measurements.
    Release,
    /// As the tests are built: no second build of everything where nothing is timed.
    Dev,
}

/// Builds these packages for speed. The first time takes long, so cargo shows its progress on a terminal.
pub(crate) fn build_release(packages: &[&str]) -> Result<()> {
    let is_seen = std::io::stderr().is_terminal();
    if !target().join("release").exists() {
        println!("the first build in release can take 20 minutes on two cores");
    }
    let quiet = if is_seen { [].as_slice() } else { &["--quiet"] };
    shown(cargo(&["build", "--release"]).args(quiet).args(packages))
}

/// Builds the programs and returns the folder that they are in.
pub(crate) fn programs(build: Build) -> Result<PathBuf> {
    match build {
        Build::Release => {
            build_release(&["--package", "chiton", "--package", "chiton-bench"])?;
            Ok(target().join("release"))
        }
        Build::Dev => {
            // The tests' build has them. Any other choice of packages and targets has other features, with which
            // cargo builds the libraries again.
            shown(&mut cargo(&["test", "--quiet", "--workspace", "--no-run"]))?;
            Ok(target().join("debug"))
        }
    }
}

fn words(command: &Command) -> String {
    let mut words = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        words.push(' ');
        words.push_str(&arg.to_string_lossy());
    }
    words
}

/// A folder of our own below target, empty.
pub(crate) fn fresh_dir(name: &str) -> Result<PathBuf> {
    let dir = target().join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).map_err(|e| format!("cannot empty {}: {e}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    Ok(dir)
}

/// A mount made by `chiton mount`, ended when dropped.
pub(crate) struct Mounted {
    programs: PathBuf,
    dir: PathBuf,
    pid: u32,
}

impl Mounted {
    /// Mounts the file system in `data` (made if it is not there) on `dir`.
    pub(crate) fn start(programs: &Path, data: &Path, dir: &Path) -> Result<Mounted> {
        let mut command = Command::new(programs.join("chiton"));
        command.args(["mount", "--json"]);
        if !data.join("chiton.json").exists() {
            command.arg("--format");
        }
        Mounted::by(programs, command.arg("--data").arg(data), dir)
    }

    /// Mounts a server's file system on `dir`; journals of decoupled subtrees go to `state`.
    pub(crate) fn beside(programs: &Path, socket: &Path, state: &Path, dir: &Path) -> Result<Mounted> {
        let mut command = Command::new(programs.join("chiton"));
        command.args(["mount", "--json", "--server"]).arg(socket).arg("--state-dir").arg(state);
        Mounted::by(programs, &mut command, dir)
    }

    fn by(programs: &Path, command: &mut Command, dir: &Path) -> Result<Mounted> {
        std::fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let said = captured(command.arg(dir))?;
        let pid = said
            .split("\"pid\":")
            .nth(1)
            .and_then(|rest| rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
        let pid = pid.ok_or_else(|| format!("chiton mount --json did not report its pid: {said}"))?;
        Ok(Mounted { programs: programs.to_path_buf(), dir: dir.to_path_buf(), pid })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends the process the hard way, and takes the dead mount away.
    pub(crate) fn kill(self) -> Result<()> {
        let pid = self.pid.to_string();
        captured(&mut signal("KILL", &pid))?;
        while Path::new("/proc").join(&pid).exists() && !is_zombie(&pid) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        captured(Command::new("umount").arg("-l").arg(&self.dir))?;
        std::mem::forget(self);
        Ok(())
    }

    pub(crate) fn unmount(self) -> Result<()> {
        let result = captured(Command::new(self.programs.join("chiton")).arg("umount").arg(&self.dir));
        if result.is_ok() {
            std::mem::forget(self);
        }
        result.map(|_| ())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).stderr(Stdio::null()).status();
        let _ = signal("TERM", &self.pid.to_string()).stderr(Stdio::null()).status();
    }
}

/// Sends a signal to a process. A bare Debian has no program `kill` (it is part of procps), but every shell has the command.
fn signal(name: &str, pid: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "kill -s \"$0\" \"$1\"", name, pid]);
    command
}

fn is_zombie(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "))
}
