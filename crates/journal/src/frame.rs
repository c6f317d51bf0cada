//! Whole frames in memory: one that stands alone, and runs of them that are appended.

use chiton_types::Take;
use chiton_types::frame::{
    BODY_BYTES_MIN, FRAME_BODY_BYTES_MAX, FrameHeader, PREFIX_BYTES, checksum, event_count, parse_body, seal,
};

use crate::damage::Cause;

/// Reads a frame that is all of `bytes`, for frames that are stored outside of segments.
///
/// # Errors
/// The damage.
pub fn decode_frame(bytes: &[u8]) -> Result<(FrameHeader, &[u8]), Cause> {
    let short = |expected: usize| Cause::Short { expected: expected as u64, found: bytes.len() as u64 };
    let prefix = bytes.first_chunk::<PREFIX_BYTES>().ok_or(short(PREFIX_BYTES))?;
    let length = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
    let expected = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]);
    if length as usize > FRAME_BODY_BYTES_MAX {
        return Err(Cause::Length { expected_max: FRAME_BODY_BYTES_MAX as u64, found: u64::from(length) });
    }
    let body = &bytes[PREFIX_BYTES..];
    if body.len() != length as usize {
        return Err(short(PREFIX_BYTES + length as usize));
    }
    let found = checksum(length, body);
    if expected != found {
        return Err(Cause::Checksum { expected, found });
    }
    parse_body(body).map_err(|m| Cause::Malformed { expected: m.expected })
}

/// Bytes and events of the first frame of `frames`, without a check of its checksum; `None` if there is no whole
/// frame.
#[inline]
pub(crate) fn hop(frames: &[u8]) -> Option<(usize, u64)> {
    let length = u32::from_le_bytes(*frames.first_chunk::<4>()?) as usize;
    if !(BODY_BYTES_MIN..=FRAME_BODY_BYTES_MAX).contains(&length) {
        return None;
    }
    let body = frames.get(PREFIX_BYTES..PREFIX_BYTES + length)?;
    let events = event_count(&mut Take::new(body)).ok()?;
    Some((PREFIX_BYTES + length, u64::from(events)))
}

/// Fills in the checksums of whole frames; returns how many events they hold.
///
/// # Panics
/// If `frames` is not whole frames: it comes from this process.
pub fn seal_frames(frames: &mut [u8]) -> u64 {
    let (mut at, mut events) = (0, 0);
    while at < frames.len() {
        let (bytes, frame_events) = hop(&frames[at..]).expect("appended bytes are whole frames");
        seal(&mut frames[at..at + bytes]);
        at += bytes;
        events += frame_events;
    }
    events
}

/// Bytes and events of the longest run of whole frames within `bytes_max`, at least one frame.
///
/// # Panics
/// If `frames` is not whole frames: it comes from this process.
pub(crate) fn run(frames: &[u8], bytes_max: usize) -> (usize, u64) {
    let (mut bytes, mut events) = (0, 0u64);
    while bytes < frames.len() {
        let (frame_bytes, frame_events) = hop(&frames[bytes..]).expect("appended bytes are whole frames");
        if bytes > 0 && bytes + frame_bytes > bytes_max {
            break;
        }
        bytes += frame_bytes;
        events += frame_events;
    }
    (bytes, events)
}

#[cfg(test)]
mod tests {
    use chiton_types::frame::encode_frame;
    use chiton_types::{Seq, SessionId, ShardId};

    use super::*;

    #[test]
    fn runs_end_at_frames() {
        let mut buf = Vec::new();
        for event_count in 1..=3 {
            let header = FrameHeader { event_count, shard: ShardId(0), session: SessionId(0), seq: Seq(0) };
            encode_frame(&mut buf, &header, &[7; 7]);
        }
        for (bytes_max, expect) in [(0, (20, 1)), (39, (20, 1)), (40, (40, 3)), (60, (60, 6)), (999, (60, 6))]
        {
            assert_eq!(run(&buf, bytes_max), expect, "{bytes_max}");
        }
    }
}
