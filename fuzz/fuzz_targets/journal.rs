//! A journal segment that anybody may have written. The fuzzer seldom hits the checksum of a header: the bytes are
//! also read behind a header that is right, and within a frame that is whole.
#![no_main]

use chiton_journal::{FrameHeader, SegmentHeader, SegmentReader, decode_frame, encode_frame};
use chiton_types::{Epoch, Position, Seq, SessionId, ShardId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = decode_frame(bytes);
    read(bytes);
    let header = SegmentHeader {
        journal: 1,
        nonce: 2,
        epoch: Epoch(1),
        segment: 1,
        first: Position(1),
        durable: Position(0),
    };
    let mut segment = header.encode();
    let frame = FrameHeader { event_count: 1, shard: ShardId(0), session: SessionId(1), seq: Seq(1) };
    encode_frame(&mut segment, &frame, bytes);
    segment.extend_from_slice(bytes);
    read(&segment);
});

/// Reads all frames up to the first damage: each takes some of the bytes, so there is an end.
fn read(segment: &[u8]) {
    let Ok(reader) = SegmentReader::new(1, segment) else { return };
    let whole = reader.take_while(Result::is_ok).count();
    assert!(whole <= segment.len());
}
