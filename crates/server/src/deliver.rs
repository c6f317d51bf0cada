//! Ways to sessions: threads that wait, recall handlers, connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_transport::{ConnId, Sender};
use chiton_types::SessionId;
use chiton_wire::{Channel, Recall, Reply};

/// The slot at which a thread waits for its reply.
#[derive(Default)]
pub(crate) struct ReplySlot {
    reply: Mutex<Option<Reply>>,
    changed: Condvar,
}

impl ReplySlot {
    pub(crate) fn answer(&self, reply: Reply) {
        *self.reply.lock() = Some(reply);
        self.changed.notify_one();
    }

    pub(crate) fn wait(&self) -> Reply {
        let mut reply = self.reply.lock();
        loop {
            match reply.take() {
                Some(reply) => return reply,
                None => self.changed.wait(&mut reply),
            }
        }
    }
}

/// Recalls for a session in this process, until closed.
#[derive(Default)]
pub(crate) struct RecallQueue {
    state: Mutex<Queued>,
    changed: Condvar,
}

#[derive(Default)]
struct Queued {
    recalls: VecDeque<Recall>,
    /// Threads that wait for a recall.
    idle: usize,
    closed: bool,
}

impl RecallQueue {
    fn push(&self, recall: Recall) {
        self.state.lock().recalls.push_back(recall);
        self.changed.notify_one();
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Whether more threads wait for recalls than there are recalls.
    pub(crate) fn has_idle(&self) -> bool {
        let state = self.state.lock();
        state.idle > state.recalls.len()
    }

    /// The next recall; `None` once closed.
    pub(crate) fn next(&self) -> Option<Recall> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(recall) = state.recalls.pop_front() {
                return Some(recall);
            }
            state.idle += 1;
            self.changed.wait(&mut state);
            state.idle -= 1;
        }
    }
}

#[derive(Default)]
struct Ways {
    embedded: Option<Arc<RecallQueue>>,
    main: Option<Sender>,
    recall: Option<Sender>,
}

/// The ways to all sessions.
#[derive(Default)]
pub(crate) struct Channels(Mutex<AllWays>);

#[derive(Default)]
struct AllWays {
    by_session: BTreeMap<SessionId, Ways>,
    /// Nothing is answered any more.
    are_over: bool,
}

impl Channels {
    pub(crate) fn add_embedded(&self, session: SessionId, queue: Arc<RecallQueue>) {
        self.0.lock().by_session.entry(session).or_default().embedded = Some(queue);
    }

    /// A connection of a session; one that it replaces is closed. After [`Channels::close_connections`] it is closed at once: its client
    /// would wait for answers that nobody gives, while another server counts the time in which it has to come back.
    pub(crate) fn add(&self, session: SessionId, channel: Channel, sender: &Sender) {
        if let Some(before) = self.replace(session, channel, sender) {
            before.close();
        }
    }

    /// As [`Channels::add`], but returns the connection that is to be closed.
    pub(crate) fn replace(&self, session: SessionId, channel: Channel, sender: &Sender) -> Option<Sender> {
        let mut all = self.0.lock();
        if all.are_over {
            return Some(sender.clone());
        }
        let ways = all.by_session.entry(session).or_default();
        let way = match channel {
            Channel::Main => &mut ways.main,
            Channel::Recall => &mut ways.recall,
            // It belongs to no session.
            Channel::Peer => return None,
        };
        way.replace(sender.clone())
    }

    /// Ends all connections, also those that are just being made: no answer that is still on its way is given.
    pub(crate) fn close_connections(&self) {
        let mut all = self.0.lock();
        all.are_over = true;
        for ways in all.by_session.values() {
            ways.main.iter().chain(&ways.recall).for_each(Sender::close);
        }
    }

    /// A connection is closed.
    pub(crate) fn remove(&self, session: SessionId, conn: ConnId) {
        let by_session = &mut self.0.lock().by_session;
        let Some(ways) = by_session.get_mut(&session) else { return };
        for way in [&mut ways.main, &mut ways.recall] {
            if way.as_ref().is_some_and(|sender| sender.id() == conn) {
                *way = None;
            }
        }
        if ways.main.is_none() && ways.recall.is_none() && ways.embedded.is_none() {
            by_session.remove(&session);
        }
    }

    /// The session is over.
    pub(crate) fn drop_session(&self, session: SessionId) {
        let Some(ways) = self.0.lock().by_session.remove(&session) else { return };
        if let Some(queue) = ways.embedded {
            queue.close();
        }
        // The main connection may still carry the answer to its end.
        if let Some(recall) = ways.recall {
            recall.close();
        }
    }

    /// Asks for a lease. Without a recall connection it is asked for when there is one again.
    pub(crate) fn recall(&self, session: SessionId, recall: Recall) {
        let all = self.0.lock();
        let Some(ways) = all.by_session.get(&session) else { return };
        if let Some(queue) = &ways.embedded {
            queue.push(recall);
        } else if let Some(sender) = &ways.recall {
            let sender = sender.clone();
            drop(all);
            // Lost: the client comes back, or its session ends.
            let _ = sender.recall(&recall);
        }
    }

    /// Whether a session's main and recall connections are up.
    pub(crate) fn is_connected(&self, session: SessionId) -> bool {
        self.0
            .lock()
            .by_session
            .get(&session)
            .is_some_and(|ways| ways.main.is_some() || ways.embedded.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use chiton_transport::{ConnectionLost, Outlet};
    use chiton_wire::Welcome;

    use super::*;

    /// Notes only whether it was closed.
    #[derive(Default)]
    struct Line(AtomicBool);

    impl Outlet for Line {
        fn welcome(&self, _: Welcome) -> Result<(), ConnectionLost> {
            Ok(())
        }

        fn reply(&self, _: &Reply) -> Result<(), ConnectionLost> {
            Ok(())
        }

        fn recall(&self, _: &Recall) -> Result<(), ConnectionLost> {
            Ok(())
        }

        fn close(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// A client whose greeting was taken just before a plate stopped does not wait at that plate: it would come back too late to the
    /// plate's next server.
    #[test]
    fn a_connection_that_comes_after_the_end_is_closed() {
        let channels = Channels::default();
        let connect = |session: u64, channel: Channel| {
            let line = Arc::new(Line::default());
            channels.add(SessionId(session), channel, &Sender::to(ConnId(session), line.clone()));
            line
        };
        let is_closed = |line: &Line| line.0.load(Ordering::SeqCst);
        let before = [connect(1, Channel::Main), connect(2, Channel::Recall)];
        assert!(!before.iter().any(|line| is_closed(line)));
        channels.close_connections();
        assert!(before.iter().all(|line| is_closed(line)));
        assert!(is_closed(&connect(3, Channel::Main)));
        assert!(is_closed(&connect(1, Channel::Recall)));
        assert!(!channels.is_connected(SessionId(3)));
    }
}
