//! Directories with parts on several plates, for those who administer them. To all others they are directories.

use chiton_model::{Op, PartRange, decode_parts};
use chiton_types::{Ino, Refusal};
use chiton_wire::{Answer, Call, Query};

use crate::client::Client;
use crate::service::Caller;

impl Client {
    /// The parts of a directory, its own inode first; none if all its names are on one plate.
    ///
    /// # Errors
    /// [`Refusal::Stale`] if it is gone.
    pub fn parts(&self, dir: Ino) -> Result<Vec<PartRange>, Refusal> {
        match self.ask(&self.caller(), Call::Query(Query::Parts { dir }))? {
            Answer::Bytes(bytes) if bytes.is_empty() => Ok(Vec::new()),
            Answer::Bytes(bytes) => decode_parts(&bytes).map_err(|_| Refusal::Io),
            _ => Err(Refusal::Io),
        }
    }

    /// Gives a directory a part on each plate, with the names in its range, and returns the parts. Others go on in it meanwhile. A directory of
    /// very many names takes several steps: `progress` gets the number of parts after each. A directory that has its parts stays as
    /// it is.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`] unless the caller owns it; [`Refusal::Unsupported`] if the file system has one plate;
    /// [`Refusal::CrossDevice`] if its names have to stay together, because of a policy or a decoupling.
    pub fn split(
        &self,
        caller: &Caller<'_>,
        dir: Ino,
        mut progress: impl FnMut(usize),
    ) -> Result<Vec<PartRange>, Refusal> {
        let mut before = self.parts(dir)?;
        loop {
            self.operate(caller, Op::Split { dir }, false)?;
            let after = self.parts(dir)?;
            if after == before {
                return Ok(after);
            }
            progress(after.len());
            before = after;
        }
    }
}
