//! The format, byte by byte, as `docs/formats.md` has it. A change here is a change of format.

use chiton_journal::{SegmentHeader, SegmentReader};
use chiton_types::frame::{FrameHeader, encode_frame};
use chiton_types::{Epoch, Position, Seq, SessionId, ShardId};

#[test]
fn a_segment_with_two_frames() {
    let header = SegmentHeader {
        is_claim: false,
        journal: 0x0706,
        nonce: 0x1122_3344_5566_7788,
        epoch: Epoch(3),
        segment: 2,
        first: Position(0x101),
        durable: Position(0x100),
    };
    let mut bytes = header.encode();
    let fields = |event_count, shard, session, seq| FrameHeader {
        event_count,
        shard: ShardId(shard),
        session: SessionId(session),
        seq: Seq(seq),
    };
    encode_frame(&mut bytes, &fields(1, 0, 0, 0), b"");
    encode_frame(&mut bytes, &fields(2, 0x0201, 300, 5), b"abc");
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let expect = [
        "434849544f4e4a0a", // magic
        "01000000",         // version
        "0607000000000000", // journal
        "8877665544332211", // nonce
        "0300000000000000", // epoch
        "0200000000000000", // segment
        "0101000000000000", // first position
        "0001000000000000", // durable position
        "71659068",         // crc32c of the 60 bytes before
        "05000000",         // length
        "741305a9",         // crc32c of length and body
        "01",               // events
        "0000",             // shard
        "00",               // session
        "00",               // sequence
        "09000000",
        "63803ab0",
        "02",
        "0102",
        "ac02",
        "05",
        "616263", // payload
    ];
    assert_eq!(hex, expect.concat());

    let claim = SegmentHeader { is_claim: true, ..header }.encode();
    let hex: String = claim.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(&hex[..16], "434849544f4e430a");
    assert_eq!(hex[16..120], expect.concat()[16..120]);

    let mut reader = SegmentReader::new(2, &bytes).expect("a good header");
    assert_eq!(*reader.header(), header);
    let frames: Vec<_> = reader.by_ref().map(|frame| frame.expect("a good frame")).collect();
    let seen: Vec<_> = frames.iter().map(|f| (f.first, f.last(), f.header, f.payload, f.offset)).collect();
    assert_eq!(
        seen,
        [
            (Position(0x101), Position(0x101), fields(1, 0, 0, 0), &b""[..], 64),
            (Position(0x102), Position(0x103), fields(2, 0x0201, 300, 5), &b"abc"[..], 77),
        ]
    );
    assert_eq!((reader.next_position(), reader.offset()), (Position(0x104), bytes.len() as u64));
}
