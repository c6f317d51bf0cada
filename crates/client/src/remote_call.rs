//! A call under way over a link that may break under it.
//!
//! ```text
//!   OnWire ── reply ──────────────────────────────▶ answer
//!     │ lost, or the link was replaced
//!     ├── an operation ──▶ Kept: the link thread sends it again ──▶ answer
//!     └── a question ────▶ asked anew when the link is up (OnWire)
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use chiton_transport::{ConnectionLost, Pending};
use chiton_types::{Cred, Refusal, SessionId};
use chiton_wire::{Answer, Call, Failure, Reply, Request};

use crate::CancelToken;
use crate::connected::{Issued, Link, Resolved, State};
use crate::service::{CallError, Underway};
use crate::wire::Wire;

/// A numbered call, and the connection that it was last sent over.
pub(crate) struct RemoteCall {
    shared: Arc<Link>,
    wire: Arc<dyn Wire>,
    request: Arc<Request>,
    generation: u64,
    session: SessionId,
    /// In this session or not at all.
    only_in: Option<SessionId>,
    sent: Duration,
    blocks_mark: u64,
}

/// The stage of a call that was started.
pub(crate) enum Stage {
    OnWire(RemoteCall, Pending),
    /// Waits for the answer that the link thread receives.
    Kept(RemoteCall),
    /// Over, or being looked at.
    Gone,
}

enum Step {
    Answer(Result<Answer, CallError>),
    SentAgain,
    AskAnew,
}

impl RemoteCall {
    /// Numbers the call (waiting for the link to be up); nothing is sent yet.
    pub(crate) fn begin(
        shared: &Arc<Link>,
        cred: &Cred,
        call: Call,
        only_in: Option<SessionId>,
    ) -> Result<RemoteCall, Refusal> {
        let Issued { wire, request, generation, session, blocks_mark } = shared.issue(cred, call, only_in)?;
        let sent = shared.world.monotonic();
        Ok(RemoteCall {
            shared: shared.clone(),
            wire,
            request,
            generation,
            session,
            only_in,
            sent,
            blocks_mark,
        })
    }

    /// Sends it and waits on this thread.
    pub(crate) fn finish(mut self) -> Result<Answer, CallError> {
        loop {
            let reply = self.wire.call(&self.request);
            match self.took(reply) {
                Step::Answer(answer) => return answer,
                Step::SentAgain => match self.wait_kept() {
                    Some(answer) => return answer,
                    None => self = self.anew()?,
                },
                Step::AskAnew => self = self.anew()?,
            }
        }
    }

    /// As [`RemoteCall::finish`], unless `token` says that nobody wants it any more.
    pub(crate) fn finish_unless(mut self, token: &CancelToken) -> Result<Answer, CallError> {
        loop {
            if !token.waits_as(self.request.id) {
                return Err(Refusal::Interrupted.into());
            }
            let reply = self.wire.call(&self.request);
            match self.took(reply) {
                Step::Answer(answer) => return answer,
                Step::SentAgain => match self.wait_kept() {
                    Some(answer) => return answer,
                    None => self = self.anew()?,
                },
                Step::AskAnew => self = self.anew()?,
            }
        }
    }

    pub(crate) fn started(self) -> Stage {
        let ongoing = self.wire.start(&self.request);
        Stage::OnWire(self, ongoing)
    }

    fn anew(self) -> Result<RemoteCall, Refusal> {
        RemoteCall::begin(&self.shared, &self.request.cred, self.request.call.clone(), self.only_in)
    }

