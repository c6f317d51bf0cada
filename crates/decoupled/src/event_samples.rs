//! Events for tests of this crate's modules.

use chiton_model::{Event, Over};
use chiton_types::{Ino, Kind, Mode, Name, Time};

pub(crate) fn name(text: &str) -> Name {
    Name::try_from(text).expect("a name")
}

/// A file is made as an entry of a directory.
pub(crate) fn make(parent: Ino, text: &str, ino: Ino) -> Event {
    Event::Make {
        parent,
        name: name(text),
        ino,
        kind: Kind::File,
        mode: Mode(0o644),
        uid: 0,
        gid: 0,
        rdev: 0,
        time: Time(1),
        content: Vec::new(),
    }
}

/// An inode moves from an entry to another. Entries: directory and name.
pub(crate) fn rename(
    (from, from_name): (Ino, &str),
    (to, to_name): (Ino, &str),
    ino: Ino,
    over: Over,
) -> Event {
    Event::Rename {
        from,
        from_name: name(from_name),
        to,
        to_name: name(to_name),
        ino,
        kind: Kind::File,
        over,
        time: Time(2),
    }
}
