//! A batch over several plates: runs of operations that one plate decides, one run after the other.
//!
//! Invariants:
//! - Operations are carried out in their order, and results stand in that order.
//! - A run begins when the one before is answered. After a failure that is to stop the batch, none begins.
//! - Before a run with operations that may concern other plates, these have answered what write-behind has acknowledged.
//! - When something was carried out already, a run that fails as a whole is a failure of each of its operations: the caller must not
//!   send the batch again.

use std::collections::VecDeque;
use std::sync::Arc;

use chiton_model::{Op, Outcome};
use chiton_types::{Cred, Position, Refusal};
use chiton_wire::{Answer, Call, Failure};

use super::Each;
use super::chain::Next;
use crate::plate_inodes::crosses;
use crate::service::CallError;

pub(super) type OpResult = Result<(Position, Outcome), Failure>;

/// See the module.
pub(super) struct Runs {
    each: Arc<Each>,
    cred: Cred,
    stop_on_failure: bool,
    ops: VecDeque<Op>,
    results: Vec<OpResult>,
}

impl Runs {
    /// Begins a batch.
    pub(super) fn begin(each: Arc<Each>, cred: &Cred, call: Call) -> Next {
        let Call::Batch { ops, stop_on_failure } = call else {
            return Next::Answer(Err(Refusal::Invalid.into()));
        };
        let results = Vec::with_capacity(ops.len());
        Runs { each, cred: cred.clone(), stop_on_failure, ops: ops.into(), results }.go_on()
    }

    fn go_on(mut self) -> Next {
        let is_stopped = self.stop_on_failure && self.results.last().is_some_and(Result::is_err);
        let Some(first) = self.ops.front().filter(|_| !is_stopped) else {
            return Next::Answer(Ok(Answer::Batch(self.results)));
        };
        let at = self.each.index(first.footprint().place);
        let count = self.ops.iter().take_while(|op| self.each.index(op.footprint().place) == at).count();
        // Once is enough for the run: write-behind acknowledges nothing more of what came before the batch.
        let crossing = self.ops.iter().take(count).find(|op| crosses(self.each.plates, op));
        if let Some(Err(error)) = crossing.map(|op| self.each.settle_others(op, at)) {
            return self.took(at, count, Err(error));
        }
        let ops: Vec<Op> = self.ops.drain(..count).collect();
        let call = Call::Batch { ops, stop_on_failure: self.stop_on_failure };
        let underway = self.each.services[at].start(&self.cred, call);
        Next::one(underway, move |answer| self.took(at, count, answer))
    }

    /// A run of so many operations is over.
    fn took(mut self, at: usize, count: usize, answer: Result<Answer, CallError>) -> Next {
        let failure = match answer {
            Ok(Answer::Batch(mut results)) => {
                for (_, outcome) in results.iter_mut().flatten() {
                    self.each.owned(at, outcome);
                }
                self.results.append(&mut results);
                return self.go_on();
            }
            Ok(_) => CallError::Refused(Refusal::Io),
            Err(error) => error,
        };
        if self.results.is_empty() {
            return Next::Answer(Err(failure));
        }
        let failed = if self.stop_on_failure { 1 } else { count };
        self.results.extend(std::iter::repeat_n(Err(failure.failure()), failed));
        self.go_on()
    }
}
