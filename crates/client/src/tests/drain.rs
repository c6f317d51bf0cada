//! Pending operations without a server.

use std::sync::Arc;

use chiton_model::Op;
use chiton_types::{Cred, Epoch, Ino, Seq};
use chiton_wire::{Acknowledged, Call, Request};

use crate::write_behind::PendingQueue;

/// Takes all pending operations out of a queue, as if the server had answered them.
pub(crate) fn drain(queue: &PendingQueue) -> Vec<(Cred, Op, Acknowledged)> {
    let number = |cred: &Cred, call: Call| {
        let (seq, epoch) = (Seq(1), Epoch(0));
        Arc::new(Request { id: 1, seq, settled: seq, epoch, again: None, cred: cred.clone(), call })
    };
    let dirs = queue.dirs();
    let mut pending = Vec::new();
    while let Some(request) = queue.send_next(number) {
        let Call::WriteBehind { ops, acknowledged } = &request.call else { panic!("{request:?}") };
        for (op, one) in ops.iter().zip(acknowledged) {
            if let Op::Make { parent, .. } | Op::Unlink { parent, .. } = op {
                assert!(dirs.contains(parent), "{op:?} is pending in {dirs:?}");
            }
            pending.push((request.cred.clone(), op.clone(), *one));
        }
        queue.answered(request.seq, false);
    }
    assert_eq!(queue.dirs(), [] as [Ino; 0]);
    pending
}
