//! Who is told that written data are lost, beside the descriptors of the file (S23).

use std::fmt;
use std::sync::Arc;

use chiton_types::{Ino, Refusal};

/// Called with the file and the reason whenever all that waits in a file to be stored is given up. By default a line on
/// standard error. It must not call the client: the file is locked.
#[derive(Clone)]
pub struct TellLoss(Arc<dyn Fn(Ino, Refusal) + Send + Sync>);

impl TellLoss {
    /// Tells `whom`.
    pub fn new(whom: impl Fn(Ino, Refusal) + Send + Sync + 'static) -> TellLoss {
        TellLoss(Arc::new(whom))
    }

    pub(super) fn tell(&self, ino: Ino, why: Refusal) {
        (self.0)(ino, why);
    }
}

impl Default for TellLoss {
    fn default() -> TellLoss {
        TellLoss::new(|ino, why| eprintln!("chiton: data written to inode {ino} are lost: {why}"))
    }
}

impl fmt::Debug for TellLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TellLoss")
    }
}
