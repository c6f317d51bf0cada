//! The object behind a handle: a file system, or a subtree of one in which a job works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chiton_client::Client;
use chiton_types::Refusal;

use crate::decoupling::{Decouplings, Job};
use crate::last::Failure;
use crate::server::Inside;

/// Opaque to C. All its calls may come from many threads.
pub struct Chiton {
    pub(crate) filesystem: Arc<Filesystem>,
    /// In which paths begin, if it is not the whole file system.
    pub(crate) job: Option<Job>,
}

/// A client of a file system, with the server if that is inside.
pub(crate) struct Filesystem {
    pub(crate) client: Arc<Client>,
    pub(crate) decouplings: Decouplings,
    pub(crate) server: Option<Inside>,
    /// Its handle was closed; those of jobs may be there still.
    is_closed: AtomicBool,
}

impl Filesystem {
    pub(crate) fn new(client: Arc<Client>, decouplings: Decouplings, server: Option<Inside>) -> Filesystem {
        Filesystem { client, decouplings, server, is_closed: AtomicBool::new(false) }
    }

    /// Closes all decoupled subtrees, and makes everything durable.
    fn close(&self) -> Result<(), Failure> {
        self.is_closed.store(true, Ordering::Release);
        let parted = self.decouplings.close();
        let synced = self.client.sync();
        let ended = self.server.as_ref().map_or(Ok(()), Inside::shut_down);
        parted?;
        synced.map_err(|refusal| {
            Failure::new(refusal, format!("not everything could be made durable: {refusal}"))
        })?;
        ended
    }
}

impl Chiton {
    /// Asks the client whose paths begin where the handle's do.
    pub(crate) fn ask<R>(
        &self,
        asked: &str,
        path: &[u8],
        call: impl FnOnce(&Client) -> Result<R, Refusal>,
    ) -> Result<R, Failure> {
        self.check()?;
        let answer = match &self.job {
            Some(job) => job.call(call),
            None => call(&self.filesystem.client),
        };
        answer.map_err(|refusal| Failure::refused(asked, path, refusal))
    }

    /// The subtree of a job's handle.
    pub(crate) fn job(&self) -> Result<&Job, Failure> {
        self.check()?;
        self.job.as_ref().ok_or_else(|| {
            Failure::new(
                Refusal::Invalid,
                "the handle is that of a whole file system; chiton_decouple gives one",
            )
        })
    }

    /// That the handle is that of a whole file system.
    pub(crate) fn whole(&self) -> Result<(), Failure> {
        self.check()?;
        match self.job {
            None => Ok(()),
            Some(_) => {
                Err(Failure::new(Refusal::Invalid, "the handle is that of a job; use the file system's"))
            }
        }
    }

    fn check(&self) -> Result<(), Failure> {
        match self.filesystem.is_closed.load(Ordering::Acquire) {
            true => Err(Failure::new(Refusal::NotConnected, "the file system was closed before the handle")),
            false => Ok(()),
        }
    }

    /// Closes the handle, of a job or of the file system.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        match &self.job {
            // It ended with the file system.
            Some(_) if self.check().is_err() => Ok(()),
            Some(job) => job.close(),
            None => self.filesystem.close(),
        }
    }
}
