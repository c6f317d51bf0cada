//! Automatic merges during the job.

use std::time::Duration;

use chiton_runtime::{RealWorld, World};

use crate::site::{Site, merge};

/// Longest wait for an automatic merge.
const PATIENCE: Duration = Duration::from_secs(60);

fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let begun = RealWorld.monotonic();
    while !is() {
        assert!(RealWorld.monotonic() - begun < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn others_see_automatic_merges_in_the_jobs_order() {
    for trigger in ["sync_interval: 50ms", "sync_updates: 10", "sync_when_idle: true"] {
        let site = Site::new();
        let (ours, others) = (site.embedded(), site.connected());
        let policy =
            format!("consistency: weak\ndurability: local\ninterfere_policy: block_writes\n{trigger}\n");
        let realm = ours.take("/job", &policy);
        for n in 0..20 {
            realm.client().create_file(format!("/part-{n}"), b"done").expect("made");
        }
        realm.client().create_file("/DONE", b"").expect("made");
        wait(trigger, || others.client.stat("/job/DONE").is_ok());
        for n in 0..20 {
            assert_eq!(others.client.read_file(format!("/job/part-{n}")), Ok(b"done".to_vec()), "{trigger}");
        }
        realm.client().create_file("/more", b"").expect("the job goes on");
        wait("the status follows", || realm.status().merged > 0);
        assert_eq!(realm.status().trouble, None);
        merge(&realm);
        assert!(others.client.stat("/job/more").is_ok());
    }
}

#[test]
fn removed_files_are_not_sent_and_the_journal_stays_small() {
    let site = Site::new();
    let ours = site.embedded();
    let realm = ours.take("/job", "consistency: weak\ndurability: local\ninterfere_policy: block\n");
    let names: Vec<String> = (0..1_000).map(|n| format!("f{n}")).collect();
    let mut bytes = Vec::new();
    for _ in 0..60 {
        assert!(realm.client().create_many("/", &names).expect("asked").iter().all(Result::is_ok));
        assert!(realm.client().unlink_many("/", &names).expect("asked").iter().all(Result::is_ok));
        let report = realm.sync(&|_| {}).expect("merged so far");
        assert!(report.sent <= 2 && report.squashed >= 1_999, "{report:?}");
        bytes.push(realm.status().journal_bytes);
    }
    // Segments are trimmed whole: of 60 rounds with more than 100 KB each, a few stay.
    let most = bytes.iter().max().copied().unwrap_or_default();
    assert!(most < 12 << 20, "{most} bytes of journal");
    merge(&realm);
}
