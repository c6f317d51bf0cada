//! Checks that a mount or server can answer, before a command touches it: a process that touches a mount whose
//! server is gone waits until the server is back (S5).
//!
//! ```text
//!   path ─ table of mounts, links outside of ours ─▶ mount ─ its source ─▶ address ─ probe ─▶ the command begins
//!                                                                            └ closed to this user ─▶ the mount probes
//! ```

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use chiton_fuse::{ControlReply, ControlRequest, ask_control};
use chiton_runtime::{RealWorld, World};
use chiton_transport::{Address, OpenError};
use chiton_wire::RefuseReason;
use rustix::io::Errno;

use crate::commands::cluster;
use crate::failure::{Failure, Outcome};
use crate::{identity, target};

/// A server without an answer in this time counts as gone: a little less than the two seconds that the documents state.
const PROBE_LIMIT: Duration = Duration::from_millis(1900);
/// Between two questions to a server that is not ready.
const READY_PAUSE: Duration = Duration::from_millis(50);
/// The type under which the system knows our mounts, and how their sources begin.
pub(crate) const KIND: &str = "fuse.chiton";
const SOURCE: &str = "chiton:";
/// Most symbolic links in a path, as Linux has it.
const LINKS_MAX: usize = 40;

/// The mount that a path is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The mount point.
    pub(crate) dir: PathBuf,
    pub(crate) source: String,
    /// The type of its file system, as the system names it.
    pub(crate) kind: String,
    /// Whether it, or its file system, is mounted read-only.
    is_read_only: bool,
    /// The path, with links on the way to the mount resolved, and not touched inside the mount.
    path: PathBuf,
}

impl Mount {
    /// Whether it is a mount of Chiton.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == KIND && self.source.starts_with(SOURCE)
    }

    /// The path in the mount, from its root `/` on: by its names, of which none was looked at.
    pub(crate) fn within(&self) -> PathBuf {
        Path::new("/").join(self.path.strip_prefix(&self.dir).unwrap_or(Path::new("")))
    }

    /// Whether the path is the mount point itself.
    pub(crate) fn is_its_root(&self) -> bool {
        self.path == self.dir
    }

    /// Fails unless the server answers, or, for a mount of a cluster, a server answers within a while.
    fn probe(&self) -> Outcome {
        match target::monitor_of_source(&self.source) {
            // A mount whose process has died does not come back.
            Some(_) if !matches!(self.control(), Control::Gone) => {
                cluster::while_absent(|| self.probe_once())
            }
            _ => self.probe_once(),
        }
    }

    fn probe_once(&self) -> Outcome {
        let at = self.dir.display();
        let address = target::from_source(&self.source, &at.to_string())?;
        let credentials = identity::credentials()?;
        let error = match chiton_transport::probe(&address, credentials.as_ref(), PROBE_LIMIT) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match &error {
            OpenError::Io(e) if e.kind() == io::ErrorKind::TimedOut => {}
            // The socket may be closed to this user, or have another name here: the mount knows better.
            OpenError::Io(e) => match self.ask(e.kind() == io::ErrorKind::ConnectionRefused) {
                MountAnswer::Answers => return Ok(()),
                MountAnswer::Gone => {
                    return Err(Failure::absent(format!(
                        "the process of the mount at {at} has died: detach the mount (chiton umount {at}), then mount again"
                    )));
                }
                MountAnswer::Nothing => {}
            },
            _ => {}
        }
        Err(Failure::absent(format!(
            "no server answers for the mount at {at} ({error}): start the server again, or read its log, then run the command again; \
             programs that use the mount wait for the server (chiton umount --lazy {at} takes the mount away)"
        )))
    }

    /// The mount's own answer about its server, within the time limit.
    fn ask(&self, server_is_gone: bool) -> MountAnswer {
        let ask = move |dir: &Path| ask(dir, server_is_gone);
        self.within_time(ask).unwrap_or(MountAnswer::Nothing)
    }

    /// The control socket of the mount, if it answers within the time limit.
    pub(crate) fn control(&self) -> Control {
        self.within_time(control).unwrap_or(Control::Silent)
    }

    /// The result of `look` at the mount point, if it returns within the time limit.
    fn within_time<T: Send + 'static>(&self, look: impl FnOnce(&Path) -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = mpsc::channel();
        let dir = self.dir.clone();
        // The system may keep it for ever; the process ends without it.
        let spawned = std::thread::Builder::new().spawn(move || sender.send(look(&dir)));
        spawned.ok().and_then(|_| receiver.recv_timeout(PROBE_LIMIT).ok())
    }
}

/// A mount's answer about its server.
enum MountAnswer {
    Answers,
    /// There is no process any more.
    Gone,
    /// The server does not answer, or the mount does not.
    Nothing,
}

/// The control socket of a mount.
pub(crate) enum Control {
    /// Its path.
    At(PathBuf),
    /// Nowhere: there is no process any more.
    Gone,
    /// The mount does not answer.
    Silent,
}

