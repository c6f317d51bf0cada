//! Random histories: without interference a merge is the same as doing it directly; with it, nothing is lost that the
//! policy keeps.

use std::collections::BTreeSet;

use chiton_merge::{Skipped, squash};
use chiton_model::Event;
use chiton_model::merge::{MergeMap, OnConflict};
use chiton_types::{Ino, Kind, ShardId};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::paths::SUB;
use crate::peer::Peer;
use crate::random::{Actor, Step, steps};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 48,
        failure_persistence: None,
        max_shrink_iters: 5_000,
        ..ProptestConfig::default()
    }
}

fn based(base: &[Step]) -> (Peer, Actor) {
    let mut server = Peer::new();
    let mut actor = Actor::new(10, 1);
    for step in base {
        actor.act(&mut server, step);
    }
    (server, actor)
}

fn granted(server: &mut Peer, on_conflict: OnConflict) -> MergeMap {
    let mut map = MergeMap::new(SUB, server.position, 7, on_conflict);
    server.vouch(SUB, &mut map);
    map.grant(Ino(10_000), Ino(20_000));
    map.note_born_after(ShardId(0), 10_000);
    map
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn undisturbed_a_merge_is_the_same_as_doing_it(
        base in vec(steps(), 0..60),
        ours in vec(steps(), 1..120),
        pages in vec(any::<bool>(), 7),
        cut in 0..120usize,
    ) {
        let (mut server, _) = based(&base);
        let (mut client, mut direct, mut squashed) = (server.fork(), server.fork(), server.fork());
        let mut actor = Actor::new(10_000, 7);
        for step in &ours {
            actor.act(&mut client, step);
        }
        client.journal.iter().for_each(|event| direct.apply(event));
        let expect = direct.tree(SUB);
        for (mut events, server) in [
            (vec![client.journal.clone()], &mut server),
            ({
                // A journal is squashed in pieces, as syncs cut it.
                let (first, second) = client.journal.split_at(cut.min(client.journal.len()));
                vec![first.to_vec(), second.to_vec()]
            }, &mut squashed),
        ] {
            if events.len() > 1 {
                events.iter_mut().for_each(squash);
            }
            // Under abort any conflict would end it.
            let mut map = granted(server, OnConflict::Abort);
            let (mut fresh, mut report) = (90_000, Vec::new());
            for (n, event) in events.concat().iter().enumerate() {
                if pages[n % pages.len()] {
                    server.page_out();
                }
                let skipped = server.merge(event, &mut map, &mut fresh, &mut report);
                let fine = matches!(skipped, Ok(None | Some(Skipped::Gone | Skipped::Needless)));
                prop_assert!(fine, "{event:?}: {skipped:?}");
            }
            prop_assert_eq!(&server.tree(SUB), &expect);
            server.validate();
        }
    }

    #[test]
    fn with_interference_the_tree_is_sound_and_nothing_is_lost_that_the_policy_keeps(
        base in vec(steps(), 0..60),
        ours in vec(steps(), 1..80),
        theirs in vec(steps(), 1..80),
        rounds in 1..4usize,
        keep_both in any::<bool>(),
    ) {
        let (mut server, _) = based(&base);
        let mut client = server.fork();
        let on_conflict = if keep_both { OnConflict::KeepBoth } else { OnConflict::Overwrite };
        let mut map = granted(&mut server, on_conflict);
        let (mut we, mut they) = (Actor::new(10_000, 7), Actor::new(30_000, 2));
        let (mut fresh, mut report, mut merged) = (90_000, Vec::new(), 0);
        // An inode that the decoupled side saw stays as an orphan if others remove it.
        let seen: BTreeSet<Ino> = server.tree(SUB).values().map(|node| node.attr.ino).collect();
        let mut lost = false;
        let mut removed_by_them = BTreeSet::new();
        let part = |all: &[Step], n: usize| -> Vec<Step> {
            all.chunks(all.len().div_ceil(rounds)).nth(n).unwrap_or(&[]).to_vec()
        };
        for round in 0..rounds {
            part(&ours, round).iter().for_each(|step| { we.act(&mut client, step); });
            server.open = seen.iter().copied().chain(client.journal.iter().filter_map(|e| match e {
                Event::Make { ino, .. } => Some(*ino),
                _ => None,
            })).collect();
            // So that it is seen what they remove.
            server.open.extend((30_000..they.next + 1000).map(Ino));
            for step in part(&theirs, round) {
                if step.is_reclaim() {
                    continue;
                }
                server.noted_in = Some(map);
                removed_by_them.extend(they.act(&mut server, &step));
                map = server.noted_in.take().expect("given above");
                // A server does so at every link of theirs.
                server.vouch(SUB, &mut map);
            }
            for event in &client.journal[merged..] {
                let skipped = server.merge(event, &mut map, &mut fresh, &mut report).expect("nothing stops");
                lost |= matches!(skipped, Some(Skipped::Refused(_)));
                let honest = !matches!(skipped, Some(Skipped::Invalid(_) | Skipped::Outside));
                prop_assert!(honest, "{event:?}: {skipped:?}");
            }
            merged = client.journal.len();
        }
        server.validate();
        let after = server.tree(SUB);
        let there: BTreeSet<Ino> = after.values().map(|node| node.attr.ino).collect();
        if keep_both {
            for ino in they.made.iter().filter(|ino| !removed_by_them.contains(ino)) {
                let is_dir = server.ns.attr(*ino).is_ok_and(|attr| attr.kind == Kind::Dir);
                prop_assert!(is_dir || there.contains(ino), "{ino:?} of others is lost: {report:#?}");
            }
        }
        if rounds == 1 && !lost {
            let clones = client.journal.iter().any(|event| matches!(event, Event::Clone { .. }));
            // Everything that ours made and did not remove is there.
            for node in client.tree(SUB).values().filter(|node| node.attr.ino.0 >= 10_000) {
                let ino = node.attr.ino;
                if node.attr.kind != Kind::Dir {
                    prop_assert!(there.contains(&ino), "{ino:?} of ours is lost: {report:#?}");
                    // A copy of content that others changed has theirs in it, which is reported.
                    if !clones || report.is_empty() {
                        prop_assert_eq!(&server.node(ino).content, &node.content);
                    }
                }
            }
        }
    }
}
