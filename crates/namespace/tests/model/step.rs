//! The steps of histories. A step names inodes and names by numbers that are resolved against the state of the
//! moment, so that most steps hit something and a history stays meaningful when it shrinks.

use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Make {
        by: u8,
        dir: u16,
        name: u8,
        what: u8,
        mode: u16,
    },
    MakeUnnamed {
        by: u8,
        dir: u16,
        mode: u16,
    },
    LinkUnnamed {
        by: u8,
        open: u16,
        dir: u16,
        name: u8,
    },
    Link {
        by: u8,
        ino: u16,
        dir: u16,
        name: u8,
    },
    Unlink {
        by: u8,
        dir: u16,
        name: u8,
    },
    Rmdir {
        by: u8,
        dir: u16,
        name: u8,
    },
    Rename {
        by: u8,
        from: u16,
        from_name: u8,
        to: u16,
        to_name: u8,
        how: u8,
    },
    Chmod {
        by: u8,
        ino: u16,
        mode: u16,
    },
    Chown {
        by: u8,
        ino: u16,
        uid: u8,
        gid: u8,
    },
    Truncate {
        by: u8,
        ino: u16,
        size: u8,
        by_handle: bool,
        kill_setid: bool,
    },
    Times {
        by: u8,
        ino: u16,
        atime: u8,
        mtime: u8,
    },
    WriteInline {
        ino: u16,
        len: u16,
        room: u8,
        kill_setid: bool,
    },
    WriteExtents {
        ino: u16,
        place: u8,
        pieces: Vec<Piece>,
        room: u8,
        kill_setid: bool,
    },
    Clone {
        from: u16,
        from_place: u8,
        to: u16,
        to_place: u8,
        len: u16,
    },
    Remap {
        ino: u16,
        place: u8,
        stale: bool,
    },
    SetXattr {
        by: u8,
        ino: u16,
        name: u8,
        len: u8,
        how: u8,
    },
    RemoveXattr {
        by: u8,
        ino: u16,
        name: u8,
    },
    Open {
        ino: u16,
    },
    Close {
        nth: u8,
    },
    Reclaim {
        ino: u16,
    },
    /// Questions: lookup, access, an extended attribute.
    Ask {
        by: u8,
        ino: u16,
        name: u8,
        want: u8,
    },
    Paging(Paging),
}

/// A piece of one write: its distance from the piece before, its bytes, and where they come from.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) gap: u8,
    pub(crate) len: u8,
    pub(crate) is_hole: bool,
    /// The block of the piece before continues, else a new one.
    pub(crate) same_block: bool,
}

/// Steps for a cache over a store only.
#[derive(Clone, Debug)]
pub(crate) enum Paging {
    Begin,
    Take {
        rows: u8,
    },
    /// Takes the rest and stores it.
    Store,
    /// Reports to the namespace that the rows are stored.
    Done,
    Evict,
    /// Reads rows now that are installed later, when they may be stale.
    FetchEarly {
        ino: u16,
        what: u8,
    },
    InstallLate,
    /// The memory is lost: the store and the journal after its position are all there is.
    Crash,
    Sweep {
        max: u8,
    },
}

fn modes() -> impl Strategy<Value = u16> {
    let usual = [
        0o777, 0o777, 0o755, 0o700, 0o770, 0o1777, 0o2777, 0o3775, 0o2775, 0o6755, 0o6711, 0o4666, 0o644,
        0o600, 0o060, 0o444, 0o333, 0o001, 0,
    ];
    prop_oneof![5 => proptest::sample::select(usual.to_vec()), 1 => 0..0o10000u16]
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = (0..12u8, 1..30u8, prop::bool::weighted(0.2), any::<bool>());
    vec(piece.prop_map(|(gap, len, is_hole, same_block)| Piece { gap, len, is_hole, same_block }), 1..5)
}

