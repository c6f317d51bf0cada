//! This program under the names by which mount(8) and umount(8) call it: `mount.chiton`, so that `mount -t chiton` and /etc/fstab
//! work, and `umount.fuse.chiton`, so that umount(8) waits until everything is durable. Each is a link to `chiton`.
//!
//! ```text
//!   mount.chiton SOURCE DIR -o server=…,ro,_netdev   ──▶  chiton mount --server … --read-only DIR
//!   umount.fuse.chiton DIR                           ──▶  chiton umount DIR
//! ```
//!
//! The words are translated, and this process becomes `chiton` with them. An option that is not known is refused, never ignored,
//! unless it is for mount(8) or systemd.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use chiton_etcd::EtcdAddress;
use chiton_server::DataAddress;

/// The exit code for words that make no sense, as mount(8) has it.
const WRONG_USAGE: u8 = 1;

/// Options without an effect here: those for mount(8) and systemd, and defaults.
const NOTHING_TO_DO: [&str; 25] = [
    "defaults",
    "rw",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "users",
    "owner",
    "group",
    "nouser",
    "async",
    "nosuid",
    "nodev",
    "exec",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "nostrictatime",
    "nomand",
    "silent",
    "loud",
];

/// Options without a value, and the words for them.
const SWITCHES: [(&str, &[&str]); 14] = [
    ("ro", &["--read-only"]),
    ("noexec", &["--no-exec"]),
    ("suid", &["--suid-dev"]),
    ("dev", &["--suid-dev"]),
    ("allow_other", &["--allow-other"]),
    ("nonempty", &["--nonempty"]),
    ("no_decouple", &["--no-decouple"]),
    ("keep_mounts", &["--keep-mounts"]),
    ("no_write_behind", &["--no-write-behind"]),
    ("take_over", &["--take-over"]),
    ("format", &["--format"]),
    ("ino32", &["--ino32"]),
    ("accept_truncated", &["--accept-truncated"]),
    ("salvage", &["--salvage"]),
];

/// Options with a value, and the words before it.
const VALUES: [(&str, &str); 16] = [
    ("server", "--server"),
    ("monitor", "--monitor"),
    ("identity", "--identity"),
    ("data", "--data"),
    ("content", "--content"),
    ("threads", "--threads"),
    ("timeout", "--timeout"),
    ("unmount_timeout", "--unmount-timeout"),
    ("state_dir", "--state-dir"),
    ("cache", "--cache"),
    ("session_time", "--session-time"),
    ("recovery_target", "--recovery-target"),
    ("store_timeout", "--store-timeout"),
    ("reserve", "--reserve"),
    ("metrics", "--metrics"),
    ("slow_ms", "--slow-ms"),
];

/// The command to run instead, if this process was started under the name of a mount helper; otherwise `None`.
pub(crate) fn instead() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let name = PathBuf::from(words.next()?);
    let name = name.file_name()?.to_str()?.to_owned();
    let words: Vec<OsString> = words.collect();
    let translated = match name.as_str() {
        "mount.chiton" | "mount.fuse.chiton" => mount(&words),
        "umount.chiton" | "umount.fuse.chiton" => umount(&words),
        _ => return None,
    };
    Some(match translated {
        Ok(words) if words.is_empty() => ExitCode::SUCCESS,
        Ok(words) => become_chiton(&name, &words),
        Err(why) => {
            chiton_runtime::log_line!("{name}: {why}");
            ExitCode::from(WRONG_USAGE)
        }
    })
}

fn become_chiton(name: &str, words: &[OsString]) -> ExitCode {
    let error = match std::env::current_exe() {
        // A successful mount prints nothing.
        Ok(program) => Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::null()).exec(),
        Err(error) => error,
    };
    chiton_runtime::log_line!("{name}: cannot run chiton: {error}");
    ExitCode::FAILURE
}

