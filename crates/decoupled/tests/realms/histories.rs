//! Random work in a decoupled subtree, merged, against the same work done directly.

use crate::site::{IN_MEMORY, ON_DISK, Site, merge};
use crate::tree::tree;
use crate::work::Work;

/// Steps before a subtree is taken, and in it.
const STEPS: usize = 150;

fn check(seed: u64, policy: &str, syncs: bool, connected: bool) {
    let site = Site::new();
    let party = if connected { site.connected() } else { site.embedded() };
    let root = party.mkdir("/ours").ino;
    party.mkdir("/twin");
    for at in ["/ours", "/twin"] {
        let mut work = Work::new(seed);
        (0..STEPS).filter(|_| work.step(&party.client, at)).count();
    }
    party.client.sync().expect("written");
    let realm = party.decouple(root, policy).expect("decoupled");
    let (mut ours, mut twin) = (Work::new(seed + 1), Work::new(seed + 1));
    let mut done = 0;
    for step in 0..STEPS * 2 {
        let (a, b) = (ours.step(realm.client(), ""), twin.step(&party.client, "/twin"));
        assert_eq!(a, b, "seed {seed}, step {step}");
        done += usize::from(a);
        if syncs && step % 40 == 39 {
            let report = realm.sync(&|_| {}).expect("merged so far");
            assert_eq!((report.conflict_count, &report.lost[..]), (0, &[][..]), "seed {seed}, step {step}");
        }
    }
    assert!(done > STEPS / 4, "seed {seed}: only {done} steps did something");
    let expected = tree(&party.client, "/twin");
    assert_eq!(tree(realm.client(), "/"), expected, "seed {seed}: within");
    let report = merge(&realm);
    assert_eq!(report.conflict_count, 0, "seed {seed}: {report:?}");
    assert_eq!(tree(&party.client, "/ours"), expected, "seed {seed}: merged");
    assert!(party.realms.list().is_empty());
}

#[test]
fn merged_at_the_end_it_is_as_if_done_directly() {
    (0..6).for_each(|seed| check(seed * 100, IN_MEMORY, false, false));
}

#[test]
fn merged_piece_by_piece_it_is_as_if_done_directly() {
    (6..10).for_each(|seed| check(seed * 100, ON_DISK, true, false));
}

#[test]
fn over_a_socket_it_is_the_same() {
    (10..12).for_each(|seed| check(seed * 100, ON_DISK, true, true));
}
