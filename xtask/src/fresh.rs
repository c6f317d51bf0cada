//! `./x fresh`: the project on a bare Debian. It proves that the bootstrap installs everything that the demo and the tests need.
//!
//! ```text
//!   mirror of this machine's apt sources ─ debootstrap --variant=minbase ─▶ target/fresh/root
//!   this repository ─ git clone ─▶ root/root/chiton      (in root's home directory, which other users cannot enter)
//!   unshare (mounts, processes) ─▶ bind Rust, the cargo registry, /dev/fuse ─▶ pivot_root ─▶ ./x demo, ./x test
//! ```
//!
//! - Every mount is made in a separate mount namespace, and every process runs in a separate process namespace.
//!   Both end with the command, however it ends, so no mount or process can remain.
//! - The root directory is removed only when no mount of this machine lies below it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Result, captured, fresh_dir, root, shown};
use crate::stopwatch::Stopwatch;

const USAGE: &str = "\
usage: ./x fresh [--keep] [--mirror URL] [--target DIR] [COMMAND [ARGUMENT]...]

Makes a bare Debian with debootstrap, clones this repository's last commit into it, and runs ./x demo and ./x test there,
or ./x COMMAND. It needs root and debootstrap; the mirror is that of this machine's apt sources.
  --keep         leave the root directory, to look at
  --mirror URL   the Debian mirror to use
  --target DIR   use DIR as cargo's target directory, so that a second run builds less";

/// The release of Debian that is made.
const SUITE: &str = "bookworm";
/// Where the repository lies in the new root.
const HOME: &str = "/root";
const CLONE: &str = "/root/chiton";
/// Where certificates that the environment names are found in the new root.
const CERTIFICATES: &str = "/etc/certificates-of-the-host.crt";
/// Devices of this machine that the new root has, too.
const DEVICES: &str = "null zero full random urandom tty fuse";

/// Variables that name a file of certificates: machines behind a proxy may need its own.
const CERTIFICATE_VARIABLES: [&str; 6] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "GIT_SSL_CAINFO",
];
/// Environment variables for access to registries; a name that ends in `_` is a prefix.
const KEPT_VARIABLES: [&str; 11] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "PIP_",
    "CARGO_PROFILE_",
    "CARGO_REGISTRIES_",
    "CARGO_HTTP_",
    "CARGO_INCREMENTAL",
];

/// Mounts the parts that the new root (`$1`) needs, and runs the commands there. `$2`: a target directory, or
/// empty; `$3`: the devices; from `$4` on: directories to bind at the same path. As the first process of its
/// namespace this shell also reaps orphaned processes.
const ENTER: &str = r#"
set -eu
root=$1 target=$2 devices=$3
shift 3
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for device in $devices; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
for dir in "$@"; do
    mkdir -p "$root$dir"
    mount --bind "$dir" "$root$dir"
done
if [ -n "$target" ]; then
    mkdir -p "$root/root/chiton/target"
    mount --bind "$target" "$root/root/chiton/target"
fi
trap 'exit 130' INT TERM
cd "$root"
# Not chroot: in one Linux makes no user namespaces. The old root lies over the new one until it is taken away.
pivot_root . .
umount -l .
cd /
/bin/sh -c "$FRESH_COMMAND"
"#;

#[derive(Debug, Default, PartialEq)]
struct Wanted {
    keep: bool,
    mirror: Option<String>,
    target: Option<PathBuf>,
    command: Vec<String>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    if args.first().is_some_and(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return Ok(());
    }
    let wanted = parse(args)?;
    if captured(Command::new("id").arg("-u"))?.trim() != "0" {
        return Err(
            "it makes a root directory and mounts in it, which only root may: run it with sudo".into()
        );
    }
    let clock = Stopwatch::start();
    let mirror = match &wanted.mirror {
        Some(mirror) => mirror.clone(),
        None => mirror()?,
    };
    let rust = Rust::find()?;
    let new_root = fresh_dir("fresh")?.join("root");
    say(&format!("making a bare Debian ({SUITE}) from {mirror} in {}", new_root.display()));
    debootstrap(&mirror, &new_root)?;
    let result = prepare(&new_root).and_then(|()| enter(&wanted, &rust, &new_root));
    if wanted.keep {
        say(&format!("the root directory is left: {}", new_root.display()));
    } else {
        remove(&new_root)?;
    }
    say(&format!("{:.0} s", clock.seconds()));
    result
}

