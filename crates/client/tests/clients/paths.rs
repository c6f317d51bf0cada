//! How many messages a path costs, and that a client's knowledge of one is true.

use chiton_client::Client;
use chiton_model::RenameHow;
use chiton_types::{Mode, Refusal};

use crate::site::Site;

/// So many looks are more than enough for all that another client holds to be handed over.
const LOOKS_MAX: usize = 100_000;

/// A directory so deep, each level with a short name.
fn deep(depth: usize) -> String {
    (0..depth).map(|n| format!("/d{n}")).collect()
}

/// The messages that something costs.
fn cost<T>(client: &Client, work: impl FnOnce(&Client) -> T) -> (u64, T) {
    let before = client.messages();
    let result = work(client);
    (client.messages() - before, result)
}

/// A site with a deep directory on it, and a file at the bottom. Two clients stay connected, so that none holds everything.
fn site(plates: u16, depth: usize) -> (Site, Client, [Client; 2]) {
    let site = Site::with_plates(plates);
    let maker = site.connected();
    let others = [site.connected(), site.connected()];
    maker.mkdir_all(deep(depth)).expect("made");
    maker.create_file(format!("{}/file", deep(depth)), b"content").expect("made");
    maker.sync().expect("durable");
    warm_up(&others[0], &format!("{}/file", deep(depth)));
    (site, maker, others)
}

/// The server recalls an exclusive lease when another client looks, and answers without waiting: looks until all of a path is
/// leased.
fn warm_up(client: &Client, path: &str) {
    let is_warm = || cost(client, |client| client.stat(path).expect("there")).0 == 0;
    assert!((0..LOOKS_MAX).any(|_| is_warm()), "{path} is not leased");
}

#[test]
fn path_costs_two_messages_cold_and_one_warm() {
    for plates in [1, 4] {
        for depth in [1, 5, 20] {
            let (_site, _maker, [_, client]) = site(plates, depth);
            let make = |name: &str| {
                cost(&client, |client| client.create_file(format!("{}/{name}", deep(depth)), b"x"))
            };
            let case = format!("{plates} plates, depth {depth}");
            let (cold, made) = make("a");
            assert_eq!((cold, made.is_ok()), (2, true), "cold: {case}");
            let (warm, made) = make("b");
            assert_eq!((warm, made.is_ok()), (1, true), "warm: {case}");
            let (warm, made) = cost(&client, |client| client.mkdir_all(format!("{}/c", deep(depth))));
            assert!(warm <= 2 && made.is_ok(), "a name that is absent is asked for: {warm}, {case}");
            // A file that is there.
            let (known, seen) = cost(&client, |client| client.stat(format!("{}/file", deep(depth))));
            assert!(known <= 1 && seen.is_ok(), "{known}, {case}");
            let (known, seen) = cost(&client, |client| client.stat(format!("{}/file", deep(depth))));
            assert_eq!((known, seen.is_ok()), (0, true), "{case}");
        }
    }
}

#[test]
fn links_are_followed_by_the_servers_at_most_forty() {
    for plates in [1, 4] {
        let (site, maker, [other, client]) = site(plates, 20);
        let root = maker.stat("/").expect("there").ino;
        let caller = maker.caller();
        let top = maker.mkdir_all("links").expect("made").ino;
        // Each leads into a directory of its own, wherever that lives, and from there back to the link before.
        maker.symlink(&caller, root, b"link-0", deep(20).as_bytes()).expect("made");
        for n in 1..=40 {
            let dir = maker.mkdir_all(format!("links/{n}")).expect("made").ino;
            maker.symlink(&caller, dir, b"back", format!("../../link-{}", n - 1).as_bytes()).expect("made");
            let target = format!("links/{n}/back");
            maker.symlink(&caller, root, format!("link-{n}").as_bytes(), target.as_bytes()).expect("made");
        }
        maker.symlink(&caller, top, b"self", b"self").expect("made");
        warm_up(&other, "link-19/file");
        // link-19 is 1 + 2 * 19 links away from the directory, link-20 41.
        let (cold, made) = cost(&client, |client| client.create_file("link-19/made", b"x"));
        assert_eq!((cold, made.is_ok()), (2, true), "{plates} plates");
        let (warm, made) = cost(&client, |client| client.create_file("link-19/another", b"x"));
        assert_eq!((warm, made.is_ok()), (1, true), "{plates} plates");
        let fresh = site.connected();
        let (cold, found) = cost(&fresh, |client| client.stat("link-20/made"));
        assert_eq!((cold, found.err()), (1, Some(Refusal::Loop)), "{plates} plates");
        assert_eq!(fresh.stat("links/self").err(), Some(Refusal::Loop));
        assert_eq!(fresh.stat("link-19/made/").err(), Some(Refusal::NotDir));
        assert_eq!(fresh.stat("link-19/nothing/x").err(), Some(Refusal::NotFound));
        assert_eq!(fresh.read_file("link-19/made"), Ok(b"x".to_vec()));
    }
}

