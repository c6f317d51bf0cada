//! How fast frames are encoded: one core, 64 bytes of payload (about 80 bytes a frame).
//!
//! `cargo run --release -p chiton-journal --example append`

use std::hint::black_box;

use chiton_runtime::{RealWorld, World};
use chiton_types::frame::{FrameBuilder, FrameHeader};
use chiton_types::{Seq, SessionId, ShardId};

const FRAMES: u64 = 50_000_000;
const BUFFER_BYTES: usize = 4 << 20;

fn main() {
    let world = RealWorld;
    let payload = [0x5a; 64];
    let mut buf = Vec::with_capacity(BUFFER_BYTES + 4096);
    let mut bytes = 0u64;
    let start = world.monotonic();
    for n in 0..FRAMES {
        if buf.len() >= BUFFER_BYTES {
            black_box(&buf);
            buf.clear();
        }
        let header = FrameHeader {
            event_count: 1,
            shard: ShardId(n as u16 & 63),
            session: SessionId(1000),
            seq: Seq(n),
        };
        let mut frame = FrameBuilder::begin(&mut buf, &header);
        frame.payload().extend_from_slice(black_box(&payload));
        bytes += frame.seal() as u64;
    }
    let seconds = (world.monotonic() - start).as_secs_f64();
    let per_frame = bytes as f64 / FRAMES as f64;
    println!(
        "{:.2} million frames/s, {per_frame:.1} bytes/frame, 64 of them payload",
        FRAMES as f64 / seconds / 1e6
    );
}
