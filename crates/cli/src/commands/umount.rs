//! `chiton umount`.

mod users;

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use chiton_fuse::{AwaitedEnd, ControlReply, also_mounted_at, await_end};
use rustix::mount::UnmountFlags;

use crate::args::Umount;
use crate::failure::{Class, Failure, Outcome};
use crate::reach::{self, Control, Mount};

/// How long a mount may take to end before the command reports the reason.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Umount) -> Outcome {
    let dir = args.mountpoint.display().to_string();
    let mount = ours(&args.mountpoint)?;
    // A file system that stays mounted elsewhere does not end.
    let stays = args.lazy || also_mounted_at(&mount.dir).is_some();
    let end = if stays { None } else { Reached::of(&mount) };
    detach(args).map_err(|(said, busy)| match busy {
        true => Failure::new(Class::Busy, in_use(&args.mountpoint)),
        false => Failure::failed(format!("cannot unmount {dir}: {said}")),
    })?;
    // The data directory is free only after the mount has committed its data and ended its server. It waits for a
    // silent server as long as its --unmount-timeout, so this ends, too.
    let reply = match end {
        None => return Ok(()),
        Some(Reached::Unheard(why)) => {
            return Err(Failure::failed(format!(
                "unmounted {dir}, but the mount does not report whether everything is durable ({why}): read its log; unmount \
                 as the user who mounted it"
            )));
        }
        Some(Reached::Heard(end)) => waited(end),
    };
    match reply {
        Ok(ControlReply::Failed { message, .. }) => {
            Err(Failure::failed(format!("unmounted {dir}, but the mount reports:\n{message}")))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::failed(format!(
            "unmounted {dir}, but the mount's process ended before everything was durable ({error}): changes that fsync and flush \
             had not confirmed may be lost; its log says why"
        ))),
    }
}

/// The message about a mount in use: the process, and advice.
fn in_use(mountpoint: &Path) -> String {
    let dir = mountpoint.display();
    let full = std::path::absolute(mountpoint).unwrap_or_else(|_| mountpoint.to_owned());
    let by = match users::user_of(&full) {
        Some(user) => user.to_string(),
        None => {
            "a process that this user cannot see, or another mount inside of it, keeps it in use".to_owned()
        }
    };
    format!(
        "cannot unmount {dir}: {by}; end that process, or detach the mount at once: chiton umount --lazy {dir}"
    )
}

/// The mount of Chiton at `dir`. The table of mounts names it even if its process is dead, or its server away.
fn ours(dir: &Path) -> Outcome<Mount> {
    let shown = dir.display();
    let next = format!("findmnt --types {} lists the mounts of Chiton", reach::KIND);
    match reach::mount_of_any_kind(dir)? {
        Some(mount) if mount.is_its_root() && mount.is_ours() => Ok(mount),
        Some(mount) if mount.is_its_root() => Err(Failure::failed(format!(
            "cannot unmount {shown}: a file system of the type {} is mounted there, and this command unmounts only Chiton; {next}, \
             and umount(8) unmounts other file systems",
            mount.kind
        ))),
        // Nothing in it is touched: its server may be away.
        Some(mount) if mount.is_ours() => Err(Failure::failed(format!(
            "cannot unmount {shown}: nothing is mounted there; it lies in the mount at {at}: chiton umount {at}",
            at = mount.dir.display()
        ))),
        _ => Err(match std::fs::metadata(dir) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Failure::absent(format!("cannot unmount {shown}: it does not exist; {next}"))
            }
            _ => Failure::failed(format!("cannot unmount {shown}: nothing is mounted there; {next}")),
        }),
    }
}

/// Whether a mount will report how it ends.
enum Reached {
    Heard(AwaitedEnd),
    /// There is a mount of ours, and why it cannot be asked.
    Unheard(String),
}

impl Reached {
    /// Asks the mount; none if its process is gone.
    fn of(mount: &Mount) -> Option<Reached> {
        match mount.control() {
            Control::At(socket) => Some(match await_end(&socket) {
                Ok(end) => Reached::Heard(end),
                Err(error) => Reached::Unheard(format!("{}: {error}", socket.display())),
            }),
            Control::Gone => None,
            Control::Silent => Some(Reached::Unheard("it does not answer".to_owned())),
        }
    }
}

/// Waits for the mount's last reply, and prints a line if that takes long.
fn waited(end: AwaitedEnd) -> io::Result<ControlReply> {
    let (sender, receiver) = mpsc::channel();
    let waiting = thread::spawn(move || {
        let reply = end.wait();
        // The receiver lives until this thread has ended.
        let _ = sender.send(());
        reply
    });
    if receiver.recv_timeout(PATIENCE).is_err() {
        chiton_runtime::log_line!("chiton: unmounted; waiting for the mount to make everything durable");
    }
    waiting.join().expect("it does not panic")
}

/// Detaches the mount; an error in words, and whether it is that it is in use. root asks the system itself: umount(8)
/// looks at the mount first, which may wait for a server that is away.
fn detach(args: &Umount) -> Result<(), (String, bool)> {
    if rustix::process::geteuid().is_root() {
        let flags = if args.lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return rustix::mount::unmount(&args.mountpoint, flags).map_err(|error| match error {
            rustix::io::Errno::INVAL => {
                ("nothing is mounted there; findmnt lists all mounts".to_owned(), false)
            }
            error => (error.to_string(), error == rustix::io::Errno::BUSY),
        });
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if args.lazy {
        command.arg("-z");
    }
    let out = command
        .arg(&args.mountpoint)
        .output()
        .map_err(|e| (format!("cannot run {:?}: {e}", command.get_program()), false))?;
    let said = String::from_utf8_lossy(&out.stderr).trim().to_string();
    if out.status.success() { Ok(()) } else { Err((said.clone(), said.contains("busy"))) }
}
