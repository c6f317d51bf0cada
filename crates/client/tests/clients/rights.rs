//! The server that plans an operation, and a client that carries it out before the server knows of it, give users the same rights: the
//! same steps run through both, in directories that are alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chiton_client::{Caller, Client, ClientOptions, Groups, LookUp, Lookup, OpenFlags, Standing};
use chiton_model::{AttrChange, SetTime, XattrHow};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT, Acl, AclEntry, AclTag};
use chiton_types::{Attr, Capabilities, IdMaps, IdRange, Ino, Kind, Mode, Privileges, Refusal, Scope, Time};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::site::Site;

/// A user, groups and capabilities.
#[derive(Clone, Debug)]
struct Person {
    uid: u32,
    gid: u32,
    groups: Arc<[u32]>,
    privileges: Privileges,
    umask: u16,
}

impl Person {
    fn caller(&self) -> Caller<'_> {
        Caller { uid: self.uid, gid: self.gid, groups: Groups::Lazy(self) }
    }
}

impl LookUp for Person {
    fn standing(&self) -> Standing {
        Standing { groups: self.groups.clone(), privileges: self.privileges.clone() }
    }

    fn umask(&self) -> u16 {
        self.umask
    }
}

/// An operation on one of few names.
#[derive(Clone, Debug)]
enum Deed {
    Create(u16),
    Mkdir(u16),
    Symlink,
    Unlink,
    Chmod(u16),
    Chown(Option<u32>, Option<u32>),
    Times(bool),
    Write,
    /// Root gives the directory a list (the rights of user 1), or takes it away: its own, or the inherited one.
    List(bool, Option<u8>),
}

#[derive(Clone, Debug)]
struct Case {
    dir: (u16, u32, u32),
    steps: Vec<(Person, u8, Deed)>,
}

fn person() -> impl Strategy<Value = Person> {
    let capabilities = prop_oneof![
        4 => Just(Capabilities::NONE),
        2 => Just(Capabilities::ALL),
        1 => Just(Capabilities::FOWNER),
        1 => Just(Capabilities::CHOWN),
        1 => Just(Capabilities::DAC_OVERRIDE.and(Capabilities::FSETID)),
        1 => Just(Capabilities::DAC_READ_SEARCH),
    ];
    let range = |first, count| vec![IdRange { first, count }];
    let maps = Arc::new(IdMaps { users: range(1, 2), groups: range(1, 1) });
    let scope = prop_oneof![3 => Just(Scope::Everywhere), 1 => Just(Scope::Mapped(maps))];
    let ids = (0..4u32, 0..4u32, prop::collection::vec(0..5u32, 0..3));
    let umask = prop::sample::select(vec![0, 0o022, 0o077]);
    (ids, capabilities, scope, umask).prop_map(|((uid, gid, groups), capabilities, scope, umask)| Person {
        uid,
        gid,
        groups: groups.into(),
        privileges: Privileges { capabilities, scope },
        umask,
    })
}

fn mode() -> impl Strategy<Value = u16> {
    let usual = [0o777, 0o755, 0o775, 0o700, 0o1777, 0o2777, 0o2770, 0o6755, 0o2755, 0o644, 0o600, 0o4711];
    prop_oneof![6 => prop::sample::select(usual.to_vec()), 1 => 0..0o10000u16]
}

fn case() -> impl Strategy<Value = Case> {
    let id = || prop::option::of(0..4u32);
    let deed = prop_oneof![
        6 => mode().prop_map(Deed::Create),
        2 => mode().prop_map(Deed::Mkdir),
        1 => Just(Deed::Symlink),
        3 => Just(Deed::Unlink),
        3 => mode().prop_map(Deed::Chmod),
        3 => (id(), id()).prop_map(|(uid, gid)| Deed::Chown(uid, gid)),
        2 => any::<bool>().prop_map(Deed::Times),
        2 => Just(Deed::Write),
        2 => (any::<bool>(), prop::option::of(0..8u8)).prop_map(|(own, rights)| Deed::List(own, rights)),
    ];
    let steps = prop::collection::vec((person(), 0..5u8, deed), 1..30);
    // Most of them in directories where something can be done.
    let dirs = prop_oneof![3 => Just(0o777u16), 3 => Just(0o1777), 2 => Just(0o2777), 3 => mode()];
    ((dirs, 0..4u32, 0..4u32), steps).prop_map(|(dir, steps)| Case { dir, steps })
}

