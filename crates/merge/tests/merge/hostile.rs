//! A journal that no client would write: the tree stays sound, and everything outside the subtree stays as it is.

use chiton_model::merge::{MergeMap, OnConflict};
use chiton_model::{Body, Event, Extent, Make, Op, Over};
use chiton_namespace::PolicyPlace;
use chiton_types::{BlockId, Ino, Kind, Mode, Name, ShardId, Time};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::paths::SUB;
use crate::peer::{Node, Peer};
use crate::random::{Actor, steps};

/// Inodes inside, outside, made by the journal, and nowhere.
fn inos() -> impl Strategy<Value = Ino> {
    prop_oneof![
        6 => 1..40u64,
        4 => 10_000..10_020u64,
        1 => any::<u64>(),
    ]
    .prop_map(Ino)
}

fn names() -> impl Strategy<Value = Name> {
    prop_oneof![
        5 => (0..5u8).prop_map(|n| vec![b'a' + n]),
        1 => Just(b"file".to_vec()),
        1 => Just(vec![b'n'; 255]),
    ]
    .prop_map(|bytes| Name::new(&bytes).expect("a name"))
}

fn kinds() -> impl Strategy<Value = Kind> {
    (1..8u8).prop_map(|n| Kind::from_u8(n).expect("a kind"))
}

fn times() -> impl Strategy<Value = Time> {
    prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), 1000..2000i64].prop_map(Time)
}

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let extent = (0..2000u64, 1..500u32, 6..8u64, 0..6u64, any::<bool>());
    vec(extent, 0..4).prop_map(|mut all| {
        all.sort_unstable();
        let mut end = 0;
        all.into_iter()
            .filter_map(|(offset, len, writer, number, shared)| {
                let block = if number == 0 { BlockId::HOLE } else { BlockId { writer, number } };
                let fits = offset >= end;
                end = end.max(offset + u64::from(len));
                fits.then_some(Extent { offset, len, block, block_offset: 0, shared })
            })
            .collect()
    })
}

fn overs() -> impl Strategy<Value = Over> {
    prop_oneof![
        Just(Over::Nothing),
        (inos(), kinds(), any::<bool>()).prop_map(|(ino, kind, orphan)| Over::Replaced { ino, kind, orphan }),
        (inos(), kinds()).prop_map(|(ino, kind)| Over::Exchanged { ino, kind }),
    ]
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![0..100u64, Just(u64::MAX), Just(1 << 56), Just((1 << 56) - 1)]
}

fn events() -> impl Strategy<Value = Event> {
    let content = prop_oneof![Just(Vec::new()), vec(any::<u8>(), 0..20), Just(vec![1; 9000])];
    let make = (inos(), names(), inos(), kinds(), any::<u16>(), 0..3u32, times(), content);
    let make = make.prop_map(|(parent, name, ino, kind, mode, rdev, time, content)| {
        let mode = Mode(if mode % 2 == 0 { mode } else { 0o644 });
        Event::Make { parent, name, ino, kind, mode, uid: 0, gid: 0, rdev, time, content }
    });
    let rename = (inos(), names(), inos(), names(), (inos(), kinds()), overs(), times());
    let rename = rename.prop_map(|(from, from_name, to, to_name, (ino, kind), over, time)| Event::Rename {
        from,
        from_name,
        to,
        to_name,
        ino,
        kind,
        over,
        time,
    });
    let set = (inos(), any::<u16>(), proptest::option::of(sizes()), times());
    let set = set.prop_map(|(ino, mode, size, time)| Event::SetAttr {
        ino,
        mode: Some(Mode(mode)),
        uid: Some(0),
        gid: None,
        size,
        atime: Some(time),
        mtime: None,
        ctime: time,
    });
    let body = prop_oneof![
        vec(any::<u8>(), 0..20).prop_map(Body::Inline),
        Just(Body::Inline(vec![2; 9000])),
        extents().prop_map(Body::Extents),
    ];
    let write = (inos(), body, sizes(), proptest::option::of(any::<u16>()), times());
    let write = write.prop_map(|(ino, body, size, mode, mtime)| Event::Write {
        ino,
        body,
        size,
        mode: mode.map(Mode),
        mtime,
    });
    let clone = (inos(), sizes(), inos(), sizes(), sizes(), times());
    let clone = clone.prop_map(|(from, from_offset, to, to_offset, len, time)| Event::Clone {
        from,
        from_offset,
        to,
        to_offset,
        len,
        time,
    });
    prop_oneof![
        8 => make,
        6 => rename,
        3 => (inos(), names(), inos(), kinds(), times())
            .prop_map(|(parent, name, ino, kind, time)| Event::Link { parent, name, ino, kind, time }),
        4 => (inos(), names(), (inos(), kinds()), any::<bool>(), times())
            .prop_map(|(parent, name, (ino, kind), orphan, time)| {
                Event::Unlink { parent, name, ino, orphan, kind, time }
            }),
        2 => (inos(), names(), inos(), times())
            .prop_map(|(parent, name, ino, time)| Event::Restore { parent, name, ino, time }),
        3 => set,
        4 => write,
        2 => clone,
        1 => (inos(), extents()).prop_map(|(ino, extents)| Event::Remap { ino, extents }),
        2 => (inos(), vec(any::<u8>(), 0..8), proptest::option::of(vec(any::<u8>(), 0..8)), times())
            .prop_map(|(ino, name, value, ctime)| Event::Xattr { ino, name, value, ctime }),
        1 => (inos(), times()).prop_map(|(ino, time)| Event::Touch { ino, time }),
        1 => (inos(), 0..3u32).prop_map(|(ino, from_chunk)| Event::Reclaim { ino, from_chunk }),
        1 => any::<u64>().prop_map(|n| Event::Swept { blocks: vec![BlockId { writer: 1, number: n }] }),
        1 => any::<u64>().prop_map(|n| Event::Reserve { shard: ShardId(0), counter_end: n }),
    ]
}

