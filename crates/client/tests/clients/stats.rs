//! Many questions in a message: the answers are those of the same questions one at a time.

use chiton_client::{Client, ClientOptions, Lookup, OnRefusal, OpenFlags, StatResult};
use chiton_model::XattrHow;
use chiton_types::{Attr, Ino, Mode, Name, Refusal};
use chiton_wire::{Stat, StatTarget};

use crate::site::Site;

pub(crate) const DIRS: usize = 6;

/// Directories on all plates; each has a file, a second name of a file of the next directory, and a directory.
pub(crate) fn scene(plates: u16) -> (Site, Client, Vec<Ino>) {
    let site = Site::with_plates(plates);
    let client = site.connected_with(ClientOptions { write_behind_after: None, ..ClientOptions::default() });
    let dirs: Vec<Ino> =
        (0..DIRS).map(|n| client.mkdir_all(format!("dir-{n}/sub")).expect("made").parent).collect();
    let files: Vec<Ino> =
        (0..DIRS).map(|n| client.create_file(format!("dir-{n}/file"), b"x").expect("made").ino).collect();
    for n in 0..DIRS {
        client.link(&client.caller(), files[(n + 1) % DIRS], dirs[n], b"link").expect("linked");
    }
    (site, client, dirs)
}

fn named(parent: Ino, name: &str) -> StatTarget {
    StatTarget::Name { parent, name: Name::new(name.as_bytes()).expect("a name") }
}

/// The answer to a question for this target alone.
fn alone(client: &Client, target: &StatTarget) -> Result<Option<Attr>, Refusal> {
    match target {
        StatTarget::Inode(ino) | StatTarget::Open { ino, .. } => client.start_stat(*ino).wait().map(Some),
        StatTarget::Name { parent, name } => {
            client.start_lookup(&client.caller(), *parent, name.as_bytes()).wait().map(|found| match found {
                Lookup::Found { attr, .. } => Some(attr),
                Lookup::Absent { .. } => None,
            })
        }
    }
}

fn shown(stats: Vec<StatResult>) -> Vec<Result<Option<Attr>, Refusal>> {
    let of = |stat| match stat {
        Stat::Attr { attr, .. } => Some(attr),
        Stat::Absent => None,
        Stat::Elsewhere(ino) => panic!("{ino:?} is not asked for"),
    };
    stats.into_iter().map(|stat| stat.map(of)).collect()
}

#[test]
fn answers_are_those_of_single_questions() {
    for plates in [1, 3] {
        let (_site, client, dirs) = scene(plates);
        let mut targets = Vec::new();
        for dir in &dirs {
            targets.extend(["file", "link", "sub", "none"].map(|name| named(*dir, name)));
            targets.push(StatTarget::Inode(*dir));
        }
        // Not a directory; gone.
        let file = client.stat("dir-0/file").expect("there").ino;
        let gone = client.create_file("dir-1/gone", b"").expect("made").ino;
        client.remove("dir-1/gone").expect("removed");
        targets.extend([named(file, "x"), StatTarget::Inode(gone), StatTarget::Inode(file)]);
        let expected: Vec<_> = targets.iter().map(|target| alone(&client, target)).collect();
        assert!(expected.contains(&Err(Refusal::NotDir)) && expected.contains(&Ok(None)));
        let caller = client.caller();
        let stats = client.stat_targets(&caller, targets.clone(), OnRefusal::PerformAll);
        assert_eq!(shown(stats), expected, "{plates} plates");
        // From each target on, up to the first that is refused or absent.
        for first in 0..targets.len() {
            let rest = &expected[first..];
            let end = rest.iter().position(|one| !matches!(one, Ok(Some(_)))).map_or(rest.len(), |at| at + 1);
            let stats = client.stat_targets(&caller, targets[first..].to_vec(), OnRefusal::StopOnFailure);
            assert_eq!(shown(stats), rest[..end], "{plates} plates, from {first} on");
        }
    }
}

