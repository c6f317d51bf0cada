//! How far long work is, on standard error: a bar on a terminal, else a line now and then.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chiton_journal::Progress;
use chiton_world::{RealWorld, World};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::size;

/// Work that is over sooner is not spoken of.
const QUIET: Duration = Duration::from_millis(500);
/// Between two lines where there is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(2);

/// One piece of long work.
pub(crate) struct Work {
    what: &'static str,
    bar: ProgressBar,
    is_terminal: bool,
    begun: Duration,
    /// When the next line is due, in monotonic milliseconds.
    line_at: AtomicU64,
}

impl Work {
    /// Begins; `what` is what is being done: `reading the journal`.
    pub(crate) fn begin(what: &'static str) -> Work {
        let bar = ProgressBar::hidden();
        let template = "{msg} {bar:30} {bytes}/{total_bytes} {eta}";
        bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        bar.set_message(what);
        let begun = RealWorld.monotonic();
        let is_terminal = std::io::stderr().is_terminal();
        Work { what, bar, is_terminal, begun, line_at: AtomicU64::new(millis(begun + QUIET)) }
    }

    /// So far.
    pub(crate) fn tell(&self, progress: Progress) {
        let now = RealWorld.monotonic();
        if self.is_terminal {
            if self.bar.is_hidden() && now >= self.begun + QUIET {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            self.bar.set_length(progress.bytes_total);
            self.bar.set_position(progress.bytes_done);
        } else if millis(now) >= self.line_at.load(Ordering::Relaxed) {
            self.line_at.store(millis(now + BETWEEN_LINES), Ordering::Relaxed);
            eprintln!("chiton: {}", line(self.what, progress, now - self.begun));
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
pub(crate) fn line(what: &str, progress: Progress, spent: Duration) -> String {
    let (done, total) = (progress.bytes_done.min(progress.bytes_total), progress.bytes_total);
    let sizes = format!("{} of {}", size::human(done), size::human(total));
    if done == 0 {
        return format!("{what}: {sizes}");
    }
    let left = spent.as_secs_f64() * (total - done) as f64 / done as f64;
    format!("{what}: {sizes}, about {left:.0} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_how_much_is_left() {
        let check = |bytes_done, expect: &str| {
            let progress = Progress { bytes_done, bytes_total: 4096 };
            assert_eq!(line("reading", progress, Duration::from_secs(3)), expect);
        };
        check(0, "reading: 0 B of 4.0 KiB");
        check(1024, "reading: 1.0 KiB of 4.0 KiB, about 9 s left");
        check(9999, "reading: 4.0 KiB of 4.0 KiB, about 0 s left");
    }
}
