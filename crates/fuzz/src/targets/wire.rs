//! Messages of a peer: frames, and all their contents.

use chiton_transport::{FrameKind, FrameReader};
use chiton_types::Take;
use chiton_wire::{Hello, RecallDone, Reply, Request, Welcome};

use super::{Target, as_it_is};

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

/// Decodes a body. A valid one must encode to bytes that decode to the same value.
fn decode(kind: FrameKind, body: &[u8]) -> bool {
    let mut from = Take::new(body);
    match kind {
        FrameKind::Hello => Hello::decode(&mut from).is_ok(),
        FrameKind::Welcome => Welcome::decode(&mut from).is_ok(),
        FrameKind::Reply => Reply::decode(&mut from).is_ok(),
        FrameKind::RecallDone | FrameKind::Recall => RecallDone::decode(&mut from).is_ok(),
        FrameKind::Request => {
            let Ok(request) = Request::decode(&mut from) else { return false };
            let mut again = Vec::new();
            request.encode(&mut again);
            assert_eq!(Request::decode(&mut Take::new(&again)), Ok(request));
            true
        }
    }
}

/// Frames of every kind with every tag, almost valid; mutations supply the rest.
fn seeds() -> Vec<Vec<u8>> {
    let framed = |kind: u8, body: &[u8]| {
        let mut bytes = vec![200];
        bytes.extend((body.len() as u32 + 1).to_le_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(body);
        bytes
    };
    let mut seeds = Vec::new();
    let mut hello = 1u32.to_le_bytes().to_vec();
    hello.extend([0, 0, 0, 0, 0, 0, 4]);
    hello.extend(b"name");
    seeds.push(framed(1, &hello));
    // Requests: each call with its usual first fields, and little or much behind them.
    for call in (0..=16).chain(32..=44) {
        for rest in [&[][..], &[0; 8], &[1; 12], &[3; 40], &[0; 80]] {
            let mut body = vec![0; 41];
            body[0] = 9;
            body.push(call);
            body.extend_from_slice(rest);
            seeds.push(framed(3, &body));
        }
    }
    // Operations, alone and in batches.
    for tag in 1..=12u8 {
        let mut op = vec![tag];
        op.extend(2u64.to_le_bytes());
        op.extend([1, 0xa4, 1, 4]);
        op.extend(b"name");
        op.extend([2, b'x', b'y', 0, 0, 0]);
        for head in [&[0][..], &[2, 1]] {
            let mut body = vec![0; 41];
            body.extend_from_slice(head);
            body.extend_from_slice(&op);
            seeds.push(framed(3, &body));
        }
    }
    // Replies by tag.
    for tag in (0..=16).chain(128..=132) {
        for rest in [&[][..], &[1; 3], &[0; 100]] {
            let mut body = vec![0; 24];
            body.push(tag);
            body.extend_from_slice(rest);
            seeds.push(framed(4, &body));
        }
    }
    seeds.push(framed(6, &7u64.to_le_bytes()));
    seeds
}