/// The root is always known to the kernel, and its mount answers this without its server.
fn control(dir: &Path) -> Control {
    let mut value = vec![0u8; 4096];
    match rustix::fs::getxattr(dir, "chiton.control", &mut value[..]) {
        Ok(len) => {
            value.truncate(len);
            Control::At(PathBuf::from(OsString::from_vec(value)))
        }
        Err(Errno::NOTCONN) => Control::Gone,
        Err(_) => Control::Silent,
    }
}

fn ask(dir: &Path, server_is_gone: bool) -> MountAnswer {
    let socket = match control(dir) {
        Control::At(socket) => socket,
        Control::Gone => return MountAnswer::Gone,
        Control::Silent => return MountAnswer::Nothing,
    };
    match ask_control(&socket, &ControlRequest::Probe, &mut |_| {}) {
        Ok(ControlReply::Done { .. }) if !server_is_gone => MountAnswer::Answers,
        _ => MountAnswer::Nothing,
    }
}

/// Refuses if `path` is in a mount of ours whose server does not answer. Nothing of the mount is touched.
pub(crate) fn answering(path: &Path) -> Outcome {
    match mount_around(path)? {
        Some(mount) if mount.is_ours() => mount.probe(),
        _ => Ok(()),
    }
}

/// Refuses if `path` is in a mount of ours that is read-only: the command would change it. `follows`: the command means the object
/// that the path leads to, not its last name.
pub(crate) fn writable(path: &Path, follows: bool) -> Outcome {
    let refuse = |mount: Mount| {
        Err(Failure::failed(format!(
            "cannot change {}: Read-only file system (the mount at {}): name a path in a mount that is not read-only, or the server's \
             address",
            path.display(),
            mount.dir.display()
        )))
    };
    let Some(mount) = mount_around(path)?.filter(Mount::is_ours) else { return Ok(()) };
    if mount.is_read_only {
        return refuse(mount);
    }
    // A link in the mount may lead to another one. The server must answer before a link is followed.
    mount.probe()?;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let full = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !follows => {
            std::fs::canonicalize(parent).map(|parent| parent.join(name))
        }
        _ => std::fs::canonicalize(&path),
    };
    // The command itself reports a path that does not exist.
    let Ok(full) = full else { return Ok(()) };
    match mount_around(&full)? {
        Some(mount) if mount.is_ours() && mount.is_read_only => refuse(mount),
        _ => Ok(()),
    }
}

/// Whether a plate is on its way to another server: its server says so, or closes the connection because it stops.
fn is_moving(error: &OpenError) -> bool {
    match error {
        OpenError::Refused { reason, .. } => *reason == RefuseReason::NotReady,
        OpenError::Io(e) => e.kind() == io::ErrorKind::ConnectionAborted,
        _ => false,
    }
}

/// Fails if no server answers at the address, which stands for the target `said` of the user.
pub(crate) fn probe(address: &Address, said: &str) -> Outcome {
    let credentials = identity::credentials()?;
    let began = RealWorld.monotonic();
    let answer = loop {
        match chiton_transport::probe(address, credentials.as_ref(), PROBE_LIMIT) {
            Err(error) if is_moving(&error) && RealWorld.monotonic().saturating_sub(began) < PROBE_LIMIT => {
                std::thread::sleep(READY_PAUSE);
            }
            answer => break answer,
        }
    };
    match answer {
        Ok(()) => Ok(()),
        Err(OpenError::Io(e)) if e.kind() == io::ErrorKind::PermissionDenied => {
            Err(Failure::failed(format!(
                "the server of {said} lets only root and its own user connect at {address}: ask one of them, or let it listen at an \
             address for others (chiton serve --listen tcp:HOST:PORT)"
            )))
        }
        Err(e @ (OpenError::Untrusted(_) | OpenError::Refused { reason: RefuseReason::Untrusted, .. })) => {
            Err(Failure::failed(format!("cannot use the server of {said} at {address}: {e}")))
        }
        Err(e) => Err(Failure::absent(format!("no server answers for {said}: {e}"))),
    }
}

/// The FUSE mount that `path` is in, which need not be there.
pub(crate) fn mount_around(path: &Path) -> Outcome<Option<Mount>> {
    Ok(mount_of_any_kind(path)?.filter(|mount| mount.kind.starts_with("fuse")))
}

/// The mount that `path` is in, whatever its file system.
pub(crate) fn mount_of_any_kind(path: &Path) -> Outcome<Option<Mount>> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    Ok(around(&table()?, &path, &|link| std::fs::read_link(link).ok()))
}

/// Where something is mounted, as far as this process sees.
pub(crate) fn mount_points() -> Outcome<Vec<PathBuf>> {
    Ok(table()?.into_iter().map(|entry| entry.dir).collect())
}

fn table() -> Outcome<Vec<Entry>> {
    let table = std::fs::read("/proc/self/mounts").map_err(|e| {
        Failure::failed(format!(
            "cannot read the table of mounts, /proc/self/mounts: {e}; mount proc on /proc"
        ))
    })?;
    // The names of other mounts may be invalid UTF-8.
    Ok(entries(&String::from_utf8_lossy(&table)))
}

