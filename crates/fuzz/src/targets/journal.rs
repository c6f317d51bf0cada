//! Hostile journals: their segments, the events in them, and recovery from those.

use std::sync::Arc;

use chiton_journal::{
    Frame, Identity, Journal, JournalError, MemoryPlace, Place, SEGMENT_HEADER_BYTES, SegmentHeader, Shape,
    decode_frame, replay, survey,
};
use chiton_metastore::{MemoryMetastore, Metastore};
use chiton_model::Event;
use chiton_model::field::{Samples, Variants};
use chiton_objects::MemoryObjects;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{Apply, FilesystemInfo, FormatOptions, Offline, Server, Stores};
use chiton_types::frame::{FrameHeader, encode_frame};
use chiton_types::{Epoch, Ino, Kind, Mode, Name, PlateId, Position, Seq, SessionId, ShardId, Take, Time};

use super::{Target, as_it_is};
use crate::mutate::Random;

pub(super) const JOURNAL: Target = Target { name: "journal", run, seeds, repair, short_run: 8_000 };
pub(super) const EVENT: Target =
    Target { name: "event", run: run_events, seeds: any_events, repair: as_it_is, short_run: 20_000 };
pub(super) const REPLAY: Target =
    Target { name: "replay", run: run_replay, seeds: events, repair: as_it_is, short_run: 400 };

/// Two adjacent segments: the first four bytes say where the second begins.
fn run(bytes: &[u8]) -> bool {
    let _ = decode_frame(bytes);
    let Some((cut, rest)) = bytes.split_first_chunk::<4>() else { return false };
    let (first, second) = rest.split_at((u32::from_le_bytes(*cut) as usize).min(rest.len()));
    let place = Arc::new(MemoryPlace::new(Shape::Grows));
    for (number, segment) in [(1, first), (2, second)] {
        if place.create(number, &[0; SEGMENT_HEADER_BYTES]).is_ok() {
            place.set_bytes(number, segment.to_vec());
        }
    }
    let mut visit = |_: &Frame<'_>| Ok::<(), JournalError>(());
    let replayed = replay(&*place, Position(0), &mut visit, &mut |_| {}).is_ok();
    let surveyed = survey::<JournalError>(&*place, &mut |_| Ok(()), &mut |_| {});
    if replayed {
        assert!(surveyed.is_ok_and(|survey| survey.is_whole()), "replayed, and yet not whole");
    }
    let identity = Identity { journal: 7, epoch: Epoch(1), nonce: 77 };
    let opened = Journal::open(place, identity, Default::default());
    replayed || opened.is_ok()
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for frames in [0, 1, 5, 40] {
        let place = Arc::new(MemoryPlace::new(Shape::Grows));
        let identity = |nonce| Identity { journal: 7, epoch: Epoch(1), nonce };
        let write = |journal: &Journal| {
            for n in 0..frames {
                let header = FrameHeader {
                    event_count: 1 + n % 3,
                    shard: ShardId(1),
                    session: SessionId(2),
                    seq: Seq(1),
                };
                let mut bytes = Vec::new();
                encode_frame(&mut bytes, &header, &vec![n as u8; n as usize]);
                let last = journal.append(&bytes, u64::from(header.event_count)).expect("appends");
                if n % 4 == 0 {
                    journal.wait_durable(last).expect("durable");
                }
            }
            journal.close().expect("closes");
        };
        write(&Journal::create(place.clone(), identity(1), Default::default()).expect("creates"));
        write(&Journal::open(place.clone(), identity(2), Default::default()).expect("opens").0);
        let segments: Vec<_> = place.list().expect("lists").into_iter().map(|info| info.number).collect();
        let read = |number| place.read(number, u64::MAX).expect("reads");
        let (first, second) = (read(segments[0]), read(segments[1]));
        seeds.push([&(first.len() as u32).to_le_bytes()[..], &first, &second].concat());
    }
    seeds
}

