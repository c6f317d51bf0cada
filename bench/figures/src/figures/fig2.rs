//! Figure 2: processor, disk and network of the server while a project is unpacked, compiled and removed through a mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::gauge::Used;
use crate::mount::{Mount, chiton, done};
use crate::setting::now;
use crate::site::{Shape, Site};
use crate::{Result, Setting, Table};

/// The interval of samples.
const TICK: Duration = Duration::from_millis(200);
const POLICIES: [&str; 2] = ["posix", "batchfs"];

pub(super) fn run(setting: &Setting) -> Result<()> {
    let Some(chiton) = chiton(setting) else {
        setting.say("fig2: left out: it needs root, /dev/fuse, and chiton beside this program");
        return Ok(());
    };
    // Small files as in a kernel's tree, and sources that are compiled.
    let (files, sources) = setting.scale.pick((40, 4), (3_000, 60), (40_000, 600));
    let scratch = setting.scratch()?;
    let archive = pack(scratch.path(), files, sources)?;
    let mut table = Table::default();
    for run in 0..setting.scale.runs() {
        for policy in POLICIES {
            setting.policy(policy)?;
            phases(setting, &chiton, &archive, policy, run, &mut table)?;
            setting.say(format!("fig2, run {}: {policy}", run + 1));
        }
    }
    table.add("project", "files", 0, files as f64, "files");
    table.add("project", "sources", 0, sources as f64, "files");
    setting.write("fig2", &table)
}

/// A project in C: sources that are compiled, and many more files that only lie there, ten to a folder.
fn pack(dir: &Path, files: usize, sources: usize) -> Result<PathBuf> {
    let tree = dir.join("project");
    fs::create_dir_all(&tree)?;
    for n in 0..files {
        let folder = tree.join(format!("part{}", n / 10));
        if n % 10 == 0 {
            fs::create_dir(&folder)?;
        }
        // From a few bytes to some KiB.
        fs::write(folder.join(format!("file{n}.h")), format!("/* {n} */\n").repeat(1 + n * 37 % 400))?;
    }
    let mut objects = String::new();
    for n in 0..sources {
        let body = "x = x * 31 + 7;\n".repeat(50);
        fs::write(tree.join(format!("source{n}.c")), format!("int f{n}(int x) {{ {body} return x; }}\n"))?;
        objects.push_str(&format!(" source{n}.o"));
    }
    fs::write(tree.join("main.c"), "int main(void) { return 0; }\n")?;
    let rule = "%.o: %.c\n\tcc -O1 -c -o $@ $<\n";
    fs::write(tree.join("Makefile"), format!("program: main.o{objects}\n\tcc -o $@ $^\n{rule}"))?;
    let archive = dir.join("project.tar");
    done(Command::new("tar").arg("-C").arg(dir).arg("-cf").arg(&archive).arg("project"))?;
    fs::remove_dir_all(tree)?;
    Ok(archive)
}

fn phases(
    setting: &Setting,
    chiton: &Path,
    archive: &Path,
    policy: &str,
    run: usize,
    table: &mut Table,
) -> Result<()> {
    let site = Site::start(setting, Shape { tcp: true, ..Shape::default() })?;
    let mount = Mount::start(chiton, &site, "mnt")?;
    let job = mount.dir().join("job");
    fs::create_dir(&job)?;
    done(Command::new(chiton).args(["policy", "set"]).arg(&job).arg(policy))?;
    let (over, begun) = (AtomicBool::new(false), now());
    let (ends, samples) = thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(site.pid(), &over));
        let work = || -> Result<Vec<(&str, f64)>> {
            let mut ends = Vec::new();
            let mut end = |phase| ends.push((phase, (now() - begun).as_secs_f64()));
            done(Command::new("tar").arg("-C").arg(&job).arg("-xf").arg(archive))?;
            end("unpack");
            done(Command::new("make").args(["-s", "-j2", "-C"]).arg(job.join("project")))?;
            end("compile");
            if policy == "batchfs" {
                done(Command::new(chiton).arg("merge").arg(&job))?;
                end("merge");
            }
            fs::remove_dir_all(job.join("project"))?;
            end("remove");
            Ok(ends)
        };
        let ends = work();
        over.store(true, Ordering::SeqCst);
        let samples = sampler.join().map_err(|_| "the sampler panicked")??;
        Ok::<_, crate::Failure>((ends?, samples))
    })?;
    mount.end()?;
    for (phase, at) in ends {
        table.add(&format!("{policy}: end"), phase, run, at, "s");
    }
    let ticks_each = rustix::param::clock_ticks_per_second() as f64;
    for pair in samples.windows(2) {
        let ((before, was), (at, is)) = (pair[0], pair[1]);
        let seconds = (at - before).as_secs_f64();
        let x = format!("{:.3}", at.saturating_sub(begun).as_secs_f64());
        let rate = |is: u64, was: u64| is.saturating_sub(was) as f64 / seconds;
        let mib = f64::from(1 << 20);
        table.add(
            &format!("{policy}: processor"),
            &x,
            run,
            rate(is.ticks, was.ticks) / ticks_each * 100.0,
            "%",
        );
        table.add(&format!("{policy}: disk"), &x, run, rate(is.disk_bytes, was.disk_bytes) / mib, "MiB/s");
        table.add(
            &format!("{policy}: network"),
            &x,
            run,
            rate(is.network_bytes, was.network_bytes) / mib,
            "MiB/s",
        );
    }
    Ok(())
}

/// The resources that a process has used, every [`TICK`], and once more at the end.
fn sample(pid: u32, over: &AtomicBool) -> Result<Vec<(Duration, Used)>> {
    let mut samples = vec![(now(), Used::by(pid)?)];
    while !over.load(Ordering::SeqCst) {
        thread::sleep(TICK);
        samples.push((now(), Used::by(pid)?));
    }
    Ok(samples)
}
