//! Limits of the memory that connections cost the server, and of how long: for each of them, and for all together.
//!
//! ```text
//!   accepted ── greets ──────────────▶ served ── reads and finishes ──▶ …
//!      │ too late, or the oldest          │ takes nothing of what is unsent for too long, or holds more than
//!      ▼ of too many                      ▼ its share while all hold too much
//!   Ungreeted                          Behind
//! ```
//!
//! Invariant: a connection that holds no more than its share (the limit of all, divided by their number) is not closed
//! because of others; so all together hold less than twice the limit, and one message each.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Homes, Input, Output, Sender};

/// Why a connection that has not greeted is broken.
pub(crate) const UNGREETED: io::ErrorKind = io::ErrorKind::TimedOut;
/// Why a connection is broken that holds too much, or for too long.
pub(crate) const BEHIND: io::ErrorKind = io::ErrorKind::QuotaExceeded;

/// Unsent bytes and half-open connections, of all connections together.
#[derive(Default)]
pub(super) struct Burden {
    connections: AtomicUsize,
    half_open: AtomicUsize,
    unread: AtomicUsize,
    unfinished: AtomicUsize,
}

impl Burden {
    pub(super) fn begin(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.half_open.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection is welcomed, or refused.
    pub(super) fn greeted(&self) {
        self.half_open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self, is_half_open: bool) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        if is_half_open {
            self.greeted();
        }
    }

    /// A connection has `now` bytes, of which `weight` are counted, in one of the sums. True if that is more than it may.
    fn weigh(&self, sum: &AtomicUsize, weight: &mut usize, now: usize, limit: usize) -> bool {
        let before = std::mem::replace(weight, now);
        let all = if now >= before {
            sum.fetch_add(now - before, Ordering::Relaxed) + (now - before)
        } else {
            sum.fetch_sub(before - now, Ordering::Relaxed) - (before - now)
        };
        let share = limit / self.connections.load(Ordering::Relaxed).max(1);
        now > before && all > limit && now > share
    }
}

impl Homes {
    /// Unsent bytes, and bytes of unfinished messages.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.burden.unread.load(Ordering::Relaxed), self.burden.unfinished.load(Ordering::Relaxed))
    }

    /// Connections that are not welcomed yet.
    pub(crate) fn half_open(&self) -> usize {
        self.burden.half_open.load(Ordering::Relaxed)
    }
}

impl Output {
    /// Ends the connection: its home thread closes it.
    fn end(&mut self, why: io::ErrorKind) {
        self.broken.get_or_insert(why);
        self.bytes = Vec::new();
        self.sent = 0;
        if let Some(stream) = &self.stream {
            stream.shutdown();
        }
    }
}

impl Sender {
    /// Counts what is unsent.
    pub(super) fn weigh_output(&self, output: &mut Output) {
        let (homes, limit) = (&self.peer().homes, self.peer().options.unread_bytes_max);
        let now = output.waiting();
        let mut weight = output.weight;
        if homes.burden.weigh(&homes.burden.unread, &mut weight, now, limit) {
            output.end(BEHIND);
            homes.burden.weigh(&homes.burden.unread, &mut weight, 0, limit);
        }
        output.weight = weight;
    }

    /// Counts what is received of messages that are not complete.
    pub(crate) fn weigh_input(&self, input: &mut Input) {
        let (homes, limit) = (&self.peer().homes, self.peer().options.unfinished_bytes_max);
        let now = input.frames.held();
        if homes.burden.weigh(&homes.burden.unfinished, &mut input.weight, now, limit) {
            self.peer().output.lock().end(BEHIND);
        }
    }

    /// A tick of the timer. Numbers of ticks after which a connection has to have greeted, and taken something.
    pub(crate) fn tick(&self, greet: u32, unread: u32) {
        let mut output = self.peer().output.lock();
        let (limit, why) = match () {
            () if output.early.is_some() && !output.greeting => (greet, UNGREETED),
            () if output.waiting() > 0 && output.sent_ever.0 == output.sent_ever.1 => (unread, BEHIND),
            () => {
                output.sent_ever.1 = output.sent_ever.0;
                output.ticks = 0;
                return;
            }
        };
        output.ticks += 1;
        if output.ticks > limit {
            output.end(why);
        }
    }

    /// Whether it has not greeted, and is not closed for it.
    pub(crate) fn is_silent(&self) -> bool {
        let output = self.peer().output.lock();
        output.early.is_some() && !output.greeting && output.broken.is_none() && output.stream.is_some()
    }

    /// Ends a connection that has not greeted.
    pub(crate) fn end_ungreeted(&self) {
        self.peer().output.lock().end(UNGREETED);
    }
}
