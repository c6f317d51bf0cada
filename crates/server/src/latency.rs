//! How long this server takes for each request: a histogram for each kind, and a line for each slow one.
//!
//! ```text
//!   a request arrives ─ begin ─▶ done, or waits (why), or needs rows (how often) ─▶ the answer is sent ─ end ─┬▶ histogram
//!                                                                                                            └▶ slow? a line
//! ```
//!
//! Invariants:
//! - Nothing is measured, and no clock is read, unless metrics or the log of slow operations are on.
//! - The time of a request begins before it waits for the engine's lock, and ends when its answer has been given to the socket, or to
//!   the thread of this process that waits for it.
//! - Only the first reason of a wait is known.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chiton_engine::{WaitReason, kind_names, kind_of_call};
use chiton_runtime::SharedWorld;
use chiton_types::{PlateId, Seq, SessionId};
use chiton_wire::Request;
use prometheus_client::metrics::histogram::Histogram;

use crate::often::{LogLimit, Often};
use crate::options::{Log, ServerOptions};

/// Upper ends of the buckets, in seconds: from an operation in this process to one that waits for a client that is gone.
const BUCKETS: [f64; 23] = [
    1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// The latencies of one plate.
pub(crate) struct Latency {
    world: SharedWorld,
    plate: PlateId,
    /// By kind, once it has occurred; empty if nobody asked for metrics.
    histograms: Vec<OnceLock<Histogram>>,
    /// Requests that waited, by reason.
    waits: [AtomicU64; WaitReason::ALL.len()],
    slow_after: Option<Duration>,
    slow: AtomicU64,
    lines: LogLimit,
    log: Log,
}

/// A request whose time runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    at: Duration,
    kind: u16,
    /// Times that rows were fetched for it.
    fetches: u16,
    waited: Option<WaitReason>,
    session: SessionId,
    seq: Seq,
    id: u64,
}

impl Latency {
    /// None if nothing is to be measured.
    pub(crate) fn new(options: &ServerOptions, plate: PlateId, world: &SharedWorld) -> Option<Arc<Latency>> {
        (options.metrics || options.slow_after.is_some()).then(|| {
            Arc::new(Latency {
                world: world.clone(),
                plate,
                histograms: kind_names().filter(|_| options.metrics).map(|_| OnceLock::new()).collect(),
                waits: Default::default(),
                slow_after: options.slow_after,
                slow: AtomicU64::new(0),
                lines: LogLimit::default(),
                log: options.log.clone(),
            })
        })
    }

    /// The time now, for [`Begun::new`].
    #[inline]
    pub(crate) fn now(&self) -> Duration {
        self.world.monotonic()
    }

    /// The requests of one arrival were answered.
    #[inline]
    pub(crate) fn end_all(&self, begun: &[Begun]) {
        if begun.is_empty() {
            return;
        }
        let now = self.now();
        begun.iter().for_each(|begun| self.end_at(begun, now));
    }

    #[inline]
    pub(crate) fn end(&self, begun: &Begun) {
        self.end_at(begun, self.now());
    }

    #[inline]
    fn end_at(&self, begun: &Begun, now: Duration) {
        let spent = now.saturating_sub(begun.at);
        if let Some(histogram) = self.histograms.get(usize::from(begun.kind)) {
            histogram.get_or_init(|| Histogram::new(BUCKETS)).observe(spent.as_secs_f64());
        }
        if let Some(reason) = begun.waited {
            self.waits[reason as usize].fetch_add(1, Relaxed);
        }
        if self.slow_after.is_some_and(|limit| spent >= limit) {
            self.log_slow(begun, spent, now);
        }
    }

    #[cold]
    fn log_slow(&self, begun: &Begun, spent: Duration, now: Duration) {
        self.slow.fetch_add(1, Relaxed);
        let (summary, is_wanted) = self.lines.note(Often::Slow, now);
        if let Some(summary) = summary {
            (self.log)(&summary);
        }
        if is_wanted {
            (self.log)(&self.line(begun, spent));
        }
    }

