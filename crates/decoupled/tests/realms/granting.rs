//! The grant of a decoupling: inode numbers, and nothing that grows with the tree.

use std::time::Duration;

use chiton_runtime::{RealWorld, World};
use chiton_types::{Ino, Refusal};

use crate::site::{IN_STORE, ON_DISK, Site, merge};

/// Longest wait for an automatic merge.
const PATIENCE: Duration = Duration::from_secs(60);

fn reserved(site: &Site) -> u64 {
    let status = site.server().report("status").expect("a status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    status["inode_numbers"]["reserved_by_decouplings"].as_u64().expect("a number")
}

#[test]
fn the_hundred_and_first_file_gets_a_number_on_demand() {
    let site = Site::new();
    let ours = site.connected();
    let realm = ours.take("/job", ON_DISK);
    assert_eq!((realm.status().inodes_granted, reserved(&site)), (100, 100));
    for n in 0..101 {
        realm.client().create_file(format!("/f{n}"), b"").expect("made");
    }
    // More may be on their way.
    let begun = RealWorld.monotonic();
    while realm.status().inodes_granted != reserved(&site) {
        assert!(RealWorld.monotonic() - begun < PATIENCE, "the server keeps as many for it");
    }
    let status = realm.status();
    assert!(status.inodes_granted >= 200 && status.trouble.is_none(), "{status:?}");
    assert_eq!(merge(&realm).lost_count, 0);
    assert_eq!((ours.client.list("/job").expect("listed").len(), reserved(&site)), (101, 0));
}

#[test]
fn inode_numbers_run_out_without_a_server_and_the_status_shows_it() {
    let site = Site::new();
    let ours = site.connected();
    let realm = ours.take("/job", &format!("{ON_DISK}allocated_inodes: 100\n"));
    // The directory is in memory then.
    let mut made: Vec<Ino> = vec![realm.client().create_file("/f0", b"").expect("made").ino];
    site.kill();
    let begun = RealWorld.monotonic();
    while !ours.client.is_away() {
        assert!(RealWorld.monotonic() - begun < PATIENCE, "it does not notice");
        std::thread::sleep(Duration::from_millis(5));
    }
    let refusal = loop {
        match realm.client().create_file(format!("/f{}", made.len()), b"") {
            Ok(attr) => made.push(attr.ino),
            Err(refusal) => break refusal,
        }
        assert!(made.len() <= 100, "more than were granted");
    };
    assert_eq!((refusal, made.len()), (Refusal::NoSpace, 100));
    let trouble = realm.status().trouble.expect("trouble");
    assert!(trouble.contains("no inode number is left") && trouble.contains("does not answer"), "{trouble}");
    // Existing files can be used. When the server is back, new files can be created too.
    realm.client().write_file("/f7", b"content").expect("written");
    realm.client().rename_path("/f8", "/moved").expect("moved");
    site.start();
    let begun = RealWorld.monotonic();
    while realm.client().create_file("/late", b"").is_err() {
        assert!(RealWorld.monotonic() - begun < PATIENCE, "no numbers: {:?}", realm.status().trouble);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(realm.status().trouble, None);
    merge(&realm);
    assert_eq!(site.connected().client.list("/job").expect("listed").len(), 101);
}

/// Stages without times and numbers, which differ between decouplings.
fn shape(realm: &chiton_decoupled::Realm) -> Vec<(String, bool, String)> {
    let words = |what: &str| {
        what.split_whitespace()
            .filter(|word| !word.contains(['/', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let stages = realm.stages().iter();
    stages.map(|stage| (stage.name.clone(), stage.seconds.is_some(), words(&stage.what))).collect()
}

#[test]
fn a_large_tree_is_decoupled_by_the_same_stages_and_nothing_of_it_is_read() {
    for policy in [ON_DISK, IN_STORE] {
        let site = Site::new();
        let maker = site.connected();
        let taken = |path: &str, dirs: usize, files: usize| {
            for dir in 0..dirs {
                maker.mkdir(&format!("{path}/d{dir}"));
                let names: Vec<String> = (0..files).map(|n| format!("f{n}")).collect();
                let made = maker.client.create_many(format!("{path}/d{dir}"), &names).expect("asked");
                assert!(made.iter().all(Result::is_ok));
            }
            let root = maker.client.stat(path).expect("there").ino;
            let ours = site.connected();
            let realm = ours.decouple(root, policy).expect("decoupled");
            (shape(&realm), realm.status().rows_fetched, realm.client().list("/").expect("listed").len())
        };
        let (small, large) = (taken("/small", 1, 3), taken("/large", 40, 500));
        assert_eq!((&small.0, small.1), (&large.0, large.1), "{policy}");
        assert_eq!((small.1, small.2, large.2), (0, 1, 40));
        let names: Vec<&str> = large.0.iter().map(|(name, ..)| &name[..]).collect();
        assert_eq!(names, ["grant", "snapshot", "inode numbers", "place", "journal", "engine"]);
        let timed: Vec<bool> = large.0.iter().map(|(_, timed, _)| *timed).collect();
        assert_eq!(timed, [true, false, false, true, true, true]);
    }
}
