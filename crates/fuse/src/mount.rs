//! A mount from its beginning to its end.
//!
//! ```text
//!   start ─ attach ─ handshake ─ dispatch threads … umount(2) by anyone ─ destroy: push, commit ─ wait returns
//! ```
//!
//! Invariants:
//! - However the mount ends short of a crash, everything that was written through it is pushed and committed
//!   before [`Mount::wait`] returns.
//! - Only this mount is ever unmounted.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use chiton_client::Client;
use chiton_decoupled::{Realm, Realms};
use chiton_fuse_session::Session;

use crate::attach::{self, Attached};
use crate::control::Control;
use crate::end_notice::EndNotice;
use crate::invalidator::KernelInvalidator;
use crate::kernel::Kernel;
use crate::mount_table;
use crate::router::Router;
use crate::shell::Shell;
use crate::unmount_watch::UnmountWatch;
use crate::{MountError, MountOptions};

/// The kernel's read-ahead in KiB: the 128 that a FUSE mount may request itself is little for blocks of 4 MiB.
const READ_AHEAD_KIB: u32 = 1024;
const THREADS_EMBEDDED: usize = 2;
const THREADS_CONNECTED: usize = 8;

/// A mounted client. Dropping it unmounts, if need be lazily.
pub struct Mount {
    attached: Attached,
    kernel: Arc<Kernel>,
    dispatch: Option<JoinHandle<io::Result<()>>>,
    end: Box<End>,
}

/// The parts that the end of a mount needs.
struct End {
    invalidating: Option<JoinHandle<()>>,
    /// The thread that follows directories which other clients move.
    following: Option<JoinHandle<()>>,
    departure: Option<UnmountWatch>,
    control: Option<Control>,
    end_notice: EndNotice,
    client: Arc<Client>,
    timeout: Duration,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount").field("attached", &self.attached).finish_non_exhaustive()
    }
}

