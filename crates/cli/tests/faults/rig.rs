//! Processes, mounts and small disks that are gone when a test ends, however it ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal, kill_process};

/// How long something may take that takes no time on an idle machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// The plates of a file system: the tests of one plate are done again with four.
pub(crate) fn plates() -> u16 {
    if env!("CARGO_CRATE_NAME") == "mounts_over_plates" { 4 } else { 1 }
}

/// Waits until `cond` holds.
pub(crate) fn until(what: &str, mut cond: impl FnMut() -> bool) {
    let start = now();
    while !cond() {
        assert!(now() - start < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The clock of the tests' deadlines.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// False, with a printed line, where a test cannot run.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: this test needs root (mounts)");
    }
    root
}

/// Random numbers from a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A folder for one test; mounts in it are detached at the end.
pub(crate) struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir(dir.path().join("mnt")).expect("a mount point");
        Scratch { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub(crate) fn mnt(&self) -> PathBuf {
        self.path("mnt")
    }

    /// Makes the data directory a tmpfs of this size (`64m`). False, with a printed line, where mounting is not
    /// permitted.
    pub(crate) fn small_disk(&self, size: &str) -> bool {
        if !is_root() {
            return false;
        }
        fs::create_dir(self.data()).expect("a folder");
        let options = std::ffi::CString::new(format!("size={size},mode=700")).expect("no NUL");
        let mounted =
            rustix::mount::mount("tmpfs", self.data(), "tmpfs", MountFlags::empty(), options.as_c_str());
        if let Err(e) = mounted {
            eprintln!("SKIPPED: this test needs to mount a tmpfs: {e}");
        }
        mounted.is_ok()
    }

    /// The command `chiton` for another user than root. The build directory may be closed to that user (root's home
    /// directory is), so the program is copied here; the caller grants access to this folder.
    pub(crate) fn chiton_of_another_user(&self) -> Command {
        let program = self.path("chiton-for-all");
        if !program.exists() {
            let built = Path::new(env!("CARGO_BIN_EXE_chiton"));
            fs::hard_link(built, &program)
                .or_else(|_| fs::copy(built, &program).map(drop))
                .expect("a program");
        }
        let mut command = as_another_user();
        command.arg(program).stdin(Stdio::null());
        command
    }

    /// Makes the data directory an ext4 of this many MiB on a loop device. False, with a printed line, where that
    /// is not possible.
    pub(crate) fn small_ext4(&self, mib: u64) -> bool {
        if !is_root() {
            return false;
        }
        fs::create_dir(self.data()).expect("a folder");
        let image = self.path("image");
        File::create(&image).and_then(|file| file.set_len(mib << 20)).expect("an image");
        let run = |command: &mut Command| match command.output() {
            Ok(out) if out.status.success() => Ok(()),
            Ok(out) => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
            Err(e) => Err(e.to_string()),
        };
        let made = run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image))
            .and_then(|()| run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(self.data())));
        if let Err(e) = &made {
            eprintln!("SKIPPED: this test needs mkfs.ext4 and a loop device: {e}");
            return false;
        }
        fs::remove_dir(self.data().join("lost+found")).expect("an empty disk");
        true
    }

    pub(crate) fn format(&self) {
        let out = chiton()
            .args(["format", "--plates", &plates().to_string()])
            .arg(self.data())
            .output()
            .expect("runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for line in table.lines().rev() {
            let Some(at) = line.split(' ').nth(1) else { continue };
            if Path::new(at).starts_with(self.dir.path()) {
                let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
            }
        }
    }
}

/// Runs the program in its first argument as another user than root, without supplementary groups.
pub(crate) fn as_another_user() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command
}

pub(crate) fn chiton() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chiton"));
    command.stdin(Stdio::null());
    command
}

