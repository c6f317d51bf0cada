//! Threads that handle recalls.
//!
//! Each recall gets a thread of its own from a pool that grows: a handler may wait in the kernel for a lock that
//! a call of this mount holds, which waits for another client, which waits for a recall of ours. With one
//! thread for all, that circle would close.

use std::collections::VecDeque;
use std::sync::Arc;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_wire::{Recall, RecallDone};

use crate::connected::Link;
use crate::wire::RecallWire;

/// Most handler threads. Beyond, recalls wait.
const THREADS_MAX: usize = 64;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Recall, Arc<dyn RecallWire>)>,
    threads: usize,
    idle: usize,
    listening: Option<Arc<dyn RecallWire>>,
    /// The wire that we listen to has broken.
    broken: bool,
    stopping: bool,
}

#[derive(Default)]
pub(crate) struct RecallPool {
    queue: Arc<(Mutex<Queue>, Condvar)>,
}

impl RecallPool {
    /// Takes recalls from `wire` from now on, instead of the one before.
    pub(crate) fn listen(&self, shared: &Arc<Link>, wire: Arc<dyn RecallWire>) {
        let before = {
            let mut state = self.queue.0.lock();
            state.broken = false;
            state.listening.replace(wire.clone())
        };
        if let Some(before) = before {
            before.close();
        }
        let shared = Arc::downgrade(shared);
        let queue = self.queue.clone();
        spawn("chiton-recalls", move || {
            while let Ok(recall) = wire.next() {
                let mut state = queue.0.lock();
                state.waiting.push_back((recall, wire.clone()));
                if state.idle < state.waiting.len() && state.threads < THREADS_MAX && !state.stopping {
                    state.threads += 1;
                    let (queue, shared) = (queue.clone(), shared.clone());
                    spawn("chiton-recall", move || handle(&queue, &shared));
                }
                drop(state);
                queue.1.notify_one();
            }
            // The main connection is up as long as anybody knows: recalls that do not arrive would cost us
            // the session, so dial both anew.
            let mut state = queue.0.lock();
            let current = state.listening.as_ref().is_some_and(|current| Arc::ptr_eq(current, &wire));
            state.broken |= current;
            drop(state);
            if let (Some(shared), true) = (shared.upgrade(), current) {
                let generation = shared.state.lock().generation;
                shared.lost(generation);
            }
        });
    }

    /// Recalls do not arrive any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.queue.0.lock().broken
    }

    /// Ends all threads, as soon as their handlers return.
    pub(crate) fn stop(&self) {
        let mut queue = self.queue.0.lock();
        queue.stopping = true;
        if let Some(wire) = queue.listening.take() {
            wire.close();
        }
        self.queue.1.notify_all();
    }
}

fn handle(queue: &(Mutex<Queue>, Condvar), shared: &std::sync::Weak<Link>) {
    loop {
        let mut state = queue.0.lock();
        while state.waiting.is_empty() && !state.stopping {
            state.idle += 1;
            queue.1.wait(&mut state);
            state.idle -= 1;
        }
        let Some((recall, wire)) = state.waiting.pop_front().filter(|_| !state.stopping) else {
            state.threads -= 1;
            return;
        };
        drop(state);
        let Some(shared) = shared.upgrade() else { continue };
        if !shared.inbox.deliver(&recall, &shared.inodes) {
            // The client is gone, and operations that it acknowledged may not have been sent yet.
            shared.write_behind.flush((recall.ino != Recall::EVERYTHING).then_some(recall.ino));
        }
        wire.done(RecallDone { id: recall.id });
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    drop(chiton_runtime::thread::spawn(name, body).expect("a thread can be started"));
}
