//! `chiton mount`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chiton_client::data::DataMode;
use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{Realms, RealmsOptions};
use chiton_etcd::EtcdAddress;
use chiton_fuse::{MountError, MountOptions, Unmounter};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{DataAddress, FormatError, Server};
use chiton_transport::Address;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::realm::MountedPath;
use super::{format, realm, serve};
use crate::args::{Data, Mount};
use crate::failure::{Class, Failure, Outcome};
use crate::{background, identity, log_file, monitor, reach, target};

const NO_SOURCE: &str = "name the file system: --data DIR, --server ADDRESS or --monitor etcd://HOST:PORT (or CHITON_MONITOR in the environment)";

pub(crate) fn run(args: &Mount) -> Outcome {
    let cluster = cluster(args)?;
    let mountpoint = found(&args.mountpoint, args.nonempty)?;
    if !args.foreground && !args.announce {
        return in_background(args, &mountpoint);
    }
    MountedPath::keep_mounts(&mountpoint)?;
    let end = Arc::new(TakenOver::default());
    let notifier = end.clone();
    let ending: serve::Ending = Arc::new(move |class, why| notifier.notify(class, why));
    if args.data.is_none() && (args.inside.metrics.is_some() || args.inside.slow_ms.is_some()) {
        return Err(Failure::failed(
            "--metrics and --slow-ms are about the server inside a mount: add --data, or give them to chiton serve",
        ));
    }
    let metrics = serve::Metrics::start(args.inside.metrics)?;
    let (server, source) = match (&args.data, &args.server, &cluster) {
        (Some(data), _, _) => {
            let data = target::absolute(data)?;
            (Some(start(&data, args, ending.clone())?), format!("chiton:{data}"))
        }
        (None, Some(address), _) => (None, format!("chiton:{address}")),
        (None, None, Some(monitor)) => (None, format!("chiton:{}", monitor.without_commas())),
        (None, None, None) => return Err(Failure::usage(NO_SOURCE)),
    };
    server.iter().for_each(|server| metrics.show(server));
    let client = Arc::new(client(args, server.as_ref(), cluster.as_ref(), &mountpoint)?);
    // A mount that may change nothing decouples nothing.
    let may_change = !args.inside.salvage && (args.data.is_some() || identity::may_write()?);
    // Nor does one that is limited to a subtree: a decoupling is not.
    let is_limited = args.data.is_none() && identity::subtree()?.is_some();
    let decouples = !args.no_decouple && may_change && !is_limited;
    let realms = if decouples { Some(realms(args, &client)?) } else { None };
    let is_for_others = args.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root());
    let options = MountOptions {
        read_only: args.read_only || !may_change,
        allow_other: args.allow_other,
        threads: args.threads.map(usize::from),
        suid: args.suid_dev,
        devices: args.suid_dev,
        over_entries: args.nonempty,
        no_exec: args.no_exec,
        fs_name: source.replace(',', "_"),
        unmount_timeout: Duration::from_secs(args.unmount_timeout),
        control: Some(target::control_socket(is_for_others)?),
        keep_mounts: args.keep_mounts,
        ino32: args.ino32,
        ..MountOptions::default()
    };
    let mount = match realms {
        Some(realms) => chiton_fuse::Mount::start_decoupling(client, realms, &mountpoint, options),
        None => chiton_fuse::Mount::start(client, &mountpoint, options),
    };
    let mount = mount.map_err(Failure::from)?;
    end_on_signals(mount.unmounter())?;
    end.unmount_with(mount.unmounter());
    announce(&mountpoint, &source, args.announce)?;
    let ended = mount.wait_then(|| match (server, end.why()) {
        (Some(server), Some((_, why))) => {
            server.abandon();
            Err(why)
        }
        (Some(server), None) => server.shutdown().map_err(|error| error.to_string()),
        (None, _) => Ok(()),
    });
    match end.why() {
        Some((class, why)) => Err(Failure::new(class, why)),
        None => ended.map_err(Failure::from),
    }
}

/// The full name of a mount point, at which something can be mounted: else nothing is begun.
pub(super) fn found(mountpoint: &Path, over_entries: bool) -> Outcome<PathBuf> {
    let full = std::fs::canonicalize(mountpoint).map_err(|e| match e.raw_os_error() {
        Some(errno) if errno == rustix::io::Errno::NOTCONN.raw_os_error() => {
            Failure::from(MountError::Dead(mountpoint.to_owned()))
        }
        _ => Failure::absent(format!(
            "cannot use the mount point {}: {e}; make the directory first (mkdir)",
            mountpoint.display()
        )),
    })?;
    chiton_fuse::check_mount_point(&full, over_entries).map_err(Failure::from)?;
    Ok(full)
}