/// A `chiton` in the foreground; killed when dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts one that writes its messages to `log`, which is added to.
    pub(crate) fn start(mut command: Command, log: PathBuf) -> Process {
        let file = File::options().create(true).append(true).open(&log).expect("a log");
        let child = command.stdout(Stdio::null()).stderr(file).spawn().expect("it starts");
        Process { child, log }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until its output has contained `words` this many times in all.
    pub(crate) fn says(&mut self, words: &str, times: usize) {
        until(words, || {
            let said = self.said();
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                panic!("it ended ({status}) and said:\n{said}");
            }
            said.matches(words).count() >= times
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it is there");
        if signal == Signal::STOP {
            // Otherwise a thread of it may still take a request, and a process that waits for that cannot be
            // killed.
            until("it stands still", || stands_still(pid));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends");
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the process ends", || {
            status = self.child.try_wait().expect("it is ours");
            status.is_some()
        });
        status.expect("just seen")
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_none()
    }

    /// A figure of the kernel about it: `VmRSS` (in KiB), `Threads`.
    pub(crate) fn figure(&self, word: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it is there");
        let line = status.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(':'));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        number.unwrap_or_else(|| panic!("no {word} in {status}"))
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it is there").count()
    }

    /// Checks that it did not panic.
    pub(crate) fn assert_sane(&self) {
        let said = self.said();
        assert!(!said.contains("panicked") && !said.contains("bug:"), "{said}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; one that is stopped dies of this, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server of `scratch`'s data directory, ready.
pub(crate) fn serve(scratch: &Scratch, more: &[&str]) -> Process {
    let log = scratch.path("server.log");
    let before = fs::read_to_string(&log).unwrap_or_default().matches("serving ").count();
    let mut command = chiton();
    command.arg("serve").arg("--data").arg(scratch.data()).args(more);
    let mut process = Process::start(command, log);
    process.says("serving ", before + 1);
    process
}

/// A server that starts on command. A new program gets copies of this process's open files, and closes them before
/// its first instruction. For files on a mount that waits for that very server this would take for ever. So the
/// process is started before they are opened.
pub(crate) struct Later {
    process: Process,
    before: usize,
}

impl Later {
    /// To be made while no file on the mount is open.
    pub(crate) fn serve(scratch: &Scratch) -> Later {
        let log = scratch.path("server.log");
        let before = fs::read_to_string(&log).unwrap_or_default().matches("serving ").count();
        let mut command = Command::new("sh");
        command.args(["-c", "read -r _ && exec \"$@\" </dev/null", "sh", env!("CARGO_BIN_EXE_chiton")]);
        command.arg("serve").arg("--data").arg(scratch.data()).stdin(Stdio::piped());
        Later { process: Process::start(command, log), before }
    }

    pub(crate) fn start(mut self) -> Process {
        let mut reported = self.process.child.stdin.take().expect("piped");
        reported.write_all(b"now\n").expect("it waits");
        self.process.says("serving ", self.before + 1);
        self.process
    }
}

/// A shell that holds files open on a mount whose server dies. A test must not hold them itself: each program that this
/// process begins gets copies of its open files and closes them before its first instruction. The close of a file that
/// has unsaved data waits for the server, and this process waits for the close.
pub(crate) struct Holder {
    shell: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    pub(crate) fn new() -> Holder {
        let mut command = Command::new("sh");
        command.args(["-c", r#"while read -r line; do eval "$line"; echo "$?"; done"#]);
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh runs");
        let answers = BufReader::new(shell.stdout.take().expect("piped")).lines();
        Holder { shell, answers }
    }

    /// Begins a line of shell, without waiting for its end.
    pub(crate) fn begins(&mut self, line: &str) {
        writeln!(self.shell.stdin.as_mut().expect("piped"), "{line}").expect("it listens");
    }

    /// Runs a line of shell, which must succeed and print nothing.
    pub(crate) fn runs(&mut self, line: &str) {
        self.begins(line);
        let answer = self.answers.next().expect("it answers").expect("a line");
        assert_eq!(answer, "0", "{line}");
    }

    /// Closes its files and ends.
    pub(crate) fn ends(mut self) {
        drop(self.shell.stdin.take());
        assert!(self.shell.wait().expect("it ends").success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A mount; taken away when dropped.
pub(crate) struct Mounted {
    pub(crate) process: Process,
    pub(crate) dir: PathBuf,
}

impl Mounted {
    /// Of the server's socket in `scratch`'s data directory.
    pub(crate) fn connected(scratch: &Scratch, more: &[&str]) -> Mounted {
        let socket = format!("unix:{}", scratch.data().join("socket").display());
        Mounted::start(scratch, "--server", socket.as_ref(), more)
    }

    /// A mount with the server inside.
    pub(crate) fn embedded(scratch: &Scratch, more: &[&str]) -> Mounted {
        Mounted::start(scratch, "--data", &scratch.data(), more)
    }

    /// Another one, on a directory of this name.
    pub(crate) fn beside(scratch: &Scratch, name: &str, more: &[&str]) -> Mounted {
        fs::create_dir_all(scratch.path(name)).expect("a mount point");
        let socket = format!("unix:{}", scratch.data().join("socket").display());
        Mounted::start_at(scratch, name, ("--server", socket.as_ref()), more)
    }

    fn start(scratch: &Scratch, word: &str, place: &Path, more: &[&str]) -> Mounted {
        Mounted::start_at(scratch, "mnt", (word, place), more)
    }

    fn start_at(scratch: &Scratch, at: &str, (word, place): (&str, &Path), more: &[&str]) -> Mounted {
        let (log, dir) = (scratch.path(&format!("{at}.log")), scratch.path(at));
        let before = fs::read_to_string(&log).unwrap_or_default().matches("mounted on").count();
        let mut command = chiton();
        command.args(["mount", "--foreground", word]).arg(place).args(more).arg(&dir);
        let mut process = Process::start(command, log);
        process.says("mounted on", before + 1);
        Mounted { process, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// As a crash of its process.
    pub(crate) fn kill(mut self) {
        self.process.kill();
    }

    /// Unmounts in order.
    pub(crate) fn unmount(mut self) {
        until("nobody uses the mount", || rustix::mount::unmount(&self.dir, UnmountFlags::empty()).is_ok());
        let status = self.process.ended();
        assert!(status.success(), "{status}: {}", self.process.said());
        self.process.assert_sane();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // First the process: its callers get errors then.
        let _ = self.process.child.kill();
        let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
    }
}

/// Aborts a mount from the kernel's side: callers that wait for its process get errors.
pub(crate) fn abort_mount(dir: &Path) {
    let _ = rustix::mount::unmount(dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
}

/// Writes a file whose content can be derived from its name.
pub(crate) fn write_checkable(path: &Path, name: u64, len: usize) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&checkable(name, len))
}

/// Content that names itself: its name, its length, and bytes that follow from both.
pub(crate) fn checkable(name: u64, len: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(16 + len + 8);
    content.extend_from_slice(&name.to_le_bytes());
    content.extend_from_slice(&(len as u64).to_le_bytes());
    let mut random = Random(name ^ ((len as u64) << 32));
    while content.len() < 16 + len {
        content.extend_from_slice(&random.next().to_le_bytes());
    }
    content
}

/// Why a file is not whole.
pub(crate) fn check_whole(path: &Path, name: u64) -> Result<(), String> {
    let content = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let short = || format!("{}: {} bytes are too few", path.display(), content.len());
    let number =
        |at: usize| content.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")));
    let (Some(found), Some(len)) = (number(0), number(8)) else { return Err(short()) };
    if found != name {
        return Err(format!("{}: holds {found}, not {name}", path.display()));
    }
    if len > 1 << 30 || content != checkable(name, len as usize) {
        return Err(format!("{}: {} bytes are not what was written", path.display(), content.len()));
    }
    Ok(())
}

/// Makes everything durable that was answered to this mount.
pub(crate) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Writes at the end of a file.
pub(crate) fn append_bytes(path: &Path, bytes: &[u8]) {
    let file = File::options().write(true).open(path).expect("opens");
    let len = file.metadata().expect("a length").len();
    file.write_all_at(bytes, len).expect("written");
}

/// Whether all threads of a process are stopped.
fn stands_still(pid: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).expect("it is there");
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The text after the name, which may contain anything but is in parentheses.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}
