//! A session of a client in this process: requests are carried out on the calling thread.
//!
//! Invariants:
//! - It is volatile: it dies with the server, so its operations are not numbered and never sent again.
//! - Each recall is handled on a thread of its own: no thread which waits for another session is needed to give back what
//!   this one holds, nor does a recall that waits (for the kernel, for the answer to a call) hold up another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_objects::Objects;
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread::{self, JoinHandle};
use chiton_types::{Attr, Cred, Epoch, Ino, Mode, Position, Seq, SessionId};
use chiton_wire::{Answer, Call, Failure, Recall, Reply, Request};

use crate::deliver::RecallQueue;
use crate::plate::Plate;
use chiton_engine::Creates;

/// Most threads that handle recalls of one session. Beyond, recalls wait.
const THREADS_MAX: usize = 64;

/// Dropping it ends the session.
pub struct EmbeddedSession {
    plate: Arc<Plate>,
    session: SessionId,
    recalls: Arc<Recalls>,
    is_shared: Arc<AtomicBool>,
}

/// The threads that handle recalls: one more than there ever were recalls at a time.
struct Recalls {
    plate: Arc<Plate>,
    session: SessionId,
    queue: Arc<RecallQueue>,
    handle: Box<dyn Fn(Recall) + Send + Sync>,
    threads: Mutex<Vec<JoinHandle>>,
}

impl Recalls {
    fn start_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let recalls = self.clone();
        let mut threads = self.threads.lock();
        if threads.len() < THREADS_MAX {
            threads.push(thread::spawn("chiton-recall", move || recalls.serve())?);
        }
        Ok(())
    }

    fn serve(self: &Arc<Self>) {
        while let Some(recall) = self.queue.next() {
            if !self.queue.has_idle() {
                // Without another thread recalls wait for this one.
                let _ = self.start_thread();
            }
            (self.handle)(recall);
            self.plate.with_engine(|engine, m| engine.recall_done(self.session, recall.id, m));
        }
    }
}

impl EmbeddedSession {
    pub(crate) fn begin(
        plate: Arc<Plate>,
        identity: &str,
        on_recall: Box<dyn Fn(Recall) + Send + Sync>,
    ) -> Result<EmbeddedSession, String> {
        if plate.is_stopping() {
            return Err("the server stops".to_owned());
        }
        let session = plate.new_session_id()?;
        let queue = Arc::new(RecallQueue::default());
        plate.waiters.channels.add_embedded(session, queue.clone());
        let (opened, is_shared) = plate.with_engine(|engine, m| {
            (engine.open_session(session, 0, identity, true, m), engine.is_shared())
        });
        if opened.is_err() {
            plate.waiters.channels.drop_session(session);
            return Err("the server has too many sessions".to_owned());
        }
        let recalls = Arc::new(Recalls {
            plate: plate.clone(),
            session,
            queue,
            handle: on_recall,
            threads: Mutex::default(),
        });
        recalls.start_thread().map_err(|e| e.to_string())?;
        Ok(EmbeddedSession { plate, session, recalls, is_shared })
    }

    /// Whether there are other sessions, now.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// The session's id: the writer of its blocks.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// From now on changes in subtrees whose policy says that a client decouples them are refused with
    /// [`chiton_types::Refusal::Undecoupled`] until one has.
    pub fn decouple_first(&self) {
        self.plate.with_engine(|engine, _| engine.note_greeting(self.session, 0, true));
    }

    /// Carries a request out; waits for others if it must. `seq` is 0.
    ///
    /// # Panics
    /// If the request is numbered: a session that dies with the server never sends anything again.
    pub fn call(&self, request: Request) -> Reply {
        assert!(request.seq == Seq(0), "requests of a session in the server's process are not numbered");
        self.plate.call(self.session, request)
    }

    /// Of a decoupled client: makes empty files, in the order of their names, until one needs more than the journal; that
    /// one and those behind it are to be asked for by a call. Their attributes.
    pub fn create_lazily(&self, cred: &Cred, parent: Ino, names: &[&[u8]], mode: Mode) -> Vec<Attr> {
        self.plate.create_lazily(&Creates { session: self.session, cred, parent, names, mode })
    }

    /// The same for a bare call.
    ///
    /// # Errors
    /// The reply's.
    pub fn ask(&self, cred: &Cred, call: Call) -> Result<Answer, Failure> {
        let request = Request {
            id: 0,
            seq: Seq(0),
            settled: Seq(0),
            epoch: Epoch(0),
            again: None,
            cred: cred.clone(),
            call,
        };
        self.call(request).result
    }

    /// The object store that holds the file data.
    pub fn objects(&self) -> Arc<dyn Objects> {
        Arc::new(self.plate.user_objects())
    }

    /// The client ends: a store that is away is waited for no longer than this.
    pub fn leave(&self, limit: Duration) {
        self.plate.condition.away.end(limit);
    }

    /// Everything up to here is durable.
    pub fn durable(&self) -> Position {
        self.plate.journal.durable()
    }
}

impl Drop for EmbeddedSession {
    fn drop(&mut self) {
        if !self.plate.is_stopping() {
            self.plate.with_engine(|engine, m| engine.end_session(self.session, m));
        }
        self.recalls.queue.close();
        // One that a recall made meanwhile finds the queue closed.
        let threads = std::mem::take(&mut *self.recalls.threads.lock());
        for thread in threads {
            if !thread.is_current() {
                // A handler that panicked has said so.
                let _ = thread.join();
            }
        }
    }
}
