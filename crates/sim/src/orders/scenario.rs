//! Trees of a few directories and files that lie on given plates, and calls that meet in them.

use chiton_model::{Make, Op, RenameHow};
use chiton_types::{Ino, Mode, Name, Refusal};
use chiton_wire::{Call, Query};

use super::world::World;
use super::{Broken, Commits};
use crate::model::{Birth, Change, Model, NewInode, unknown};

/// A directory or file of the tree; `in_` is the place of its parent in the list, and 0 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Dir { in_: usize },
    File { in_: usize },
}

/// A call. Numbers are places in the list of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Gives an entry another directory and a new name.
    Move {
        what: usize,
        to: usize,
        name: &'static str,
    },
    /// Gives an entry the name of another one, which it replaces.
    Replace {
        what: usize,
        over: usize,
    },
    Exchange {
        one: usize,
        other: usize,
    },
    Mkdir {
        in_: usize,
        name: &'static str,
    },
    Rmdir(usize),
    Unlink(usize),
    Link {
        what: usize,
        to: usize,
        name: &'static str,
    },
    /// Looks a name up. If the call before does so too, one client does both, one after the other.
    Find {
        in_: usize,
        name: &'static str,
    },
    /// The same with the name of an entry.
    FindEntry(usize),
}

/// A tree and calls that run at once.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub name: &'static str,
    pub entries: &'static [Entry],
    pub calls: &'static [Deed],
}

/// A shape whose directories lie on these plates.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub shape: Shape,
    pub plates: u16,
    /// Of the directories, in the order of the entries.
    pub on: Vec<usize>,
    /// Names of the entries: a directory is born on the plate that its name leads to.
    names: Vec<Name>,
}

use Deed::{Exchange, Find, FindEntry, Link, Mkdir, Move, Replace, Rmdir, Unlink};

const fn dir(in_: usize) -> Entry {
    Entry::Dir { in_ }
}

const fn file(in_: usize) -> Entry {
    Entry::File { in_ }
}

const fn mv(what: usize, to: usize, name: &'static str) -> Deed {
    Move { what, to, name }
}

const fn link(what: usize, to: usize, name: &'static str) -> Deed {
    Link { what, to, name }
}

const fn find(in_: usize, name: &'static str) -> Deed {
    Find { in_, name }
}

/// Two directories of the root.
const PAIR: &[Entry] = &[dir(0), dir(0)];
/// p/a and q/b.
const TWO: &[Entry] = &[dir(0), dir(0), dir(1), dir(2)];
/// p/a/a2 and q/b/b2.
const DEEP: &[Entry] = &[dir(0), dir(0), dir(1), dir(2), dir(3), dir(4)];
/// Files p/f and q/g.
const FILES: &[Entry] = &[dir(0), dir(0), file(1), file(2)];
/// Three directories of the root, and a file in each.
const THREE: &[Entry] = &[dir(0), dir(0), dir(0), file(1), file(2), file(3)];
/// Three directories of the root, and a directory in each.
const TREES: &[Entry] = &[dir(0), dir(0), dir(0), dir(1), dir(2), dir(3)];