pub(crate) fn steps(paging: bool) -> impl Strategy<Value = Step> {
    let (by, ino, dir, name) = (any::<u8>, any::<u16>, any::<u16>, any::<u8>);
    let names = prop_oneof![
        6 => (by(), dir(), name(), any::<u8>(), modes())
            .prop_map(|(by, dir, name, what, mode)| Step::Make { by, dir, name, what, mode }),
        2 => (by(), dir(), modes()).prop_map(|(by, dir, mode)| Step::MakeUnnamed { by, dir, mode }),
        3 => (by(), any::<u16>(), dir(), name())
            .prop_map(|(by, open, dir, name)| Step::LinkUnnamed { by, open, dir, name }),
        2 => (by(), ino(), dir(), name()).prop_map(|(by, ino, dir, name)| Step::Link { by, ino, dir, name }),
        3 => (by(), dir(), name()).prop_map(|(by, dir, name)| Step::Unlink { by, dir, name }),
        2 => (by(), dir(), name()).prop_map(|(by, dir, name)| Step::Rmdir { by, dir, name }),
        6 => (by(), dir(), name(), dir(), name(), any::<u8>()).prop_map(
            |(by, from, from_name, to, to_name, how)| Step::Rename { by, from, from_name, to, to_name, how }
        ),
    ];
    let attrs = prop_oneof![
        (by(), ino(), modes()).prop_map(|(by, ino, mode)| Step::Chmod { by, ino, mode }),
        (by(), ino(), any::<u8>(), any::<u8>()).prop_map(|(by, ino, uid, gid)| Step::Chown {
            by,
            ino,
            uid,
            gid
        }),
        (by(), ino(), any::<u8>(), any::<bool>(), any::<bool>()).prop_map(
            |(by, ino, size, by_handle, kill_setid)| {
                Step::Truncate { by, ino, size, by_handle, kill_setid }
            }
        ),
        (by(), ino(), any::<u8>(), any::<u8>()).prop_map(|(by, ino, atime, mtime)| Step::Times {
            by,
            ino,
            atime,
            mtime
        }),
        (by(), ino(), name(), any::<u8>(), any::<u8>())
            .prop_map(|(by, ino, name, len, how)| Step::SetXattr { by, ino, name, len, how }),
        (by(), ino(), name()).prop_map(|(by, ino, name)| Step::RemoveXattr { by, ino, name }),
    ];
    let content = prop_oneof![
        2 => (ino(), any::<u16>(), any::<u8>(), any::<bool>())
            .prop_map(|(ino, len, room, kill_setid)| Step::WriteInline { ino, len, room, kill_setid }),
        5 => (ino(), any::<u8>(), pieces(), any::<u8>(), any::<bool>()).prop_map(
            |(ino, place, pieces, room, kill_setid)| Step::WriteExtents { ino, place, pieces, room, kill_setid }
        ),
        4 => (ino(), any::<u8>(), ino(), any::<u8>(), any::<u16>()).prop_map(
            |(from, from_place, to, to_place, len)| Step::Clone { from, from_place, to, to_place, len }
        ),
        1 => (ino(), any::<u8>(), prop::bool::weighted(0.1))
            .prop_map(|(ino, place, stale)| Step::Remap { ino, place, stale }),
    ];
    let life = prop_oneof![
        1 => ino().prop_map(|ino| Step::Open { ino }),
        1 => any::<u8>().prop_map(|nth| Step::Close { nth }),
        1 => ino().prop_map(|ino| Step::Reclaim { ino }),
        2 => (by(), ino(), name(), 0..8u8).prop_map(|(by, ino, name, want)| Step::Ask { by, ino, name, want }),
    ];
    let cache = prop_oneof![
        3 => Just(Paging::Begin),
        6 => (0..12u8).prop_map(|rows| Paging::Take { rows }),
        3 => Just(Paging::Store),
        3 => Just(Paging::Done),
        4 => Just(Paging::Evict),
        3 => (ino(), any::<u8>()).prop_map(|(ino, what)| Paging::FetchEarly { ino, what }),
        3 => Just(Paging::InstallLate),
        1 => Just(Paging::Crash),
        1 => any::<u8>().prop_map(|max| Paging::Sweep { max }),
    ];
    let cache = cache.prop_map(Step::Paging);
    prop_oneof![8 => names, 4 => attrs, 6 => content, 3 => life, if paging { 6 } else { 0 } => cache]
}
