use super::*;

const T: [Time; 6] = [Time(10), Time(20), Time(30), Time(40), Time(50), Time(60)];

fn name(text: &str) -> Name {
    Name::try_from(text).expect("a name")
}

fn make(
    tree: &mut Model,
    parent: Ino,
    text: &str,
    ino: u64,
    what: NewInode,
    now: Time,
) -> Result<(), Refusal> {
    let action = Change::Make { parent, name: name(text), ino: Ino(ino), what, birth: Birth::of_root(0o644) };
    tree.apply(&action, now)
}

fn rename(from: (u64, &str), to: (u64, &str), how: RenameHow) -> Change {
    Change::Rename {
        from: Ino(from.0),
        from_name: name(from.1),
        to: Ino(to.0),
        to_name: name(to.1),
        how,
        whiteout: unknown(0),
        owner: (0, 0),
    }
}

/// `/d` (2) with `f` (3, "hello"), `/e` (4).
fn small() -> Model {
    let mut tree = Model::new(T[0]);
    make(&mut tree, Ino::ROOT, "d", 2, NewInode::Dir, T[1]).expect("made");
    make(&mut tree, Ino(2), "f", 3, NewInode::File(b"hello".to_vec()), T[1]).expect("made");
    make(&mut tree, Ino::ROOT, "e", 4, NewInode::Dir, T[1]).expect("made");
    tree
}

#[test]
fn names_links_and_counts() {
    let mut tree = small();
    assert_eq!((tree.nlink(Ino::ROOT), tree.size(Ino::ROOT), tree.nlink(Ino(3))), (4, 64, 1));
    let link = Change::Link { ino: Ino(3), parent: Ino(4), name: name("g") };
    assert_eq!(tree.apply(&link, T[2]), Ok(()));
    assert_eq!(tree.apply(&link, T[2]), Err(Refusal::Exists));
    assert_eq!(
        (tree.nlink(Ino(3)), tree.find("/e/g"), tree.node(Ino(3)).unwrap().ctime),
        (2, Some(Ino(3)), T[2])
    );
    assert_eq!(
        tree.apply(&Change::Link { ino: Ino(2), parent: Ino(4), name: name("h") }, T[2]),
        Err(Refusal::NotPermitted)
    );
    assert_eq!(
        tree.apply(&Change::Rmdir { parent: Ino::ROOT, name: name("e") }, T[2]),
        Err(Refusal::NotEmpty)
    );
    assert_eq!(tree.apply(&Change::Unlink { parent: Ino::ROOT, name: name("e") }, T[2]), Err(Refusal::IsDir));
    assert_eq!(make(&mut tree, Ino(3), "x", 9, NewInode::Dir, T[2]), Err(Refusal::NotDir));
    assert_eq!(make(&mut tree, Ino(99), "x", 9, NewInode::Dir, T[2]), Err(Refusal::Stale));
}

#[test]
fn renames_in_their_cases() {
    let mut tree = small();
    let dir_below_itself = rename((1, "d"), (2, "x"), RenameHow::Replace);
    assert_eq!(tree.apply(&dir_below_itself, T[2]), Err(Refusal::Invalid));
    let over_what_is_above = rename((2, "f"), (1, "d"), RenameHow::Replace);
    assert_eq!(tree.apply(&over_what_is_above, T[2]), Err(Refusal::NotEmpty));
    assert_eq!(tree.apply(&rename((2, "f"), (1, "e"), RenameHow::Replace), T[2]), Err(Refusal::IsDir));
    assert_eq!(tree.apply(&rename((2, "f"), (1, "e"), RenameHow::NoReplace), T[2]), Err(Refusal::Exists));
    assert_eq!(tree.apply(&rename((1, "e"), (2, "f"), RenameHow::Replace), T[2]), Err(Refusal::NotDir));
    assert_eq!(tree.apply(&rename((1, "d"), (1, "e"), RenameHow::Replace), T[3]), Ok(()));
    assert_eq!((tree.find("/e/f"), tree.find("/d"), tree.node(Ino(4))), (Some(Ino(3)), None, None));
    make(&mut tree, Ino::ROOT, "g", 5, NewInode::File(vec![]), T[3]).expect("made");
    assert_eq!(tree.apply(&rename((1, "g"), (2, "f"), RenameHow::Exchange), T[4]), Ok(()));
    assert_eq!((tree.find("/e/f"), tree.find("/g")), (Some(Ino(5)), Some(Ino(3))));
    // Two names of one file: nothing happens (POSIX), not even to the times.
    tree.apply(&Change::Link { ino: Ino(3), parent: Ino::ROOT, name: name("h") }, T[4]).expect("linked");
    let before = tree.clone();
    assert_eq!(tree.apply(&rename((1, "g"), (1, "h"), RenameHow::Replace), T[5]), Ok(()));
    assert_eq!(tree, before);
}

#[test]
fn content_and_open_files() {
    let mut tree = small();
    let ino = Ino(3);
    tree.apply(&Change::Write { ino, pieces: vec![(7, b"you".to_vec())], size: 0 }, T[2]).expect("written");
    assert_eq!(tree.node(ino).unwrap().content.as_slice(), b"hello\0\0you");
    tree.apply(&Change::Punch { ino, offset: 1, len: 3 }, T[2]).expect("punched");
    tree.apply(&Change::Truncate { ino, size: 8 }, T[3]).expect("truncated");
    assert_eq!(tree.node(ino).unwrap().content.as_slice(), b"h\0\0\0o\0\0y");
    assert_eq!((tree.node(ino).unwrap().mtime, tree.node(ino).unwrap().atime), (T[3], T[1]));
    tree.apply(&Change::Copy { from: ino, from_offset: 4, to: ino, to_offset: 8, len: 100 }, T[4])
        .expect("copied");
    assert_eq!(tree.node(ino).unwrap().content.as_slice(), b"h\0\0\0o\0\0yo\0\0y");
    tree.apply(&Change::Open { ino }, T[4]).expect("open");
    tree.apply(&Change::Unlink { parent: Ino(2), name: name("f") }, T[4]).expect("unlinked");
    assert!(tree.node(ino).is_some() && tree.nlink(ino) == 0);
    assert_eq!(
        tree.apply(&Change::Link { ino, parent: Ino(2), name: name("f") }, T[4]),
        Err(Refusal::NotFound)
    );
    let mut other = tree.clone();
    other.close_all();
    tree.apply(&Change::Close { ino }, T[5]).expect("closed");
    assert!(tree.node(ino).is_none() && other.node(ino).is_none());
    assert_eq!(tree.apply(&Change::Close { ino }, T[5]), Err(Refusal::BadHandle));
}

#[test]
fn attributes() {
    let mut tree = small();
    let set =
        Change::Set { ino: Ino(3), mode: Some(0o600), uid: None, gid: None, atime: None, mtime: Some(T[0]) };
    tree.apply(&set, T[2]).expect("set");
    let node = tree.node(Ino(3)).unwrap();
    assert_eq!((node.mode, node.mtime, node.ctime), (0o600, T[0], T[2]));
    let xattr = |value| Change::Xattr { ino: Ino(3), name: "user.a".to_owned(), value };
    assert_eq!(tree.apply(&xattr(None), T[2]), Err(Refusal::NoXattr));
    tree.apply(&xattr(Some(b"1".to_vec())), T[3]).expect("set");
    assert_eq!(tree.node(Ino(3)).unwrap().xattrs["user.a"], b"1");
    tree.apply(&xattr(None), T[3]).expect("removed");
}