impl Mount {
    /// Mounts `client` on the directory `mountpoint`, and returns when requests are served.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn start(client: Arc<Client>, mountpoint: &Path, options: MountOptions) -> Result<Mount, MountError> {
        Mount::start_with(client, None, mountpoint, options)
    }

    /// Mounts a client that decouples subtrees whose policy says so, or on request through
    /// [`MountOptions::control`]. `realms` must belong to this client, whose options must say that it
    /// [`decouples`](chiton_client::ClientOptions::decouples).
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn start_decoupling(
        client: Arc<Client>,
        realms: Arc<Realms>,
        mountpoint: &Path,
        options: MountOptions,
    ) -> Result<Mount, MountError> {
        Mount::start_with(client, Some(realms), mountpoint, options)
    }

    /// Mounts a branch: its directory is the root, and nothing else is seen. `realms`, of this client, has opened the
    /// branch and nothing else; the end of the mount closes them. When the branch is merged or dropped
    /// ([`MountOptions::control`]), the mount is taken away.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn start_branch(
        client: Arc<Client>,
        realms: Arc<Realms>,
        branch: &Arc<Realm>,
        mountpoint: &Path,
        options: MountOptions,
    ) -> Result<Mount, MountError> {
        let kernel = Arc::new(Kernel::new(branch.root()));
        let router = Router::of_branch(client, realms, branch, kernel.clone());
        // No other client uses it.
        let options = MountOptions { shared: Some(false), ..options };
        Mount::start_router(router, kernel, mountpoint, options)
    }

    fn start_with(
        client: Arc<Client>,
        realms: Option<Arc<Realms>>,
        mountpoint: &Path,
        options: MountOptions,
    ) -> Result<Mount, MountError> {
        let kernel = Arc::new(Kernel::new(client.root()));
        Mount::start_router(Router::new(client, realms, kernel.clone()), kernel, mountpoint, options)
    }

    fn start_router(
        router: Router,
        kernel: Arc<Kernel>,
        mountpoint: &Path,
        options: MountOptions,
    ) -> Result<Mount, MountError> {
        let client = router.global().clone();
        let is_branch = router.branch().is_some();
        let router = Arc::new(router);
        let is_embedded = client.is_embedded();
        let threads =
            options.threads.unwrap_or(if is_embedded { THREADS_EMBEDDED } else { THREADS_CONNECTED });
        if threads == 0 {
            return Err(MountError::Options("threads must be at least 1"));
        }
        let allow_other = options.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root());
        let (device, attached) = attach::attach(mountpoint, &options, allow_other)?;
        if let Some(mounted) = mount_table::last_at(&attached.dir) {
            router.note_device(mounted.device);
        }
        let (unmounter, limit) = (attached.clone(), options.unmount_timeout);
        let taken_away = move || {
            if let Err(error) = unmounter.detach(true) {
                tracing::warn!(
                    "the branch has ended, but its mount cannot be detached: {error}; detach it with chiton umount --lazy"
                );
            }
        };
        let end_notice = EndNotice::default();
        let control = options
            .control
            .as_ref()
            .map(|path| Control::serve(path, &router, allow_other, &end_notice, taken_away));
        let serving = control.transpose().and_then(|control| {
            let ends = (control.as_ref(), end_notice.clone());
            let serving = serve(router, kernel.clone(), ends, device, &options, threads)?;
            Ok((control, serving))
        });
        let (control, (dispatch, invalidating)) = match serving {
            Ok(serving) => serving,
            Err(error) => {
                // No process can use it yet.
                let _ = attached.detach(true);
                return Err(MountError::Failed(error));
            }
        };
        attached.raise_read_ahead(READ_AHEAD_KIB);
        // A server in this process does not go away alone. Without the watch an end may take as long as the server
        // is away, which is no reason not to mount.
        let departure = match is_embedded {
            true => None,
            false => UnmountWatch::watch(&attached.dir, &client, limit).unwrap_or_default(),
        };
        // Other clients do not see a branch.
        let following = match is_branch {
            true => None,
            false => follow(kernel.clone(), client.clone(), attached.dir.clone()),
        };
        let invalidating = Some(invalidating);
        let end =
            Box::new(End { invalidating, following, departure, control, end_notice, client, timeout: limit });
        Ok(Mount { attached, kernel, dispatch: Some(dispatch), end })
    }

    pub fn dir(&self) -> &Path {
        &self.attached.dir
    }

    /// Waits until the mount is unmounted, and then until everything is pushed and committed.
    ///
    /// # Errors
    /// [`MountError::Undone`]: not everything could be; [`MountError::Failed`]: a dispatch thread failed.
    pub fn wait(self) -> Result<(), MountError> {
        self.wait_then(|| Ok(()))
    }

    /// The same, and then ends the server in this process by `finish`. Commands that wait for the end of the mount
    /// learn the result of both.
    ///
    /// # Errors
    /// As [`Mount::wait`]; a failure of `finish` is also [`MountError::Undone`].
    pub fn wait_then(mut self, finish: impl FnOnce() -> Result<(), String>) -> Result<(), MountError> {
        self.join(finish)
    }

    /// Unmounts, then pushes and commits everything.
    ///
    /// # Errors
    /// [`MountError::Busy`], and the mount itself back, if it is in use.
    pub fn unmount(mut self) -> Result<(), (MountError, Option<Mount>)> {
        match self.attached.detach(false) {
            Ok(()) => self.join(|| Ok(())).map_err(|error| (error, None)),
            Err(error) => Err((error, Some(self))),
        }
    }

    /// A handle that unmounts from another thread, such as a signal handler's, while one waits in [`Mount::wait`].
    pub fn unmounter(&self) -> Unmounter {
        Unmounter {
            attached: self.attached.clone(),
            client: Arc::downgrade(&self.end.client),
            timeout: self.end.timeout,
        }
    }

    fn join(&mut self, finish: impl FnOnce() -> Result<(), String>) -> Result<(), MountError> {
        let served = self.join_threads();
        if let Err(error) = &served {
            self.end.end_notice.note(error.to_string());
        }
        if let Err(undone) = finish() {
            self.end.end_notice.note(undone);
        }
        match (served, self.end.end_notice.send_result()) {
            (Ok(()), undone) if undone.is_empty() => Ok(()),
            (_, undone) => Err(MountError::Undone(undone)),
        }
    }

    fn join_threads(&mut self) -> Result<(), MountError> {
        let served = match self.dispatch.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(MountError::Failed(error)),
            Some(Err(_)) => Err(MountError::Failed(io::Error::other("a dispatch thread panicked"))),
        };
        self.kernel.close();
        self.end.control = None;
        self.end.departure = None;
        for thread in [self.end.invalidating.take(), self.end.following.take()].into_iter().flatten() {
            if thread.join().is_err() {
                return Err(MountError::Failed(io::Error::other(
                    "a thread that notifies the kernel of changes panicked",
                )));
            }
        }
        served
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.dispatch.as_ref().is_none_or(JoinHandle::is_finished) {
            self.kernel.close();
            return;
        }
        if self.attached.detach(false).is_err() {
            // The mount is in use. If it outlived this process, every process that touches it would hang.
            let _ = self.attached.detach(true);
            return;
        }
        if let Err(error) = self.join(|| Ok(())) {
            tracing::warn!("{}: {error}", self.attached.dir.display());
        }
    }
}

