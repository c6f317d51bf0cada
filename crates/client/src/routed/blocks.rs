//! Reads of blocks through the servers.

use chiton_types::{Cred, Refusal};
use chiton_wire::{Answer, Call};

use super::{Each, Way};
use crate::service::CallError;

impl Each {
    /// Any plate can read a block, but for a client that is limited to a subtree only the one that showed it the block: that of the file,
    /// which may share the block with a file of the writer's plate.
    pub(super) fn get_block(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        let Way::To(first) = self.way(&call) else { return Err(Refusal::Invalid.into()) };
        let mut answer = self.services[first].call(cred, call.clone());
        for at in (0..self.services.len()).filter(|at| *at != first) {
            if !matches!(answer, Err(CallError::Refused(Refusal::Stale))) {
                break;
            }
            answer = self.services[at].call(cred, call.clone());
        }
        answer
    }
}
