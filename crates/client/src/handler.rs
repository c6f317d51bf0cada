//! The receiver of recalls: it ends what is cached under leases.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use chiton_types::Ino;
use chiton_wire::{Grown, LeaseMode};

use crate::plate_inodes::PlateInodes;

/// A service calls it, on threads of its own.
pub(crate) trait Handler: Send + Sync {
    /// Give up the lease on `ino`, but for `keep`. It is acknowledged when this returns. May call the service.
    fn recall(&self, ino: Ino, keep: LeaseMode);
    /// As `recall`, on all inodes of a plate.
    fn recall_all(&self, inodes: &PlateInodes, keep: LeaseMode);
    /// A file that is open here grew elsewhere; acknowledged when this returns. Must not call the service.
    fn grown(&self, ino: Ino, grown: Grown);
    /// Nothing is answered before the server knows of it any more under the lease on `ino`.
    fn stop_write_behind(&self, ino: Ino);
    /// As `recall`, of a lease that was thought to be stronger than it is: nobody waits for it.
    fn weaken(&self, ino: Ino, keep: LeaseMode);
    /// Files of a plate with content that it may not have: not pushed, or a push is not answered.
    fn dirty(&self, inodes: &PlateInodes) -> Vec<Ino>;
    /// All leases on the inodes of a plate are void. With `landed` the session with it is over, and
    /// content that was buffered under them is lost, but for pushes of these files that were under
    /// way: they were carried out. Must not call the service, which waits for this to return.
    fn void(&self, inodes: &PlateInodes, landed: Option<&BTreeSet<Ino>>);
    /// The thread that called it is done with it. If its owner has dropped it meanwhile, this call ends it.
    fn leave(self: Arc<Self>) {}
}

/// A place for the handler, which is made after the service that it hears from.
#[derive(Default)]
pub(crate) struct HandlerSlot(OnceLock<Weak<dyn Handler>>);

impl HandlerSlot {
    /// From now on `handler` is called, for as long as it lives.
    pub(crate) fn set(&self, handler: Weak<dyn Handler>) {
        assert!(self.0.set(handler).is_ok(), "the handler of a service is set once");
    }

    /// The handler, if there is one, for as long as the guard is held.
    pub(crate) fn get(&self) -> Option<InUse> {
        self.0.get()?.upgrade().map(|handler| InUse(Some(handler)))
    }
}

/// A handler in a thread of the session.
pub(crate) struct InUse(Option<Arc<dyn Handler>>);

impl Deref for InUse {
    type Target = dyn Handler;

    fn deref(&self) -> &(dyn Handler + 'static) {
        &**self.0.as_ref().expect("taken when dropped")
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(handler) = self.0.take() {
            handler.leave();
        }
    }
}