/// Makes the checksums of headers and of some frames right.
fn repair(bytes: &mut [u8], random: &mut Random) {
    let Some((cut, rest)) = bytes.split_first_chunk_mut::<4>() else { return };
    let (first, second) = rest.split_at_mut((u32::from_le_bytes(*cut) as usize).min(rest.len()));
    for segment in [first, second] {
        let Some(header) = segment.get(..SEGMENT_HEADER_BYTES).filter(|_| random.below(4) > 0) else {
            continue;
        };
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let header = SegmentHeader {
            is_claim: random.below(4) == 0,
            journal: word(12),
            nonce: word(20),
            epoch: Epoch(word(28)),
            segment: word(36),
            first: Position(word(44)),
            durable: Position(word(52)),
        };
        if header.first > header.durable {
            segment[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        }
    }
}

/// Events one after the other, as in a frame.
fn run_events(bytes: &[u8]) -> bool {
    let mut from = Take::new(bytes);
    let mut count = 0;
    while !from.is_empty() {
        let Ok(event) = Event::decode(&mut from) else { return count > 1 };
        let mut again = Vec::new();
        event.encode(&mut again);
        // As the tools for journals show it.
        assert!(event.json().is_object() && !event.describe().is_empty());
        assert_eq!(Event::decode(&mut Take::new(&again)), Ok(event));
        count += 1;
    }
    true
}

/// A recovery from valid frames with hostile events.
fn run_replay(bytes: &[u8]) -> bool {
    let world: SharedWorld = Arc::new(RealWorld);
    let (meta, place) = (Arc::new(MemoryMetastore::new()), Arc::new(MemoryPlace::new(Shape::Grows)));
    let stores = |meta: &Arc<MemoryMetastore>| Stores {
        objects: Arc::new(MemoryObjects::new()),
        open_meta: {
            let meta = meta.clone();
            Box::new(move || {
                meta.crash();
                Ok(meta.clone() as Arc<dyn Metastore>)
            })
        },
        place: place.clone(),
        objects_address: String::new(),
    };
    let options = FormatOptions { shards: 4, ..FormatOptions::default() };
    let info: FilesystemInfo = Server::format_with(&[stores(&meta)], &options, &world).expect("formats");
    let identity = Identity { journal: info.filesystem, epoch: Epoch(1), nonce: 5 };
    let (journal, _) = Journal::open(place.clone(), identity, Default::default()).expect("opens");
    // Each event gets a frame, as far as events can be separated; the rest gets one frame.
    let mut from = Take::new(bytes);
    let mut at = 0;
    while at < bytes.len() {
        let whole = Event::decode(&mut from).is_ok();
        let end = if whole { bytes.len() - from.rest().len() } else { bytes.len() };
        let mut frame = Vec::new();
        let header = FrameHeader { event_count: 1, shard: ShardId(0), session: SessionId(0), seq: Seq(0) };
        encode_frame(&mut frame, &header, &bytes[at..end]);
        journal.append(&frame, 1).expect("appends");
        at = end;
    }
    journal.close().expect("closes");
    let offline = Offline::open_with(&info, PlateId(0), &stores(&meta), world).expect("opens");
    let mut select = |_: Position, _: &FrameHeader, _: &Event| true;
    let all = Apply { after: Position(0), upto: Position(u64::MAX), select: &mut select, skip_misfits: true };
    offline.apply(all, &mut |_| {}).is_ok_and(|applied| applied.misfits == 0)
}

/// A history, and each event of the table several times, drawn by its declaration.
fn any_events() -> Vec<Vec<u8>> {
    let mut seeds = events();
    let mut random = Random(1);
    for at in 0..Event::VARIANTS.len() {
        for len in [0, 40, 400] {
            let mut bytes = Vec::new();
            Event::sample_variant(at, &mut Samples::new(&random.bytes(len))).encode(&mut bytes);
            seeds.push(bytes);
        }
    }
    seeds
}

/// A short history of most kinds of events.
fn events() -> Vec<Vec<u8>> {
    let name = |text: &str| Name::new(text.as_bytes()).expect("a name");
    let make = |n: u64, kind: Kind, parent: Ino, content: &[u8]| Event::Make {
        parent,
        name: name(&format!("n{n}")),
        ino: Ino(n),
        kind,
        mode: Mode(0o644),
        uid: 1,
        gid: 2,
        rdev: 0,
        time: Time(n as i64),
        content: content.to_vec(),
    };
    let first = Ino::new(ShardId(1), 5).0;
    let root = Ino::ROOT;
    let (dir, file, other) = (Ino(first), Ino(first + 1), Ino(first + 2));
    let history = vec![
        make(dir.0, Kind::Dir, root, b""),
        make(file.0, Kind::File, dir, b"content"),
        make(other.0, Kind::Symlink, root, b"target"),
        Event::Link { parent: root, name: name("link"), ino: file, kind: Kind::File, time: Time(4) },
        Event::Touch { ino: dir, time: Time(5) },
        Event::Xattr { ino: file, name: b"user.a".to_vec(), value: Some(b"b".to_vec()), ctime: Time(6) },
        Event::SetAttr {
            ino: file,
            mode: Some(Mode(0o600)),
            uid: None,
            gid: None,
            size: Some(3),
            atime: None,
            mtime: Some(Time(7)),
            ctime: Time(7),
        },
        Event::Unlink {
            parent: root,
            name: name("link"),
            ino: file,
            orphan: false,
            kind: Kind::File,
            time: Time(8),
        },
        Event::Unlink {
            parent: dir,
            name: name(&format!("n{}", file.0)),
            ino: file,
            orphan: true,
            kind: Kind::File,
            time: Time(9),
        },
        Event::NOTHING,
    ];
    let mut seeds = Vec::new();
    for len in [1, 2, 4, history.len()] {
        let mut bytes = Vec::new();
        history[..len].iter().for_each(|event| event.encode(&mut bytes));
        seeds.push(bytes);
    }
    seeds
}