/// The result of a step, as far as it does not depend on when and where it is done.
type Came = Result<Option<(Kind, u16, u32, u32, u32, u64, u8)>, Refusal>;

fn shown(attr: &Attr) -> Option<(Kind, u16, u32, u32, u32, u64, u8)> {
    Some((attr.kind, attr.mode.0, attr.uid, attr.gid, attr.nlink, attr.size, attr.flags))
}

fn list(rights: u8) -> Vec<u8> {
    let entry = |tag, rights| AclEntry { tag, rights };
    let entries = vec![
        entry(AclTag::Owner, 7),
        entry(AclTag::User(1), rights),
        entry(AclTag::OwningGroup, 5),
        entry(AclTag::Mask, 7),
        entry(AclTag::Other, rights),
    ];
    Acl::new(entries).expect("a list").encode()
}

fn find(client: &Client, dir: Ino, name: &[u8]) -> Result<Attr, Refusal> {
    let root = client.caller();
    match client.lookup(&root, dir, name)? {
        Lookup::Found { attr, .. } => Ok(attr),
        Lookup::Absent { .. } => Err(Refusal::NotFound),
    }
}

fn act(client: &Client, dir: Ino, person: &Person, name: u8, deed: &Deed) -> Came {
    let name = format!("name-{name}");
    let (name, caller) = (name.as_bytes(), person.caller());
    let set = |change| {
        let ino = find(client, dir, name)?.ino;
        client.setattr(&caller, ino, change, None).map(|entry| shown(&entry.attr))
    };
    match deed {
        Deed::Create(mode) => {
            let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
            let (entry, fh) = client.create(&caller, dir, name, Mode(*mode), flags)?;
            client.release(fh)?;
            Ok(shown(&entry.attr))
        }
        Deed::Mkdir(mode) => client.mkdir(&caller, dir, name, Mode(*mode)).map(|made| shown(&made.attr)),
        Deed::Symlink => client.symlink(&caller, dir, name, b"to").map(|made| shown(&made.attr)),
        Deed::Unlink => client.unlink(&caller, dir, name).map(|()| None),
        Deed::Chmod(mode) => set(AttrChange { mode: Some(Mode(*mode)), ..Default::default() }),
        // As a kernel asks for it.
        Deed::Chown(uid, gid) => {
            set(AttrChange { uid: *uid, gid: *gid, kill_setid: true, ..Default::default() })
        }
        Deed::Times(now) => {
            let time = if *now { SetTime::Now } else { SetTime::At(Time(5)) };
            set(AttrChange { mtime: Some(time), atime: Some(time), ..Default::default() })
        }
        Deed::List(own, rights) => {
            let which = if *own { ACL_ACCESS } else { ACL_DEFAULT };
            let root = client.caller();
            match rights {
                Some(rights) => {
                    client.setxattr(&root, dir, which, &list(*rights), XattrHow::Set)?;
                }
                None => client.removexattr(&root, dir, which)?,
            }
            let attr = client.getattr(dir, None)?.attr;
            Ok(Some((attr.kind, attr.mode.0, attr.uid, attr.gid, 0, 0, attr.flags)))
        }
        Deed::Write => {
            let ino = find(client, dir, name)?.ino;
            let fh = client.open(&caller, ino, OpenFlags::WRITE)?;
            client.write(&caller, fh, 0, b"some")?;
            client.release(fh)?;
            client.getattr(ino, None).map(|entry| shown(&entry.attr))
        }
    }
}

fn pending_messages(client: &Client) -> u64 {
    let status = client.admin("status").expect("status");
    let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
    status["operations"]["write_behind"].as_u64().unwrap_or(0)
}

