//! How long a start would replay now, and when a checkpoint must begin so that it is never longer than the target.
//!
//! ```text
//!   events, bytes since the last checkpoint ── rate of replay ──▶ time
//!        0 ─────────── target / 2 ─────────── target
//!                      a checkpoint begins    changes wait for it
//! ```
//!
//! Half, because what comes while the checkpoint is written is replayed, too. While checkpoints fail, nobody waits: the
//! target is missed, and `status` says so.
//!
//! On a disk with a reserve the journal since the last checkpoint stays below a part of it, so that a checkpoint fits the
//! reserve if the disk fills up in that moment.
//!
//! Invariants:
//! - Pure: moments and counts come in, verdicts go out.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Events and bytes that a start would have to replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplayLoad {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
}

/// How fast this machine replays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReplayRate {
    pub(crate) events_per_second: f64,
    pub(crate) bytes_per_second: f64,
    /// It was measured here, at the last start.
    pub(crate) measured: bool,
}

/// A replay of fewer events says little about the rate.
const MEASURED_EVENTS_MIN: u64 = 50_000;

impl ReplayRate {
    /// Until it is measured: half the rate of a core of 2020.
    pub(crate) const ASSUMED: ReplayRate =
        ReplayRate { events_per_second: 500_000.0, bytes_per_second: 50e6, measured: false };

    /// The rate of a replay that took so long.
    pub(crate) fn measured(replayed: ReplayLoad, spent: Duration) -> ReplayRate {
        if replayed.events < MEASURED_EVENTS_MIN || spent.is_zero() {
            return ReplayRate::ASSUMED;
        }
        let per_second = |n: u64| n as f64 / spent.as_secs_f64();
        ReplayRate {
            events_per_second: per_second(replayed.events),
            // Small events say little about bytes: many bytes are never slower than assumed, unless they were.
            bytes_per_second: per_second(replayed.bytes).max(ReplayRate::ASSUMED.bytes_per_second),
            measured: true,
        }
    }

    /// How long a load takes.
    pub(crate) fn time(&self, load: ReplayLoad) -> Duration {
        let events = load.events as f64 / self.events_per_second;
        let bytes = load.bytes as f64 / self.bytes_per_second;
        Duration::from_secs_f64(events.max(bytes).min(1e9))
    }

    /// The load that takes so long.
    fn within(&self, time: Duration) -> ReplayLoad {
        let in_time = |per_second: f64| (time.as_secs_f64() * per_second) as u64;
        ReplayLoad { events: in_time(self.events_per_second), bytes: in_time(self.bytes_per_second) }
    }
}

/// The cost of replaying new inodes, as measured while the server makes them: to make one, it does all that a replay does and
/// more. So a burst of creates may grow until its replay really takes the target's time, where a rate is only assumed.
///
/// Other events say nothing: those of inodes that are in memory now may have to fetch them then.
#[derive(Debug, Default)]
pub(crate) struct CreateCost {
    /// Nanoseconds of one, as the bits of a float; 0 until there is one. The mean of the last few hundred batches.
    ns: AtomicU64,
}

/// Fewer events at a time are not worth looking at the clock.
const OBSERVED_EVENTS_MIN: u64 = 256;

impl CreateCost {
    /// Whether a hold of the engine's lock with so many events and new inodes is to be observed.
    pub(crate) fn is_conclusive(events: u64, made: u64) -> bool {
        events >= OBSERVED_EVENTS_MIN && made >= events - events / 10
    }

    /// They took so long. Returns what of them, in events and bytes, a replay at the assumed rate would take longer for.
    pub(crate) fn observe(&self, some: ReplayLoad, spent: Duration, rate: ReplayRate) -> ReplayLoad {
        if rate.measured || spent.is_zero() || some.events == 0 {
            return ReplayLoad::default();
        }
        let now = (spent.as_nanos() as f64 / some.events as f64).max(1.0);
        let before = f64::from_bits(self.ns.load(Relaxed));
        let mean = if before == 0.0 { now } else { before + (now - before) / 256.0 };
        self.ns.store(mean.to_bits(), Relaxed);
        let assumed = 1e9 / rate.events_per_second;
        let spared = (1.0 - mean / assumed).clamp(0.0, SPARED_MAX);
        let of = |n: u64| (n as f64 * spared) as u64;
        ReplayLoad { events: of(some.events), bytes: of(some.bytes) }
    }
}

