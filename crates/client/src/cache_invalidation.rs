//! A service that keeps the cache true: it records every change of names and attributes that passes through it.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use chiton_model::Op;
use chiton_namespace::permission::is_list;
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread;
use chiton_types::{Attr, Cred, Ino, Mode, PlateId, Refusal, SessionId};
use chiton_wire::{Answer, Call, Failure, LeaseMode};

use crate::Recalls;
use crate::cache::Since;
use crate::core::Core;
use crate::decorator::Decorator;
use crate::service::{CallError, Service, Underway};
use crate::write_behind::Pauses;

pub(crate) struct Invalidating {
    pub(crate) inner: Arc<dyn Service>,
    pub(crate) core: Arc<Core>,
}

impl Invalidating {
    /// Asks by `ask`, and records the changes.
    fn observe(
        &self,
        call: Call,
        ask: impl FnOnce(Call) -> Result<Answer, CallError>,
    ) -> Result<Answer, CallError> {
        let _pauses = self.core.write_behind.pause_for(&call);
        let ops = self.ops(&call);
        if ops.is_empty() {
            return ask(call);
        }
        self.core.cache.begins(&ops);
        let since = self.core.cache.since(self.inner.recalls());
        let answer = ask(call);
        record(&self.core, self.inner.recalls(), since, &ops, &answer);
        answer
    }

    /// The operations of a call, if it is worth to look at them afterwards.
    fn ops(&self, call: &Call) -> Vec<Op> {
        // Without a cache, only the names matter that the kernel keeps.
        let sets_rights =
            |op: &Op| matches!(op, Op::SetAttr { .. }) || op.xattr().is_some_and(|(_, name)| is_list(name));
        match call {
            Call::Op { op, .. } if sets_rights(op) => self.outline(call),
            _ if self.core.embedded => Vec::new(),
            call => self.outline(call),
        }
    }

    fn outline(&self, call: &Call) -> Vec<Op> {
        match call {
            Call::Op { op, .. } => vec![self.core.outline(op)],
            Call::Batch { ops, .. } => ops.iter().map(|op| self.core.outline(op)).collect(),
            _ => Vec::new(),
        }
    }
}

fn record(core: &Core, recalls: &Recalls, since: Since, ops: &[Op], answer: &Result<Answer, CallError>) {
    match answer {
        Ok(Answer::Op { outcome, lease, .. }) => core.changed(recalls, since, &[(&ops[0], outcome, *lease)]),
        Ok(Answer::Batch(results)) => {
            let both = ops.iter().zip(results);
            let done = both.filter_map(|(op, result)| Some((op, &result.as_ref().ok()?.1, LeaseMode::None)));
            core.changed(recalls, since, &done.collect::<Vec<_>>());
        }
        _ => {}
    }
    core.cache.ended(ops, |at| is_outcome_known(answer, at));
}

/// Whether the client knows what has become of an operation of a call. One whose caller gave up may still be carried out.
fn is_outcome_known(answer: &Result<Answer, CallError>, at: usize) -> bool {
    let is_open = |refusal| matches!(refusal, Refusal::Interrupted | Refusal::NotConnected | Refusal::Io);
    match answer {
        Ok(Answer::Batch(results)) => match results.get(at) {
            Some(Err(Failure::Refused(refusal))) => !is_open(*refusal),
            Some(Err(Failure::SessionGone)) => false,
            // A batch that stops carries out none of the rest.
            _ => true,
        },
        Err(CallError::Refused(refusal)) => !is_open(*refusal),
        _ => true,
    }
}

impl Decorator for Invalidating {
    fn inner(&self) -> &dyn Service {
        &*self.inner
    }
}

impl Service for Invalidating {
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.observe(call, |call| self.inner.call(cred, call))
    }

    fn call_in(&self, session: SessionId, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.observe(call, |call| self.inner.call_in(session, cred, call))
    }

    fn call_at(&self, plate: PlateId, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.observe(call, |call| self.inner.call_at(plate, cred, call))
    }

    /// In this process only, where nothing is cached.
    fn create_lazily(&self, cred: &Cred, parent: Ino, names: &[&[u8]], mode: Mode) -> Vec<Attr> {
        self.inner.create_lazily(cred, parent, names, mode)
    }

    fn write_locally(&self, cred: &Cred, op: &Op, known: &Attr) -> Option<Attr> {
        self.core.write_locally(&*self.inner, cred, op, known)
    }

    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        let pauses = self.core.write_behind.pause_for(&call);
        let ops = self.ops(&call);
        self.core.cache.begins(&ops);
        let since = self.core.cache.since(self.inner.recalls());
        let underway = self.inner.start(cred, call);
        if ops.is_empty() {
            return underway;
        }
        Box::new(RecordedCall {
            underway: Some(underway),
            service: self.inner.clone(),
            core: self.core.clone(),
            since,
            ops,
            pauses,
        })
    }

    fn call_cancellable(
        &self,
        cred: &Cred,
        call: Call,
        token: &crate::CancelToken,
    ) -> Result<Answer, CallError> {
        self.inner.call_cancellable(cred, call, token)
    }
}

