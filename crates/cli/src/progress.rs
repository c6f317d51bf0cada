//! How far long work is, on standard error: a bar on a terminal, else a line now and then.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chiton_journal::Progress;
use chiton_runtime::{RealWorld, World};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::size;

/// Work that is over sooner is not spoken of.
const QUIET: Duration = Duration::from_millis(500);
/// Between two lines where there is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(2);

/// One piece of long work.
pub(crate) struct Work {
    what: &'static str,
    /// The unit; `None`: bytes.
    unit: Option<&'static str>,
    bar: ProgressBar,
    is_terminal: bool,
    begun: Duration,
    /// When the next line is due, in monotonic milliseconds.
    line_at: AtomicU64,
}

impl Work {
    /// Begins; `what` describes the work: `reading the journal`.
    pub(crate) fn begin(what: &'static str) -> Work {
        Work::of(what, None, "{msg} {bar:30} {bytes}/{total_bytes} {eta}")
    }

    /// The same, of work that is counted in `unit`.
    pub(crate) fn counting(what: &'static str, unit: &'static str) -> Work {
        Work::of(what, Some(unit), "{msg} {bar:30} {human_pos}/{human_len} {eta}")
    }

    fn of(what: &'static str, unit: Option<&'static str>, template: &str) -> Work {
        let bar = ProgressBar::hidden();
        bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        bar.set_message(what);
        let begun = RealWorld.monotonic();
        let is_terminal = std::io::stderr().is_terminal();
        Work { what, unit, bar, is_terminal, begun, line_at: AtomicU64::new(millis(begun + QUIET)) }
    }

    /// Reports progress in bytes.
    pub(crate) fn report(&self, progress: Progress) {
        self.count(progress.bytes_done, progress.bytes_total);
    }

    /// Reports progress in units.
    pub(crate) fn count(&self, done: u64, total: u64) {
        let now = RealWorld.monotonic();
        if self.is_terminal {
            if self.bar.is_hidden() && now >= self.begun + QUIET {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            self.bar.set_length(total);
            self.bar.set_position(done);
        } else if millis(now) >= self.line_at.load(Ordering::Relaxed) {
            self.line_at.store(millis(now + BETWEEN_LINES), Ordering::Relaxed);
            chiton_runtime::log_line!(
                "chiton: {}",
                line(self.what, self.unit, done, total, now - self.begun)
            );
        }
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

impl Drop for Work {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// `replaying the journal: 12.0 MiB of 64.0 MiB, about 3 s left`.
fn line(what: &str, unit: Option<&str>, done: u64, total: u64, spent: Duration) -> String {
    let done = done.min(total);
    let so_far = match unit {
        None => format!("{} of {}", size::human(done), size::human(total)),
        Some(unit) => format!("{done} of {total} {unit}"),
    };
    if done == 0 {
        return format!("{what}: {so_far}");
    }
    let left = spent.as_secs_f64() * (total - done) as f64 / done as f64;
    format!("{what}: {so_far}, about {left:.0} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_how_much_is_left() {
        let check = |bytes_done, expect: &str| {
            assert_eq!(line("reading", None, bytes_done, 4096, Duration::from_secs(3)), expect);
        };
        check(0, "reading: 0 B of 4.0 KiB");
        check(1024, "reading: 1.0 KiB of 4.0 KiB, about 9 s left");
        check(9999, "reading: 4.0 KiB of 4.0 KiB, about 0 s left");
        let counted = line("merging", Some("events"), 5, 20, Duration::from_secs(3));
        assert_eq!(counted, "merging: 5 of 20 events, about 9 s left");
    }
}
