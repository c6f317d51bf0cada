//! A request whose answer has not been looked at yet.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_wire::Reply;

use crate::connection_lost::ConnectionLost;
use crate::mux::Mux;

type Outcome = Result<Reply, ConnectionLost>;

/// An answer to come: a future for those who have a runtime (any), [`Pending::wait`] for those who do not.
/// Dropped, the answer is thrown away when it comes.
#[must_use = "the answer is thrown away unless waited for"]
#[derive(Debug)]
pub struct Pending(State);

#[derive(Debug)]
enum State {
    /// In flight on a socket.
    Socket { mux: Arc<Mux>, id: u64 },
    /// To be given by a [`Promise`].
    Promised(Arc<Shared>),
    /// The answer was handed out.
    Taken,
}

impl Pending {
    pub(crate) fn on_socket(mux: Arc<Mux>, id: u64) -> Pending {
        Pending(State::Socket { mux, id })
    }

    /// An answer that another thread of this process will give: for transports without a socket.
    pub fn promise() -> (Promise, Pending) {
        let shared = Arc::new(Shared::default());
        (Promise(Some(shared.clone())), Pending(State::Promised(shared)))
    }

    /// An answer that is already there.
    pub fn ready(outcome: Result<Reply, ConnectionLost>) -> Pending {
        let (promise, pending) = Pending::promise();
        promise.fulfil(outcome);
        pending
    }

    /// Waits on this thread.
    ///
    /// # Errors
    /// If the connection broke before the answer came.
    ///
    /// # Panics
    /// If the answer was already taken by polling.
    pub fn wait(mut self) -> Result<Reply, ConnectionLost> {
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Socket { mux, id } => mux.wait(id),
            State::Promised(shared) => shared.wait(),
            State::Taken => panic!("the answer was already taken"),
        }
    }
}

impl Future for Pending {
    type Output = Result<Reply, ConnectionLost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = match &self.0 {
            State::Socket { mux, id } => Mux::poll(mux, *id, context.waker()),
            State::Promised(shared) => shared.poll(context.waker()),
            State::Taken => panic!("polled after the answer was taken"),
        };
        if outcome.is_ready() {
            self.0 = State::Taken;
        }
        outcome
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let State::Socket { mux, id } = &self.0 {
            mux.forget(*id);
        }
    }
}

/// The other end of [`Pending::promise`]. Dropped without an answer, the waiter gets [`ConnectionLost`].
#[derive(Debug)]
pub struct Promise(Option<Arc<Shared>>);

impl Promise {
    /// Gives the answer to the caller that waits for it.
    pub fn fulfil(mut self, outcome: Result<Reply, ConnectionLost>) {
        if let Some(shared) = self.0.take() {
            shared.give(outcome);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.give(Err(ConnectionLost::new("the server dropped the request")));
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<(Option<Outcome>, Option<Waker>)>,
    given: Condvar,
}

impl Shared {
    fn give(&self, outcome: Outcome) {
        let waker = {
            let mut state = self.state.lock();
            state.0 = Some(outcome);
            state.1.take()
        };
        self.given.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wait(&self) -> Outcome {
        let mut state = self.state.lock();
        loop {
            match state.0.take() {
                Some(outcome) => return outcome,
                None => self.given.wait(&mut state),
            }
        }
    }

    fn poll(&self, waker: &Waker) -> Poll<Outcome> {
        let mut state = self.state.lock();
        match state.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.1 = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}
