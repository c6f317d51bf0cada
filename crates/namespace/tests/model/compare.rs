//! Is the namespace what the model says?

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::CHUNK_BYTES;
use chiton_namespace::Mapped;
use chiton_types::{Attr, BlockId, Cred, Ino, Kind, Name, Position, Refusal};

use crate::state::{Content, Model};
use crate::subject::Subject;

pub(crate) fn without_position(attr: Attr) -> Attr {
    Attr { position: Position(0), ..attr }
}

/// Compares everything; `dead` are inodes that are no more. Returns the blocks that are in use.
pub(crate) fn whole(subject: &mut Subject, model: &Model, dead: &BTreeSet<Ino>) -> BTreeSet<BlockId> {
    let mut in_use = BTreeSet::new();
    let root = &Cred::ROOT;
    for (&ino, node) in &model.nodes {
        let attr = subject.ask(root, |ns, _| ns.attr(ino)).map(without_position);
        assert_eq!(attr, Ok(model.attr(ino)), "attributes of {ino:?}");
        match node.kind {
            Kind::Dir => assert_eq!(list(subject, ino), list_model(model, ino), "entries of {ino:?}"),
            Kind::Symlink => {
                assert_eq!(subject.ask(root, |ns, _| ns.readlink(ino)), Ok(node.target.clone()));
            }
            Kind::File => content(subject, model, ino, &mut in_use),
            _ => {}
        }
        let names = subject.ask(root, |ns, cred| ns.xattr_names(cred, ino));
        assert_eq!(names, Ok(model.xattr_names(ino, root)), "extended attributes of {ino:?}");
        for name in node.xattrs.keys() {
            assert_eq!(
                subject.ask(root, |ns, cred| ns.xattr(cred, ino, name)).ok(),
                node.shown(name),
                "{ino:?}"
            );
        }
    }
    for &ino in dead {
        assert_eq!(subject.ask(root, |ns, _| ns.attr(ino)), Err(Refusal::Stale), "{ino:?} is gone");
    }
    let orphans: Vec<Ino> = model.nodes.keys().copied().filter(|&ino| model.is_orphan(ino)).collect();
    let mut found = subject.ns.orphans();
    found.sort_unstable();
    assert_eq!(found, orphans, "orphans");
    assert_eq!(subject.ns.inode_count(), model.nodes.len() as u64, "number of inodes");
    assert_eq!(subject.ns.validate(), [], "the namespace contradicts itself");
    in_use
}

/// Page by page, pages of 1 to 3 entries.
fn list(subject: &mut Subject, dir: Ino) -> BTreeMap<Name, (Ino, Kind)> {
    let mut found = BTreeMap::new();
    let (mut after, mut max) = (0, 1);
    loop {
        let page = subject.ask(&Cred::ROOT, |ns, _| ns.readdir(dir, after, max)).expect("a directory");
        for (name, ino, kind, cookie) in page.entries {
            assert!(cookie > after, "cookie {cookie} of {name:?} does not ascend");
            after = cookie;
            assert_eq!(found.insert(name.clone(), (ino, kind)), None, "{name:?} was listed twice");
        }
        if page.end {
            return found;
        }
        max = max % 3 + 1;
    }
}

fn list_model(model: &Model, dir: Ino) -> BTreeMap<Name, (Ino, Kind)> {
    model.nodes[&dir].entries.iter().map(|(n, &i)| (n.clone(), (i, model.nodes[&i].kind))).collect()
}

/// Chunks that a file may have: where the model has bytes, the first, the last.
fn chunks(model: &Model, ino: Ino) -> BTreeSet<u64> {
    let node = &model.nodes[&ino];
    let mut chunks: BTreeSet<u64> = (0..4).chain([node.size.saturating_sub(1) / CHUNK_BYTES]).collect();
    if let Content::Blocks(bytes) = &node.content {
        chunks.extend(bytes.keys().map(|o| o / CHUNK_BYTES));
    }
    chunks
}

fn content(subject: &mut Subject, model: &Model, ino: Ino, in_use: &mut BTreeSet<BlockId>) {
    let mut found = BTreeMap::new();
    for n in chunks(model, ino) {
        let range = (n * CHUNK_BYTES)..(n + 1) * CHUNK_BYTES;
        let mapped = subject.ask(&Cred::ROOT, |ns, _| ns.map(ino, range.start, CHUNK_BYTES)).expect("a file");
        match (mapped, &model.nodes[&ino].content) {
            (Mapped::Inline(bytes), Content::Inline(expect)) => {
                return assert_eq!(&bytes, expect, "content of {ino:?}");
            }
            (Mapped::Inline(bytes), Content::Blocks(expect)) => {
                panic!("{ino:?} has {bytes:?} inline, not {expect:?}")
            }
            (Mapped::Extents(from, to, extents), _) => {
                assert!(from <= range.start && range.start < to, "{from}..{to} does not cover {range:?}");
                for e in extents.iter().filter(|e| range.contains(&e.offset)) {
                    in_use.insert(e.block);
                    for (o, byte) in model.resolve(e) {
                        assert_eq!(found.insert(o, byte), None, "byte {o} of {ino:?} is mapped twice");
                    }
                }
            }
        }
    }
    match &model.nodes[&ino].content {
        Content::Blocks(expect) => assert_eq!(&found, expect, "content of {ino:?}"),
        Content::Inline(expect) => panic!("{ino:?} is mapped, and should have {expect:?} inline"),
    }
}
