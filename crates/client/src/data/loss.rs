//! Reports of lost written data, beside those to the descriptors of the file (S23).
//!
//! Invariants:
//! - A loss is owed to the next fsync of the file, by whatever handle: programs read what fsync says, and few what
//!   close(2) does (a shell that redirects cannot).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use chiton_runtime::sync::Mutex;
use chiton_types::{Ino, Refusal};

/// Most files whose losses are remembered.
const OWED_MAX: usize = 16_384;

/// Losses that no fsync has reported yet.
#[derive(Default)]
pub(super) struct Losses(Mutex<Owed>);

#[derive(Default)]
struct Owed {
    by_file: BTreeMap<Ino, Refusal>,
    /// For a caller that asks about all files.
    any: Option<Refusal>,
}

impl Losses {
    /// Drops the buffered content of a file. `unreported`: no descriptor that was open reports it.
    pub(super) fn note(&self, ino: Ino, why: Refusal, unreported: bool) {
        let mut owed = self.0.lock();
        owed.by_file.insert(ino, why);
        if unreported {
            owed.any = Some(why);
        }
        if owed.by_file.len() > OWED_MAX
            && let Some((_, why)) = owed.by_file.pop_first()
        {
            owed.any = Some(why);
        }
    }

    /// The loss that an fsync of the file has to report; once.
    pub(super) fn take(&self, ino: Ino) -> Option<Refusal> {
        self.0.lock().by_file.remove(&ino)
    }

    /// The same for all files.
    pub(super) fn take_any(&self) -> Option<Refusal> {
        self.0.lock().any.take()
    }

    /// The file was emptied, so the lost content would be gone in any case.
    pub(super) fn forget(&self, ino: Ino) {
        self.0.lock().by_file.remove(&ino);
    }
}

/// Called with the file and the reason whenever all that waits in a file to be stored is given up. By default a line on
/// standard error. It must not call the client: the file is locked.
#[derive(Clone)]
pub struct OnLoss(Arc<dyn Fn(Ino, Refusal) + Send + Sync>);

impl OnLoss {
    /// Reports losses to `report`.
    pub fn new(report: impl Fn(Ino, Refusal) + Send + Sync + 'static) -> OnLoss {
        OnLoss(Arc::new(report))
    }

    pub(super) fn report(&self, ino: Ino, why: Refusal) {
        (self.0)(ino, why);
    }
}

impl Default for OnLoss {
    fn default() -> OnLoss {
        OnLoss::new(|ino, why| {
            tracing::warn!(
                "data written to inode {ino} is lost: {why}; the next fsync of the file reports it"
            )
        })
    }
}

impl fmt::Debug for OnLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLoss")
    }
}
