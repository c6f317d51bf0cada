//! Log lines that clients cause, and could cause without end: a hostile peer must not fill a disk with them.
//!
//! ```text
//!   minute:  line line … line (LINES_MAX of a kind)  ·  ·  ·  ·  ▶ "… 5123 more such lines"     next minute: lines again
//! ```
//!
//! Invariants:
//! - At most [`LINES_MAX`] lines of a kind, and one that counts the others, are written in a [`SPAN`].
//! - Each line is written or counted.

use std::time::Duration;

use chiton_runtime::sync::Mutex;

/// Lines of a kind that are written in a span.
const LINES_MAX: u64 = 10;
const SPAN: Duration = Duration::from_secs(60);

/// Kinds of lines, each with a count of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Often {
    /// Connections that were closed because their peers sent nonsense, or did not read.
    Connections,
    /// Blocks and objects that could not be read or written.
    Objects,
    /// Rows that could not be read or shown.
    Rows,
    /// Operations that took long.
    Slow,
}

const KINDS: [(Often, &str); 4] = [
    (Often::Connections, "connections were closed for malformed messages or unread replies"),
    (Often::Objects, "times an object could not be read or written"),
    (Often::Rows, "times metadata could not be read"),
    (Often::Slow, "operations were slow"),
];

/// The lines of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// When its span began; none before the first line, and after a span in which nothing was held back.
    since: Option<Duration>,
    lines: u64,
}

impl Count {
    fn held_back(&self) -> u64 {
        self.lines.saturating_sub(LINES_MAX)
    }
}

#[derive(Debug, Default)]
pub(crate) struct LogLimit([Mutex<Count>; KINDS.len()]);

impl LogLimit {
    /// Whether a line of this kind is to be written `now`, and before it a line that counts those that were not.
    pub(crate) fn note(&self, kind: Often, now: Duration) -> (Option<String>, bool) {
        let mut count = self.0[kind as usize].lock();
        let summary = summary(&mut count, kind, now);
        count.since.get_or_insert(now);
        count.lines += 1;
        (summary, count.lines <= LINES_MAX)
    }

    /// The lines that count, of the spans that are over `now`.
    pub(crate) fn summaries(&self, now: Duration) -> Vec<String> {
        let of = |(kind, _): &(Often, &str)| summary(&mut self.0[*kind as usize].lock(), *kind, now);
        KINDS.iter().filter_map(of).collect()
    }
}

/// Ends the span of a kind if it is over.
fn summary(count: &mut Count, kind: Often, now: Duration) -> Option<String> {
    let since = count.since.filter(|since| now.saturating_sub(*since) >= SPAN)?;
    let over = std::mem::take(count);
    let (_, what) = KINDS[kind as usize];
    let seconds = now.saturating_sub(since).as_secs();
    (over.held_back() > 0).then(|| format!("{} more {what}, in the last {seconds} s", over.held_back()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_of_a_minute_are_written_and_the_others_counted() {
        assert!(KINDS.iter().enumerate().all(|(at, (kind, _))| *kind as usize == at));
        let limit = LogLimit::default();
        let at = |seconds: u64| Duration::from_secs(seconds);
        let mut written = 0;
        for n in 0..100_000 {
            let (summary, is_written) = limit.note(Often::Connections, at(5) + Duration::from_micros(n));
            assert_eq!(summary, None);
            written += u64::from(is_written);
        }
        assert_eq!(written, LINES_MAX);
        assert_eq!(limit.note(Often::Objects, at(6)), (None, true), "another kind");
        assert_eq!(limit.summaries(at(64)), [""; 0]);
        let summaries = limit.summaries(at(66));
        assert!(
            matches!(&summaries[..], [one] if one.starts_with("99990 more connections")),
            "{summaries:?}"
        );
        assert_eq!(limit.summaries(at(67)), [""; 0], "said once");
        for n in 0..=LINES_MAX {
            assert_eq!(limit.note(Often::Connections, at(70)).1, n < LINES_MAX);
        }
        let (summary, is_written) = limit.note(Often::Connections, at(131));
        assert!(summary.is_some_and(|line| line.starts_with("1 more ")) && is_written);
    }
}
