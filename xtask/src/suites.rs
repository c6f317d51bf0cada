//! The POSIX suites of others on a mount of ours: `pjdfstest` (one case a rule) and `fsx` (random operations on one
//! file, checked byte by byte, mmap included). Both are cargo packages, installed below target.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Build, Mounted, Result, captured, cargo, fresh_dir, programs, root, shown, target};
use crate::verify::before;

const PJDFSTEST: &str = "0.2.2";
const FSX: &str = "0.3.2";

/// Runs both; returns how many cases passed and failed.
pub(crate) fn run() -> Result<(u64, u64)> {
    let suites = install()?;
    let programs = programs(Build::Dev)?;
    // Other users must be able to reach the files: the suite changes its user.
    let work = PathBuf::from("/var/tmp/chiton-suites");
    let _ = std::fs::remove_dir_all(&work);
    let data = fresh_dir("suites-data")?;
    let mount = Mounted::start(&programs, &data, &work)?;
    let configs = root().join("crates/mount/tests/suites");
    let mut passed = 0;
    let mut failed = 0;
    if captured(Command::new("id").arg("-u"))?.trim() == "0" {
        dummy_user()?;
        let dir = work.join("pjdfstest");
        std::fs::create_dir(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let second = PathBuf::from("/var/tmp");
        let out = Command::new(suites.join("pjdfstest"))
            .arg("-c")
            .arg(configs.join("pjdfstest.toml"))
            .arg("-p")
            .arg(&dir)
            .arg("-s")
            .arg(&second)
            .output()
            .map_err(|e| format!("cannot run pjdfstest: {e}"))?;
        let said = String::from_utf8_lossy(&out.stdout);
        let closing = said.lines().rev().find(|l| l.contains(" passed")).unwrap_or_default().to_string();
        for line in said.lines().filter(|l| l.contains("FAILED") || l.contains("panicked")) {
            println!("{line}");
        }
        println!("pjdfstest: {closing}");
        passed += before(&closing, " passed");
        failed += before(&closing, " failed");
        if passed == 0 {
            return Err(format!("pjdfstest ran no case:\n{said}\n{}", String::from_utf8_lossy(&out.stderr)));
        }
    } else {
        println!("pjdfstest: not run, it needs root (it changes users)");
    }
    for (config, seed) in [("fsx.toml", "42"), ("fsx-alloc.toml", "7")] {
        let file = mount.dir().join(format!("fsx-{seed}"));
        let result = fsx(&suites, &configs.join(config), seed, &file);
        println!("fsx {config} seed {seed}: {}", if result.is_ok() { "ok" } else { "FAILED" });
        match result {
            Ok(()) => passed += 1,
            Err(message) => {
                failed += 1;
                println!("{message}");
            }
        }
    }
    mount.unmount()?;
    Ok((passed, failed))
}

fn fsx(suites: &Path, config: &Path, seed: &str, file: &Path) -> Result<()> {
    captured(
        Command::new(suites.join("fsx"))
            .args(["-q", "-f"])
            .arg(config)
            .args(["-N", "10000", "-S", seed, "-P"])
            .arg(target())
            .arg(file),
    )
    .map(|_| ())
}

/// Installs both below target, unless they are there.
fn install() -> Result<PathBuf> {
    let home = target().join("suites");
    for (name, version) in [("pjdfstest", PJDFSTEST), ("fsx", FSX)] {
        if !home.join("bin").join(name).exists() {
            let home = home.to_string_lossy();
            shown(&mut cargo(&[
                "install",
                "--quiet",
                "--debug",
                "--locked",
                "--root",
                &home,
                "--version",
                version,
                name,
            ]))?;
        }
    }
    Ok(home.join("bin"))
}

/// The second unprivileged user that pjdfstest wants.
fn dummy_user() -> Result<()> {
    if captured(Command::new("id").arg("tests")).is_ok() {
        return Ok(());
    }
    captured(Command::new("useradd").args([
        "--system",
        "--user-group",
        "--no-create-home",
        "--shell",
        "/usr/sbin/nologin",
        "tests",
    ]))
    .map(|_| ())
}
