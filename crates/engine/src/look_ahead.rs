//! Rows that the rest of a batch will need, fetched together with those that its next operation waits for.
//!
//! Operations are carried out one after the other, so each would find out by itself that its row is missing, and a directory
//! that is larger than the cache would cost a batch of a thousand as many fetches one after the other.

use chiton_model::Op;
use chiton_namespace::{Context, Fault, Need, plan};
use chiton_types::{Cred, Ino, Time};

use crate::parts::Shards;

/// Rows that are fetched together.
const NEEDS_MAX: usize = 1024;

impl Shards {
    /// Adds to `needs` the rows that each of these operations would wait for if it were the next. What they change for each other
    /// is not regarded: it may add rows that are not needed, and leave out some that the operation then asks for.
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