/// Scenarios of two concurrent calls.
pub const PAIRS: &[Shape] = &[
    Shape { name: "into-each-other", entries: PAIR, calls: &[mv(1, 2, "x"), mv(2, 1, "x")] },
    Shape { name: "below-each-other", entries: TWO, calls: &[mv(1, 4, "x"), mv(2, 3, "x")] },
    Shape { name: "far-below-each-other", entries: DEEP, calls: &[mv(3, 6, "x"), mv(4, 5, "x")] },
    Shape { name: "directory-to-two-places", entries: TWO, calls: &[mv(3, 2, "x"), mv(3, 0, "y")] },
    Shape { name: "directories-to-one-name", entries: TWO, calls: &[mv(3, 0, "x"), mv(4, 0, "x")] },
    Shape {
        name: "directories-over-each-other",
        entries: TWO,
        calls: &[Replace { what: 3, over: 4 }, Replace { what: 4, over: 3 }],
    },
    Shape { name: "into-and-rmdir-target", entries: TWO, calls: &[mv(3, 4, "x"), Rmdir(4)] },
    Shape { name: "away-and-rmdir", entries: TWO, calls: &[mv(3, 2, "x"), Rmdir(3)] },
    Shape { name: "away-and-rmdir-source", entries: TWO, calls: &[mv(3, 2, "x"), Rmdir(1)] },
    Shape {
        name: "over-and-mkdir-below",
        entries: TWO,
        calls: &[Replace { what: 3, over: 4 }, Mkdir { in_: 4, name: "m" }],
    },
    Shape {
        name: "away-and-mkdir-below",
        entries: TWO,
        calls: &[mv(3, 2, "x"), Mkdir { in_: 3, name: "m" }],
    },
    Shape { name: "away-and-mkdir-name", entries: TWO, calls: &[mv(3, 2, "m"), Mkdir { in_: 2, name: "m" }] },
    Shape { name: "rmdir-and-mkdir-below", entries: TWO, calls: &[Rmdir(3), Mkdir { in_: 3, name: "m" }] },
    Shape {
        name: "exchange-and-below",
        entries: TWO,
        calls: &[Exchange { one: 1, other: 4 }, mv(2, 3, "x")],
    },
    Shape { name: "exchange-and-move", entries: TWO, calls: &[Exchange { one: 3, other: 4 }, mv(4, 3, "x")] },
    Shape { name: "exchange-and-rmdir", entries: TWO, calls: &[Exchange { one: 3, other: 4 }, Rmdir(4)] },
    Shape {
        name: "exchanges",
        entries: TWO,
        calls: &[Exchange { one: 3, other: 4 }, Exchange { one: 4, other: 3 }],
    },
    Shape {
        name: "exchange-of-file-and-directory",
        entries: &[dir(0), dir(0), dir(1), file(2)],
        calls: &[Exchange { one: 3, other: 4 }, mv(2, 3, "x")],
    },
    Shape { name: "file-to-two-places", entries: FILES, calls: &[mv(3, 2, "x"), mv(3, 0, "y")] },
    Shape {
        name: "files-over-each-other",
        entries: FILES,
        calls: &[Replace { what: 3, over: 4 }, Replace { what: 4, over: 3 }],
    },
    Shape { name: "file-away-and-unlink", entries: FILES, calls: &[mv(3, 2, "x"), Unlink(3)] },
    Shape { name: "file-away-and-link", entries: FILES, calls: &[mv(3, 2, "x"), link(3, 0, "y")] },
    Shape {
        name: "file-over-and-link",
        entries: FILES,
        calls: &[Replace { what: 3, over: 4 }, link(4, 1, "y")],
    },
    Shape { name: "file-over-and-unlink", entries: FILES, calls: &[Replace { what: 3, over: 4 }, Unlink(4)] },
    Shape { name: "link-and-unlink", entries: FILES, calls: &[link(3, 2, "x"), Unlink(3)] },
    Shape { name: "links", entries: FILES, calls: &[link(3, 2, "x"), link(3, 0, "y")] },
    Shape {
        name: "link-and-rmdir",
        entries: &[dir(0), dir(0), file(1), dir(2)],
        calls: &[link(3, 4, "x"), Rmdir(4)],
    },
    Shape {
        name: "exchange-of-files-and-unlink",
        entries: FILES,
        calls: &[Exchange { one: 3, other: 4 }, Unlink(4)],
    },
];

/// A call, and a client that looks at both ends of it.
pub const LOOKS: &[Shape] = &[
    Shape { name: "move-from-its-end", entries: TWO, calls: &[mv(3, 2, "x"), find(2, "x"), FindEntry(3)] },
    Shape {
        name: "move-from-its-beginning",
        entries: TWO,
        calls: &[mv(3, 2, "x"), FindEntry(3), find(2, "x")],
    },
    Shape { name: "file-from-its-end", entries: FILES, calls: &[mv(3, 2, "x"), find(2, "x"), FindEntry(3)] },
    Shape {
        name: "file-from-its-beginning",
        entries: FILES,
        calls: &[mv(3, 2, "x"), FindEntry(3), find(2, "x")],
    },
    Shape {
        name: "replaced",
        entries: FILES,
        calls: &[Replace { what: 3, over: 4 }, FindEntry(4), FindEntry(3)],
    },
    Shape {
        name: "exchanged",
        entries: TWO,
        calls: &[Exchange { one: 3, other: 4 }, FindEntry(3), FindEntry(4), FindEntry(3)],
    },
    Shape { name: "made", entries: TWO, calls: &[Mkdir { in_: 3, name: "m" }, find(3, "m"), FindEntry(3)] },
    Shape { name: "removed", entries: TWO, calls: &[Rmdir(3), FindEntry(3), find(3, "m")] },
    Shape {
        name: "moved-twice",
        entries: TWO,
        calls: &[mv(3, 2, "x"), Move { what: 4, to: 1, name: "y" }, find(2, "x"), find(1, "y")],
    },
];

