//! What a client asks for that needs the object store and no decision: blocks, objects of decoupled subtrees, reports, and
//! the syncing of blocks before a commit. Threads of their own do it, so that a slow store holds up nobody whose
//! connection shares a serving thread.
//!
//! ```text
//!   serving thread ─ hand over ─▶ queue ─▶ errand threads ─▶ object store ─▶ answer
//!                  └ too much is waiting: does it itself, and reads nothing meanwhile
//! ```
//!
//! Invariants:
//! - What waits is bounded in number and bytes.
//! - IoPool of one client may overtake each other; whoever needs an order waits for the answers.
//! - When the server stops, what waits is answered.

use std::collections::VecDeque;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_types::{Position, SessionId};
use chiton_wire::{Call, Reply, Request, Sender};

use crate::fatal::Fatal;
use crate::shared::Shared;

/// Threads; they sleep in the object store, not on a processor.
pub(crate) const THREADS: usize = 8;
/// Most errands that wait.
const COUNT_MAX: usize = 1024;
/// Most bytes of blocks that wait to be stored.
const BYTES_MAX: usize = 64 << 20;

/// Something to be done.
pub(crate) enum IoTask {
    /// Blocks are made durable, then what stands before a position; then the answer is sent.
    Commit(Position, Reply),
    /// A call of a session that is alive.
    Call(SessionId, Box<Request>),
}

impl IoTask {
    fn bytes(&self) -> usize {
        match self {
            IoTask::Call(_, request) => match &request.call {
                Call::PutBlock { bytes, .. } => bytes.len(),
                _ => 0,
            },
            IoTask::Commit(..) => 0,
        }
    }
}

#[derive(Default)]
struct Waiting {
    errands: VecDeque<(Sender, IoTask)>,
    bytes: usize,
    threads: usize,
    stopping: bool,
}

/// Those that wait to be done.
#[derive(Default)]
pub(crate) struct IoPool {
    waiting: Mutex<Waiting>,
    news: Condvar,
}

impl IoPool {
    /// Takes an errand over; gives it back if no thread could take it soon.
    fn hand_over(&self, sender: &Sender, errand: IoTask) -> Option<IoTask> {
        let bytes = errand.bytes();
        let mut waiting = self.waiting.lock();
        let full = waiting.errands.len() >= COUNT_MAX || waiting.bytes + bytes > BYTES_MAX;
        if full || waiting.threads == 0 || waiting.stopping {
            return Some(errand);
        }
        waiting.bytes += bytes;
        waiting.errands.push_back((sender.clone(), errand));
        drop(waiting);
        self.news.notify_one();
        None
    }

    /// The next one, when there is one; `None` when the server stops and none is left.
    fn next(&self) -> Option<(Sender, IoTask)> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some((sender, errand)) = waiting.errands.pop_front() {
                waiting.bytes -= errand.bytes();
                return Some((sender, errand));
            }
            if waiting.stopping {
                waiting.threads -= 1;
                return None;
            }
            self.news.wait(&mut waiting);
        }
    }

    /// No more are taken; the threads end when none is left.
    pub(crate) fn stop(&self) {
        self.waiting.lock().stopping = true;
        self.news.notify_all();
    }
}

impl Shared {
    /// Does an errand, on another thread if one can take it.
    pub(crate) fn submit_io(&self, sender: &Sender, errand: IoTask) {
        if let Some(errand) = self.io_pool.hand_over(sender, errand) {
            self.run_io(sender, errand);
        }
    }

    /// The life of an errand thread.
    pub(crate) fn io_thread(&self) {
        let _fatal = Fatal::guard();
        self.io_pool.waiting.lock().threads += 1;
        while let Some((sender, errand)) = self.io_pool.next() {
            self.run_io(&sender, errand);
        }
    }
}