/// A directory in the subtree that is not of it, since it has a policy of its own, with a file in it.
const BORDER: Ino = Ino(8);

fn border(server: &mut Peer) {
    for (parent, name, ino, make) in [
        (SUB, "border", BORDER, Make::Dir),
        (BORDER, "file", Ino(9), Make::File { content: b"below".to_vec() }),
    ] {
        let name = Name::try_from(name).expect("a name");
        let op = Op::Make { parent, name, make, mode: Mode(0o755) };
        server.run(&op, ino, Time(1)).expect("a free name");
    }
    let policy = server.ask(|ns| {
        let place = PolicyPlace { path: ns.dir_path(BORDER)?, around: Ino::ROOT, below: Vec::new() };
        ns.plan_policy((BORDER, place), Some(b"durability: none".to_vec()), 0, Time(1))
    });
    server.apply(&policy.expect("a directory"));
}

/// The tree in it, if the others have left it: with a directory its policy ends. (Its own name is the subtree's.)
fn below_border(server: &mut Peer) -> Vec<(String, Node)> {
    if server.ns.policy(BORDER).is_none() {
        return Vec::new();
    }
    server.tree(BORDER).into_iter().skip(1).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, max_shrink_iters: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn a_hostile_journal_breaks_nothing(
        base in vec(steps(), 0..60),
        theirs in vec(steps(), 0..30),
        journal in vec(events(), 1..120),
        keep_both in any::<bool>(),
    ) {
        let mut server = Peer::new();
        border(&mut server);
        let mut actor = Actor::new(10, 1);
        base.iter().for_each(|step| { actor.act(&mut server, step); });
        let on_conflict = if keep_both { OnConflict::KeepBoth } else { OnConflict::Overwrite };
        let mut map = MergeMap::new(SUB, server.position, 7, on_conflict);
        map.grant(Ino(10_000), Ino(10_010));
        map.note_born_after(ShardId(0), 20);
        // Others may have been at work, and removed what comes back.
        server.open.extend((5..40).map(Ino));
        server.noted_in = Some(map);
        for step in theirs.iter().filter(|step| !step.is_reclaim()) {
            actor.act(&mut server, step);
        }
        let mut map = server.noted_in.take().expect("given above");
        let mut witness = server.fork();
        let outside = server.tree(Ino(3));
        let below = below_border(&mut server);
        let merged_from = server.journal.len();
        let (mut fresh, mut report) = (90_000, Vec::new());
        for event in &journal {
            server.merge(event, &mut map, &mut fresh, &mut report).expect("nothing stops");
        }
        server.validate();
        prop_assert_eq!(server.tree(Ino(3)), outside, "what is outside changed");
        prop_assert_eq!(below_border(&mut server), below, "what has a policy of its own changed");
        // A replay of the server's journal comes to the same state.
        let emitted = server.journal[merged_from..].to_vec();
        emitted.iter().for_each(|event| witness.apply(event));
        prop_assert_eq!(witness.tree(Ino::ROOT), server.tree(Ino::ROOT));
    }
}