/// The words that mount(8) gives its helpers: `SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`.
fn mount(words: &[OsString]) -> Result<Vec<OsString>, String> {
    let mut places = Vec::new();
    let mut options: Vec<String> = Vec::new();
    let (mut is_fake, mut is_sloppy) = (false, false);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-o") => {
                let given = rest.next().and_then(|word| word.to_str()).ok_or("-o needs options")?;
                options.extend(split(given));
            }
            Some("-N" | "-t") => {
                rest.next().ok_or_else(|| format!("{} needs a value", word.display()))?;
            }
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                for flag in flags[1..].chars() {
                    match flag {
                        's' => is_sloppy = true,
                        'f' => is_fake = true,
                        'n' | 'v' => {}
                        'r' => options.push("ro".to_owned()),
                        'w' => options.push("rw".to_owned()),
                        other => return Err(format!("-{other} is not known")),
                    }
                }
            }
            _ => places.push(word),
        }
    }
    let [source, dir] = places.as_slice() else {
        return Err("usage: mount.chiton SOURCE DIRECTORY [-o OPTIONS]; SOURCE is a data directory, s3://BUCKET/PREFIX, \
                    tcp:HOST:PORT, unix:PATH, etcd://HOST:PORT+HOST:PORT, or none with -o server=ADDRESS or -o data=DIR"
            .to_owned());
    };
    // Of a mount that is not in /etc/fstab, mount(8) then names what /proc/mounts shows, which is no source.
    if options.iter().any(|option| option == "remount") {
        return Err(unknown("remount"));
    }
    let mut out: Vec<OsString> = vec!["mount".into()];
    let names_source =
        |option: &String| ["server=", "data=", "monitor="].iter().any(|name| option.starts_with(name));
    if !options.iter().any(names_source) {
        out.extend(of_source(source)?);
    }
    for option in &options {
        match words_of(option) {
            Some(words) => out.extend(words),
            None if is_sloppy => {}
            None => return Err(unknown(option)),
        }
    }
    out.push("--".into());
    out.push((*dir).clone());
    Ok(if is_fake { Vec::new() } else { out })
}

/// Options are parted by commas; a value in quotation marks may contain some.
fn split(options: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut is_quoted = false;
    for c in options.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => all.push(String::new()),
            c => all.last_mut().expect("never empty").push(c),
        }
    }
    all.retain(|option| !option.is_empty());
    all
}

/// The words for one option; `None` if it is not known.
fn words_of(option: &str) -> Option<Vec<OsString>> {
    let is_for_others =
        option.starts_with("x-") || option.starts_with("X-") || option.starts_with("comment=");
    if NOTHING_TO_DO.contains(&option) || is_for_others {
        return Some(Vec::new());
    }
    if let Some((_, words)) = SWITCHES.iter().find(|(name, _)| *name == option) {
        return Some(words.iter().map(OsString::from).collect());
    }
    let (name, value) = option.split_once('=')?;
    let (_, word) = VALUES.iter().find(|(known, _)| *known == name)?;
    Some(vec![format!("{word}={value}").into()])
}

fn unknown(option: &str) -> String {
    let switches = SWITCHES.iter().map(|(name, _)| (*name).to_owned());
    let all: Vec<String> = switches.chain(VALUES.iter().map(|(name, _)| format!("{name}=VALUE"))).collect();
    match option {
        "remount" => "a mount of Chiton cannot be changed while it is mounted: unmount it (chiton umount), then mount it again".to_owned(),
        "sync" | "dirsync" => format!(
            "the option {option} is not supported: set a policy with acknowledge: durable (chiton policy) on the directories that need it"
        ),
        _ => format!("the option {option} is not known; use one of {}", all.join(", ")),
    }
}

/// The source as mount(8) has it from the command line or from /etc/fstab.
fn of_source(source: &OsString) -> Result<Vec<OsString>, String> {
    use std::os::unix::fs::FileTypeExt;
    let text = source.to_str().unwrap_or("");
    if text == "none" || text == "chiton" {
        return Err(format!(
            "the source {text:?} is not a file system: add -o server=ADDRESS or -o data=DIR"
        ));
    }
    let path = Path::new(source);
    let is_socket = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let is_address = text.starts_with("tcp:") || text.starts_with("unix:");
    let is_bucket = matches!(text.parse(), Ok(DataAddress::S3(_)));
    if text.starts_with(EtcdAddress::SCHEME) {
        return Ok(vec!["--monitor".into(), source.clone()]);
    }
    if !is_address && !is_bucket && !source.as_bytes().starts_with(b"/") {
        return Err(format!(
            "the source {text:?} is neither a full path, s3://BUCKET/PREFIX, tcp:HOST:PORT, unix:PATH nor etcd://HOST:PORT"
        ));
    }
    let word = if is_address || is_socket { "--server" } else { "--data" };
    Ok(vec![word.into(), source.clone()])
}

