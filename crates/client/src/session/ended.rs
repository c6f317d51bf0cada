//! Sessions that are over: the operations that the server had carried out, and the outcome of the others.
//!
//! ```text
//!   kept ── answered, carried out ──▶ durable
//!    │ └─── answered, lost ─────────▶ late: sent in the next session, before all else ──▶ carried out, or refused: lost
//!    └───── not answered ───────────▶ its caller asks anew, if no late operation is lost
//! ```

use std::collections::BTreeSet;

use chiton_model::{Op, Outcome};
use chiton_types::{Cred, Ino, Position, Seq};
use chiton_wire::{Acknowledged, Again, Answer, BATCH_OPS_MAX, Call, Failure, Reply, Request};

use super::{Kept, Session, again_of, call_bytes, header, journalled, makes, written};

/// A message with late operations has about so many bytes at most.
const LATE_BYTES_MAX: usize = 1 << 20;

/// The outcome of a call that had no answer when its session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// A push, which was carried out.
    Pushed,
    /// Nothing of it was carried out, and nothing of it will be: its caller may ask anew, if nothing is lost on which it may rest.
    NotCarriedOut,
    /// Lost, or not known here.
    Lost,
}

/// A server's memory of a session that is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct CarriedOut {
    /// Runs of operations that were carried out. `None`: it remembers nothing, and none counts as carried out.
    pub(crate) runs: Option<Vec<(Seq, Seq)>>,
    /// Where in the server's journal the session ended, if that is known.
    pub(crate) end: Option<Position>,
}

impl CarriedOut {
    pub(super) fn has(&self, seq: Seq) -> bool {
        let Some(runs) = &self.runs else { return false };
        let at = runs.partition_point(|(_, end)| *end <= seq);
        runs.get(at).is_some_and(|(first, _)| *first <= seq)
    }

    /// Whether it is certain that none of these was carried out.
    fn has_none(&self, seqs: &mut impl Iterator<Item = Seq>) -> bool {
        self.runs.is_some() && !seqs.any(|seq| self.has(seq))
    }
}

/// Late operations of one user that took place before the same position.
struct Run {
    cred: Cred,
    since: Position,
    ops: Vec<Op>,
    acknowledged: Vec<Acknowledged>,
    bytes: usize,
}

impl Session {
    /// Files of which a push was not answered, and was carried out before this session was over.
    pub(crate) fn landed(&self, carried_out: &CarriedOut) -> BTreeSet<Ino> {
        let unanswered = self.kept.iter().filter(|kept| kept.answers.is_empty());
        let landed = unanswered.filter(|kept| carried_out.has(kept.request.seq));
        landed.filter_map(|kept| written(&kept.request.call)).collect()
    }

    /// The session is over. Of what was kept and not carried out, the acknowledged operations become late ones of `next`, the session
    /// that follows ([`Session::next_late`]). Opens live on there (locks do not: others may hold them by now). Returns the numbers that
    /// a caller waits for, and the outcome of each.
    pub(crate) fn expire(&mut self, next: Session, carried_out: &CarriedOut) -> Vec<(Seq, Unanswered)> {
        let mut runs = Vec::new();
        let mut is_any_lost = false;
        for kept in &self.kept {
            is_any_lost |= !late_of(kept, carried_out, &mut runs);
        }
        let has_lost = is_any_lost || self.has_lost_late;
        let waited_for = self.kept.iter().filter(|kept| kept.waited_for).map(|kept| {
            let mut seqs = (0..kept.count).map(|at| Seq(kept.request.seq.0 + at));
            let became = match &kept.request.call {
                call if written(call).is_some() && carried_out.has(kept.request.seq) => Unanswered::Pushed,
                // Its content was written under a lease that is void, or it rests on a lost operation.
                call if written(call).is_some() || has_lost => Unanswered::Lost,
                Call::Op { .. } | Call::Batch { .. } if carried_out.has_none(&mut seqs) => {
                    Unanswered::NotCarriedOut
                }
                _ => Unanswered::Lost,
            };
            (kept.request.seq, became)
        });
        let waited_for = waited_for.collect();
        let lost = self.lost || is_any_lost;
        let opens = std::mem::take(&mut self.opens);
        let (next_id, messages) = (self.next_id, self.messages);
        *self = Session { lost, has_lost_late: has_lost, opens, next_id, messages, ..next };
        for Run { cred, since, ops, acknowledged, .. } in runs {
            self.issue(&cred, Call::Late { since, ops, acknowledged });
        }
        waited_for
    }