fn parse(args: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--keep" => wanted.keep = true,
            "--mirror" => wanted.mirror = Some(args.next().ok_or(USAGE)?.clone()),
            "--target" => {
                let dir = std::path::absolute(args.next().ok_or(USAGE)?);
                wanted.target = Some(dir.map_err(|e| format!("--target: {e}"))?);
            }
            other if other.starts_with('-') => return Err(format!("{other} is not known\n{USAGE}")),
            command => {
                wanted.command.push(command.to_owned());
                wanted.command.extend(args.by_ref().cloned());
            }
        }
    }
    Ok(wanted)
}

fn say(text: &str) {
    println!("fresh: {text}");
}

/// The Debian mirror of this machine's apt sources: that of the release if they have it, else any.
fn mirror() -> Result<String> {
    let format = "$(ORIGIN) $(RELEASE) $(REPO_URI)";
    let said = captured(Command::new("apt-get").args(["indextargets", "--format", format]))?;
    let of_debian: Vec<(&str, &str)> =
        said.lines().filter_map(|line| line.strip_prefix("Debian ")?.split_once(' ')).collect();
    let same = of_debian.iter().find(|(release, _)| *release == SUITE);
    let found = same.or(of_debian.first());
    found.map(|(_, mirror)| (*mirror).to_owned()).ok_or_else(|| {
        "this machine's apt sources name no Debian mirror (apt-get update may not have run yet): name one with --mirror URL"
            .to_owned()
    })
}

fn debootstrap(mirror: &str, new_root: &Path) -> Result<()> {
    let log = new_root.with_extension("log");
    let out = std::fs::File::create(&log).map_err(|e| format!("cannot make {}: {e}", log.display()))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "debootstrap", "--variant=minbase", SUITE]);
    let status = command.arg(new_root).arg(mirror).stdout(out).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("debootstrap failed ({status}): {} says why", log.display())),
        Err(e) => Err(format!("cannot run unshare: {e}")),
    }
}

/// Copies the repository, and the files for name resolution.
fn prepare(new_root: &Path) -> Result<()> {
    for file in ["/etc/resolv.conf", "/etc/hosts"] {
        let to = new_root.join(&file[1..]);
        // It may be a link to a place that the new root does not have.
        let _ = std::fs::remove_file(&to);
        if Path::new(file).exists() {
            std::fs::copy(file, &to).map_err(|e| format!("cannot copy {file}: {e}"))?;
        }
    }
    let changed = captured(Command::new("git").current_dir(root()).args(["status", "--porcelain"]))?;
    if !changed.is_empty() {
        say("this repository has changes that are not committed; they are not tried");
    }
    let clone = new_root.join(&CLONE[1..]);
    captured(Command::new("git").args(["clone", "--quiet", "--no-local"]).arg(root()).arg(clone)).map(|_| ())
}

/// This machine's Rust toolchain.
struct Rust {
    /// Directories to bind into the new root.
    dirs: Vec<PathBuf>,
    /// The directory of `cargo`.
    bin: PathBuf,
    cargo_home: PathBuf,
    rustup_home: Option<PathBuf>,
}

impl Rust {
    fn find() -> Result<Rust> {
        let home = |variable: &str, name: &str| {
            let named = std::env::var_os(variable).map(PathBuf::from);
            named.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(name)))
        };
        let cargo_home = home("CARGO_HOME", ".cargo").ok_or("neither CARGO_HOME nor HOME is set")?;
        let rustup_home = home("RUSTUP_HOME", ".rustup").filter(|dir| dir.join("toolchains").is_dir());
        let said = captured(Command::new("rustc").current_dir(root()).args(["--print", "sysroot"]))?;
        let sysroot = PathBuf::from(said.trim());
        let mut dirs = vec![cargo_home.clone()];
        dirs.extend(rustup_home.clone());
        let is_covered = dirs.iter().any(|dir| sysroot.starts_with(dir));
        if !is_covered && ["/", "/usr"].iter().any(|dir| sysroot == Path::new(dir)) {
            return Err(format!(
                "Rust lies in {}, which cannot be lent to another root directory: install it with rustup (https://rustup.rs)",
                sysroot.display()
            ));
        }
        let has_proxies = rustup_home.is_some() && cargo_home.join("bin/cargo").exists();
        let bin = if has_proxies { cargo_home.join("bin") } else { sysroot.join("bin") };
        if !is_covered {
            dirs.push(sysroot);
        }
        Ok(Rust { dirs, bin, cargo_home, rustup_home })
    }
}