/// The words that umount(8) gives its helpers: `DIR [-flnrv] [-N NAMESPACE] [-t TYPE]`.
fn umount(words: &[OsString]) -> Result<Vec<OsString>, String> {
    let mut out: Vec<OsString> = vec!["umount".into()];
    let mut places = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-N" | "-t") => {
                rest.next().ok_or_else(|| format!("{} needs a value", word.display()))?;
            }
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                if flags.contains(['l', 'f']) {
                    out.push("--lazy".into());
                }
            }
            _ => places.push(word),
        }
    }
    let [dir] = places.as_slice() else {
        return Err("usage: umount.fuse.chiton DIRECTORY [-l]".to_owned());
    };
    out.push("--".into());
    out.push((*dir).clone());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Chiton;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_words_of_mount_become_those_of_chiton() {
        let check = |given: &str, expect: &str| {
            assert_eq!(mount(&words(given)), Ok(words(expect)), "{given}");
        };
        check("/srv/c /mnt", "mount --data /srv/c -- /mnt");
        check("/srv/c /mnt -o rw,_netdev,x-systemd.automount,nofail", "mount --data /srv/c -- /mnt");
        check("tcp:server:7117 /mnt -n -v -o ro", "mount --server tcp:server:7117 --read-only -- /mnt");
        check(
            "s3://bucket/p /mnt -o cache=2G,noexec",
            "mount --data s3://bucket/p --cache=2G --no-exec -- /mnt",
        );
        check("none /mnt -o server=unix:/run/s,timeout=5", "mount --server=unix:/run/s --timeout=5 -- /mnt");
        check("/srv/c /mnt -s -o other -t chiton -N /proc/7/ns/mnt", "mount --data /srv/c -- /mnt");
        check("-f /srv/c /mnt", "");
        assert_eq!(umount(&words("/mnt -l -t fuse.chiton")), Ok(words("umount --lazy -- /mnt")));
    }

    /// Options of `chiton mount` that make no sense in /etc/fstab: mount(8) waits until the program has gone to the background, and
    /// reads none of its output.
    const NOT_IN_FSTAB: [&str; 5] = ["foreground", "json", "announce", "help", "version"];

    #[test]
    fn every_option_of_mount_has_a_name_in_fstab() {
        let command = <Chiton as clap::CommandFactory>::command();
        let mount = command.find_subcommand("mount").expect("there is chiton mount");
        let longs: Vec<&str> = mount.get_arguments().filter_map(clap::Arg::get_long).collect();
        assert!(longs.len() > 20, "{longs:?}");
        let of_switches = SWITCHES.iter().flat_map(|(_, words)| words.iter().copied());
        let known: Vec<&str> = of_switches.chain(VALUES.iter().map(|(_, word)| *word)).collect();
        let is_missing =
            |long: &&&str| !NOT_IN_FSTAB.contains(*long) && !known.contains(&format!("--{long}").as_str());
        let missing: Vec<_> = longs.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn unknown_options_are_refused() {
        let check = |given: &str, why: &str| {
            let said = mount(&words(given)).expect_err(given);
            assert!(said.contains(why), "{given}: {said}");
        };
        check("/srv/c", "usage: mount.chiton");
        check("none /mnt", "-o server=ADDRESS");
        check("srv /mnt", "neither a full path");
        check("/srv/c /mnt -o other=1", "other=1 is not known; use one of ro,");
        check("/srv/c /mnt -o remount", "chiton umount");
        check("chiton:/srv/c /mnt -o remount,ro", "chiton umount");
        check("/srv/c /mnt -o sync", "acknowledge: durable");
        check("/srv/c /mnt -x", "-x is not known");
        check("/srv/c /mnt -o", "-o needs options");
    }

    /// Every option that is offered here is one of `chiton mount`.
    #[test]
    fn each_helper_option_exists_in_chiton_mount() {
        let values = [
            ("server", "tcp:host:1"),
            ("data", "/srv/c"),
            ("content", "lazy"),
            ("monitor", "etcd://h1+h2:2379/prefix"),
            ("identity", "/etc/chiton/alice.pem"),
            ("threads", "2"),
            ("timeout", "5"),
            ("unmount_timeout", "5"),
            ("state_dir", "/var"),
            ("cache", "1G"),
            ("session_time", "30"),
            ("recovery_target", "5s"),
            ("store_timeout", "20"),
            ("reserve", "1G"),
            ("metrics", "127.0.0.1:9117"),
            ("slow_ms", "500"),
        ];
        assert!(VALUES.iter().all(|(name, _)| values.iter().any(|(known, _)| known == name)));
        let with_values = values.iter().map(|(name, value)| format!("{name}={value}"));
        let all = with_values.chain(SWITCHES.iter().map(|(name, _)| (*name).to_owned()));
        for option in all {
            let mut given = words("chiton");
            given.extend(mount(&words(&format!("/srv/c /mnt -o {option}"))).expect("known"));
            assert!(Chiton::try_parse_from(&given).is_ok(), "{given:?}");
        }
    }

    #[test]
    fn values_may_contain_commas_in_quotation_marks() {
        assert_eq!(split("ro,data=\"/a,b\",,rw"), ["ro", "data=/a,b", "rw"]);
    }
}