    fn took(&self, reply: Result<Reply, ConnectionLost>) -> Step {
        let lost = match &reply {
            Err(_) => true,
            Ok(reply) => matches!(reply.result, Err(Failure::SessionGone)),
        };
        if lost {
            self.shared.lost(self.generation);
        }
        let mut state = self.shared.state.lock();
        match reply {
            Ok(reply) if !lost && state.generation == self.generation => {
                state.session.answered(&self.request, &reply);
                match (&self.request.call, &reply.result) {
                    (Call::PutBlock { .. }, Ok(_)) => {
                        let boot = state.session.boot();
                        state.session.blocks.keep(&self.request, boot);
                    }
                    (Call::Commit { .. }, Ok(_)) => state.session.blocks.committed(self.blocks_mark),
                    _ => {}
                }
                drop(state);
                self.shared.heard(self.sent);
                Step::Answer(reply.result.map_err(CallError::from))
            }
            _ if self.request.seq.0 != 0 => Step::SentAgain,
            _ => Step::AskAnew,
        }
    }

    /// Waits until the link knows its outcome. `None`: it is to be asked anew.
    fn wait_kept(&self) -> Option<Result<Answer, CallError>> {
        let mut state = self.shared.state.lock();
        loop {
            match self.look(&mut state) {
                Some(Step::Answer(answer)) => return Some(answer),
                Some(Step::AskAnew) => return None,
                Some(Step::SentAgain) | None => {}
            }
            self.shared.wait(&mut state);
        }
    }

    fn finish_kept(self) -> Result<Answer, CallError> {
        match self.wait_kept() {
            Some(answer) => answer,
            None => self.anew()?.finish(),
        }
    }

    /// Its outcome, if the link knows that by now.
    fn look(&self, state: &mut State) -> Option<Step> {
        let at = (self.session, self.request.seq);
        match state.resolved.remove(&at) {
            Some(Resolved::Answer(answer)) => return Some(Step::Answer(answer.map_err(CallError::from))),
            Some(Resolved::AskAnew) => return Some(Step::AskAnew),
            Some(Resolved::Undecided) => {
                if let Some(refusal) = self.shared.wait_is_over(state) {
                    return Some(Step::Answer(Err(refusal.into())));
                }
                state.resolved.insert(at, Resolved::Undecided);
                return None;
            }
            None => {}
        }
        if state.session.id != self.session {
            return Some(Step::Answer(Err(Refusal::Io.into())));
        }
        if let Some(refusal) = self.shared.wait_is_over(state) {
            // It may still be carried out when the server is back; nobody will hear of it.
            state.session.abandon(self.request.seq);
            return Some(Step::Answer(Err(refusal.into())));
        }
        None
    }
}

impl Future for Stage {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match std::mem::replace(&mut *self, Stage::Gone) {
                Stage::OnWire(asked, mut ongoing) => {
                    let Poll::Ready(reply) = Pin::new(&mut ongoing).poll(cx) else {
                        *self = Stage::OnWire(asked, ongoing);
                        return Poll::Pending;
                    };
                    match asked.took(reply) {
                        Step::Answer(answer) => return Poll::Ready(answer),
                        Step::SentAgain => *self = Stage::Kept(asked),
                        Step::AskAnew => *self = asked.anew()?.started(),
                    }
                }
                Stage::Kept(asked) => {
                    let shared = asked.shared.clone();
                    let mut state = shared.state.lock();
                    match asked.look(&mut state) {
                        Some(Step::Answer(answer)) => return Poll::Ready(answer),
                        Some(Step::AskAnew) => {
                            drop(state);
                            *self = asked.anew()?.started();
                            continue;
                        }
                        Some(Step::SentAgain) | None => {}
                    }
                    state.wakers.push(cx.waker().clone());
                    *self = Stage::Kept(asked);
                    return Poll::Pending;
                }
                Stage::Gone => unreachable!("a future is not polled after its end"),
            }
        }
    }
}

impl Underway for Stage {
    fn wait(self: Box<Self>) -> Result<Answer, CallError> {
        match *self {
            Stage::OnWire(asked, ongoing) => match asked.took(ongoing.wait()) {
                Step::Answer(answer) => answer,
                Step::SentAgain => asked.finish_kept(),
                Step::AskAnew => asked.anew()?.finish(),
            },
            Stage::Kept(asked) => asked.finish_kept(),
            Stage::Gone => unreachable!("a call is not waited for after its end"),
        }
    }
}
