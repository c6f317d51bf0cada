//! Calls that only a mount makes: directories held open, pages of the kernel's cache, and the names that the kernel may keep.

use chiton_types::{Ino, Refusal, access};
use chiton_wire::{Answer, Call, Query};

use crate::client::Client;
use crate::service::Caller;

impl Client {
    /// True if the server is in this process.
    pub fn is_embedded(&self) -> bool {
        self.service.is_embedded()
    }

    /// False if nobody else uses the file system now: the server is in this process, and has no other session.
    pub fn is_shared(&self) -> bool {
        self.service.is_shared()
    }

    /// opendir(3): asks for the right to list. The directory stays while it is open, also if it is removed.
    ///
    /// # Errors
    /// [`Refusal::NotDir`], [`Refusal::Access`].
    pub fn opendir(&self, caller: &Caller<'_>, dir: Ino) -> Result<(), Refusal> {
        match self.ask(caller, Call::Query(Query::Open { ino: dir, want: access::READ, content: false }))? {
            Answer::Attr { .. } => Ok(()),
            _ => Err(Refusal::Io),
        }
    }

    /// The end of an [`Client::opendir`].
    pub fn closedir(&self, dir: Ino) {
        self.service.closed(dir);
    }

    /// Takes what the kernel writes back from its own page cache (mappings), through any handle of the file.
    ///
    /// # Errors
    /// As write(2).
    pub fn write_back(
        &self,
        caller: &Caller<'_>,
        fh: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u32, Refusal> {
        self.files.write_back(caller, fh, offset, bytes)
    }

    /// True if the content of `ino` is cached here under a lease that is unbroken so far, so the kernel's copy is still valid.
    pub fn has_content(&self, ino: Ino) -> bool {
        self.files.size(ino).is_some()
    }
}