/// Announces that the mount is ready: to the parent process, or to the user.
pub(super) fn announce(mountpoint: &Path, source: &str, announce: bool) -> Outcome {
    if announce {
        let pid = std::process::id();
        let said = serde_json::json!({ "pid": pid, "mountpoint": mountpoint, "source": source });
        chiton_runtime::log::announce(format_args!("{said}"));
        return close_stdout();
    }
    chiton_runtime::log_line!("mounted on {}; end it with: chiton umount {0}", mountpoint.display());
    Ok(())
}

/// Starts the server inside. A directory that is empty or missing is formatted only on request: it may be the place of a
/// disk that is not mounted, and an empty file system in its stead would look like a loss of everything.
fn start(data: &DataAddress, args: &Mount, ending: serve::Ending) -> Outcome<Arc<Server>> {
    if args.format {
        let world: SharedWorld = Arc::new(RealWorld);
        Server::format(data, &format::options(), &world).map_err(|error| match error {
            FormatError::Formatted(_) => Failure::new(
                Class::Busy,
                format!(
                    "{data} already contains a file system: mount it without --format, or choose another place"
                ),
            ),
            error => Failure::from(error),
        })?;
        chiton_runtime::log_line!("formatted {data}");
    }
    let server = match args.announce {
        // The parent process shows the progress.
        true => serve::start(data, &args.inside, ending, |progress| {
            chiton_runtime::log::announce(format_args!("{}", background::replaying(progress)));
        })?,
        false => serve::start_visibly(data, &args.inside, ending)?,
    };
    // Tools ask here; another mount may join.
    let socket = Address::Unix(target::socket(data)?);
    server.serve(std::slice::from_ref(&socket)).map_err(|e| {
        Failure::failed(format!("cannot listen on {socket}, where tools and other mounts connect: {e}"))
    })?;
    Ok(server)
}

/// The etcd of the cluster that is mounted, if it is one.
fn cluster(args: &Mount) -> Outcome<Option<EtcdAddress>> {
    match (&args.data, &args.server, &args.monitor) {
        (_, _, Some(monitor)) => Ok(Some(monitor.clone())),
        (None, None, None) => match monitor::of_environment()? {
            None => Err(Failure::usage(NO_SOURCE)),
            monitor => Ok(monitor),
        },
        (Some(_), _, None) | (_, Some(_), None) => Ok(None),
    }
}

fn client(
    args: &Mount,
    server: Option<&Arc<Server>>,
    cluster: Option<&EtcdAddress>,
    mountpoint: &Path,
) -> Outcome<Client> {
    let mut options = ClientOptions {
        identity: format!("mount {}, process {}", mountpoint.display(), std::process::id()),
        timeout: args.timeout.map(Duration::from_secs),
        decouples: !args.no_decouple && !args.inside.salvage,
        ..ClientOptions::default()
    };
    if args.no_write_behind {
        options.write_behind_after = None;
    }
    options.files.data = match args.content {
        Data::Linearizable => DataMode::Linearizable,
        Data::CloseToOpen => DataMode::CloseToOpen,
        Data::Lazy => DataMode::Lazy,
    };
    let result = match (server, &args.server, cluster) {
        (Some(server), _, _) => chiton_embedded::client(server, options),
        (None, Some(address), _) => {
            reach::probe(address, &mountpoint.display().to_string())?;
            Client::connect(address, identity::with(options)?)
        }
        (None, None, Some(monitor)) => return super::cluster::client(monitor, &options),
        (None, None, None) => return Err(Failure::usage(NO_SOURCE)),
    };
    result.map_err(Failure::absent)
}

/// The decoupled subtrees of this mount, with those that a mount before left here.
fn realms(args: &Mount, client: &Arc<Client>) -> Outcome<Arc<Realms>> {
    let state_dir = realm::state_dir(args.state_dir.as_ref())?;
    let options =
        ClientOptions { timeout: args.timeout.map(Duration::from_secs), ..ClientOptions::default() };
    let realms = Realms::new(
        client.clone(),
        RealmsOptions { state_dir, client: options, accept_truncated: args.accept_truncated },
    );
    for recovered in realms.recover() {
        match recovered {
            Ok(realm) => chiton_runtime::log_line!(
                "chiton: resumed decoupling {} (inode {}), which an earlier mount left with {} events: chiton diff shows them, \
                 chiton merge or chiton discard ends it",
                realm.id(),
                realm.root().0,
                realm.status().events
            ),
            Err(error) => {
                chiton_runtime::log_line!(
                    "chiton: cannot resume a decoupled subtree that an earlier mount left: {error}"
                )
            }
        }
    }
    Ok(realms)
}

