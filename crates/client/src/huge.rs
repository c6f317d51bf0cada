//! Directories with parts on several plates, for those who administer them. To all others they are directories.

use std::time::Duration;

use chiton_model::{Op, PartRange};
use chiton_runtime::thread;
use chiton_types::{Ino, Refusal};
use chiton_wire::{Answer, Call, Query};

use crate::client::Client;
use crate::routed::list_in;
use crate::service::Caller;

/// Between attempts to end folded parts.
const BETWEEN_STEPS: Duration = Duration::from_millis(5);

impl Client {
    /// The parts of a directory, its own inode first; none if all its names are on one plate.
    ///
    /// # Errors
    /// [`Refusal::Stale`] if it is gone.
    pub fn parts(&self, dir: Ino) -> Result<Vec<PartRange>, Refusal> {
        match self.ask(&self.caller(), Call::Query(Query::Parts { dir }))? {
            Answer::Bytes(bytes) => list_in(&bytes),
            _ => Err(Refusal::Io),
        }
    }

    /// Brings all names of a directory back to one plate; the opposite of [`Client::split`]. Each step brings those of one part, while others
    /// wait, and `progress` gets the number of parts that have names after each. A directory without parts stays as it is. If the
    /// policy splits directories at a number of names, this one is split again when it has so many and grows.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`] unless the caller owns it; [`Refusal::Unsupported`] if the file system has one plate;
    /// [`Refusal::ArgTooBig`] if a part has more than 16,384 names: parts that were folded until then stay folded.
    pub fn fold(
        &self,
        caller: &Caller<'_>,
        dir: Ino,
        mut progress: impl FnMut(usize),
    ) -> Result<(), Refusal> {
        let mut left = self.parts(dir)?.len();
        loop {
            self.operate(caller, Op::Fold { dir }, false)?;
            let Answer::Bytes(list) = self.ask(&self.caller(), Call::Query(Query::Parts { dir }))? else {
                return Err(Refusal::Io);
            };
            if list.is_empty() {
                return Ok(());
            }
            let now = list_in(&list)?.len();
            if now == left {
                // The other plates have not heard of the last step.
                thread::sleep(BETWEEN_STEPS);
            } else {
                progress(now);
                left = now;
            }
        }
    }

    /// Gives a directory a part on each plate, with the names in its range, and returns the parts. Others use it meanwhile. A directory of
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
            match self.operate(caller, Op::Split { dir }, false) {
                // The server has restarted, and hears first what this client did there.
                Err(Refusal::Busy) => {
                    thread::sleep(BETWEEN_STEPS);
                    continue;
                }
                answer => answer.map(drop)?,
            }
            let after = self.parts(dir)?;
            if after == before {
                return Ok(after);
            }
            progress(after.len());
            before = after;
        }
    }
}
