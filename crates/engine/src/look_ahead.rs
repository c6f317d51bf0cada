//! Rows that the rest of a batch will need, fetched together with those that its next operation waits for.
//!
//! The engine carries out the operations of a batch one after the other. If each asked for its row only when its turn comes, a batch of
//! a thousand in a directory larger than the cache would wait for a thousand fetches, one after the other.

use chiton_model::Op;
use chiton_namespace::{Context, Fault, Need, plan};
use chiton_types::{Cred, Ino, Time};

use crate::parts::Shards;

/// Rows that are fetched together.
const NEEDS_MAX: usize = 1024;

impl Shards {
    /// Adds to `needs` the rows that each of these operations lacks in the present state. An operation before it in the batch may change
    /// that state: then a row may be fetched in vain, or the operation asks for another one when its turn comes.
    pub(crate) fn look_ahead(&self, ops: &[Op], cred: &Cred, now: Time, needs: &mut Vec<Need>) {
        let context = Context { cred, now, offered: Ino(0), is_open: &|_| false, frees: false };
        let mut events = Vec::new();
        for op in ops {
            if needs.len() >= NEEDS_MAX {
                break;
            }
            if let Err(Fault::Missing(more)) = plan(&self.ns, op, &context, &mut events) {
                needs.extend(more);
            }
            events.clear();
        }
        needs.sort_unstable();
        needs.dedup();
    }
}