/// However fast they are made: so much is never spared.
const SPARED_MAX: f64 = 0.6;

/// The limits at which a checkpoint begins: any of them suffices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointPolicy {
    /// At so many changed rows …
    pub(crate) rows: usize,
    /// … or so many bytes of journal …
    pub(crate) bytes: u64,
    /// … or when the last one is so long ago …
    pub(crate) age: Duration,
    /// … or when a start would take half of this.
    pub(crate) target: Duration,
    pub(crate) rate: ReplayRate,
    /// Bytes of the reserve that this plate may count on, for checkpoints on a full disk; none where there is no reserve.
    pub(crate) reserved: Option<u64>,
}

/// The state of a plate that decides whether a checkpoint begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Situation {
    pub(crate) load: ReplayLoad,
    pub(crate) dirty_rows: usize,
    /// Time since the last checkpoint ended.
    pub(crate) age: Duration,
}

impl CheckpointPolicy {
    /// The load at which a checkpoint begins.
    pub(crate) fn begin_at(&self) -> ReplayLoad {
        let half = self.rate.within(self.target / 2);
        ReplayLoad { events: half.events.max(1), bytes: half.bytes.min(self.bytes).max(1) }
    }

    /// Whether a checkpoint begins, since one of more bytes might not fit the reserve.
    #[inline]
    pub(crate) fn nears_reserve(&self, load: ReplayLoad) -> bool {
        self.reserved.is_some_and(|bytes| load.bytes >= bytes / 8 * 3)
    }

    /// Whether changes wait, since a checkpoint of more bytes might not fit the reserve. On a full disk the journal lives on it as well.
    #[inline]
    pub(crate) fn fills_reserve(&self, load: ReplayLoad, is_tight: bool) -> bool {
        self.reserved.is_some_and(|bytes| load.bytes >= if is_tight { bytes / 8 } else { bytes / 4 * 3 })
    }

    /// The load at which changes wait.
    pub(crate) fn wait_at(&self) -> ReplayLoad {
        let whole = self.rate.within(self.target);
        ReplayLoad { events: whole.events.max(2), bytes: whole.bytes.max(2) }
    }

    /// Whether a checkpoint begins.
    pub(crate) fn is_due(&self, s: &Situation) -> bool {
        let begin = self.begin_at();
        s.load.events > 0
            && (s.dirty_rows >= self.rows
                || s.load.events >= begin.events
                || s.load.bytes >= begin.bytes
                || s.age >= self.age)
    }
}

impl std::ops::Add for ReplayLoad {
    type Output = ReplayLoad;
    fn add(self, more: ReplayLoad) -> ReplayLoad {
        ReplayLoad { events: self.events + more.events, bytes: self.bytes + more.bytes }
    }
}

impl ReplayLoad {
    /// Without what is spared of it.
    pub(crate) fn less(self, spared: ReplayLoad) -> ReplayLoad {
        let events = self.events.saturating_sub(spared.events);
        ReplayLoad { events, bytes: self.bytes.saturating_sub(spared.bytes) }
    }

