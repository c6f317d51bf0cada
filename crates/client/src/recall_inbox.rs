//! Where a service puts the recalls that it hears, and where the client takes them up.
//!
//! ```text
//!   server ── Recall ──▶ service ── deliver ──▶ RecallInbox ─┬─▶ Recalls: answers under way grant nothing
//!                                                            └─▶ the client's handler: push, drop, invalidate
//! ```
//!
//! The service is made before the client, which registers its handler ([`crate::Client::over`]). Until then there is
//! nothing that a recall could end.

use std::sync::Weak;

use chiton_wire::Recall;

use crate::Recalls;
use crate::handler::{Handler, HandlerSlot, InUse};
use crate::plate_inodes::PlateInodes;

/// The one place where all services of a client deliver recalls. The client registers its handler here.
#[derive(Default)]
pub struct RecallInbox {
    recalls: Recalls,
    handler: HandlerSlot,
}

impl RecallInbox {
    /// The recalls so far, for [`crate::Service::recalls`].
    pub fn recalls(&self) -> &Recalls {
        &self.recalls
    }

    /// Carries out a recall on this thread. When it returns, nothing is cached under the recalled lease, the server
    /// has all content that was buffered under it, and the recall may be acknowledged. False if there is no client.
    ///
    /// `inodes`: those of the plate that recalls.
    pub fn deliver(&self, recall: &Recall, inodes: &PlateInodes) -> bool {
        if recall.grown.is_none() {
            self.recalls.note(recall.ino);
        }
        let Some(handler) = self.handler.get() else { return false };
        match recall.grown {
            Some(grown) => handler.grown(recall.ino, grown),
            None if recall.ino == Recall::EVERYTHING => handler.recall_all(inodes, recall.keep),
            None => handler.recall(recall.ino, recall.keep),
        }
        true
    }

    pub(crate) fn set_handler(&self, handler: Weak<dyn Handler>) {
        self.handler.set(handler);
    }

    pub(crate) fn handler(&self) -> Option<InUse> {
        self.handler.get()
    }
}