/// A line of the table of mounts.
struct Entry {
    dir: PathBuf,
    source: String,
    kind: String,
    is_read_only: bool,
}

impl Entry {
    fn is_ours(&self) -> bool {
        self.kind == KIND && self.source.starts_with(SOURCE)
    }
}

fn entries(table: &str) -> Vec<Entry> {
    let read = |line: &str| {
        let mut fields = line.split(' ').map(unescape);
        let (source, dir, kind) = (fields.next()?, fields.next()?, fields.next()?);
        // The system shows here whether the mount or its file system is read-only.
        let is_read_only = fields.next()?.split(',').any(|option| option == "ro");
        Some(Entry { dir: PathBuf::from(dir), source, kind, is_read_only })
    };
    table.lines().filter_map(read).collect()
}

fn around(table: &[Entry], path: &Path, read_link: &dyn Fn(&Path) -> Option<PathBuf>) -> Option<Mount> {
    let mut at = PathBuf::from("/");
    let mut rest = reversed(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == OsStr::new("..") {
            at.pop();
            continue;
        }
        at.push(name);
        if nearest(table, &at).is_some_and(Entry::is_ours) || links == LINKS_MAX {
            continue;
        }
        if let Some(link) = read_link(&at) {
            links += 1;
            at.pop();
            if link.is_absolute() {
                at = PathBuf::from("/");
            }
            rest.extend(reversed(&link));
        }
    }
    let Entry { dir, source, kind, is_read_only } = nearest(table, &at)?;
    Some(Mount {
        dir: dir.clone(),
        source: source.clone(),
        kind: kind.clone(),
        is_read_only: *is_read_only,
        path: at,
    })
}

/// The names of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

/// The mount that a path without links is in: the deepest, and of several at one place the last.
fn nearest<'a>(table: &'a [Entry], at: &Path) -> Option<&'a Entry> {
    table.iter().filter(|entry| at.starts_with(&entry.dir)).max_by_key(|entry| entry.dir.as_os_str().len())
}

/// Undoes the octal escapes of the table of mounts (`\040` for a blank).
fn unescape(field: &str) -> String {
    let mut out = String::new();
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        match rest.get(at + 1..at + 4).and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &rest[at + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_the_mount_table_are_undone() {
        assert_eq!(unescape(r"/mnt/a\040b\134c"), r"/mnt/a b\c");
        assert_eq!(unescape("/plain"), "/plain");
    }

    #[test]
    fn read_only_mounts_are_told_by_their_options() {
        let table = entries(
            "chiton:/data /rw fuse.chiton rw,relatime,errors=remount-ro 0 0\nchiton:/data /ro fuse.chiton ro,nosuid 0 0\n",
        );
        let read_only: Vec<bool> = table.iter().map(|entry| entry.is_read_only).collect();
        assert_eq!(read_only, [false, true]);
    }

    #[test]
    fn the_mount_of_a_path_is_found_without_a_look_into_it() {
        let table = entries(
            "rootfs / ext4 rw 0 0\nchiton:/data /mnt/c fuse.chiton rw 0 0\ntmpfs /mnt/c/tmp tmpfs rw 0 0\n\
             chiton:unix:/s#branch=b /mnt/c/b fuse.chiton rw 0 0\nsshfs /ssh fuse.sshfs rw 0 0\n\
             chiton:/old /twice fuse.chiton rw 0 0\ntmpfs /twice tmpfs rw 0 0\n",
        );
        let links = |at: &Path| {
            assert!(!at.starts_with("/mnt/c") || at.starts_with("/mnt/c/tmp"), "{} is touched", at.display());
            let to = match at.to_str()? {
                "/home/job" => "../mnt/c/job",
                "/home/loop" => "/home/loop",
                "/mnt/c/tmp/back" => "/mnt/c/b",
                _ => return None,
            };
            Some(PathBuf::from(to))
        };
        let check = |path: &str, expect: Option<(&str, &str)>| {
            let found = around(&table, Path::new(path), &links);
            let found = found.filter(|mount| mount.kind.starts_with("fuse"));
            let found = found.map(|mount| (mount.dir, mount.path));
            assert_eq!(found, expect.map(|(dir, path)| (PathBuf::from(dir), PathBuf::from(path))), "{path}");
        };
        check("/", None);
        check("/mnt/c", Some(("/mnt/c", "/mnt/c")));
        check("/mnt/c/x/y", Some(("/mnt/c", "/mnt/c/x/y")));
        check("/home/job/x", Some(("/mnt/c", "/mnt/c/job/x")));
        check("/home/loop", None);
        check("/mnt/c/tmp/x", None);
        check("/mnt/c/tmp/back/x", Some(("/mnt/c/b", "/mnt/c/b/x")));
        check("/mnt/c/x/../../else", None);
        check("/ssh/x", Some(("/ssh", "/ssh/x")));
        check("/twice/x", None);
    }
}
