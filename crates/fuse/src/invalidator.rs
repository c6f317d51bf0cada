//! The client's word to the kernel that a lease ends.

use std::ops::Range;
use std::sync::Arc;

use chiton_client::Invalidator;
use chiton_types::{Ino, Name};
use chiton_wire::Grown;

use crate::kernel::Kernel;

/// Notifies the kernel of one mount. The client calls it on its recall threads, and acknowledges the recall when it
/// returns.
pub(crate) struct KernelInvalidator {
    kernel: Arc<Kernel>,
}

impl KernelInvalidator {
    pub(crate) fn new(kernel: Arc<Kernel>) -> KernelInvalidator {
        KernelInvalidator { kernel }
    }
}

impl Invalidator for KernelInvalidator {
    fn inval_entry(&self, parent: Ino, name: &Name) {
        self.kernel.await_listings();
        self.kernel.inval_entry(parent, name.as_bytes());
    }

    fn inval_inode(&self, ino: Ino) {
        self.kernel.await_listings();
        self.kernel.note_unsure(ino, 0);
        self.kernel.inval_inode(ino);
        self.kernel.moves.recalled(ino);
    }

    fn inval_range(&self, ino: Ino, range: Range<u64>) {
        self.kernel.inval_range(ino, range);
    }

    fn grown(&self, ino: Ino, grown: Grown) {
        self.kernel.grown(ino, grown);
    }

    fn inval_dir(&self, _dir: Ino) {
        self.kernel.await_listings();
        // The kernel cannot list the names that it caches for one directory. (Without epochs: see
        // `Kernel::name_ttl_max`.)
        self.kernel.forget_all_names();
    }

    fn forgets_names_at_once(&self) -> bool {
        self.kernel.has_epochs()
    }
}