/// Runs the commands in the new root.
fn enter(wanted: &Wanted, rust: &Rust, new_root: &Path) -> Result<()> {
    let commands: Vec<Vec<String>> = match wanted.command.is_empty() {
        true => vec![vec!["demo".into()], vec!["test".into()]],
        false => vec![wanted.command.clone()],
    };
    if let Some(dir) = &wanted.target {
        std::fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    }
    let mut failed = Vec::new();
    for words in commands {
        let line = format!("./x {}", words.join(" "));
        say(&format!("{line}, in the bare Debian"));
        let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let script = format!("cd {CLONE} && ./x {}", quoted.join(" "));
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-c", ENTER, "sh"]).arg(new_root);
        command.arg(wanted.target.as_deref().unwrap_or(Path::new(""))).arg(DEVICES).args(&rust.dirs);
        environment(&mut command, rust, new_root)?;
        command.env("FRESH_COMMAND", script);
        match shown(&mut command) {
            Ok(()) => say(&format!("{line} passed")),
            Err(_) => failed.push(line),
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("on a bare Debian {} failed; see above", failed.join(" and "))),
    }
}

/// The environment: that of a login of root, the Rust toolchain, and access to registries.
fn environment(command: &mut Command, rust: &Rust, new_root: &Path) -> Result<()> {
    command.env_clear();
    let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    command.env("PATH", format!("{}:{system}", rust.bin.display()));
    command.env("HOME", HOME).env("LANG", "C.UTF-8").env("TERM", "dumb").env("RUSTUP_AUTO_INSTALL", "0");
    command.env("CARGO_HOME", &rust.cargo_home);
    if let Some(dir) = &rust.rustup_home {
        command.env("RUSTUP_HOME", dir);
    }
    for (name, value) in std::env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        if CERTIFICATE_VARIABLES.contains(&text) {
            if Path::new(&value).is_file() {
                let copied = std::fs::copy(&value, new_root.join(&CERTIFICATES[1..]));
                copied.map_err(|e| format!("cannot copy {} ({text}): {e}", Path::new(&value).display()))?;
                command.env(&name, CERTIFICATES);
            }
        } else if KEPT_VARIABLES
            .iter()
            .any(|kept| text == *kept || (kept.ends_with('_') && text.starts_with(kept)))
        {
            command.env(&name, &value);
        }
    }
    Ok(())
}

/// As a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Removes the new root, unless something of this machine is mounted below it.
fn remove(new_root: &Path) -> Result<()> {
    let table = std::fs::read_to_string("/proc/self/mounts")
        .map_err(|e| format!("cannot read the table of mounts: {e}"))?;
    let below = |line: &&str| line.split(' ').nth(1).is_some_and(|at| Path::new(at).starts_with(new_root));
    if let Some(line) = table.lines().find(below) {
        return Err(format!(
            "{} is not removed, since something is mounted in it: {line}",
            new_root.display()
        ));
    }
    std::fs::remove_dir_all(new_root).map_err(|e| format!("cannot remove {}: {e}", new_root.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_stand_before_the_command_whose_own_stand_behind_it() {
        assert_eq!(parse(&[]), Ok(Wanted::default()));
        let wanted = parse(&words("--keep --mirror http://m --target /t demo --small --keep")).expect("fine");
        assert!(wanted.keep && wanted.mirror.as_deref() == Some("http://m"), "{wanted:?}");
        assert_eq!(wanted.command, ["demo", "--small", "--keep"]);
        assert_eq!(wanted.target, Some(PathBuf::from("/t")));
        for wrong in ["--mirror", "--target", "--other"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_word_for_the_shell_is_one_word() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