/// Scenarios of three concurrent calls.
pub const TRIPLES: &[Shape] = &[
    Shape {
        name: "circle",
        entries: &[dir(0), dir(0), dir(0)],
        calls: &[mv(1, 2, "x"), mv(2, 3, "x"), mv(3, 1, "x")],
    },
    Shape { name: "circle-below", entries: TREES, calls: &[mv(1, 5, "x"), mv(2, 6, "x"), mv(3, 4, "x")] },
    Shape {
        name: "files-in-a-circle",
        entries: THREE,
        calls: &[Replace { what: 4, over: 5 }, Replace { what: 5, over: 6 }, Replace { what: 6, over: 4 }],
    },
    Shape {
        name: "directories-in-a-circle",
        entries: TREES,
        calls: &[Replace { what: 4, over: 5 }, Replace { what: 5, over: 6 }, Replace { what: 6, over: 4 }],
    },
    Shape {
        name: "below-each-other-and-rmdir",
        entries: TWO,
        calls: &[mv(1, 4, "x"), mv(2, 3, "x"), Rmdir(4)],
    },
    Shape {
        name: "below-each-other-and-mkdir",
        entries: TWO,
        calls: &[mv(1, 4, "x"), mv(2, 3, "x"), Mkdir { in_: 4, name: "m" }],
    },
    Shape {
        name: "below-each-other-and-exchange",
        entries: TWO,
        calls: &[mv(1, 4, "x"), mv(2, 3, "x"), Exchange { one: 3, other: 4 }],
    },
    Shape {
        name: "file-away-link-and-unlink",
        entries: FILES,
        calls: &[mv(3, 2, "x"), link(3, 0, "y"), Unlink(3)],
    },
    Shape {
        name: "file-to-three-places",
        entries: THREE,
        calls: &[mv(4, 2, "x"), mv(4, 3, "y"), mv(4, 0, "z")],
    },
];

/// Names that are tried until a directory is born on the plate where it is to be.
const NAMES_MAX: usize = 200;

impl Scenario {
    /// With names that lead to these plates.
    pub fn new(shape: Shape, plates: u16, on: Vec<usize>) -> Scenario {
        let mut scenario = Scenario { shape, plates, on, names: Vec::new() };
        let mut world = World::new(plates, 1, Commits::AtOnce, None);
        let mut inos = vec![Ino::ROOT];
        let mut on = scenario.on.iter();
        for (at, entry) in scenario.shape.entries.iter().enumerate() {
            let wanted = if let Entry::Dir { .. } = entry { on.next() } else { None };
            let name = (0..NAMES_MAX).find_map(|n| {
                let name = Name::new(format!("{}{n}", (b'a' + at as u8) as char).as_bytes()).expect("a name");
                let op = make(*entry, &inos, &name);
                let ino = world.run(op).expect("it is made").expect("with attributes");
                if wanted.is_none_or(|plate| world.plate_of(ino) == *plate) {
                    inos.push(ino);
                    return Some(name);
                }
                let (Entry::Dir { in_ } | Entry::File { in_ }) = *entry;
                world.run(Op::Rmdir { parent: inos[in_], name }).expect("it is empty");
                None
            });
            scenario.names.push(name.expect("a name for each plate"));
        }
        scenario
    }

    /// All ways to lay the directories of a shape on plates.
    pub fn all(shape: Shape, plates: u16) -> impl Iterator<Item = Scenario> {
        let dirs = shape.entries.iter().filter(|entry| matches!(entry, Entry::Dir { .. })).count() as u32;
        let count = usize::from(plates);
        (0..count.pow(dirs)).map(move |n| {
            let on = (0..dirs).map(|dir| n / count.pow(dir) % count).collect();
            Scenario::new(shape, plates, on)
        })
    }

