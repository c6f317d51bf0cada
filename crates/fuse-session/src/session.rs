//! A mount from its first request to its last.
//!
//! ```text
//!   start: INIT ─▶ Filesystem::init ─▶ reply      run: threads (WorkerPool), each with a clone of the device ─▶ Filesystem::destroy
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::abi::{self, opcode};
use crate::attr::Errno;
use crate::body::Body;
use crate::device::{Device, Got};
use crate::dispatch::{Header, dispatch};
use crate::fields::Fields;
use crate::filesystem::Filesystem;
use crate::init::KernelConfig;
use crate::notifier::Notifier;
use crate::reply::Pending;
use crate::worker_pool::WorkerPool;

/// The first request of a mount is short.
const FIRST_BYTES_MAX: usize = 16 << 10;

/// A mount whose kernel has been greeted.
#[derive(Debug)]
pub struct Session<F: Filesystem> {
    filesystem: F,
    /// One descriptor for each thread.
    devices: Vec<Arc<Device>>,
    notifier: Notifier,
    request_bytes_max: usize,
}

impl<F: Filesystem> Session<F> {
    /// Greets the kernel at the other end of `device`, which is mounted.
    ///
    /// # Errors
    /// The kernel is too old, the file system refuses, or the system does.
    pub fn start(mut filesystem: F, device: OwnedFd, threads: usize) -> io::Result<Session<F>> {
        assert!(threads > 0, "a session needs a thread");
        let first = Device::new(device);
        let config = greet(&mut filesystem, &first)?;
        let notifier = Notifier::new(first.duplicate()?);
        let mut devices = Vec::with_capacity(threads);
        for _ in 1..threads {
            devices.push(Arc::new(first.clone_device()?));
        }
        devices.push(Arc::new(first));
        Ok(Session { filesystem, devices, notifier, request_bytes_max: config.request_bytes_max() })
    }

    /// A notifier for this mount.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Serves until the mount is gone.
    ///
    /// # Errors
    /// A thread could not read from the device any more.
    pub fn run(self) -> io::Result<()> {
        let Session { filesystem, devices, notifier, request_bytes_max } = self;
        drop(notifier);
        let pool = WorkerPool::new(devices.len());
        let original = devices[0].clone();
        let served = std::thread::scope(|scope| {
            let (filesystem, pool) = (&filesystem, &pool);
            let threads: Vec<_> = devices
                .into_iter()
                .enumerate()
                .map(|(n, device)| {
                    let serve = move || serve(filesystem, &device, request_bytes_max, pool, false);
                    std::thread::Builder::new().name(format!("chiton-fuse-{n}")).spawn_scoped(scope, serve)
                })
                .collect();
            let enlist = move || {
                let Ok(device) = original.clone_device().map(Arc::new) else { return false };
                let serve = move || {
                    // Only the threads of the base report errors.
                    let _ = serve(filesystem, &device, request_bytes_max, pool, true);
                };
                std::thread::Builder::new()
                    .name("chiton-fuse-x".to_owned())
                    .spawn_scoped(scope, serve)
                    .is_ok()
            };
            let watch = move || pool.watch(enlist);
            let watcher =
                std::thread::Builder::new().name("chiton-fuse-pool".to_owned()).spawn_scoped(scope, watch);
            // All of them are waited for, also behind one that failed.
            let mut served = Ok(());
            for thread in threads {
                let end = match thread.map(std::thread::ScopedJoinHandle::join) {
                    Ok(Ok(end)) => end,
                    Ok(Err(_)) => Err(io::Error::other("a dispatch thread panicked")),
                    Err(error) => Err(error),
                };
                served = served.and(end);
            }
            pool.end();
            served.and(watcher.map(drop))
        });
        filesystem.destroy();
        served
    }
}

/// Answers FUSE_INIT.
fn greet<F: Filesystem>(filesystem: &mut F, device: &Device) -> io::Result<KernelConfig> {
    let mut buffer = vec![0; FIRST_BYTES_MAX];
    let len = loop {
        match device.read(&mut buffer)? {
            Got::Request(len) => break len,
            Got::Nothing => {}
            Got::End => return Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    };
    let (header, fields) = Header::take(&buffer[..len])
        .ok_or_else(|| io::Error::other("the first message of the kernel is too short"))?;
    let refuse = |error: io::Error| {
        // The mount fails anyway; there is nobody to report a second failure to.
        let _ = device.write(&[Body::new().finish(-libc::EPROTO, header.unique, 0)]);
        error
    };
    if header.opcode != opcode::INIT {
        return Err(refuse(io::Error::other("the first message of the kernel is not FUSE_INIT")));
    }
    let mut config = KernelConfig::from_init(fields).map_err(refuse)?;
    filesystem.init(&mut config).map_err(refuse)?;
    let mut body = Body::new();
    config.put(&mut body);
    device.write(&[body.finish(0, header.unique, 0)])?;
    Ok(config)
}

/// Serves until the mount is gone; an extra thread until it is not needed any more.
fn serve<F: Filesystem>(
    filesystem: &F,
    device: &Arc<Device>,
    bytes_max: usize,
    pool: &WorkerPool,
    is_extra: bool,
) -> io::Result<()> {
    let mut buffer = vec![0; bytes_max];
    loop {
        let len = match device.read(&mut buffer)? {
            Got::Request(len) => len,
            Got::Nothing => continue,
            Got::End => return Ok(()),
        };
        let Some((header, fields)) = Header::take(&buffer[..len]) else {
            return Err(io::Error::other(format!(
                "the kernel sent {len} bytes, fewer than the {} of a header",
                abi::IN_HEADER_BYTES
            )));
        };
        pool.busy();
        serve_one(filesystem, device, &header, fields);
        pool.free();
        if is_extra && pool.leaves() {
            return Ok(());
        }
    }
}

fn serve_one<F: Filesystem>(filesystem: &F, device: &Arc<Device>, header: &Header, fields: Fields<'_>) {
    let operation = abi::opcode::name(header.opcode);
    let span =
        tracing::debug_span!("fuse", unique = header.unique, operation, ino = header.ino, pid = header.pid);
    let _entered = span.enter();
    if dispatch(filesystem, device, header, fields).is_none() {
        tracing::warn!(
            "the arguments of a request of the kernel (operation {}) are too short",
            header.opcode
        );
        Pending::new(device, header.unique).refuse(Errno::EIO);
    }
}
