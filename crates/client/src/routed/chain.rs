//! A call under way whose answer may lead to further questions.

use std::pin::Pin;
use std::task::{Context, Poll};

use chiton_wire::Answer;

use crate::service::{CallError, Underway};

type Answered = Result<Answer, CallError>;

/// The step that follows the answers to some calls.
type Then = Box<dyn FnOnce(Vec<Answered>) -> Next + Send>;

/// The next step of a chain.
pub(super) enum Next {
    /// The chain ends with this answer.
    Answer(Answered),
    /// Calls under way. The chain continues when all are answered.
    All(Vec<Box<dyn Underway>>, Then),
}

impl Next {
    /// One call is under way.
    pub(super) fn one(
        underway: Box<dyn Underway>,
        then: impl FnOnce(Answered) -> Next + Send + 'static,
    ) -> Next {
        let then = |mut answers: Vec<Answered>| then(answers.pop().expect("one call has one answer"));
        Next::All(vec![underway], Box::new(then))
    }
}

impl Next {
    /// The step that follows when this has come to its end.
    pub(super) fn then(self, then: impl FnOnce(Answered) -> Next + Send + 'static) -> Next {
        match self {
            Next::Answer(answer) => then(answer),
            Next::All(under_way, before) => {
                Next::All(under_way, Box::new(move |answers| before(answers).then(then)))
            }
        }
    }
}

pub(super) struct Chain {
    /// In the order asked; those that are answered are not waited for any more.
    under_way: Vec<Result<Answered, Box<dyn Underway>>>,
    then: Option<Then>,
}

impl Chain {
    pub(super) fn begin(next: Next) -> Box<dyn Underway> {
        match next {
            Next::Answer(answer) => crate::service::ready(answer),
            Next::All(under_way, then) => Box::new(Chain::of(under_way, then)),
        }
    }

    /// Goes all the way on this thread.
    pub(super) fn run(mut next: Next) -> Answered {
        loop {
            match next {
                Next::Answer(answer) => return answer,
                Next::All(under_way, then) => {
                    next = then(under_way.into_iter().map(|underway| underway.wait()).collect());
                }
            }
        }
    }

    fn of(under_way: Vec<Box<dyn Underway>>, then: Then) -> Chain {
        Chain { under_way: under_way.into_iter().map(Err).collect(), then: Some(then) }
    }
}

impl Future for Chain {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answered> {
        loop {
            let mut is_pending = false;
            for slot in &mut self.under_way {
                let Err(underway) = slot else { continue };
                match Pin::new(&mut **underway).poll(cx) {
                    Poll::Ready(answer) => *slot = Ok(answer),
                    Poll::Pending => is_pending = true,
                }
            }
            if is_pending {
                return Poll::Pending;
            }
            let answers = std::mem::take(&mut self.under_way).into_iter().filter_map(Result::ok).collect();
            let then = self.then.take().expect("a future is not polled after its end");
            match then(answers) {
                Next::Answer(answer) => return Poll::Ready(answer),
                Next::All(under_way, then) => *self = Chain::of(under_way, then),
            }
        }
    }
}

impl Underway for Chain {
    fn wait(mut self: Box<Self>) -> Answered {
        let waited =
            |slot: Result<Answered, Box<dyn Underway>>| slot.unwrap_or_else(|underway| underway.wait());
        let answers = std::mem::take(&mut self.under_way).into_iter().map(waited).collect();
        let then = self.then.take().expect("a future is not waited for after its end");
        Chain::run(then(answers))
    }
}
