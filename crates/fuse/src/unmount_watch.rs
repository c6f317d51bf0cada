//! Notices that the mount has been taken away, while requests of it may still wait for a server that is away: then the
//! wait gets an end.
//!
//! The dispatch threads learn of it only when they read from the kernel again, which those that wait do not.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use chiton_client::Client;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::mount_table;

#[derive(Debug)]
pub(crate) struct UnmountWatch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl UnmountWatch {
    /// Watches the mount at `dir`; when it is gone, `client` waits for a silent server no longer than `limit`.
    pub(crate) fn watch(
        dir: &Path,
        client: &Arc<Client>,
        limit: Duration,
    ) -> io::Result<Option<UnmountWatch>> {
        let Some(mounted) = mount_table::last_at(dir) else { return Ok(None) };
        let table = File::open(mount_table::PATH)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (stopped, client) = (stop.clone(), Arc::downgrade(client));
        let body = move || {
            while mount_table::is_there(&mounted.device) {
                // The kernel signals a change of the table by an exceptional condition.
                let mut both = [
                    PollFd::new(&table, PollFlags::PRI | PollFlags::ERR),
                    PollFd::new(&stopped, PollFlags::IN),
                ];
                match poll(&mut both, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return,
                }
                if !both[1].revents().is_empty() {
                    return;
                }
            }
            if let Some(client) = client.upgrade() {
                client.leave(limit);
            }
        };
        let thread = std::thread::Builder::new().name("chiton-depart".to_owned()).spawn(body)?;
        Ok(Some(UnmountWatch { stop, thread: Some(thread) }))
    }
}

impl Drop for UnmountWatch {
    fn drop(&mut self) {
        rustix::io::write(&self.stop, &1u64.to_ne_bytes()).expect("an event can be counted");
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}