#[test]
fn what_a_warm_path_says_is_true_when_a_change_is_answered() {
    for plates in [1, 4] {
        let (_site, maker, [other, client]) = site(plates, 20);
        let file = format!("{}/file", deep(20));
        let make = |n: u32| client.create_file(format!("{}/made-{n}", deep(20)), b"x").map(drop);
        make(0).expect("cold");
        make(1).expect("warm");
        // Another client moves a directory on the way.
        other.rename_path("/d0/d1", "/moved").expect("moved");
        assert_eq!(make(2), Err(Refusal::NotFound), "{plates} plates");
        assert_eq!(client.stat(&file).err(), Some(Refusal::NotFound));
        other.rename_path("/moved", "/d0/d1").expect("moved back");
        make(3).expect("there again");
        make(4).expect("warm");
        // It removes one and makes another of that name.
        other.rename_path("/d0/d1/d2", "/aside").expect("moved");
        other.mkdir_all(deep(20)).expect("made");
        make(5).expect("in the new one");
        assert_eq!(maker.list(deep(20)).expect("listed").len(), 1, "{plates} plates");
        // A file that the other client makes on the way is no reason to doubt the path, and is seen.
        other.create_file("/d0/d1/new", b"x").expect("made");
        make(6).expect("made");
        assert_eq!(client.read_file("/d0/d1/new"), Ok(b"x".to_vec()));
    }
}

#[test]
fn permission_is_asked_for_in_every_directory_on_its_plate() {
    for plates in [1, 4] {
        let (_site, maker, [other, client]) = site(plates, 20);
        let file = format!("{}/file", deep(20));
        let nobody = client.acting_as(65_534, 65_534, &[]);
        assert!(nobody.stat(&file).is_ok(), "every directory is open to all");
        let change = |mode| chiton_model::AttrChange { mode: Some(Mode(mode)), ..Default::default() };
        for on_the_way in [1, 7, 20] {
            other.set_attr_path(deep(on_the_way), change(0o700)).expect("closed");
            assert_eq!(nobody.stat(&file).err(), Some(Refusal::Access), "{plates} plates, {on_the_way}");
            assert_eq!(nobody.open_path(&file, chiton_client::OpenFlags::READ), Err(Refusal::Access));
            assert!(client.stat(&file).is_ok() || rustix::process::geteuid().as_raw() != 0);
            other.set_attr_path(deep(on_the_way), change(0o755)).expect("opened");
            assert!(nobody.stat(&file).is_ok(), "{plates} plates, {on_the_way}");
        }
        drop(maker);
    }
}

/// S123: a path that exists all the time is found, however often other clients exchange directories on it.
#[test]
fn path_that_always_exists_is_found_while_its_directories_are_exchanged() {
    const EXCHANGES: usize = 60;
    for plates in [1, 4] {
        let (_site, _maker, [mover, client]) = site(plates, 3);
        let root = mover.stat("/").expect("there").ino;
        for dir in ["one/sub", "two/sub"] {
            mover.mkdir_all(dir).expect("made");
            mover.create_file(format!("{dir}/file"), b"content").expect("made");
        }
        let known = ["one/sub/file", "two/sub/file"].map(|path| mover.stat(path).expect("there").ino);
        let looks = std::thread::scope(|scope| {
            let moves = scope.spawn(|| {
                for _ in 0..EXCHANGES {
                    let caller = mover.caller();
                    mover
                        .rename(&caller, root, b"one", root, b"two", RenameHow::Exchange)
                        .expect("exchanged");
                }
            });
            let mut looks = 0;
            while !moves.is_finished() {
                for path in ["one/sub/file", "two/sub/file"] {
                    let found = client.stat(path).expect("it exists all the time");
                    assert!(known.contains(&found.ino), "{plates} plates");
                    looks += 1;
                }
            }
            looks
        });
        assert!(looks > 0);
        // An even number of exchanges leaves all as it was.
        assert_eq!(client.stat("one/sub/file").map(|attr| attr.ino), Ok(known[0]));
        assert_eq!(client.stat("two/sub/file").map(|attr| attr.ino), Ok(known[1]));
    }
}
