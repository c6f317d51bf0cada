//! How a plate does: its journal, stores that are away, errors, and whether it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use chiton_engine::Health;
use chiton_journal::JournalError;

use crate::away::{Away, JOURNAL};
use crate::often::{LogLimit, Often};
use crate::plate::Plate;

pub(crate) struct Condition {
    /// [`Health`] of the journal.
    health: AtomicU8,
    /// The stores that are away.
    pub(crate) away: Arc<Away>,
    pub(crate) errors: AtomicU64,
    /// Limits the log lines that clients cause.
    pub(crate) log_limit: LogLimit,
    /// A position that was not durable when it was appended, and when that was, in monotonic milliseconds.
    pub(crate) oldest: (AtomicU64, AtomicU64),
    pub(crate) stopping: AtomicBool,
    /// Another server has taken over.
    fenced: AtomicBool,
}

impl Condition {
    pub(crate) fn new(away: Away) -> Condition {
        Condition {
            health: AtomicU8::new(0),
            away: Arc::new(away),
            errors: AtomicU64::new(0),
            log_limit: LogLimit::default(),
            oldest: (AtomicU64::new(0), AtomicU64::new(0)),
            stopping: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
        }
    }
}

impl Plate {
    pub(crate) fn health(&self) -> Health {
        match self.condition.health.load(Ordering::Relaxed) {
            0 => Health::Good,
            1 => Health::Full,
            _ => Health::Failed,
        }
    }

    /// Notes how the journal does. A failed one stays failed.
    pub(crate) fn set_health(&self, outcome: Result<(), &JournalError>) {
        let now = match outcome {
            Ok(()) => 0,
            Err(error) if error.is_away() => {
                self.condition.away.note(JOURNAL, error);
                return;
            }
            Err(JournalError::Fenced { by }) => {
                // First: nobody is to learn that the journal failed.
                self.fenced(&format!("the server of epoch {by}"));
                return;
            }
            Err(error) if error.may_heal() => 1,
            Err(_) => 2,
        };
        if now == 0 {
            self.condition.away.note_back(JOURNAL);
        }
        let before = self.condition.health.fetch_max(now, Ordering::Relaxed);
        if before == 1 && now == 0 {
            self.condition.health.store(0, Ordering::Relaxed);
            self.log("the journal has space again");
        }
        if before < now
            && let Err(error) = outcome
        {
            self.log(&error.to_string());
            self.condition.errors.fetch_add(1, Ordering::Relaxed);
            if now == 2
                && !self.is_stopping()
                && let Some(notify) = &self.options.on_failed
            {
                notify(&format!("{error}: this server ends, and the next one recovers all durable changes"));
            }
        }
    }

    /// The object store is gone, which no waiting mends: this server ends.
    pub(crate) fn store_gone(&self, why: &str) {
        self.set_health(Err(&JournalError::Failed(why.to_owned())));
    }

    /// Another server has the file system: nothing is answered or confirmed from here on.
    pub(crate) fn fenced(&self, by: &str) {
        if self.condition.fenced.swap(true, Ordering::SeqCst) {
            return;
        }
        // Not a word more to clients: they repeat their unanswered requests to the new server. A client that connects in
        // between finds a server that stops.
        self.waiters.channels.close_connections();
        self.condition.stopping.store(true, Ordering::Release);
        // Not a word more to the store, and the journal's next attempt fails for good.
        self.place.sever();
        self.condition.away.end(Duration::ZERO);
        self.condition.health.fetch_max(2, Ordering::Relaxed);
        let why = format!(
            "{by} has taken over this file system: this server ends; what it confirmed is kept, its clients go on with \
             the new one"
        );
        self.log(&why);
        if let Some(notify) = &self.options.on_fenced {
            notify(&why);
        }
    }

    /// True once another server has the file system: not a word more to clients, who ask that one.
    pub(crate) fn is_fenced(&self) -> bool {
        self.condition.fenced.load(Ordering::SeqCst)
    }

    pub(crate) fn log(&self, line: &str) {
        (self.options.log)(line);
    }

    /// Logs a line that a client caused, unless there are too many of its kind.
    pub(crate) fn log_often(&self, kind: Often, line: &str) {
        let (summary, is_written) = self.condition.log_limit.note(kind, self.world.monotonic());
        if let Some(summary) = summary {
            self.log(&summary);
        }
        if is_written {
            self.log(line);
        }
    }

    /// As [`Plate::log_often`], of something that `status` counts as an error.
    pub(crate) fn note_often(&self, kind: Often, line: &str) {
        self.condition.errors.fetch_add(1, Ordering::Relaxed);
        self.log_often(kind, line);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.condition.stopping.load(Ordering::Acquire)
    }

    /// How long, at most, something has been waiting to become durable.
    pub(crate) fn oldest_not_durable(&self) -> Duration {
        if self.journal.durable() >= self.journal.last() {
            return Duration::ZERO;
        }
        let since = Duration::from_millis(self.condition.oldest.1.load(Ordering::Relaxed));
        self.world.monotonic().saturating_sub(since)
    }
}
