//! Compares a file system with the model.

use std::collections::BTreeMap;

use chiton_types::{Ino, Time};

use crate::model::{Model, Node, TIME_UNKNOWN, is_unknown};
use crate::tree::{self, Tree};

/// The first difference between model and observation, with its path; `None` if there is none. Inode numbers and
/// times that the model does not know may have any value.
pub fn difference(expected: &Model, found: &Tree) -> Option<String> {
    let mut pairs: BTreeMap<Ino, Ino> = BTreeMap::new();
    let mut inverse: BTreeMap<Ino, Ino> = BTreeMap::new();
    let mut paths = 0;
    let mut to_do = vec![(String::new(), Ino::ROOT)];
    while let Some((path, ino)) = to_do.pop() {
        let shown = if path.is_empty() { "/" } else { &path };
        let Some(is) = found.nodes.get(shown) else { return Some(format!("{shown} is missing")) };
        paths += 1;
        let here = is.ino;
        if !is_unknown(ino) && ino != here {
            return Some(format!("{shown} is inode {here}, but its maker got {ino}"));
        }
        if let Some(other) = pairs.insert(ino, here).filter(|other| *other != here) {
            return Some(format!("{shown} is inode {here}, another name of the same file is inode {other}"));
        }
        if inverse.insert(here, ino).is_some_and(|other| other != ino) {
            return Some(format!("{shown} is a name of inode {here}, which should be another file"));
        }
        let node = expected.node(ino).expect("the model's entries lead somewhere");
        if node.kind == is.kind
            && node.size() != is.size
            && let Some(name) = entry_difference(&path, node, found)
        {
            return Some(name);
        }
        if let Some(what) = node_difference(node, expected.nlink(ino), is) {
            return Some(format!("{shown}: {what}"));
        }
        to_do.extend(node.entries.iter().map(|(name, child)| (format!("{path}/{name}"), *child)));
    }
    // All paths of the model exist; a surplus one is not in the model.
    let surplus = || found.nodes.keys().find(|path| expected.find(path).is_none());
    if paths < found.nodes.len() {
        surplus().map(|path| format!("{path} is there, it should not"))
    } else {
        None
    }
}

/// A missing or surplus entry of a directory, which says more than the size.
fn entry_difference(path: &str, node: &Node, found: &Tree) -> Option<String> {
    if let Some(name) = node.entries.keys().find(|name| !found.nodes.contains_key(&format!("{path}/{name}")))
    {
        return Some(format!("{path}/{name} is missing"));
    }
    let names =
        found.nodes.range(format!("{path}/")..).map_while(|(at, _)| at.strip_prefix(path)?.strip_prefix('/'));
    let mut own = names.filter(|name| !name.is_empty() && !name.contains('/'));
    let surplus = own.find(|name| !node.entries.keys().any(|known| known.as_bytes() == name.as_bytes()))?;
    Some(format!("{path}/{surplus} is there, it should not"))
}

fn node_difference(node: &Node, nlink: u32, is: &tree::Node) -> Option<String> {
    macro_rules! same {
        ($what:literal, $should:expr, $is:expr) => {
            if $should != $is {
                return Some(format!("{} is {:?}, should be {:?}", $what, $is, $should));
            }
        };
    }
    same!("the type", node.kind, is.kind);
    same!("the size", node.size(), is.size);
    if let Some(at) = first_difference(&node.content, &is.content) {
        return Some(at);
    }
    same!("the link count", nlink, is.nlink);
    same!("the mode", node.mode, is.mode);
    same!("the owner", (node.uid, node.gid), (is.uid, is.gid));
    let times =
        [("mtime", node.mtime, is.mtime), ("ctime", node.ctime, is.ctime), ("atime", node.atime, is.atime)];
    for (what, Time(should), Time(is)) in times {
        if should != is && Time(should) != TIME_UNKNOWN {
            return Some(format!("the {what} is {is}, should be {should}"));
        }
    }
    let xattrs = node.shown_xattrs();
    for name in xattrs.keys().chain(is.xattrs.keys()) {
        match (xattrs.get(name), is.xattrs.get(name)) {
            (Some(_), None) => return Some(format!("the attribute {name:?} is missing")),
            (None, Some(_)) => return Some(format!("the attribute {name:?} is there, it should not")),
            (a, b) if a != b => return Some(format!("the attribute {name:?} has another value")),
            _ => {}
        }
    }
    None
}