/// An operation whose caller did not wait for the answer.
struct Abandoned {
    underway: Box<dyn Underway>,
    /// Not for longer than its client lives.
    service: Weak<dyn Service>,
    core: Arc<Core>,
    since: Since,
    ops: Vec<Op>,
    pauses: Pauses,
}

impl Abandoned {
    fn finish(self) {
        let answer = self.underway.wait();
        if let Some(service) = self.service.upgrade() {
            record(&self.core, service.recalls(), self.since, &self.ops, &answer);
        }
        drop(self.pauses);
    }
}

/// Calls that are still to be finished, one after the other: each is answered, or its session ends.
#[derive(Default)]
pub(crate) struct AbandonedCalls(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    waiting: Vec<Abandoned>,
    /// A thread waits for them.
    is_running: bool,
}

impl AbandonedCalls {
    fn finish_later(&self, abandoned: Abandoned) {
        let mut queue = self.0.lock();
        queue.waiting.push(abandoned);
        if std::mem::replace(&mut queue.is_running, true) {
            return;
        }
        let queue = self.0.clone();
        let body = move || {
            while let Some(next) = next(&queue) {
                next.finish();
            }
        };
        drop(thread::spawn("chiton-abandoned", body).expect("a thread can be started"));
    }
}

fn next(queue: &Mutex<Queue>) -> Option<Abandoned> {
    let mut queue = queue.lock();
    queue.is_running = !queue.waiting.is_empty();
    queue.waiting.pop()
}

/// An operation under way whose outcome the cache records.
struct RecordedCall {
    underway: Option<Box<dyn Underway>>,
    service: Arc<dyn Service>,
    core: Arc<Core>,
    since: Since,
    ops: Vec<Op>,
    pauses: Pauses,
}

impl Drop for RecordedCall {
    fn drop(&mut self) {
        if let Some(underway) = self.underway.take() {
            // The server may still carry it out, at any time: another thread waits for the answer and records it.
            let (service, core) = (Arc::downgrade(&self.service), self.core.clone());
            let (ops, pauses) = (std::mem::take(&mut self.ops), std::mem::take(&mut self.pauses));
            self.core.abandoned.finish_later(Abandoned {
                underway,
                service,
                core,
                since: self.since,
                ops,
                pauses,
            });
        }
    }
}

impl Future for RecordedCall {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let underway = self.underway.as_mut().expect("a future is not polled after its end");
        let Poll::Ready(answer) = Pin::new(&mut **underway).poll(cx) else { return Poll::Pending };
        self.underway = None;
        record(&self.core, self.service.recalls(), self.since, &self.ops, &answer);
        Poll::Ready(answer)
    }
}

impl Underway for RecordedCall {
    fn wait(mut self: Box<Self>) -> Result<Answer, CallError> {
        let answer = self.underway.take().expect("a call is not waited for after its end").wait();
        record(&self.core, self.service.recalls(), self.since, &self.ops, &answer);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_of_an_operation_that_was_given_up_is_not_known() {
        let given_up = [Refusal::Interrupted, Refusal::NotConnected, Refusal::Io];
        for refusal in given_up {
            assert!(!is_outcome_known(&Err(CallError::Refused(refusal)), 0), "{refusal:?}");
        }
        assert!(is_outcome_known(&Err(CallError::Refused(Refusal::NotEmpty)), 0));
        assert!(is_outcome_known(&Err(CallError::NeedGroups), 0));
        let refused = |refusal| Err(Failure::Refused(refusal));
        let results = vec![refused(Refusal::Exists), refused(Refusal::Io), Err(Failure::SessionGone)];
        let batch = Ok(Answer::Batch(results));
        assert_eq!([0, 1, 2, 3].map(|at| is_outcome_known(&batch, at)), [true, false, false, true]);
    }
}
