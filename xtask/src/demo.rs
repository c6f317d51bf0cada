//! `./x demo`: Chiton seen at work. One process on a local directory, real input, `kill -9` in the middle.

mod subtrees;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::run::{Build, Mounted, Result, captured, fresh_dir, programs, root};
use crate::stopwatch::Stopwatch;
use crate::tree;

/// The size of the demo.
struct Size {
    files: usize,
    storm_files: u64,
    crash_writes: u64,
    /// Files of the tree that is unpacked side by side in subtrees with different policies.
    subtree_files: usize,
}

/// One line of the closing table.
struct Line {
    what: String,
    chiton: f64,
    trivial: Option<f64>,
    unit: &'static str,
}

/// Runs the demo with these arguments.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (mut size, mut build) = (LARGE, Build::Release);
    for arg in args {
        match arg.as_str() {
            "--small" => size = SMALL,
            "--dev" => build = Build::Dev,
            _ => return Err("usage: ./x demo [--small] [--dev]".into()),
        }
    }
    say(if build == Build::Release { "building (release)" } else { "building (as the tests are built)" });
    show(&size, &programs(build)?)
}

/// Runs the small demo with the test build: its checks count, not its speed.
pub(crate) fn check() -> Result<()> {
    show(&SMALL, &programs(Build::Dev)?)
}

const LARGE: Size = Size { files: 10_000, storm_files: 20_000, crash_writes: 3_000, subtree_files: 4_000 };
const SMALL: Size = Size { files: 2_000, storm_files: 2_000, crash_writes: 500, subtree_files: 200 };

fn show(size: &Size, programs: &Path) -> Result<()> {
    let work = fresh_dir("demo")?;
    let mut table = Vec::new();

    say("packing a real source tree: the sources of this project's dependencies");
    let (archive, sums) = tree::pack(&work, size.files)?;
    say(&format!("{} files, {} MiB", sums.len(), fs::metadata(&archive).map_or(0, |m| m.len() >> 20)));

    let mount = Mounted::start(programs, &work.join("data"), &work.join("mnt"))?;
    say(&format!("mounted: chiton mount --data {} {}", work.join("data").display(), mount.dir().display()));
    let trivial = Trivial::start(programs, &work.join("trivial"))?;

    let unpacked = mount.dir().join("sources");
    let ours = unpack(&archive, &unpacked)?;
    let theirs = unpack(&archive, &trivial.dir.join("sources"))?;
    table.push(Line::rate("unpack (tar xf)", sums.len() as u64, ours, Some(theirs), "files/s"));
    say("checking every checksum");
    compare(&unpacked, &sums)?;

    say("building inside the mount: git clone of this project, cargo build of one of its crates");
    let seconds = build(mount.dir())?;
    table.push(Line { what: "git clone + cargo build".into(), chiton: seconds, trivial: None, unit: "s" });

    for processes in ["1", "4"] {
        say(&format!("create storm, {processes} process(es)"));
        let ours = storm(programs, mount.dir(), processes, size.storm_files)?;
        let theirs = storm(programs, &trivial.dir, processes, size.storm_files)?;
        for (phase, rate) in ours {
            let trivial = theirs.get(&phase).copied();
            table.push(Line {
                what: format!("{phase}, {processes} proc"),
                chiton: rate,
                trivial,
                unit: "ops/s",
            });
        }
    }
    trivial.stop();

    say("a writer with fsync now and then, and kill -9 of the server in the middle");
    let crash = crash_writes(mount, size.crash_writes)?;
    let mount = Mounted::start(programs, &work.join("data"), &work.join("mnt"))?;
    let kept = verify_crash(mount.dir(), &crash)?;
    say(&format!(
        "mounted again: {} files answered, {} promised by fsync, {kept} there: a prefix, nothing promised lost",
        crash.written, crash.promised
    ));
    compare(&mount.dir().join("sources"), &sums)?;
    say("every checksum of the source tree still right");
    mount.unmount()?;

    let beside = subtrees::show(programs, &work.join("subtrees"), size.subtree_files)?;

    print_table(&table);
    println!("\nThe same job side by side, while a second client looked on:{beside}");
    println!("\nThe file system is in {}; mount it with", work.join("data").display());
    println!(
        "  {} mount --data {} {}",
        programs.join("chiton").display(),
        work.join("data").display(),
        work.join("mnt").display()
    );
    Ok(())
}