fn first_difference(should: &[u8], is: &[u8]) -> Option<String> {
    if should == is {
        return None;
    }
    let at = should.iter().zip(is.iter()).take_while(|(a, b)| a == b).count();
    let byte = |bytes: &[u8]| bytes.get(at).map_or("the end".to_owned(), |byte| format!("{byte:#04x}"));
    Some(format!("the content differs from byte {at} on: {}, should be {}", byte(is), byte(should)))
}

#[cfg(test)]
mod tests {
    use chiton_types::Name;

    use super::*;
    use crate::model::{Birth, Change, NewInode, unknown};

    fn touch(ino: Ino) -> Change {
        Change::Set { ino, mode: None, uid: None, gid: None, atime: None, mtime: None }
    }

    fn sample() -> Model {
        let mut model = Model::new(Time(1));
        let make = |ino, parent, name: &str, what| Change::Make {
            parent,
            name: Name::try_from(name).unwrap(),
            ino,
            what,
            birth: Birth::of_root(0o644),
        };
        let link = Change::Link { ino: Ino(3), parent: Ino::ROOT, name: Name::try_from("l").unwrap() };
        let xattr = Change::Xattr { ino: Ino(3), name: "user.a".to_owned(), value: Some(b"1".to_vec()) };
        for change in [
            make(Ino(2), Ino::ROOT, "d", NewInode::Dir),
            make(Ino(3), Ino(2), "f", NewInode::File(b"abc".to_vec())),
            make(unknown(0), Ino(2), "u", NewInode::Symlink(b"f".to_vec())),
            link,
            xattr,
        ] {
            model.apply(&change, Time(2)).unwrap();
        }
        model.apply(&touch(unknown(0)), TIME_UNKNOWN).unwrap();
        model
    }

    fn found() -> Tree {
        let mut found = sample().to_tree();
        // An inode whose number and time no client knows has some.
        let unknown = found.nodes.get_mut("/d/u").unwrap();
        (unknown.ino, unknown.ctime) = (Ino(77), Time(99));
        found
    }

    #[test]
    fn equal_trees_have_no_difference() {
        assert_eq!(difference(&sample(), &found()), None);
    }

    #[test]
    fn of_a_directory_the_entry_is_named() {
        let mut lacks = found();
        lacks.nodes.remove("/d/f");
        lacks.nodes.get_mut("/d").unwrap().size -= 32;
        assert_eq!(difference(&sample(), &lacks).as_deref(), Some("/d/f is missing"));
        let mut has = found();
        let copy = has.nodes["/l"].clone();
        has.nodes.insert("/d/x".to_owned(), copy);
        has.nodes.get_mut("/d").unwrap().size += 32;
        assert_eq!(difference(&sample(), &has).as_deref(), Some("/d/x is there, it should not"));
    }

    type Breach = fn(&mut Tree);

    #[test]
    fn every_kind_of_difference_is_seen() {
        fn at<'a>(tree: &'a mut Tree, path: &str) -> &'a mut tree::Node {
            tree.nodes.get_mut(path).unwrap()
        }
        let cases: [(&str, Breach); 14] = [
            ("/l is missing", |f| drop(f.nodes.remove("/l"))),
            ("/x is there", |f| {
                let copy = f.nodes["/l"].clone();
                f.nodes.insert("/x".to_owned(), copy);
            }),
            ("but its maker got 3", |f| at(f, "/d/f").ino = Ino(9)),
            ("which should be another file", |f| at(f, "/d/u").ino = Ino(3)),
            ("the content differs from byte 1", |f| at(f, "/d/f").content = b"aXc".to_vec()),
            ("the size", |f| at(f, "/d/f").size = 4),
            ("the link count", |f| at(f, "/d/f").nlink = 1),
            ("the mode", |f| at(f, "/d").mode = 0),
            ("the owner", |f| at(f, "/l").gid = 5),
            ("the mtime", |f| at(f, "/").mtime = Time(9)),
            ("the ctime", |f| at(f, "/d").ctime = Time(9)),
            ("the atime", |f| at(f, "/d").atime = Time(9)),
            ("is missing", |f| at(f, "/l").xattrs.clear()),
            ("has another value", |f| drop(at(f, "/l").xattrs.insert("user.a".to_owned(), b"2".to_vec()))),
        ];
        for (expect, breach) in cases {
            let mut found = found();
            breach(&mut found);
            let said = difference(&sample(), &found).unwrap_or_else(|| panic!("{expect} was not seen"));
            assert!(said.contains(expect), "{said:?} does not say {expect:?}");
        }
    }
}