#[test]
fn many_more_than_a_message_holds_are_answered_in_order() {
    const COUNT: usize = 10_500;
    let (site, client, dirs) = scene(2);
    let names: Vec<String> = (0..COUNT).map(|n| format!("n{n}")).collect();
    let made = client.create_in(&client.caller(), dirs[0], &names, Mode(0o644));
    client.sync().expect("durable");
    // Rows that are not in memory are fetched.
    site.kill();
    site.start();
    let fresh = site.connected();
    let before = fresh.messages();
    let stats = fresh.stat_in(&fresh.caller(), dirs[0], &names);
    assert_eq!(fresh.messages() - before, COUNT.div_ceil(1_000) as u64);
    let inodes = |each: &[Result<Attr, Refusal>]| -> Vec<Ino> {
        each.iter().map(|one| one.as_ref().expect("there").ino).collect()
    };
    assert_eq!(inodes(&stats), inodes(&made));
    assert_eq!(fresh.stat_in(&fresh.caller(), dirs[0], &["n5", "", "n7", "a/b"])[1], Err(Refusal::Invalid));
}

#[test]
fn names_that_another_client_acknowledged_are_seen() {
    let site = Site::with_plates(2);
    let writer =
        site.connected_with(ClientOptions { write_behind_after: Some(0), ..ClientOptions::default() });
    let dir = writer.mkdir_all("dir").expect("made").ino;
    assert_eq!(writer.list("dir").expect("listed").len(), 0);
    let names: Vec<String> = (0..50).map(|n| format!("f{n}")).collect();
    for name in &names {
        writer.create_file(format!("dir/{name}"), b"abc").expect("made");
    }
    let reader = site.connected();
    let seen = reader.stat_in(&reader.caller(), dir, &names);
    assert!(seen.iter().all(|one| one.as_ref().is_ok_and(|attr| attr.size == 3)), "{seen:?}");
    // The writer sees what it is writing itself.
    let fh = writer.open_path("dir/f7", OpenFlags::WRITE).expect("open");
    writer.write(&writer.caller(), fh, 0, b"longer").expect("written");
    assert_eq!(writer.stat_in(&writer.caller(), dir, &["f7"])[0].as_ref().map(|attr| attr.size), Ok(6));
    writer.release(fh).expect("closed");
}

#[test]
fn attributes_of_directories_with_parts_are_sums() {
    let site = Site::with_plates(3);
    let client = site.connected();
    let top = client.mkdir_all("top").expect("made").ino;
    client.setxattr(&client.caller(), top, b"chiton.policy", b"huge: always", XattrHow::Set).expect("set");
    for n in 0..8 {
        let dir = client.mkdir_all(format!("top/huge/d{n}")).expect("made").ino;
        let names: Vec<String> = (0..20 + n).map(|n| format!("f{n}")).collect();
        assert!(client.create_in(&client.caller(), dir, &names, Mode(0o644)).iter().all(Result::is_ok));
        client.mkdir_all(format!("top/huge/d{n}/sub")).expect("made");
    }
    let fresh = site.connected();
    let huge = fresh.stat("top/huge").expect("there");
    let names: Vec<String> = (0..8).map(|n| format!("d{n}")).collect();
    let stats = fresh.stat_in(&fresh.caller(), huge.ino, &names);
    let listed = fresh.list("top/huge").expect("listed");
    for (name, stat) in names.iter().zip(&stats) {
        let expected = fresh.stat(format!("top/huge/{name}")).expect("there");
        assert_eq!((expected.nlink, stat.as_ref()), (3, Ok(&expected)), "{name}");
        let entry = listed.iter().find(|entry| entry.name.as_bytes() == name.as_bytes()).expect("listed");
        assert_eq!(entry.entry.as_ref().map(|entry| &entry.attr), Some(&expected), "{name}");
    }
    let sizes: Vec<u64> = stats.iter().map(|one| one.as_ref().expect("there").size / 32).collect();
    assert_eq!(sizes, (21..29).collect::<Vec<u64>>());
    assert_eq!(fresh.stat_each(&[huge.ino]), [Ok(huge.clone())]);
    // All parts of all of them: a message to each plate, beside those for the names, and a question to each home whether its list is
    // still the same.
    let inodes: Vec<Ino> = stats.iter().map(|one| one.as_ref().expect("there").ino).collect();
    let before = fresh.messages();
    assert!(fresh.stat_each(&inodes).iter().all(Result::is_ok));
    let most = 6 + inodes.len() as u64;
    assert!(fresh.messages() - before <= most, "{}", fresh.messages() - before);
}
