//! Realms: borders, inheritance, what lies across, and that all of it survives encoding and the store.

use std::collections::BTreeMap;

use chiton_model::{Event, Make, OldContent, Op, RenameHow, Reverted};
use chiton_namespace::permission::{ACL_ACCESS, Acl, AclEntry, AclTag};
use chiton_namespace::{Context, Fault, Namespace, PolicyPlace, RowSource, Rows, plan};
use chiton_types::{Attr, Cred, Ino, Kind, Mode, Name, Position, Refusal, Time, access};

/// A namespace with rows of its own to come back from.
struct Tree {
    ns: Namespace,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    position: Position,
    next: u64,
}

struct Source<'a>(&'a BTreeMap<Vec<u8>, Vec<u8>>);

impl RowSource for Source<'_> {
    type Error = std::convert::Infallible;
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error> {
        Ok(self.0.get(key).cloned())
    }
    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Rows, Self::Error> {
        let range = self.0.range(start.to_vec()..end.to_vec()).take(limit);
        Ok(range.map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

impl Tree {
    fn new() -> Tree {
        let rows: BTreeMap<_, _> =
            Namespace::format_rows(Time(1), 0, 0).into_iter().map(|(k, v)| (k, v.unwrap())).collect();
        let ns = Namespace::open(&Source(&rows)).unwrap();
        Tree { ns, rows, position: Position(0), next: 100 }
    }

    /// Calls until nothing is missing.
    fn with_rows<T>(&mut self, f: impl Fn(&Namespace) -> Result<T, Fault>) -> Result<T, Refusal> {
        loop {
            match f(&self.ns) {
                Ok(value) => return Ok(value),
                Err(Fault::Refused(refusal)) => return Err(refusal),
                Err(Fault::Elsewhere(ino) | Fault::Realm(ino)) => panic!("there is one plate: {ino}"),
                Err(Fault::NeedGroups) => panic!("root needs no groups"),
                Err(Fault::Missing(needs)) => {
                    for need in needs {
                        let fetched = Namespace::fetch(&Source(&self.rows), &need).unwrap();
                        let generation = self.ns.generation();
                        self.ns.install(fetched, generation).unwrap();
                    }
                }
            }
        }
    }

    fn apply(&mut self, events: Vec<Event>) {
        for event in events {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            let mut from = chiton_types::Take::new(&bytes);
            assert_eq!(Event::decode(&mut from).unwrap(), event);
            from.finish().unwrap();
            self.position = self.position.next();
            self.ns.apply(&event, self.position);
        }
    }

    fn op(&mut self, op: Op) -> Result<Ino, Refusal> {
        self.next += 1;
        let offered = Ino(self.next);
        let (events, subject) = self.with_rows(|ns| {
            let mut events = Vec::new();
            let context =
                Context { cred: &Cred::ROOT, now: Time(5), offered, is_open: &|_| false, frees: false };
            let planned = plan(ns, &op, &context, &mut events)?;
            Ok((events, planned.subject))
        })?;
        self.apply(events);
        Ok(subject.unwrap())
    }

    fn make(&mut self, parent: Ino, text: &str, make: Make) -> Ino {
        self.op(Op::Make { parent, name: name(text), make, mode: Mode(0o755) }).unwrap()
    }

    fn dir(&mut self, parent: Ino, text: &str) -> Ino {
        self.make(parent, text, Make::Dir)
    }

    fn file(&mut self, parent: Ino, text: &str) -> Ino {
        self.make(parent, text, Make::File { content: Vec::new() })
    }

    fn link(&mut self, ino: Ino, parent: Ino, text: &str) -> Result<Ino, Refusal> {
        self.op(Op::Link { ino, parent, name: name(text) })
    }

    fn rename(&mut self, from: (Ino, &str), to: (Ino, &str), how: RenameHow) -> Result<Ino, Refusal> {
        let (from_name, to_name) = (name(from.1), name(to.1));
        self.op(Op::Rename { from: from.0, from_name, to: to.0, to_name, how })
    }

    fn policy(&mut self, ino: Ino, text: Option<&str>) -> Result<(), Refusal> {
        let text = text.map(|t| t.as_bytes().to_vec());
        let event = self.with_rows(|ns| {
            ns.check_border(ino)?;
            let path = ns.dir_path(ino)?;
            let place = PolicyPlace { path, around: Ino::ROOT, below: Vec::new() };
            ns.plan_policy((ino, place), text.clone(), 0, Time(9))
        })?;
        self.apply(vec![event]);
        Ok(())
    }

    fn realm(&mut self, ino: Ino) -> Ino {
        self.with_rows(|ns| ns.realm(ino)).unwrap()
    }

    /// Checkpoint, then from the rows again.
    fn restart(&mut self) {
        self.ns.checkpoint_begin();
        let mut changes = Vec::new();
        while !self.ns.checkpoint_take(7, &mut changes) {}
        for (key, value) in changes {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
        self.ns.checkpoint_done();
        self.ns = Namespace::open(&Source(&self.rows)).unwrap();
    }
}

#[test]
fn a_realm_is_the_extent_of_one_policy_down_to_the_next() {
    let mut t = Tree::new();
    let a = t.dir(Ino::ROOT, "a");
    let b = t.dir(a, "b");
    let c = t.dir(b, "c");
    let f = t.file(c, "f");
    assert_eq!(t.realm(f), Ino::ROOT, "without policies all is one realm");
    t.policy(a, Some("one")).unwrap();
    assert_eq!((t.realm(a), t.realm(f)), (a, a));
    t.policy(c, Some("two")).unwrap();
    assert_eq!((t.realm(b), t.realm(c), t.realm(f)), (a, c, c));
    t.restart();
    assert_eq!((t.realm(Ino::ROOT), t.realm(b), t.realm(f)), (Ino::ROOT, a, c));
    assert_eq!(t.ns.policy(c).unwrap().text.as_deref(), Some(&b"two"[..]));
    t.policy(a, None).unwrap();
    assert_eq!((t.realm(b), t.realm(f)), (Ino::ROOT, c));
    assert_eq!(t.policy(a, None), Err(Refusal::NoXattr));
    assert_eq!(t.policy(f, Some("no directory")), Err(Refusal::NotDir));
    // The policy goes where its directory goes.
    t.rename((b, "c"), (a, "moved"), RenameHow::Replace).unwrap();
    assert_eq!(t.realm(f), c);
    t.restart();
    let history: Vec<_> =
        t.ns.policy_history()
            .map(|h| (h.version, String::from_utf8(h.path.clone()).unwrap(), h.text.is_some()))
            .collect();
    let expect = [(1, "/a", true), (2, "/a/b/c", true), (3, "/a", false)];
    assert_eq!(history, expect.map(|(v, p, t)| (v, p.to_owned(), t)));
    assert_eq!(t.with_rows(|ns| ns.dir_path(c)).unwrap(), b"/a/moved");
}

#[test]
fn s17_names_do_not_cross_borders() {
    // S17: "A rename or link out of a realm (a subtree with a policy of its own) is EXDEV, as between mounts."
    let mut t = Tree::new();
    let a = t.dir(Ino::ROOT, "a");
    let b = t.dir(Ino::ROOT, "b");
    let inner = t.dir(a, "inner");
    let f = t.file(inner, "f");
    t.file(b, "g");
    t.policy(a, Some("p")).unwrap();
    t.policy(b, Some("p")).unwrap();
    let crosses = Err(Refusal::CrossDevice);
    for how in [RenameHow::Replace, RenameHow::NoReplace] {
        assert_eq!(t.rename((inner, "f"), (Ino::ROOT, "f"), how), crosses);
        assert_eq!(t.rename((inner, "f"), (b, "f"), how), crosses, "of two realms with equal texts, too");
        assert_eq!(t.rename((a, "inner"), (b, "inner"), how), crosses);
    }
    assert_eq!(t.rename((inner, "f"), (b, "g"), RenameHow::Exchange), crosses);
    assert_eq!(t.link(f, b, "l"), crosses);
    assert_eq!(t.link(f, Ino::ROOT, "l"), crosses);
    t.link(f, a, "l").unwrap();
    t.rename((inner, "f"), (a, "f"), RenameHow::Replace).unwrap();
    // The root of a realm is a name of the realm around it.
    t.rename((Ino::ROOT, "a"), (Ino::ROOT, "z"), RenameHow::Replace).unwrap();
    assert_eq!(t.rename((Ino::ROOT, "z"), (b, "z"), RenameHow::Replace), crosses);
}

#[test]
fn hard_links_that_would_cross_are_listed_and_refused() {
    let mut t = Tree::new();
    let a = t.dir(Ino::ROOT, "a");
    let sub = t.dir(a, "sub");
    let f = t.file(sub, "f");
    t.link(f, a, "within").unwrap();
    t.policy(a, Some("all its names are within")).unwrap();
    t.policy(a, None).unwrap();
    t.link(f, Ino::ROOT, "outside").unwrap();
    t.restart();
    assert_eq!(t.policy(a, Some("p")), Err(Refusal::CrossDevice));
    assert_eq!(t.with_rows(|ns| ns.crossing(a)).unwrap(), [(f, vec![sub, a, Ino::ROOT])]);
    assert_eq!(t.policy(sub, Some("p")), Err(Refusal::CrossDevice));
    // The name outside moves in, or goes: then it may.
    t.rename((Ino::ROOT, "outside"), (sub, "inside"), RenameHow::Replace).unwrap();
    t.policy(a, Some("p")).unwrap();
    assert_eq!(t.policy(sub, Some("p")), Err(Refusal::CrossDevice));
    t.op(Op::Unlink { parent: a, name: name("within") }).unwrap();
    t.restart();
    t.policy(sub, Some("p")).unwrap();
    assert_eq!(t.realm(f), sub);
    // A file whose name in its parent goes is found through one that is left.
    let other = t.dir(sub, "other");
    t.rename((sub, "inside"), (other, "inside"), RenameHow::Replace).unwrap();
    t.op(Op::Unlink { parent: other, name: name("inside") }).unwrap();
    t.op(Op::Rmdir { parent: sub, name: name("other") }).unwrap();
    t.restart();
    assert_eq!(t.realm(f), sub);
    assert_eq!(t.with_rows(|ns| ns.attr(f)).unwrap().parent, sub);
}

#[test]
fn a_directory_takes_its_policy_with_it() {
    let mut t = Tree::new();
    let a = t.dir(Ino::ROOT, "a");
    t.policy(a, Some("p")).unwrap();
    t.op(Op::Rmdir { parent: Ino::ROOT, name: name("a") }).unwrap();
    assert_eq!(t.ns.policies().count(), 0);
    t.restart();
    assert_eq!(t.ns.policies().count(), 0);
    assert_eq!(t.ns.policy_version(), 1);
    let b = t.dir(Ino::ROOT, "b");
    t.policy(b, Some("p")).unwrap();
    assert_eq!(t.ns.policy(b).unwrap().version, 2);
    assert_eq!(t.with_rows(|ns| ns.attr(b)).unwrap().kind, Kind::Dir);
}

/// An inode's flags about its access control lists match the lists, also where a merge makes a file as it was.
#[test]
fn a_file_that_is_reverted_has_the_lists_that_it_had() {
    let mut tree = Tree::new();
    let make = Make::File { content: Vec::new() };
    let op = Op::Make { parent: Ino::ROOT, name: name("f"), make, mode: Mode(0o640) };
    let ino = tree.op(op).expect("made");
    let entry = |tag, rights| AclEntry { tag, rights };
    let list = Acl::new(vec![
        entry(AclTag::Owner, 0),
        entry(AclTag::User(7), 6),
        entry(AclTag::OwningGroup, 0),
        entry(AclTag::Mask, 0),
        entry(AclTag::Other, 0),
    ]);
    let list = list.expect("a list").encode();
    let plain = BTreeMap::from([(b"user.a".to_vec(), b"1".to_vec())]);
    let listed = BTreeMap::from([(ACL_ACCESS.to_vec(), list)]);
    let seven = Cred::new(7, 7, &[]);
    for (xattrs, lists) in [(listed.clone(), Attr::ACCESS_LIST), (plain, 0), (listed, Attr::ACCESS_LIST)] {
        let to = Reverted {
            flags: 0,
            mode: Mode(0o640),
            uid: 1,
            gid: 1,
            size: 0,
            atime: Time(1),
            mtime: Time(1),
            ctime: Time(1),
            xattrs: Some(xattrs),
            content: OldContent::Same,
            temporary: false,
        };
        tree.apply(vec![Event::Revert { ino, to: Box::new(to) }]);
        assert_eq!(tree.with_rows(|ns| ns.attr(ino)).expect("there").flags, lists | Attr::XATTRS);
        assert_eq!(tree.with_rows(|ns| ns.access(&seven, ino, access::READ)).is_ok(), lists != 0);
        assert_eq!(tree.ns.validate(), []);
    }
}

/// S141: names in a removed directory may leave it, and no directory comes into it.
#[test]
fn directories_leave_a_removed_tree_and_none_enters_it() {
    let mut t = Tree::new();
    let top = t.dir(Ino::ROOT, "top");
    let inside = t.dir(top, "inside");
    let saved = t.dir(inside, "saved");
    let file = t.file(saved, "file");
    let live = t.dir(Ino::ROOT, "live");
    t.file(top, "first");
    let remove = |ino| Op::RemoveTree { parent: Ino::ROOT, name: name("top"), ino };
    assert_eq!(t.op(remove(live)), Err(Refusal::Stale), "another directory is meant");
    t.op(remove(top)).unwrap();
    assert_eq!(t.with_rows(|ns| ns.attr(top)).unwrap().nlink, 0);
    assert_eq!(t.op(remove(top)), Err(Refusal::NotFound));
    t.restart();
    let new = Op::Make { parent: top, name: name("new"), make: Make::Dir, mode: Mode(0o755) };
    assert_eq!(t.op(new), Err(Refusal::NotFound));
    for to in [top, inside, saved] {
        let moved = t.rename((Ino::ROOT, "live"), (to, "live"), RenameHow::Replace);
        assert_eq!(moved, Err(Refusal::NotFound), "its content would be freed");
    }
    let file_of = t.file(live, "file");
    let exchanged = t.rename((top, "first"), (live, "file"), RenameHow::Exchange);
    assert_eq!(exchanged, Err(Refusal::NotFound), "the removed directory would get a name");
    let whiteout = t.rename((top, "first"), (live, "first"), RenameHow::Whiteout);
    assert_eq!(whiteout, Err(Refusal::NotFound));
    // The top has no links that could be counted; the others have.
    t.rename((top, "inside"), (live, "inside"), RenameHow::Replace).unwrap();
    t.rename((top, "first"), (live, "first"), RenameHow::Replace).unwrap();
    t.restart();
    assert_eq!(t.with_rows(|ns| ns.attr(top)).map(|attr| (attr.nlink, attr.size)), Ok((0, 0)));
    assert_eq!(t.with_rows(|ns| ns.attr(live)).unwrap().nlink, 3);
    assert_eq!(t.with_rows(|ns| ns.lookup(&Cred::ROOT, saved, &name("file"))), Ok(Some(file)));
    assert_eq!(t.with_rows(|ns| ns.lookup(&Cred::ROOT, live, &name("file"))), Ok(Some(file_of)));
    assert_eq!(t.ns.validate(), []);
}