    fn parent_and_name(&self, entry: usize, inos: &[Ino]) -> (Ino, Name) {
        let (Entry::Dir { in_ } | Entry::File { in_ }) = self.shape.entries[entry - 1];
        (inos[in_], self.names[entry - 1].clone())
    }

    fn call(&self, deed: Deed, inos: &[Ino]) -> Call {
        let of = |entry: usize| self.parent_and_name(entry, inos);
        let named = |name: &str| Name::try_from(name).expect("a name");
        let rename = |what: usize, (to, to_name): (Ino, Name), how: RenameHow| {
            let (from, from_name) = of(what);
            Op::Rename { from, from_name, to, to_name, how }
        };
        let op = match deed {
            Move { what, to, name } => rename(what, (inos[to], named(name)), RenameHow::Replace),
            Replace { what, over } => rename(what, of(over), RenameHow::Replace),
            Exchange { one, other } => rename(one, of(other), RenameHow::Exchange),
            Mkdir { in_, name } => {
                Op::Make { parent: inos[in_], name: named(name), make: Make::Dir, mode: Mode(0o755) }
            }
            Rmdir(entry) => {
                let (parent, name) = of(entry);
                Op::Rmdir { parent, name }
            }
            Unlink(entry) => {
                let (parent, name) = of(entry);
                Op::Unlink { parent, name }
            }
            Link { what, to, name } => Op::Link { ino: inos[what], parent: inos[to], name: named(name) },
            Find { in_, name } => {
                return Call::Query(Query::Lookup { parent: inos[in_], name: named(name) });
            }
            FindEntry(entry) => {
                let (parent, name) = of(entry);
                return Call::Query(Query::Lookup { parent, name });
            }
        };
        Call::Op { op, open: false }
    }

    /// The tree on real engines and as a model, and the calls, not yet sent.
    pub(super) fn begin(&self, commits: Commits, broken: Option<Broken>) -> (World, Model) {
        let mut world = World::new(self.plates, self.shape.calls.len(), commits, broken);
        let mut model = Model::new(world.nodes[0].m.now);
        let mut inos = vec![Ino::ROOT];
        for (entry, name) in self.shape.entries.iter().zip(&self.names) {
            let op = make(*entry, &inos, name);
            let made = world.run(op.clone());
            let change = change(&op, 0, &made);
            model.apply(&change, world.nodes[0].m.now).expect("the tree can be made");
            inos.push(made.expect("as before").expect("with attributes"));
        }
        let mut last = None;
        for deed in self.shape.calls {
            let finds = matches!(deed, Find { .. } | FindEntry(_));
            let call = world.add(self.call(*deed, &inos), last.filter(|_| finds));
            last = finds.then_some(call);
        }
        world.now = 0;
        (world, model)
    }
}

impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let on: Vec<String> = self.on.iter().map(ToString::to_string).collect();
        write!(f, "{} on {}", self.shape.name, on.join(","))
    }
}

fn make(entry: Entry, inos: &[Ino], name: &Name) -> Op {
    let (in_, make) = match entry {
        Entry::Dir { in_ } => (in_, Make::Dir),
        Entry::File { in_ } => (in_, Make::File { content: Vec::new() }),
    };
    Op::Make { parent: inos[in_], name: name.clone(), make, mode: Mode(0o755) }
}

/// The change of the model by an operation with this answer.
pub(super) fn change(op: &Op, call: usize, made: &Result<Option<Ino>, Refusal>) -> Change {
    let op = op.clone();
    if let Op::Make { parent, name, make, .. } = op {
        let what = if make == Make::Dir { NewInode::Dir } else { NewInode::File(Vec::new()) };
        let ino = made.ok().flatten().unwrap_or_else(|| unknown(call as u64));
        Change::Make { parent, name, ino, what, birth: Birth::of_root(0o755) }
    } else if let Op::Rename { from, from_name, to, to_name, how } = op {
        let whiteout = unknown(call as u64);
        Change::Rename { from, from_name, to, to_name, how, whiteout, owner: (0, 0) }
    } else if let Op::Rmdir { parent, name } = op {
        Change::Rmdir { parent, name }
    } else if let Op::Unlink { parent, name } = op {
        Change::Unlink { parent, name }
    } else if let Op::Link { ino, parent, name } = op {
        Change::Link { ino, parent, name }
    } else {
        panic!("no scenario has {op:?}")
    }
}