    /// The numbers have the names that the log has at the level `debug`, here and at the client.
    fn line(&self, begun: &Begun, spent: Duration) -> String {
        let Begun { kind, fetches, waited, session, seq, id, .. } = *begun;
        let call = kind_names().nth(usize::from(kind)).unwrap_or("?");
        let waited = waited.map_or("nothing", WaitReason::words);
        format!(
            "slow operation: call={call} ms={} plate={} session={} seq={} request={id}: it waited for {waited}; fetches of rows: {fetches}",
            spent.as_millis(),
            self.plate,
            session.0,
            seq.0,
        )
    }

    /// The histograms of the kinds that occurred.
    pub(crate) fn histograms(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        kind_names().zip(&self.histograms).filter_map(|(kind, histogram)| Some((kind, histogram.get()?)))
    }

    pub(crate) fn waits(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        WaitReason::ALL.iter().map(move |reason| (reason.name(), self.waits[*reason as usize].load(Relaxed)))
    }

    /// Operations that took as long as the log of slow ones says, or longer.
    pub(crate) fn slow(&self) -> u64 {
        self.slow.load(Relaxed)
    }
}

impl Begun {
    #[inline]
    pub(crate) fn new(at: Duration, session: SessionId, request: &Request) -> Begun {
        Begun {
            at,
            kind: kind_of_call(&request.call) as u16,
            fetches: 0,
            waited: None,
            session,
            seq: request.seq,
            id: request.id,
        }
    }

    /// Rows are fetched for it.
    pub(crate) fn fetches(&mut self) {
        self.fetches = self.fetches.saturating_add(1);
    }

    /// It waits, for a reason that is known if it is not over already.
    pub(crate) fn waits(&mut self, reason: Option<WaitReason>) {
        self.waited = self.waited.or(reason);
    }
}

#[cfg(test)]
mod tests {
    use chiton_runtime::SeededWorld;
    use chiton_runtime::sync::Mutex;
    use chiton_types::{Cred, Epoch};
    use chiton_wire::Call;

    use super::*;

    fn request() -> Request {
        let (seq, settled) = (Seq(17), Seq(0));
        Request { id: 9, seq, settled, epoch: Epoch(0), again: None, cred: Cred::ROOT, call: Call::Ping }
    }

    #[test]
    fn a_slow_operation_has_a_line_with_its_numbers_and_a_fast_one_has_none() {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = lines.clone();
        let options = ServerOptions {
            slow_after: Some(Duration::from_millis(500)),
            log: Arc::new(move |line| sink.lock().push(line.to_owned())),
            ..ServerOptions::default()
        };
        let world: SharedWorld = Arc::new(SeededWorld::new(1));
        let latency = Latency::new(&options, PlateId(3), &world).expect("something is measured");
        let mut begun = Begun::new(Duration::ZERO, SessionId(5), &request());
        begun.fetches();
        begun.waits(None);
        begun.waits(Some(WaitReason::Leases));
        begun.waits(Some(WaitReason::Durability));
        latency.end_at(&begun, Duration::from_millis(499));
        assert_eq!((lines.lock().len(), latency.slow()), (0, 0));
        latency.end_at(&begun, Duration::from_millis(1200));
        let expect = "slow operation: call=ping ms=1200 plate=3 session=5 seq=17 request=9: it waited for other clients to give up \
                      leases; fetches of rows: 1";
        assert_eq!((lines.lock().as_slice(), latency.slow()), (&[expect.to_owned()][..], 1));
        assert!(latency.waits().any(|wait| wait == ("leases", 2)));
        assert!(Latency::new(&ServerOptions::default(), PlateId(0), &world).is_none(), "nobody asked");
    }

    #[test]
    fn a_reason_is_the_index_of_its_name() {
        for (n, reason) in WaitReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, n, "{}", reason.name());
        }
    }
}
