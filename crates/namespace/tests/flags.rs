//! Immutable and append-only files and directories: `plan` refuses every operation that could change them.

use std::collections::BTreeMap;

use chiton_model::{AttrChange, Body, Event, Extent, Hold, Make, Op, RenameHow, XattrHow};
use chiton_namespace::{Context, Fault, Namespace, RowSource, Rows, plan};
use chiton_types::{Attr, BlockId, Cred, Ino, Mode, Name, Position, Refusal, Time};

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
    Name::try_from(text).expect("a name")
}

impl Tree {
    fn new() -> Tree {
        let rows = Namespace::format_rows(Time(1), 0, 0).into_iter();
        let rows: BTreeMap<_, _> = rows.map(|(key, value)| (key, value.expect("a row"))).collect();
        let ns = Namespace::open(&Source(&rows)).expect("it opens");
        Tree { ns, rows, position: Position(1), next: 100 }
    }

    fn run(&mut self, op: &Op) -> Result<Ino, Refusal> {
        self.next += 1;
        let (mut events, offered) = (Vec::new(), Ino(self.next));
        let ctx = Context { cred: &Cred::ROOT, now: Time(9), offered, is_open: &|_| true, frees: false };
        let planned = loop {
            match plan(&self.ns, op, &ctx, &mut events) {
                Ok(planned) => break planned,
                Err(Fault::Refused(refusal)) => return Err(refusal),
                Err(Fault::Elsewhere(ino) | Fault::Realm(ino)) => panic!("there is one plate: {ino}"),
                Err(Fault::NeedGroups) => panic!("root needs no groups"),
                Err(Fault::Missing(needs)) => {
                    for need in needs {
                        let fetched = Namespace::fetch(&Source(&self.rows), &need).expect("rows are sound");
                        let generation = self.ns.generation();
                        self.ns.install(fetched, generation).expect("rows are sound");
                    }
                }
            }
        };
        for event in events {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            assert_eq!(Event::decode(&mut chiton_types::Take::new(&bytes)), Ok(event.clone()));
            self.position = self.position.next();
            assert_eq!(self.ns.fit(&event, self.position, chiton_types::SHARDS_DEFAULT), Ok(()));
            self.ns.apply(&event, self.position);
        }
        Ok(planned.subject.expect("an inode"))
    }

    fn make(&mut self, parent: Ino, text: &str, make: Make) -> Ino {
        self.run(&Op::Make { parent, name: name(text), make, mode: Mode(0o777) }).expect("made")
    }

    fn flags(&mut self, ino: Ino, flags: u8) {
        self.run(&Op::SetFlags { ino, flags }).expect("root may");
        assert_eq!(self.ns.attr(ino).expect("there").flags, flags);
    }
}

fn write(ino: Ino, body: Body, size: u64) -> Op {
    Op::Write { ino, size, mtime: Time(9), kill_setid: false, hold: Hold::None, body }
}

fn inline(ino: Ino, bytes: &[u8]) -> Op {
    write(ino, Body::Inline(bytes.to_vec()), bytes.len() as u64)
}

fn mapped(ino: Ino, offset: u64, len: u32) -> Op {
    let block = BlockId { writer: 7, number: offset + 1 };
    let extent = Extent { offset, len, block, block_offset: 0, shared: false };
    write(ino, Body::Extents(vec![extent]), offset + u64::from(len))
}

#[test]
fn files_keep_what_their_flags_say() {
    let mut tree = Tree::new();
    let file = tree.make(Ino::ROOT, "f", Make::File { content: b"abc".to_vec() });
    let blocks = tree.make(Ino::ROOT, "b", Make::File { content: Vec::new() });
    tree.run(&mapped(blocks, 0, 100)).expect("written");
    let resize = |size| {
        let change = AttrChange { size: Some(size), size_by_handle: true, ..AttrChange::default() };
        Op::SetAttr { ino: file, change }
    };
    let clone = |to_offset| Op::Clone { from: blocks, from_offset: 0, to: blocks, to_offset, len: 50 };
    let rename = || Op::Rename {
        from: Ino::ROOT,
        to: Ino::ROOT,
        how: RenameHow::Replace,
        from_name: name("f"),
        to_name: name("g"),
    };
    let xattr =
        || Op::SetXattr { ino: file, how: XattrHow::Set, name: b"user.a".to_vec(), value: Vec::new() };
    let unlink = || Op::Unlink { parent: Ino::ROOT, name: name("f") };
    let link = || Op::Link { parent: Ino::ROOT, ino: file, name: name("h") };
    for flags in [Attr::IMMUTABLE, Attr::APPEND_ONLY] {
        tree.flags(file, flags);
        tree.flags(blocks, flags);
        let ops = [inline(file, b"xbc"), inline(file, b"ab"), resize(9), mapped(blocks, 50, 100), clone(50)];
        for op in ops.into_iter().chain([rename(), xattr(), unlink(), link()]) {
            assert_eq!(tree.run(&op), Err(Refusal::NotPermitted), "{flags}: {op:?}");
        }
        let appends = [inline(file, b"abcd"), mapped(blocks, 100, 10)];
        for op in appends {
            let expected = if flags == Attr::IMMUTABLE { Err(Refusal::NotPermitted) } else { Ok(()) };
            assert_eq!(tree.run(&op).map(drop), expected, "{flags}: {op:?}");
        }
    }
    tree.flags(file, 0);
    for op in [inline(file, b"x"), resize(9), xattr(), rename()] {
        tree.run(&op).expect("nothing forbids it any more");
    }
}

#[test]
fn directories_keep_what_their_flags_say() {
    let mut tree = Tree::new();
    let dir = tree.make(Ino::ROOT, "d", Make::Dir);
    tree.make(dir, "f", Make::File { content: Vec::new() });
    let make = |text: &str| {
        let make = Make::File { content: Vec::new() };
        Op::Make { parent: dir, name: name(text), make, mode: Mode(0o644) }
    };
    let unlink = Op::Unlink { parent: dir, name: name("f") };
    tree.flags(dir, Attr::IMMUTABLE);
    assert_eq!(tree.run(&make("g")), Err(Refusal::NotPermitted));
    assert_eq!(tree.run(&unlink), Err(Refusal::NotPermitted));
    tree.flags(dir, Attr::APPEND_ONLY);
    tree.run(&make("g")).expect("names are added");
    assert_eq!(tree.run(&unlink), Err(Refusal::NotPermitted));
    let rmdir = Op::Rmdir { parent: Ino::ROOT, name: name("d") };
    assert_eq!(tree.run(&rmdir), Err(Refusal::NotPermitted));
    tree.flags(dir, 0);
    tree.run(&unlink).expect("nothing forbids it any more");
}