    /// The first late operations that the server has not answered, as a request. The next are sent when these are answered, so that they
    /// are carried out in their order.
    pub(crate) fn next_late(&self) -> Option<Request> {
        let kept = self.kept.iter().find(|kept| is_late(kept))?;
        let Call::Late { since, ops, acknowledged } = &kept.request.call else { return None };
        let mut acknowledged = acknowledged.clone();
        for (op, one) in ops.iter().zip(&mut acknowledged) {
            one.open = makes(op) && self.opens.contains_key(&one.ino);
        }
        let call = Call::Late { since: *since, ops: ops.clone(), acknowledged };
        Some(Request { call, ..header(&kept.request) })
    }

    /// The part of the results of late operations that the session keeps. A refused operation is lost.
    pub(super) fn answers_of_late(
        &mut self,
        ops: &[Op],
        acknowledged: &[Acknowledged],
        results: &[Result<(Position, Outcome), Failure>],
    ) -> Vec<Option<Again>> {
        let boot = self.boot;
        let position = |at: usize| Some(results.get(at)?.as_ref().ok()?.0);
        let each = ops.iter().zip(acknowledged).enumerate();
        let carried_out: Vec<_> = each.map(|(at, (op, one))| (position(at), op, one)).collect();
        self.has_lost_late |= carried_out.iter().any(|(position, ..)| position.is_none());
        self.lost |= self.has_lost_late;
        let again = |(position, op, one): (Option<Position>, &Op, &Acknowledged)| {
            journalled(again_of(boot, op, one, position?))
        };
        carried_out.into_iter().map(again).collect()
    }

    /// The server was restarted while late operations were under way. It does not know any more what it refused of them, so the rest may
    /// rest on that.
    pub(super) fn lose_rest_of_late(&mut self) {
        if !self.has_lost_late {
            return;
        }
        for kept in self.kept.iter_mut().filter(|kept| is_late(kept)) {
            kept.answers = vec![None; kept.count as usize];
        }
    }

    /// All late operations are answered: true once if any was lost since.
    pub(crate) fn take_lost_late(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_late)
    }

    /// True once after acknowledged operations were lost.
    pub(crate) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }
}

/// Whether these are late operations that no server has answered.
pub(super) fn is_late(kept: &Kept) -> bool {
    kept.answers.is_empty() && matches!(kept.request.call, Call::Late { .. })
}

/// The results of late operations; none if they were refused as a whole.
pub(super) fn results_of_late(reply: &Reply) -> &[Result<(Position, Outcome), Failure>] {
    if let Ok(Answer::Batch(results)) = &reply.result { results } else { &[] }
}

/// Adds the acknowledged operations of a kept request that were not carried out to `runs`. False if any of them is lost.
fn late_of(kept: &Kept, carried_out: &CarriedOut, runs: &mut Vec<Run>) -> bool {
    let Request { cred, call, seq, .. } = &*kept.request;
    let mut all = true;
    for (at, op) in call.ops().iter().enumerate() {
        let answered = kept.answers.get(at).copied().flatten();
        let acknowledged = match call {
            _ if !kept.answers.is_empty() => {
                answered.map(|again| Acknowledged { ino: again.ino, time: again.time, open: false })
            }
            Call::WriteBehind { acknowledged, .. } | Call::Late { acknowledged, .. } => {
                acknowledged.get(at).copied()
            }
            _ => None,
        };
        let Some(one) = acknowledged.filter(|_| !carried_out.has(Seq(seq.0 + at as u64))) else { continue };
        let since = match call {
            // It took place before the session that is over now.
            Call::Late { since, .. } if kept.answers.is_empty() => Some(*since),
            _ => carried_out.end,
        };
        match since.filter(|_| carried_out.runs.is_some()) {
            Some(since) => add_late(runs, cred, since, op, one),
            None => all = false,
        }
    }
    all
}

fn add_late(runs: &mut Vec<Run>, cred: &Cred, since: Position, op: &Op, one: Acknowledged) {
    let bytes = call_bytes(std::slice::from_ref(op));
    let fits = |run: &&mut Run| {
        run.cred == *cred
            && run.since == since
            && run.ops.len() < BATCH_OPS_MAX
            && run.bytes + bytes <= LATE_BYTES_MAX
    };
    if let Some(run) = runs.last_mut().filter(fits) {
        run.ops.push(op.clone());
        run.acknowledged.push(one);
        run.bytes += bytes;
        return;
    }
    let (ops, acknowledged) = (vec![op.clone()], vec![one]);
    runs.push(Run { cred: cred.clone(), since, ops, acknowledged, bytes });
}
