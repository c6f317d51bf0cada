//! Small journals for the tests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use chiton_journal::{
    Identity, Journal, JournalError, MemoryPlace, Options, Place, ReplayError, Replayed, Shape, replay,
};
use chiton_types::frame::{FrameHeader, encode_frame};
use chiton_types::{Epoch, Position, Seq, SessionId, ShardId};

/// An identity of the journal 7.
pub(crate) fn identity(nonce: u64) -> Identity {
    Identity { journal: 7, epoch: Epoch(1), nonce }
}

/// Options that commit on request only.
pub(crate) fn options(segment_bytes: usize) -> Options {
    Options {
        segment_bytes,
        flush_interval: Duration::from_secs(3600),
        retry_interval: Duration::from_millis(1),
        pending_bytes_max: 1 << 20,
        dispatch_size: 4,
    }
}

/// The `n`-th frame: 1 to 3 events, with a unique payload.
pub(crate) fn frame(n: u64) -> (Vec<u8>, u64) {
    let events = 1 + n % 3;
    let header =
        FrameHeader { event_count: events as u32, shard: ShardId(1), session: SessionId(2), seq: Seq(n + 1) };
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, &header, &payload(n));
    (bytes, events)
}

/// Payload of the `n`-th frame.
pub(crate) fn payload(n: u64) -> Vec<u8> {
    (0..n % 40).map(|i| (n * 31 + i) as u8 | 1).collect()
}

/// Appends the frames `numbers`; the position of the last event.
pub(crate) fn append(journal: &Journal, numbers: impl IntoIterator<Item = u64>) -> Position {
    let mut last = journal.last();
    for n in numbers {
        let (bytes, events) = frame(n);
        last = journal.append(&bytes, events).expect("append");
    }
    last
}

/// Appends frames and makes them durable with one commit.
pub(crate) fn commit(journal: &Journal, numbers: impl IntoIterator<Item = u64>) -> Position {
    let last = append(journal, numbers);
    journal.wait_durable(last).expect("durable");
    last
}

/// A new journal in memory.
pub(crate) fn create(shape: Shape, options: Options) -> (Arc<MemoryPlace>, Journal) {
    let place = Arc::new(MemoryPlace::new(shape));
    let journal = Journal::create(place.clone(), identity(1), options).expect("create");
    (place, journal)
}

/// Numbers of the frames after `after`, with a check of their content, and the result of the replay.
pub(crate) fn read(place: &dyn Place, after: Position) -> (Vec<u64>, Result<Replayed, JournalError>) {
    let mut numbers = Vec::new();
    let mut next: Option<Position> = None;
    let result = replay::<Infallible>(
        place,
        after,
        &mut |frame| {
            let n = frame.header.seq.0 - 1;
            assert_eq!(frame.payload, payload(n), "payload of frame {n}");
            assert_eq!(u64::from(frame.header.event_count), 1 + n % 3);
            assert!(next.is_none_or(|next| next == frame.first), "positions without gaps");
            next = Some(frame.last().next());
            numbers.push(n);
            Ok(())
        },
        &mut |progress| assert!(progress.bytes_done <= progress.bytes_total),
    );
    let result = result.map_err(|error| match error {
        ReplayError::Journal(error) => error,
        ReplayError::Visitor(never) => match never {},
    });
    (numbers, result)
}
