//! The answer to a hello: at once, or later, if the service has left it to another thread.
//!
//! ```text
//!   home thread: hello ─▶ Service::open ─┬─ Some(welcome) ───────────────▶ said
//!                                        └─ None ─ nothing is read ┐         ▲
//!   any thread:                              Sender::welcome ──────┴─ a step ┘
//! ```

use chiton_types::SessionId;
use chiton_wire::{Channel, Welcome};

use super::{Sender, Way};
use crate::connection_lost::ConnectionLost;
use crate::frame::{FrameKind, put_frame};

impl Sender {
    /// Answers the hello, if [`crate::Service::open`] left that for later; once.
    ///
    /// # Errors
    /// If the client is gone.
    ///
    /// # Panics
    /// If no hello waits for its answer.
    pub fn welcome(&self, welcome: Welcome) -> Result<(), ConnectionLost> {
        if let Way::Outlet(_, outlet) = &self.0 {
            return outlet.welcome(welcome);
        }
        let mut output = self.peer().output.lock();
        if output.stream.is_none() || output.broken.is_some() {
            return Err(ConnectionLost::new("the client is gone"));
        }
        assert!(std::mem::take(&mut output.greeting), "a hello is answered once");
        output.late = Some(welcome);
        // The home thread sends it, since it also reads what the client sends after its greeting.
        self.arm(&mut output, false);
        Ok(())
    }

    /// A hello is handed to the service: nothing is read until it is answered.
    pub(crate) fn greeting(&self) {
        self.peer().output.lock().greeting = true;
    }

    /// The welcome that came later, if it is there.
    pub(crate) fn take_late(&self) -> Option<Welcome> {
        self.peer().output.lock().late.take()
    }

    /// Sends the welcome and the messages that were held back for it.
    pub(crate) fn say(&self, welcome: &Welcome) {
        let mut output = self.peer().output.lock();
        output.greeting = false;
        put_frame(&mut output.bytes, FrameKind::Welcome, |out| welcome.encode(out))
            .expect("a welcome fits a frame");
        let early = output.early.take().expect("a connection is welcomed once");
        output.bytes.extend_from_slice(&early);
        output.ticks = 0;
        self.peer().homes.burden.greeted();
        output.flush(&self.peer().homes);
    }

    /// The session and channel of its hello, also if the welcome is not said yet.
    pub(crate) fn opened(&self) -> Option<(SessionId, Channel)> {
        let input = self.peer().input.lock();
        let late = match (&self.peer().output.lock().late, input.greeting) {
            (Some(Welcome::Accepted { session, .. }), Some(channel)) => Some((*session, channel)),
            _ => None,
        };
        input.opened.or(late)
    }
}
