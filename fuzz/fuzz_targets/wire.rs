//! What a peer sends: frames, and all that they can hold. The first byte says in what pieces it comes.
#![no_main]

use chiton_proto::{FrameKind, FrameReader, Hello, RecallDone, Reply, Request, Welcome};
use chiton_types::Take;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&piece, stream)) = bytes.split_first() else { return };
    let mut frames = FrameReader::new();
    for part in stream.chunks(usize::from(piece) + 1) {
        frames.push(part);
        loop {
            match frames.next_frame() {
                Ok(Some((kind, body))) => decode(kind, body),
                Ok(None) => break,
                // The connection ends here.
                Err(_) => return,
            }
        }
    }
    decode(FrameKind::Request, stream);
});

/// Decodes a body; what is whole encodes to what decodes to the same.
fn decode(kind: FrameKind, body: &[u8]) {
    let mut from = Take::new(body);
    match kind {
        FrameKind::Hello => {
            let _ = Hello::decode(&mut from);
        }
        FrameKind::Welcome => {
            let _ = Welcome::decode(&mut from);
        }
        FrameKind::Reply => {
            let _ = Reply::decode(&mut from);
        }
        FrameKind::RecallDone | FrameKind::Recall => {
            let _ = RecallDone::decode(&mut from);
        }
        FrameKind::Request => {
            let Ok(request) = Request::decode(&mut from) else { return };
            let mut again = Vec::new();
            request.encode(&mut again);
            assert_eq!(Request::decode(&mut Take::new(&again)), Ok(request));
        }
    }
}