    /// True if it is as large as a limit, in events or in bytes.
    #[inline]
    pub(crate) fn reaches(&self, limit: ReplayLoad) -> bool {
        self.events >= limit.events || self.bytes >= limit.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: CheckpointPolicy = CheckpointPolicy {
        rows: 1_000,
        bytes: 64 << 20,
        age: Duration::from_secs(5),
        target: Duration::from_secs(4),
        rate: ReplayRate { events_per_second: 100.0, bytes_per_second: 10_000.0, measured: true },
        reserved: None,
    };

    #[test]
    fn a_checkpoint_fits_the_reserve() {
        let check = |reserved, bytes, expect| {
            let (policy, load) = (CheckpointPolicy { reserved, ..POLICY }, ReplayLoad { events: 1, bytes });
            let verdict = (
                policy.nears_reserve(load),
                policy.fills_reserve(load, false),
                policy.fills_reserve(load, true),
            );
            assert_eq!(verdict, expect, "{bytes} of {reserved:?}");
        };
        check(None, u64::MAX, (false, false, false));
        check(Some(800), 99, (false, false, false));
        check(Some(800), 100, (false, false, true));
        check(Some(800), 299, (false, false, true));
        check(Some(800), 300, (true, false, true));
        check(Some(800), 600, (true, true, true));
    }

    #[test]
    fn a_checkpoint_begins_at_half_of_the_target_in_events_or_in_bytes() {
        let check = |events, bytes, dirty_rows, age_s, expect| {
            let age = Duration::from_secs(age_s);
            let s = Situation { load: ReplayLoad { events, bytes }, dirty_rows, age };
            assert_eq!(POLICY.is_due(&s), expect, "{s:?}");
        };
        check(0, 0, 0, 100, false);
        check(199, 19_999, 999, 4, false);
        check(200, 0, 0, 0, true);
        check(1, 20_000, 0, 0, true);
        check(1, 1, 1_000, 0, true);
        check(1, 1, 0, 5, true);
        // A row that changes again and again is no more rows, but more to replay.
        check(200, 1, 1, 0, true);
        assert!(ReplayLoad { events: 400, bytes: 0 }.reaches(POLICY.wait_at()));
        assert!(ReplayLoad { events: 0, bytes: 40_000 }.reaches(POLICY.wait_at()));
        assert!(!ReplayLoad { events: 399, bytes: 39_999 }.reaches(POLICY.wait_at()));
    }

    #[test]
    fn however_the_load_comes_replay_stays_below_the_target() {
        // Moments of 10 ms: so many events come, and a checkpoint takes as long as it takes.
        for (per_moment, checkpoint_moments) in [(1, 3), (3, 50), (40, 200), (399, 7)] {
            let mut load = ReplayLoad::default();
            let mut running: Option<(u64, ReplayLoad)> = None;
            let mut worst = Duration::ZERO;
            for _ in 0..5_000 {
                for _ in 0..per_moment {
                    if !load.reaches(POLICY.wait_at()) {
                        load = ReplayLoad { events: load.events + 1, bytes: load.bytes + 90 };
                    }
                }
                worst = worst.max(POLICY.rate.time(load));
                running = match running {
                    Some((0, taken)) => {
                        load = ReplayLoad {
                            events: load.events - taken.events,
                            bytes: load.bytes - taken.bytes,
                        };
                        None
                    }
                    Some((left, taken)) => Some((left - 1, taken)),
                    None if POLICY.is_due(&Situation { load, ..Situation::default() }) => {
                        Some((checkpoint_moments, load))
                    }
                    None => None,
                };
            }
            assert!(worst <= POLICY.target, "{per_moment} a moment: {worst:?}");
            assert!(worst >= POLICY.target / 2, "no checkpoint before its time: {worst:?}");
        }
    }

    #[test]
    fn creates_count_as_what_they_cost() {
        let cost = CreateCost::default();
        let some = ReplayLoad { events: 1_000, bytes: 80_000 };
        let check = |micros, rate, expect| {
            let spared = cost.observe(some, Duration::from_micros(micros), rate);
            assert_eq!((spared.events, spared.bytes), expect);
        };
        // A microsecond each, where two are assumed.
        check(1_000, ReplayRate::ASSUMED, (500, 40_000));
        // One slow batch is no trend.
        check(2_000, ReplayRate::ASSUMED, (498, 39_843));
        check(1_000, ReplayRate { measured: true, ..ReplayRate::ASSUMED }, (0, 0));
        for _ in 0..5_000 {
            cost.observe(some, Duration::from_millis(5), ReplayRate::ASSUMED);
        }
        check(5_000, ReplayRate::ASSUMED, (0, 0));
        assert!(CreateCost::is_conclusive(1_000, 900) && CreateCost::is_conclusive(256, 256));
        assert!(!CreateCost::is_conclusive(1_000, 899) && !CreateCost::is_conclusive(255, 255));
        assert_eq!((some + some).less(some), some);
    }

    #[test]
    fn rates_are_measured_where_there_is_enough_to_measure() {
        let rate = |events, bytes, secs| {
            ReplayRate::measured(ReplayLoad { events, bytes }, Duration::from_secs(secs))
        };
        assert_eq!(rate(1_000, 90_000, 1), ReplayRate::ASSUMED);
        assert_eq!(rate(1_000_000, 90_000_000, 0), ReplayRate::ASSUMED);
        let slow = rate(1_000_000, 900_000_000, 10);
        assert_eq!((slow.events_per_second, slow.bytes_per_second), (100_000.0, 90_000_000.0));
        assert_eq!(slow.time(ReplayLoad { events: 200_000, bytes: 1 }), Duration::from_secs(2));
        assert_eq!(slow.time(ReplayLoad { events: 1, bytes: 360_000_000 }), Duration::from_secs(4));
    }
}