fn say(text: &str) {
    println!("demo: {text}");
    let _ = std::io::stdout().flush();
}

impl Line {
    fn rate(what: &str, n: u64, ours: f64, theirs: Option<f64>, unit: &'static str) -> Line {
        Line { what: what.into(), chiton: n as f64 / ours, trivial: theirs.map(|s| n as f64 / s), unit }
    }
}

fn print_table(lines: &[Line]) {
    println!("\n{:<28} {:>12} {:>14} {:>7}  unit", "", "Chiton", "trivial FUSE", "ratio");
    for line in lines {
        let theirs = line.trivial.map_or("-".into(), |t| format!("{t:.0}"));
        let ratio = line.trivial.map_or("-".into(), |t| format!("{:.2}", line.chiton / t));
        let ours =
            if line.unit == "s" { format!("{:.1}", line.chiton) } else { format!("{:.0}", line.chiton) };
        println!("{:<28} {:>12} {:>14} {:>7}  {}", line.what, ours, theirs, ratio, line.unit);
    }
    println!(
        "(trivial FUSE: an in-memory file system that keeps nothing, the floor of a FUSE mount on this machine)"
    );
}

/// The trivial in-memory file system of `bench/`, mounted.
struct Trivial {
    dir: PathBuf,
    child: Child,
}

