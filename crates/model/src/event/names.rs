//! The inodes that an event names: their types, the attributes of a newborn, and the inode that bore the new name of a rename.

use chiton_types::{Attr, Ino, Kind, Position, ShardId};
use serde_json::{Value, json};

use super::Event;
use crate::choice_code;
use crate::field::Shown;
use crate::text::kind_name;

/// The inode that bore the new name of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Nothing,
    /// This inode lost that name.
    Replaced {
        ino: Ino,
        kind: Kind,
        /// If that was its last: keep it as an orphan.
        orphan: bool,
    },
    /// This inode got the old name.
    Exchanged {
        ino: Ino,
        kind: Kind,
    },
}

impl Over {
    /// The inode that bore the new name, if any.
    pub fn ino(self) -> Option<Ino> {
        match self {
            Over::Nothing => None,
            Over::Replaced { ino, .. } | Over::Exchanged { ino, .. } => Some(ino),
        }
    }

    /// The inode that gets the old name, if any.
    pub fn exchanged(self) -> Option<Ino> {
        match self {
            Over::Exchanged { ino, .. } => Some(ino),
            Over::Nothing | Over::Replaced { .. } => None,
        }
    }
}

choice_code! { Over => Over "u8 (0 nothing, 1 replaced, 2 replaced and orphan, 3 exchanged), kind and ino unless it is 0" {
    0 Nothing
    1 Replaced { (2) orphan, kind: Kind, ino: Ino }
    3 Exchanged { kind: Kind, ino: Ino }
} }

impl Shown<Over> for Over {
    fn json(over: &Over) -> Value {
        match over {
            Over::Nothing => Value::Null,
            Over::Replaced { ino, kind, orphan } => {
                json!({ "replaced": ino.0, "kind": kind_name(*kind), "orphan": orphan })
            }
            Over::Exchanged { ino, kind } => json!({ "exchanged": ino.0, "kind": kind_name(*kind) }),
        }
    }
}

impl Event {
    /// Attributes of the inode that the event makes, right after it; `None` if it makes nothing.
    pub fn born(&self, position: Position) -> Option<Attr> {
        let Event::Make { parent, ino, kind, mode, uid, gid, rdev, time, content, .. } = self else {
            return None;
        };
        let is_dir = *kind == Kind::Dir;
        Some(Attr {
            ino: *ino,
            kind: *kind,
            mode: *mode,
            nlink: if is_dir { 2 } else { 1 },
            uid: *uid,
            gid: *gid,
            rdev: *rdev,
            size: content.len() as u64,
            allocated: content.len() as u64,
            atime: *time,
            mtime: *time,
            ctime: *time,
            btime: *time,
            parent: *parent,
            flags: 0,
            position,
        })
    }

    /// The type of an inode that gets, changes or loses a name, as the event says it.
    pub fn kind_of(&self, ino: Ino) -> Option<Kind> {
        if let Event::Make { ino: named, kind, .. }
        | Event::Link { ino: named, kind, .. }
        | Event::Unlink { ino: named, kind, .. }
        | Event::Rename { ino: named, kind, .. }
        | Event::Moved { ino: named, kind, .. } = self
            && *named == ino
        {
            return Some(*kind);
        }
        if let Event::Rename {
            over: Over::Replaced { ino: named, kind, .. } | Over::Exchanged { ino: named, kind },
            ..
        } = self
            && *named == ino
        {
            return Some(*kind);
        }
        None
    }

    /// Sets the types of the inodes that get or lose names, where they are known.
    pub fn set_kinds(&mut self, known: impl Fn(Ino) -> Option<Kind>) {
        let set = |ino: Ino, kind: &mut Kind| *kind = known(ino).unwrap_or(*kind);
        if let Event::Link { ino, kind, .. }
        | Event::Unlink { ino, kind, .. }
        | Event::Rename { ino, kind, .. } = self
        {
            set(*ino, kind);
        }
        if let Event::Rename {
            over: Over::Replaced { ino, kind, .. } | Over::Exchanged { ino, kind }, ..
        } = self
        {
            set(*ino, kind);
        }
    }

    /// The shard whose frame it is in.
    pub fn shard(&self) -> ShardId {
        if let Event::Reserve { shard, .. } = self { *shard } else { self.footprint().place.shard() }
    }
}