/// The reason why the server in this process must end, and a handle to detach its mount.
type Over = (Option<(Class, String)>, Option<Unmounter>);

/// A server inside that another one takes over, or whose journal failed: the mount goes, too, also from under its users.
#[derive(Default)]
struct TakenOver(Mutex<Over>);

impl TakenOver {
    fn notify(&self, class: Class, why: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.get_or_insert_with(|| (class, why.to_owned()));
        Self::act(&mut state);
    }

    fn unmount_with(&self, unmounter: Unmounter) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 = Some(unmounter);
        Self::act(&mut state);
    }

    fn act(state: &mut Over) {
        if state.0.is_some()
            && let Some(unmounter) = state.1.take()
        {
            // On another thread, since the kernel may wait for this one.
            std::thread::spawn(move || {
                if let Err(e) = unmounter.unmount(true) {
                    chiton_runtime::log_line!("chiton: cannot unmount: {e}; unmount by hand: umount -l");
                }
            });
        }
    }

    fn why(&self) -> Option<(Class, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

/// SIGINT and SIGTERM unmount in order; a second one takes the mount away although it is in use.
pub(super) fn end_on_signals(unmounter: Unmounter) -> Outcome {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")))?;
    std::thread::spawn(move || {
        for (n, _) in signals.forever().enumerate() {
            if let Some(limit) = unmounter.is_away() {
                chiton_runtime::log_line!(
                    "chiton: the server does not answer; the mount waits up to {} s for it before it ends",
                    limit.as_secs()
                );
                std::thread::spawn(move || end_anyway(limit));
            }
            if let Err(e) = unmounter.unmount(n > 0) {
                chiton_runtime::log_line!(
                    "chiton: {e}; the same signal again detaches the mount although it is in use"
                );
            }
        }
    });
    Ok(())
}

/// Ends the process after `limit`, even if users still wait in a mount whose server is away.
fn end_anyway(limit: Duration) {
    std::thread::sleep(limit + Duration::from_secs(10));
    chiton_runtime::log_line!(
        "chiton: {}: the server did not answer in time while the mount was in use; writes that the mount had not sent are lost",
        chiton_fuse::NOT_DURABLE
    );
    std::process::exit(1);
}

fn in_background(args: &Mount, mountpoint: &Path) -> Outcome {
    let log = log_file::path(args.state_dir.as_deref(), mountpoint)?;
    detach(&["mount"], (&args.mountpoint, mountpoint), &log, args.json)
}

/// Starts this program again as a mount in the background, and reports the result. `command`: the words before the
/// options; `mountpoint`: as given, and its full path.
pub(super) fn detach(
    command: &[&str],
    (short, mountpoint): (&Path, &Path),
    log: &Path,
    json: bool,
) -> Outcome {
    // An identity may stand before the command; the new process has it in its environment.
    let given = std::env::args_os().skip_while(|word| command.first().is_some_and(|first| word != first));
    let given = given.skip(command.len()).collect();
    let mut words: Vec<OsString> =
        command.iter().copied().chain(["--announce"]).map(OsString::from).collect();
    words.extend(with_full_name(given, short, mountpoint));
    let announcement = background::detach(&words, log)?;
    if json {
        println!("{announcement}");
    } else {
        println!("mounted on {}; end it with: chiton umount {0}", mountpoint.display());
        println!("messages go to {}", log.display());
    }
    Ok(())
}

/// The words with the full name of the mount point, by which `chiton umount` finds the process. It is the last that is
/// called so: a data directory, or a branch, may have the same name.
fn with_full_name(mut words: Vec<OsString>, short: &Path, full: &Path) -> Vec<OsString> {
    if let Some(at) = words.iter().rposition(|word| word == short.as_os_str()) {
        words[at] = full.into();
    }
    words
}

/// Closes standard output, so that readers of it see its end.
fn close_stdout() -> Outcome {
    let null = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .map_err(|e| Failure::failed(format!("cannot open /dev/null: {e}")))?;
    rustix::stdio::dup2_stdout(null)
        .map_err(|e| Failure::failed(format!("cannot close standard output: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mount_point_gets_its_full_name() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let full = |text: &str| with_full_name(words(text), Path::new("try1"), Path::new("/work/try1"));
        assert_eq!(full("/mnt/tree try1 try1"), words("/mnt/tree try1 /work/try1"));
        assert_eq!(full("try1 --data x"), words("/work/try1 --data x"));
    }
}