/// Unmounts while another thread waits for the end of the mount.
#[derive(Clone)]
pub struct Unmounter {
    attached: Attached,
    client: Weak<Client>,
    timeout: Duration,
}

impl Unmounter {
    pub fn dir(&self) -> &PathBuf {
        &self.attached.dir
    }

    /// Whether the server is away, and how long the end of the mount then waits for it.
    pub fn is_away(&self) -> Option<Duration> {
        self.client.upgrade().filter(|client| client.is_away()).map(|_| self.timeout)
    }

    /// Unmounts. With `lazily`, a mount in use ends when its last user closes it. If the server is away, waiting
    /// users get an error after the mount's `unmount_timeout`, and lose the mount.
    ///
    /// # Errors
    /// [`MountError::Busy`].
    pub fn unmount(&self, lazily: bool) -> Result<(), MountError> {
        let away = self.client.upgrade().filter(|client| client.is_away());
        if let Some(client) = &away {
            // Before the system is asked: it may have pages to write first, which waits for the server.
            client.leave(self.timeout);
        }
        match self.attached.detach(lazily) {
            Err(MountError::Busy(_)) if away.is_some() => self.attached.detach(true),
            result => result,
        }
    }
}

/// Starts to follow directories that other clients move. Without it, processes in them keep the old parent as `..`
/// for longer.
fn follow(kernel: Arc<Kernel>, client: Arc<Client>, dir: PathBuf) -> Option<JoinHandle<()>> {
    let body = move || kernel.moves.run(&client, &dir);
    std::thread::Builder::new().name("chiton-moves".to_owned()).spawn(body).ok()
}

type Serving = (JoinHandle<io::Result<()>>, JoinHandle<()>);

fn serve(
    router: Arc<Router>,
    kernel: Arc<Kernel>,
    (control, end_notice): (Option<&Control>, EndNotice),
    device: std::os::fd::OwnedFd,
    options: &MountOptions,
    threads: usize,
) -> io::Result<Serving> {
    router.global().set_invalidator(Arc::new(KernelInvalidator::new(kernel.clone())));
    let control = control.map(|control| control.path().as_os_str().as_bytes().to_vec());
    let shell = Shell::new(router, kernel.clone(), control, end_notice, options);
    let session = Session::start(shell, device, threads)?;
    kernel.connect(session.notifier());
    if options.keep_mounts {
        kernel.keep_mounts();
    }
    let invalidating =
        std::thread::Builder::new().name("chiton-inval".to_owned()).spawn(move || kernel.run())?;
    let dispatch =
        std::thread::Builder::new().name("chiton-mount".to_owned()).spawn(move || session.run())?;
    Ok((dispatch, invalidating))
}
