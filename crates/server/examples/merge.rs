//! How fast a decoupled journal is merged: `cargo run --release -p chiton-server --example merge [files]`.

use std::sync::Arc;

use chiton_journal::{MemoryPlace, Shape};
use chiton_metastore::MemoryMetastore;
use chiton_model::{Event, Make, Op};
use chiton_objects::MemoryObjects;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions, Stores};
use chiton_types::{Cred, Ino, Kind, Mode, Name, Position, Time};
use chiton_wire::{Answer, Call, MERGE_EVENTS_MAX, MergeState, MergeWindow, RealmAnswer, RealmCall};

/// Files of one directory.
const FILES: u64 = 1000;

fn main() {
    let files = std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("how many files"));
    let world: SharedWorld = Arc::new(RealWorld);
    let meta = Arc::new(MemoryMetastore::new());
    let stores = || Stores {
        objects: Arc::new(MemoryObjects::new()),
        open_meta: {
            let meta = meta.clone();
            Box::new(move || {
                meta.crash();
                Ok(meta.clone() as _)
            })
        },
        place: Arc::new(MemoryPlace::new(Shape::Grows)),
        objects_address: String::new(),
    };
    let stores = stores();
    let info = Server::format_with(&stores, &FormatOptions::default(), &world).expect("formats");
    let options = ServerOptions { checkpoint_rows: usize::MAX, ..ServerOptions::default() };
    let server = Server::start_with(&info, stores, options, world.clone()).expect("starts");
    let session = server.session_embedded("merge", Box::new(|_| {})).expect("a session");
    let ask = |call: Call| session.ask(&Cred::ROOT, call).expect("answered");
    let realm = |call: RealmCall| match ask(Call::Realm(Box::new(call))) {
        Answer::Realm(answer) => answer,
        other => panic!("{other:?}"),
    };
    let name = |text: &str| Name::try_from(text).expect("a name");
    let op = Op::Make { parent: Ino::ROOT, name: name("job"), make: Make::Dir, mode: Mode(0o755) };
    let Answer::Op { outcome, .. } = ask(Call::Op { op, open: false }) else { panic!("made") };
    let root = outcome.attr.expect("made").ino;
    let policy = format!("interfere_policy: block\nallocated_inodes: {}", files * 2 + 80_000);
    let call = RealmCall::Decouple {
        root,
        branch: None,
        nonce: 1,
        journal_at: String::new(),
        policy: policy.into_bytes(),
    };
    let RealmAnswer::Granted(granted) = realm(call) else { panic!("granted") };
    let mut numbers = granted.ranges.iter().flat_map(|(first, end)| (first.0..end.0).map(Ino));
    let mut make = |parent, text: String, kind| Event::Make {
        parent,
        name: name(&text),
        ino: numbers.next().expect("enough"),
        kind,
        mode: Mode(0o644),
        uid: 0,
        gid: 0,
        rdev: 0,
        time: Time(1),
        content: Vec::new(),
    };
    let mut events = Vec::new();
    let mut dir = root;
    for n in 0..files {
        if n % FILES == 0 {
            let made = make(root, format!("dir {n}"), Kind::Dir);
            dir = if let Event::Make { ino, .. } = &made { *ino } else { dir };
            events.push(made);
        }
        events.push(make(dir, format!("file {n}"), Kind::File));
    }
    let pieces: Vec<(u32, Vec<u8>)> = events
        .chunks(MERGE_EVENTS_MAX)
        .map(|chunk| {
            let mut bytes = Vec::new();
            chunk.iter().for_each(|event| event.encode(&mut bytes));
            (chunk.len() as u32, bytes)
        })
        .collect();
    let window = MergeWindow { after: Position(0), upto: Position(events.len() as u64) };
    let (mut from, mut state) = (0, MergeState::default());
    let last = pieces.len() - 1;
    let begun = world.monotonic();
    for (n, (count, events)) in pieces.into_iter().enumerate() {
        let claim = granted.claim;
        let last = n == last;
        let call = RealmCall::Merge { claim, window, from, count, events, last, blind: false };
        let RealmAnswer::Merged(merged) = realm(call) else { panic!("merged") };
        assert_eq!(merged.lost, []);
        from += u64::from(count);
        state = merged.state;
    }
    let applied = world.monotonic().saturating_sub(begun);
    session.ask(&Cred::ROOT, Call::Commit { upto: Position(0) }).expect("durable");
    let durable = world.monotonic().saturating_sub(begun);
    assert_eq!(state.merged, window.upto);
    let rate = |time: std::time::Duration| events.len() as f64 / time.as_secs_f64();
    println!(
        "{} events merged in {applied:.2?}: {:.0} a second; durable (in memory) after {durable:.2?}: {:.0} a second",
        events.len(),
        rate(applied),
        rate(durable)
    );
}
