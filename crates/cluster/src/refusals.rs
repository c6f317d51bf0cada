//! Refused certificates in the history of the cluster.
//!
//! Invariant: a peer that tries again and again causes a line in ten seconds, not one for each attempt. A line is a change of the map's
//! epoch without a change of the map, so that it stands among the changes, in their order.

use std::time::Duration;

use chiton_monitor::{ChangeError, ClusterMap, TEXT_BYTES_MAX};
use chiton_server::Trust;

use crate::member::Shared;

/// Between two lines of one server.
const SPAN: Duration = Duration::from_secs(10);
/// Refusals that wait for the next line; the rest is counted.
const WAITING_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct Refusals {
    waiting: Vec<String>,
    more: usize,
    last: Option<Duration>,
}

impl Refusals {
    /// Logs new refusals, and writes waiting ones into the history when their time has come.
    pub(crate) fn report(&mut self, shared: &Shared, trust: &Trust, map: &ClusterMap) {
        for line in trust.take_refusals() {
            (shared.log)(&line);
            match self.waiting.len() < WAITING_MAX {
                true => self.waiting.push(line),
                false => self.more += 1,
            }
        }
        let now = shared.world.monotonic();
        let is_early = self.last.is_some_and(|last| now.saturating_sub(last) < SPAN);
        if self.waiting.is_empty() || is_early {
            return;
        }
        let why = line(&self.waiting, self.more);
        match shared.monitor.change(map.epoch, &[], &[], &shared.who(), &why) {
            Ok(_) => {
                self.waiting.clear();
                self.more = 0;
                self.last = Some(now);
            }
            // Another change came first: the next pass of the loop has its map.
            Err(ChangeError::Outdated(_) | ChangeError::Condition(_)) => {}
            Err(ChangeError::Failed(error)) => {
                self.last = Some(now);
                (shared.log)(&format!("a refusal does not stand in the history of the cluster: {error}"));
            }
        }
    }
}

/// The first refusal, and the number of the others.
fn line(waiting: &[String], more: usize) -> String {
    let others = waiting.len() - 1 + more;
    let end = if others > 0 { format!("; and {others} more") } else { String::new() };
    let first = &waiting[0];
    let mut at = first.len().min(TEXT_BYTES_MAX - end.len());
    while !first.is_char_boundary(at) {
        at -= 1;
    }
    format!("{}{end}", &first[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_first_refusal_and_counts_the_others() {
        let check = |waiting: &[&str], more, expect: &str| {
            let waiting: Vec<String> = waiting.iter().map(ToString::to_string).collect();
            assert_eq!(line(&waiting, more), expect);
        };
        check(&["a"], 0, "a");
        check(&["a", "b"], 5, "a; and 6 more");
        assert_eq!(line(&["\u{e4}".repeat(200)], 0).len(), 254);
    }
}
