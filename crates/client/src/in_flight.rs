//! An answer to come, already in the caller's words.

use std::pin::Pin;
use std::task::{Context, Poll};

use chiton_types::Refusal;
use chiton_wire::Answer;

use crate::service::{CallError, Underway};

type Convert<T> = Box<dyn FnOnce(Result<Answer, CallError>) -> Result<T, Refusal> + Send>;

/// A call under way: a future for those who have a runtime (any), [`InFlight::wait`] for those who do not.
#[must_use = "the answer is thrown away unless waited for"]
pub struct InFlight<T>(State<T>);

enum State<T> {
    Underway(Box<dyn Underway>, Convert<T>),
    Ready(Result<T, Refusal>),
    Over,
}

impl<T> InFlight<T> {
    pub(crate) fn new(
        underway: Box<dyn Underway>,
        convert: impl FnOnce(Result<Answer, CallError>) -> Result<T, Refusal> + Send + 'static,
    ) -> InFlight<T> {
        InFlight(State::Underway(underway, Box::new(convert)))
    }

    pub(crate) fn ready(result: Result<T, Refusal>) -> InFlight<T> {
        InFlight(State::Ready(result))
    }

    /// Waits on this thread.
    ///
    /// # Errors
    /// The refusal.
    ///
    /// # Panics
    /// If it was polled to its end.
    pub fn wait(self) -> Result<T, Refusal> {
        match self.0 {
            State::Underway(underway, convert) => convert(underway.wait()),
            State::Ready(result) => result,
            State::Over => panic!("a future has one result"),
        }
    }
}

impl<T: Unpin> Future for InFlight<T> {
    type Output = Result<T, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = None;
        if let State::Underway(underway, _) = &mut self.0 {
            let Poll::Ready(ready) = Pin::new(&mut **underway).poll(cx) else { return Poll::Pending };
            answer = Some(ready);
        }
        match (std::mem::replace(&mut self.0, State::Over), answer) {
            (State::Underway(_, convert), Some(answer)) => Poll::Ready(convert(answer)),
            (State::Ready(result), _) => Poll::Ready(result),
            _ => panic!("a future is not polled after its end"),
        }
    }
}

/// The refusal of a call that was asked with all groups.
pub(crate) fn refusal(error: CallError) -> Refusal {
    match error {
        CallError::Refused(refusal) => refusal,
        CallError::NeedGroups => Refusal::Access,
    }
}