impl Trivial {
    fn start(programs: &Path, dir: &Path) -> Result<Trivial> {
        fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let child = Command::new(programs.join("trivial-fs"))
            .arg(dir)
            .spawn()
            .map_err(|e| format!("cannot start trivial-fs: {e}"))?;
        let trivial = Trivial { dir: dir.to_path_buf(), child };
        for _ in 0..500 {
            if captured(Command::new("mountpoint").arg("-q").arg(dir)).is_ok() {
                return Ok(trivial);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(format!("trivial-fs did not mount {}", dir.display()))
    }

    fn stop(self) {}
}

impl Drop for Trivial {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).stderr(Stdio::null()).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Unpacks an archive; returns the seconds.
fn unpack(archive: &Path, dir: &Path) -> Result<f64> {
    fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    let clock = Stopwatch::start();
    captured(Command::new("tar").arg("-C").arg(dir).arg("-xf").arg(archive))?;
    Ok(clock.seconds())
}

fn compare(dir: &Path, expected: &BTreeMap<String, String>) -> Result<()> {
    let mut tops: Vec<String> =
        expected.keys().filter_map(|p| p.split('/').next()).map(str::to_string).collect();
    tops.dedup();
    let found = tree::checksums(dir, &tops)?;
    for (path, sum) in expected {
        match found.get(path) {
            Some(there) if there == sum => {}
            Some(_) => return Err(format!("{path} has other content in the mount")),
            None => return Err(format!("{path} is missing in the mount")),
        }
    }
    if found.len() == expected.len() {
        Ok(())
    } else {
        Err("the mount holds files that were never put there".into())
    }
}

/// A clone and a build whose files all lie in the mount. Seconds that both took.
fn build(mount: &Path) -> Result<f64> {
    let clone = mount.join("chiton");
    let clock = Stopwatch::start();
    captured(Command::new("git").args(["clone", "--quiet", "--no-local"]).arg(root()).arg(&clone))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    captured(Command::new(cargo).current_dir(&clone).env("CARGO_TARGET_DIR", clone.join("target")).args([
        "build",
        "--offline",
        "--quiet",
        "--package",
        "chiton-types",
    ]))?;
    let clean = captured(Command::new("git").current_dir(&clone).args(["status", "--porcelain"]))?;
    if clean.is_empty() {
        Ok(clock.seconds())
    } else {
        Err(format!("git sees changes in a fresh clone:\n{clean}"))
    }
}

/// Rates of create, stat and remove.
fn storm(programs: &Path, dir: &Path, processes: &str, files: u64) -> Result<BTreeMap<String, f64>> {
    let each = (files / processes.parse::<u64>().expect("a number")).to_string();
    let said = captured(Command::new(programs.join("mdtest")).arg("--dir").arg(dir).args([
        "--processes",
        processes,
        "--files",
        &each,
        "--shared",
        "--json",
    ]))?;
    let mut rates = BTreeMap::new();
    for phase in said.split('{').skip(1) {
        let field = |name: &str| {
            let rest = phase.split(&format!("\"{name}\":")).nth(1)?.trim_start();
            Some(rest.split([',', '}']).next()?.trim().trim_matches('"').to_string())
        };
        if let (Some(name), Some(ops), Some(seconds)) = (field("name"), field("ops"), field("seconds")) {
            let rate = ops.parse::<f64>().unwrap_or(0.0) / seconds.parse::<f64>().unwrap_or(1.0);
            // A tree is one directory here, which makes no rate.
            if name.starts_with("File") {
                rates.insert(name, rate);
            }
        }
    }
    if rates.is_empty() { Err(format!("mdtest printed no phases: {said}")) } else { Ok(rates) }
}

/// The acknowledgements that a writer got before its server died.
struct Crash {
    /// Number of files whose close returned.
    written: u64,
    /// Files whose fsync was answered, counted from the first without gaps.
    promised: u64,
}

/// Writes numbered files, every 20th with fsync, and kills the mount's process when half of them are written.
fn crash_writes(mount: Mounted, files: u64) -> Result<Crash> {
    let dir = mount.dir().join("crash");
    fs::create_dir(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    let written = Arc::new(AtomicU64::new(0));
    let promised = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (written, promised, stop) = (written.clone(), promised.clone(), stop.clone());
        thread::spawn(move || {
            for i in 0.. {
                let write = || {
                    let mut file = fs::File::create_new(dir.join(format!("{i:08}")))?;
                    file.write_all(&content(i))?;
                    if i % 20 == 19 {
                        file.sync_all()?;
                        promised.store(i + 1, Ordering::SeqCst);
                    }
                    Ok::<(), std::io::Error>(())
                };
                if stop.load(Ordering::SeqCst) || write().is_err() {
                    return;
                }
                written.store(i + 1, Ordering::SeqCst);
            }
        })
    };
    while written.load(Ordering::SeqCst) < files && !writer.is_finished() {
        thread::sleep(Duration::from_millis(1));
    }
    mount.kill()?;
    stop.store(true, Ordering::SeqCst);
    writer.join().map_err(|_| "the writer panicked")?;
    let crash = Crash { written: written.load(Ordering::SeqCst), promised: promised.load(Ordering::SeqCst) };
    if crash.promised == 0 { Err("the writer's first fsync was never answered".into()) } else { Ok(crash) }
}

fn content(i: u64) -> Vec<u8> {
    // Some inside their inode, some in blocks.
    let bytes = if i.is_multiple_of(10) { 50_000 } else { 700 };
    format!("file {i}\n").into_bytes().into_iter().cycle().take(bytes).collect()
}

/// Checks that the existing files are the first ones without gaps, at least the promised ones, with their content.
/// (The last one, whose close may not have returned, may be partial.) Returns their number.
fn verify_crash(mount: &Path, crash: &Crash) -> Result<u64> {
    let dir = mount.join("crash");
    let there = fs::read_dir(&dir).map_err(|e| format!("cannot list {}: {e}", dir.display()))?.count() as u64;
    if there < crash.promised {
        return Err(format!("only {there} files are there, {} were promised", crash.promised));
    }
    for i in 0..there {
        let path = dir.join(format!("{i:08}"));
        let found =
            fs::read(&path).map_err(|e| format!("cannot read {}: {e}: not a prefix", path.display()))?;
        let expected = content(i);
        let whole = found == expected;
        if !whole && (i + 1 < there || !expected.starts_with(&found)) {
            return Err(format!(
                "{} has wrong content ({} bytes of {})",
                path.display(),
                found.len(),
                expected.len()
            ));
        }
    }
    Ok(there)
}
