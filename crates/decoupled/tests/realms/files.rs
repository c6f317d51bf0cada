//! File data in decoupled subtrees: inline, in blocks, over base files, through crashes and merges.

use chiton_client::OpenFlags;

use crate::site::{ON_DISK, Site, merge};

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed) ^ (n >> 8) as u8).collect()
}

#[test]
fn content_of_all_sizes_survives_crash_and_merge() {
    for connected in [false, true] {
        let site = Site::new();
        let ours = if connected { site.connected() } else { site.embedded() };
        ours.mkdir("/job");
        ours.client.create_file("/job/base", &pattern(9, 5 << 20)).expect("made");
        ours.client.sync().expect("durable");
        let root = ours.client.stat("/job").expect("there").ino;
        let realm = ours.decouple(root, ON_DISK).expect("decoupled");
        let sizes = [0, 1, 4_000, 100_000, 6 << 20];
        for (n, size) in sizes.into_iter().enumerate() {
            realm.client().write_file(format!("/f{n}"), &pattern(n as u8, size)).expect("written");
        }
        let fh = realm.client().open_path("/base", OpenFlags::READ_WRITE).expect("opened");
        realm.client().write(&realm.client().caller(), fh, 1 << 20, &pattern(1, 300_000)).expect("written");
        realm.client().fsync(fh, false).expect("durable");
        let mut base = pattern(9, 5 << 20);
        base[1 << 20..(1 << 20) + 300_000].copy_from_slice(&pattern(1, 300_000));
        realm.client().sync().expect("durable");
        realm.abandon();
        drop(realm);
        let later = if connected { site.connected() } else { site.embedded() };
        let realm = later.recover();
        // Blocks of this life have names of their own.
        realm.client().write_file("/f5", &pattern(5, 1 << 20)).expect("written");
        let sizes = [0, 1, 4_000, 100_000, 6 << 20, 1 << 20];
        let check = |client: &chiton_client::Client, at: &str| {
            for (n, size) in sizes.into_iter().enumerate() {
                let content = client.read_file(format!("{at}/f{n}")).expect("read");
                assert!(content == pattern(n as u8, size), "f{n} of {size} bytes");
            }
            assert!(client.read_file(format!("{at}/base")).expect("read") == base, "the file that was there");
        };
        check(realm.client(), "");
        merge(&realm);
        check(&later.client, "/job");
        site.server().tidy().expect("tidied");
        check(&site.connected().client, "/job");
    }
}

#[test]
fn blocks_of_dropped_files_are_deleted() {
    let site = Site::new();
    let ours = site.embedded();
    let blocks = || site.server().objects().list("blocks/", None, 1_000).expect("listed").len();
    let before = blocks();
    let realm = ours.take("/job", ON_DISK);
    realm.client().write_file("/f", &pattern(1, 6 << 20)).expect("written");
    realm.client().sync().expect("durable");
    assert!(blocks() > before);
    realm.discard().expect("dropped");
    site.server().tidy().expect("tidied");
    assert_eq!(blocks(), before);
}
