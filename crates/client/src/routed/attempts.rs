//! A call on its way: once, or again when a directory turns out to have parts.

use std::sync::Arc;

use chiton_model::Op;
use chiton_types::{Cred, Refusal};
use chiton_wire::{Answer, Call, Failure, Query};

use super::chain::{Chain, Next};
use super::runs::{OpResult, Runs};
use super::stats::Stats;
use super::{Each, LOOKUP_TRIES, Way, parts};
use crate::service::CallError;

impl Each {
    /// One attempt of a call, on this thread.
    pub(super) fn call_once(self: &Arc<Each>, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        match self.way(&call) {
            Way::To(at) => self.services[at].call(cred, call),
            Way::Attr(at) => {
                let answer = self.services[at].call(cred, call);
                Chain::run(self.clone().summed(cred.clone(), answer))
            }
            Way::Decider(at) => {
                if let Call::Op { op, .. } = &call {
                    self.settle_others(op, at)?;
                }
                let answer = self.services[at].call(cred, call)?;
                Chain::run(self.clone().summed(cred.clone(), Ok(self.decided(at, answer))))
            }
            Way::Lookup(at) => {
                let answer = self.look_up(at, cred, call);
                Chain::run(self.clone().summed(cred.clone(), answer))
            }
            Way::Listing(at) => Chain::run(self.clone().start_listing(at, cred.clone(), call)),
            Way::Runs => Chain::run(Runs::begin(self.clone(), cred, call)),
            Way::Stats => Chain::run(Stats::begin(self.clone(), cred.clone(), call)),
            Way::Path(at) => {
                let answer = self.services[at].call(cred, self.with_sessions(call));
                Chain::run(self.clone().summed(cred.clone(), answer))
            }
            way @ (Way::Commit | Way::Totals | Way::Realms | Way::Realm(_)) => {
                self.call_many(&way, cred, &call)
            }
        }
    }

    /// One attempt of a call, as a chain.
    pub(super) fn start_once(self: Arc<Each>, cred: &Cred, call: Call) -> Next {
        let of_whom = cred.clone();
        match self.way(&call) {
            Way::To(at) => Next::one(self.services[at].start(cred, call), Next::Answer),
            Way::Attr(at) => {
                let underway = self.services[at].start(cred, call);
                Next::one(underway, move |answer| self.summed(of_whom, answer))
            }
            Way::Decider(at) => {
                if let Call::Op { op, .. } = &call
                    && let Err(error) = self.settle_others(op, at)
                {
                    return Next::Answer(Err(error));
                }
                let underway = self.services[at].start(cred, call);
                Next::one(underway, move |answer| {
                    let answer = answer.map(|answer| self.decided(at, answer));
                    self.summed(of_whom, answer)
                })
            }
            Way::Lookup(at) => {
                let look_up = self.clone().start_look_up(at, cred.clone(), call, LOOKUP_TRIES);
                look_up.then(move |answer| self.summed(of_whom, answer))
            }
            Way::Listing(at) => self.start_listing(at, cred.clone(), call),
            Way::Runs => Runs::begin(self, cred, call),
            Way::Stats => Stats::begin(self, of_whom, call),
            Way::Path(at) => {
                let underway = self.services[at].start(cred, self.with_sessions(call));
                Next::one(underway, move |answer| self.summed(of_whom, answer))
            }
            way @ (Way::Commit | Way::Totals | Way::Realms | Way::Realm(_)) => {
                Next::Answer(self.call_many(&way, cred, &call))
            }
        }
    }

    /// A call that may turn out to be about directories with parts.
    pub(super) fn start_placed(self: Arc<Each>, cred: Cred, call: Call, tries: usize) -> Next {
        if let Call::Query(Query::ReadDir { dir, part_end: None, .. }) = &call
            && let Some(list) = self.list_of(*dir)
        {
            return self.start_parted_listing(cred, list, call, tries);
        }
        let dirs = parts::dirs_of(&call);
        let again = (!dirs.is_empty() && tries > 0).then(|| call.clone());
        let placed = self.placed(call);
        let is_at_part = again.as_ref().is_some_and(|again| self.has_moved(again, &placed));
        let attempt = self.clone().start_once(&cred, placed);
        let Some(again) = again else { return attempt };
        attempt.then(move |answer| match answer {
            Err(CallError::Refused(refusal)) if self.is_elsewhere(refusal, is_at_part, &dirs) => {
                self.learn(cred, dirs, move |each, cred| each.start_placed(cred, again, tries - 1))
            }
            answer => Next::Answer(answer),
        })
    }

    /// A batch: whether its directories have parts is asked first.
    pub(super) fn start_batch(self: Arc<Each>, cred: Cred, call: Call) -> Next {
        self.batch_again(cred, call, parts::TRIES)
    }

    fn batch_again(self: Arc<Each>, cred: Cred, call: Call, tries: usize) -> Next {
        let Call::Batch { ops, stop_on_failure } = &call else {
            return Next::Answer(Err(Refusal::Invalid.into()));
        };
        let unknown = self.unknown_dirs(ops);
        if !unknown.is_empty() {
            return self.learn(cred, unknown, move |each, cred| each.batch_again(cred, call, tries));
        }
        let (asked, stops) = (ops.clone(), *stop_on_failure);
        let placed = self.placed(call);
        let attempt = self.clone().start_once(&cred, placed);
        attempt.then(move |answer| match answer {
            Ok(Answer::Batch(results)) if tries > 0 => self.moved_on(cred, (asked, stops), results, tries),
            answer => Next::Answer(answer),
        })
    }

    /// Sends again those operations of a batch whose names other parts have by now.
    fn moved_on(
        self: Arc<Each>,
        cred: Cred,
        (ops, stop_on_failure): (Vec<Op>, bool),
        mut results: Vec<OpResult>,
        tries: usize,
    ) -> Next {
        let is_elsewhere = |result: &OpResult| matches!(result, Err(Failure::Refused(Refusal::OtherPart)));
        let mut at: Vec<usize> = (0..results.len()).filter(|n| is_elsewhere(&results[*n])).collect();
        let Some(&first) = at.first() else { return Next::Answer(Ok(Answer::Batch(results))) };
        if stop_on_failure {
            // It was the last that was looked at.
            at = (first..ops.len()).collect();
            results.truncate(first);
        }
        let ops: Vec<Op> = at.iter().map(|n| ops[*n].clone()).collect();
        let dirs = parts::dirs_in(&ops);
        self.learn(cred, dirs, move |each, cred| {
            let again = each.batch_again(cred, Call::Batch { ops, stop_on_failure }, tries - 1);
            again.then(move |answer| {
                let further = match answer {
                    Ok(Answer::Batch(further)) => further,
                    Ok(_) => return Next::Answer(Err(Refusal::Io.into())),
                    Err(error) => vec![Err(error.failure()); if stop_on_failure { 1 } else { at.len() }],
                };
                if stop_on_failure {
                    results.extend(further);
                } else {
                    at.into_iter().zip(further).for_each(|(n, result)| results[n] = result);
                }
                Next::Answer(Ok(Answer::Batch(results)))
            })
        })
    }
}
