//! Messages of a peer: frames, and all their contents.

use chiton_model::field::Samples;
use chiton_transport::{FrameKind, FrameReader, put_frame};
use chiton_types::Take;
use chiton_wire::Message;

use super::{Target, as_it_is};
use crate::mutate::Random;

pub(super) const WIRE: Target = Target { name: "wire", run, seeds, repair: as_it_is, short_run: 40_000 };

/// The first byte determines the pieces in which the stream arrives.
fn run(bytes: &[u8]) -> bool {
    let Some((&piece, stream)) = bytes.split_first() else { return false };
    let mut frames = FrameReader::new();
    let mut whole = false;
    for part in stream.chunks(usize::from(piece) + 1) {
        frames.push(part);
        loop {
            match frames.next_frame() {
                Ok(Some((kind, body))) => whole |= decode(kind, body),
                Ok(None) => break,
                // The connection ends here.
                Err(_) => return whole,
            }
        }
    }
    whole
}

/// The kind of message of a frame.
fn kind_of(frame: FrameKind) -> usize {
    match frame {
        FrameKind::Hello => 0,
        FrameKind::Welcome => 1,
        FrameKind::Request => 2,
        FrameKind::Reply => 3,
        FrameKind::Recall => 4,
        FrameKind::RecallDone => 5,
        FrameKind::Peer => 6,
    }
}

/// Decodes a body. A valid one must encode to bytes that decode to the same value.
fn decode(frame: FrameKind, body: &[u8]) -> bool {
    let Ok(message) = Message::decode(kind_of(frame), &mut Take::new(body)) else { return false };
    let mut again = Vec::new();
    message.encode(&mut again);
    assert_eq!(Message::decode(kind_of(frame), &mut Take::new(&again)), Ok(message));
    true
}

/// Frames with valid messages, drawn from their declarations: each kind, and each call and answer, several times.
fn seeds() -> Vec<Vec<u8>> {
    let mut random = Random(1);
    let mut draw = |first: &[u8]| [first, &random.bytes(300)].concat();
    let framed = |frame: FrameKind, message: &Message| {
        let mut bytes = vec![200];
        put_frame(&mut bytes, frame, |out| message.encode(out)).expect("a short message");
        bytes
    };
    let mut seeds = Vec::new();
    let frames =
        [FrameKind::Hello, FrameKind::Welcome, FrameKind::Recall, FrameKind::RecallDone, FrameKind::Peer];
    for frame in frames.into_iter().cycle().take(40) {
        seeds.push(framed(frame, &Message::sample(kind_of(frame), &mut Samples::new(&draw(&[])))));
    }
    let (request, reply) = (FrameKind::Request, FrameKind::Reply);
    for n in 0..200u8 {
        // The first bytes choose the variant.
        for frame in [request, reply] {
            let bytes = draw(&[n, n / 16, n]);
            seeds.push(framed(frame, &Message::sample(kind_of(frame), &mut Samples::new(&bytes))));
        }
    }
    // Calls and answers of every tag with little or much behind them, hardly any of them valid.
    for tag in 0..=255 {
        for rest in [&[][..], &[1; 12], &[0; 100]] {
            for (frame, head) in [(3, 41), (4, 24)] {
                let body = [&vec![0; head][..], &[tag], rest].concat();
                let mut bytes = vec![200];
                bytes.extend((body.len() as u32 + 1).to_le_bytes());
                bytes.push(frame);
                bytes.extend_from_slice(&body);
                seeds.push(bytes);
            }
        }
    }
    seeds
}
