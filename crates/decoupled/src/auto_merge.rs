//! Merges a weak realm automatically, as its policy asks: at intervals, after a number of updates, or when its
//! client is idle.
//!
//! Invariants:
//! - Clients that began together do not merge together: the first interval is a random part of one.
//! - A failed merge is retried, less and less often. A conflict that stops a merge is not retried.

use std::sync::{Arc, Weak};
use std::time::Duration;

use chiton_policy::Policy;
use chiton_runtime::SharedWorld;
use chiton_runtime::thread;
use chiton_types::Position;

use crate::realm::Realm;

/// Pause between two checks.
const LOOK: Duration = Duration::from_millis(20);
/// How often the server is asked whether the decoupling is still this client's.
const CLAIM_LOOK: Duration = Duration::from_secs(1);
/// A client is idle when its journal has not grown for this long.
const IDLE: Duration = Duration::from_millis(500);
/// Longest pause after a merge that failed.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The policy's settings for automatic merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AutoMerge {
    interval: Option<Duration>,
    updates: Option<u64>,
    when_idle: bool,
}

/// The state of a realm at one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// Since the last merge, or since the beginning with a random part of an interval added.
    since_merge: Duration,
    /// Time since the journal grew.
    since_event: Duration,
    /// Events that are not yet merged.
    waiting: u64,
}

impl AutoMerge {
    fn of(policy: &Policy) -> Option<AutoMerge> {
        let auto_merge = AutoMerge {
            interval: policy.sync_interval.map(|span| span.duration()),
            updates: policy.sync_updates,
            when_idle: policy.sync_when_idle,
        };
        let any = auto_merge.interval.is_some() || auto_merge.updates.is_some() || auto_merge.when_idle;
        (any && policy.merges_by_itself()).then_some(auto_merge)
    }

    fn is_due(&self, look: Look) -> bool {
        look.waiting > 0
            && (self.interval.is_some_and(|interval| look.since_merge >= interval)
                || self.updates.is_some_and(|updates| look.waiting >= updates)
                || (self.when_idle && look.since_event >= IDLE))
    }
}

/// Starts to look after a realm: whether it is still this client's; and whether it is to be merged, if its policy asks for
/// that.
pub(crate) fn watch(realm: &Arc<Realm>, world: &SharedWorld) {
    let weak = Arc::downgrade(realm);
    let body = move || look_whether_lost(&weak);
    drop(thread::spawn("chiton-claim", body).expect("a thread can be started"));
    if realm.branch().is_some() {
        return;
    }
    let Some(auto_merge) = AutoMerge::of(realm.policy()) else { return };
    let (realm, world) = (Arc::downgrade(realm), world.clone());
    let body = move || run(auto_merge, &realm, &world);
    drop(thread::spawn("chiton-sync", body).expect("a thread can be started"));
}

/// The server does not notify a client whose decoupling was ended elsewhere, so the client asks: one small message
/// a second. It then records how far its journal in the object store is durable.
fn look_whether_lost(realm: &Weak<Realm>) {
    loop {
        thread::sleep(CLAIM_LOOK);
        let Some(realm) = realm.upgrade().filter(|realm| !realm.is_ended() && !realm.is_lost()) else {
            return;
        };
        realm.look_whether_lost();
        realm.note_durable();
    }
}

fn run(auto_merge: AutoMerge, realm: &Weak<Realm>, world: &SharedWorld) {
    let mut merged_at = world.monotonic();
    let mut early = auto_merge.interval.map_or(Duration::ZERO, |interval| {
        // Of 2^64 parts.
        interval.mul_f64(world.random() as f64 / (u64::MAX as f64 + 1.0))
    });
    let mut event_at = merged_at;
    let mut last = Position(0);
    let mut pause = LOOK;
    loop {
        thread::sleep(pause);
        let Some(realm) = realm.upgrade().filter(|realm| !realm.is_ended() && !realm.is_lost()) else {
            return;
        };
        let now = world.monotonic();
        let (merged, end) = realm.extent();
        if end != last {
            (last, event_at) = (end, now);
        }
        let look = Look {
            since_merge: now.saturating_sub(merged_at) + early,
            since_event: now.saturating_sub(event_at),
            waiting: end.0.saturating_sub(merged.0),
        };
        if !auto_merge.is_due(look) {
            pause = LOOK;
            continue;
        }
        match realm.sync(&|_| {}) {
            Ok(report) if report.stopped => {
                realm.note_trouble(Some(
                    "the policy forbids conflicts, and there is one: merge or discard".to_owned(),
                ));
                return;
            }
            Ok(report) => {
                // The status keeps the missing rest.
                let missing = report.warning();
                if let Some(missing) = &missing {
                    tracing::warn!("decoupling {}: {missing}", realm.id());
                }
                realm.note_trouble(missing);
                pause = LOOK;
            }
            Err(_) if realm.is_ended() => return,
            Err(error) => {
                realm.note_trouble(Some(error.to_string()));
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
        (merged_at, early) = (world.monotonic(), Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trigger_has_its_time_and_nothing_is_merged_when_nothing_waits() {
        let ms = Duration::from_millis;
        let check = |auto_merge: AutoMerge, since_merge, since_event, waiting, expect| {
            let look = Look { since_merge: ms(since_merge), since_event: ms(since_event), waiting };
            assert_eq!(auto_merge.is_due(look), expect, "{auto_merge:?} {look:?}");
        };
        let none = AutoMerge { interval: None, updates: None, when_idle: false };
        let interval = AutoMerge { interval: Some(ms(1_000)), ..none };
        let updates = AutoMerge { updates: Some(100), ..none };
        let idle = AutoMerge { when_idle: true, ..none };
        check(interval, 1_000, 0, 0, false);
        check(interval, 1_000, 0, 1, true);
        check(interval, 999, 0, 1_000_000, false);
        check(updates, 0, 0, 99, false);
        check(updates, 0, 0, 100, true);
        check(idle, 100_000, 499, 5, false);
        check(idle, 0, 500, 5, true);
        check(idle, 0, 500, 0, false);
        check(none, 100_000, 100_000, 100_000, false);
    }
}
