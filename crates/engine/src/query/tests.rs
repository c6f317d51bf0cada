//! Leases that listings bring.

use chiton_model::{Make, Op};
use chiton_types::{Ino, Mode, Name};
use chiton_wire::{Answer, Call, DirEntry, LeaseMode, Query};

use super::LOOK_AHEAD;
use crate::session_expiry::tests::{A, B, World};

const FILES: usize = 20;
/// Entries of a page.
const PAGE: u32 = 5;

fn page(w: &mut World, cookie: u64) -> Vec<DirEntry> {
    let query = Query::ReadDir { dir: Ino::ROOT, cookie, entries_max: PAGE, plus: true, part_end: None };
    match w.ask(B, None, Call::Query(query)).expect("answered").result {
        Ok(Answer::Entries { entries, .. }) => entries,
        other => panic!("{other:?}"),
    }
}

fn leases(entries: &[DirEntry]) -> Vec<LeaseMode> {
    entries.iter().map(|entry| entry.attr.as_ref().expect("attributes").1).collect()
}

/// A makes files that it does not have open.
fn files_of_a(w: &mut World) {
    for n in 0..FILES {
        let (name, make) =
            (Name::new(format!("f{n}").as_bytes()).expect("a name"), Make::File { content: Vec::new() });
        let op = Op::Make { parent: Ino::ROOT, name, make, mode: Mode(0o644) };
        w.ask(A, None, Call::Op { op, open: false }).expect("answered").result.expect("made");
    }
    w.all_durable();
}

/// Recalls that are out to A, which it acknowledges: their inodes.
fn acknowledge(w: &mut World) -> Vec<Ino> {
    let slot = w.engine.clients.sessions.get(A).expect("A").slot;
    let recalls = w.engine.clients.leases.recalls_out(slot);
    for recall in &recalls {
        assert!(recall.ino == Ino::ROOT || recall.keep == LeaseMode::Shared, "{recall:?}");
        w.engine.recall_done(A, recall.id, &w.m);
    }
    w.take();
    recalls.into_iter().map(|recall| recall.ino).collect()
}

#[test]
fn a_page_of_files_that_another_session_holds_has_them_shared_and_those_behind_it() {
    let (mut w, opened) = World::two();
    files_of_a(&mut w);
    const { assert!(FILES < LOOK_AHEAD) };
    let first = page(&mut w, 0);
    assert!(leases(&first).iter().all(|lease| *lease == LeaseMode::None), "nobody waits for A");
    let shared = acknowledge(&mut w);
    assert_eq!(
        shared.iter().filter(|ino| **ino != Ino::ROOT).count(),
        FILES,
        "of all pages, but what A has open"
    );
    assert!(!shared.contains(&opened));
    let mut after = 0;
    let mut seen = 0;
    loop {
        let entries = page(&mut w, after);
        let Some(last) = entries.last() else { break };
        after = last.cookie;
        for entry in entries {
            let (attr, lease) = entry.attr.expect("attributes");
            let expected = if attr.ino == opened { LeaseMode::None } else { LeaseMode::Shared };
            assert_eq!(lease, expected, "{:?}", entry.name);
            seen += 1;
        }
    }
    assert_eq!(seen, FILES + 1);
    assert_eq!(acknowledge(&mut w), [], "and nobody is asked again");
}
