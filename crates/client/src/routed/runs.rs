//! A batch over several plates. Each plate gets its operations at once, unless the batch stops at a failure or an operation concerns two
//! plates. Then the batch goes in runs of operations that one plate decides, one run after the other.
//!
//! Invariants:
//! - Results stand in the order of the operations. Those of a plate are carried out in that order, and so are runs.
//! - A run begins when the one before is answered. After a failure that is to stop the batch, none begins.
//! - Before a run with operations that may concern other plates, these have answered what write-behind has acknowledged.
//! - When something was carried out, operations of a message that failed as a whole have each failed: the caller must not send the batch
//!   again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chiton_model::{Op, Outcome};
use chiton_types::{Cred, Position, Refusal};
use chiton_wire::{Answer, Call, Failure};

use super::Each;
use super::chain::Next;
use crate::plate_inodes::crosses;
use crate::service::CallError;

pub(super) type OpResult = Result<(Position, Outcome), Failure>;

pub(super) struct Runs {
    each: Arc<Each>,
    cred: Cred,
    stop_on_failure: bool,
    ops: VecDeque<Op>,
    results: Vec<OpResult>,
}

impl Runs {
    pub(super) fn begin(each: Arc<Each>, cred: &Cred, call: Call) -> Next {
        let Call::Batch { ops, stop_on_failure } = call else {
            return Next::Answer(Err(Refusal::Invalid.into()));
        };
        if !stop_on_failure && !ops.iter().any(|op| crosses(each.plates, op)) {
            return at_once(each, cred, ops);
        }
        let results = Vec::with_capacity(ops.len());
        Runs { each, cred: cred.clone(), stop_on_failure, ops: ops.into(), results }.advance()
    }

    fn advance(mut self) -> Next {
        let is_stopped = self.stop_on_failure && self.results.last().is_some_and(Result::is_err);
        let Some(first) = self.ops.front().filter(|_| !is_stopped) else {
            return Next::Answer(Ok(Answer::Batch(self.results)));
        };
        let at = self.each.index(first.footprint().place);
        let count = self.ops.iter().take_while(|op| self.each.index(op.footprint().place) == at).count();
        // Once is enough for the run: write-behind acknowledges nothing more from before the batch.
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
                return self.advance();
            }
            Ok(_) => CallError::Refused(Refusal::Io),
            Err(error) => error,
        };
        if self.results.is_empty() {
            return Next::Answer(Err(failure));
        }
        let failed = if self.stop_on_failure { 1 } else { count };
        self.results.extend(std::iter::repeat_n(Err(failure.failure()), failed));
        self.advance()
    }
}

/// Sends each plate the operations that it decides.
fn at_once(each: Arc<Each>, cred: &Cred, ops: Vec<Op>) -> Next {
    let count = ops.len();
    let mut of_plates: BTreeMap<usize, (Vec<usize>, Vec<Op>)> = BTreeMap::new();
    for (nth, op) in ops.into_iter().enumerate() {
        let (places, ops) = of_plates.entry(each.index(op.footprint().place)).or_default();
        places.push(nth);
        ops.push(op);
    }
    let (mut places, mut under_way) = (Vec::new(), Vec::new());
    for (at, (of_plate, ops)) in of_plates {
        places.push((at, of_plate));
        under_way.push(each.services[at].start(cred, Call::Batch { ops, stop_on_failure: false }));
    }
    let join = move |answers: Vec<Result<Answer, CallError>>| {
        if answers.iter().all(Result::is_err) {
            return answers.into_iter().next().map_or(Next::Answer(Err(Refusal::Io.into())), Next::Answer);
        }
        let mut results: Vec<OpResult> = vec![Err(Failure::Refused(Refusal::Io)); count];
        for ((at, places), answer) in places.into_iter().zip(answers) {
            let of_plate = match answer {
                Ok(Answer::Batch(of_plate)) => of_plate,
                Ok(_) => continue,
                Err(error) => vec![Err(error.failure()); places.len()],
            };
            for (nth, mut result) in places.into_iter().zip(of_plate) {
                if let Ok((_, outcome)) = &mut result {
                    each.owned(at, outcome);
                }
                results[nth] = result;
            }
        }
        Next::Answer(Ok(Answer::Batch(results)))
    };
    Next::All(under_way, Box::new(join))
}
