//! An answer to come, already in the caller's words.

use std::pin::Pin;
use std::task::{Context, Poll};

use chiton_proto::Answer;
use chiton_types::Refusal;

use crate::service::{CallError, Underway};

type Convert<T> = Box<dyn FnOnce(Result<Answer, CallError>) -> Result<T, Refusal> + Send>;

/// A call under way: a future for those who have a runtime (any), [`Pending::wait`] for those who do not.
#[must_use = "the answer is thrown away unless waited for"]
pub struct Pending<T> {
    underway: Option<Box<dyn Underway>>,
    convert: Option<Convert<T>>,
}

impl<T> Pending<T> {
    pub(crate) fn new(
        underway: Box<dyn Underway>,
        convert: impl FnOnce(Result<Answer, CallError>) -> Result<T, Refusal> + Send + 'static,
    ) -> Pending<T> {
        Pending { underway: Some(underway), convert: Some(Box::new(convert)) }
    }

    /// Waits on this thread.
    ///
    /// # Errors
    /// The refusal.
    pub fn wait(mut self) -> Result<T, Refusal> {
        let underway = self.underway.take().expect("not polled to its end");
        let convert = self.convert.take().expect("not polled to its end");
        convert(underway.wait())
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let underway = self.underway.as_mut().expect("a future is not polled after its end");
        let Poll::Ready(answer) = Pin::new(&mut **underway).poll(cx) else { return Poll::Pending };
        self.underway = None;
        let convert = self.convert.take().expect("a future is not polled after its end");
        Poll::Ready(convert(answer))
    }
}

/// The refusal of a call that was asked with all groups.
pub(crate) fn refusal(error: CallError) -> Refusal {
    match error {
        CallError::Refused(refusal) => refusal,
        CallError::NeedGroups => Refusal::Access,
    }
}