#[test]
fn server_and_write_behind_decide_alike() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let site = Site::new();
    let server = site.connected_with(ClientOptions { write_behind_after: None, ..ClientOptions::default() });
    let writer =
        site.connected_with(ClientOptions { write_behind_after: Some(0), ..ClientOptions::default() });
    let (count, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let before = pending_messages(&server);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 80, failure_persistence: None, ..Default::default() });
    runner
        .run(&case(), |Case { dir: (mode, uid, gid), steps }| {
            let n = count.fetch_add(1, Ordering::Relaxed);
            let make = |client: &Client, side: &str| {
                let dir = client.mkdir_all(format!("{side}-{n}")).expect("made").ino;
                let change = AttrChange {
                    mode: Some(Mode(mode)),
                    uid: Some(uid),
                    gid: Some(gid),
                    ..Default::default()
                };
                client.setattr(&client.caller(), dir, change, None).expect("set");
                dir
            };
            let dirs = (make(&server, "server"), make(&writer, "writer"));
            // A client that knows all names may be given them.
            writer.readdir(&writer.caller(), dirs.1, 0, 100, false).expect("listed");
            for (at, (person, name, deed)) in steps.iter().enumerate() {
                let planned = act(&server, dirs.0, person, *name, deed);
                let acknowledged = act(&writer, dirs.1, person, *name, deed);
                done.fetch_add(usize::from(planned.is_ok()), Ordering::Relaxed);
                prop_assert_eq!(&acknowledged, &planned, "step {}: {:?} {:?}", at, person, deed);
            }
            // An operation that was acknowledged and then refused is lost, and the next commit says so.
            prop_assert_eq!(writer.sync(), Ok(()), "a pending operation was refused");
            for name in 0..5 {
                let name = format!("name-{name}");
                let seen = |dir| find(&server, dir, name.as_bytes()).map(|attr| shown(&attr));
                prop_assert_eq!(seen(dirs.1), seen(dirs.0), "{}", name);
            }
            Ok(())
        })
        .expect("both decide alike");
    assert!(pending_messages(&server) - before > 40, "the client hardly ever wrote behind");
    assert!(done.load(Ordering::Relaxed) > 200, "hardly anything was allowed");
}

/// truncate(2) asks for the right to write alone, and of a list it may need the groups; it does not matter whether anyone has, or
/// had, the file open here.
#[test]
fn a_file_that_is_known_is_truncated_by_whoever_may_write() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let site = Site::new();
    let (client, reader) = (site.connected(), site.connected());
    let root = client.caller();
    let dir = client.mkdir_all("open").expect("made").ino;
    client.write_file("open/other", b"").expect("written");
    let person = |uid, groups: &[u32]| Person {
        uid,
        gid: uid,
        groups: groups.into(),
        privileges: Privileges::of_user(uid),
        umask: 0,
    };
    let entry = |tag, rights| AclEntry { tag, rights };
    let entries = vec![
        entry(AclTag::Owner, 4),
        entry(AclTag::OwningGroup, 2),
        entry(AclTag::Group(300), 2),
        entry(AclTag::Mask, 6),
        entry(AclTag::Other, 0),
    ];
    let by_list = Acl::new(entries).expect("a list").encode();
    let cases = [
        (0o622, None, person(7, &[]), Ok(3)),
        (0o640, None, person(7, &[]), Err(Refusal::Access)),
        (0o620, None, person(7, &[5]), Ok(3)),
        (0o600, Some(&by_list), person(7, &[300]), Ok(3)),
        (0o600, Some(&by_list), person(7, &[5]), Ok(3)),
        (0o600, Some(&by_list), person(7, &[]), Err(Refusal::Access)),
    ];
    for (n, ((mode, list, person, expected), is_open)) in
        cases.iter().flat_map(|case| [(case, true), (case, false)]).enumerate()
    {
        let name = format!("file-{n}");
        let (made, fh) =
            client.create(&root, dir, name.as_bytes(), Mode(0o600), OpenFlags::WRITE).expect("made");
        client.write(&root, fh, 0, b"content").expect("written");
        let ino = made.attr.ino;
        let change = AttrChange { mode: Some(Mode(*mode)), gid: Some(5), ..AttrChange::default() };
        client.setattr(&root, ino, change, None).expect("set");
        if let Some(list) = list {
            client.setxattr(&root, ino, ACL_ACCESS, list, XattrHow::Set).expect("set");
        }
        if !is_open {
            client.release(fh).expect("closed");
            // Closes are reported when there are many.
            (0..50).for_each(|_| drop(client.read_file("open/other").expect("read")));
        }
        // The lease is shared from here on.
        assert_eq!(reader.read_file(format!("open/{name}")).expect("read"), b"content");
        let change = AttrChange { size: Some(3), ..AttrChange::default() };
        let cut = client.setattr(&person.caller(), ino, change, None).map(|entry| entry.attr.size);
        assert_eq!(cut, *expected, "case {n}");
        if is_open {
            client.release(fh).expect("closed");
        }
    }
}
