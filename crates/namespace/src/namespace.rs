//! The state itself. Each question has a file of its own: `plan`, `apply`, `query`, `paging`, `checkpoint`,
//! `validate`.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use chiton_model::Decoupling;
use chiton_model::PolicyChange;
use chiton_model::{Extent, Outcome};
use chiton_types::{Attr, Ino, Kind, Mode, Name, Position, RealmId, Refusal, Time};
use hashbrown::HashMap;

use crate::chunk::Chunk;
use crate::decoupling::Decoupled;
use crate::dir::{Dir, Slot};
use crate::dirty::{Dirty, REFERENCED};
use crate::fault::{Fault, Need};
use crate::inode::{COMPLETE, Inode};
use crate::inodes::Inodes;
use crate::name_filters::NameFilters;
use crate::node::{Node, Share};
use crate::paging::CorruptRow;
use crate::plan::Planned;
use crate::realm::{Parents, Realms};
use crate::row;
use crate::tables::Table;
use crate::values::{
    BlockKey, ChunkKey, ContentKey, DecouplingKey, GarbageKey, HistoryKey, LinkedKey, OrphanKey, PolicyKey,
    Present, Xattrs, XattrsKey,
};

/// One page of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Name, inode, type, cookie; in the order of cookies.
    pub entries: Vec<(Name, Ino, Kind, u64)>,
    /// There are no more.
    pub end: bool,
}

/// Content of a file for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// All of it; if it is shorter than the size, the rest reads as zeros.
    Inline(Vec<u8>),
    /// The extents in the chunks that cover the range: from, end (exclusive), extents.
    Extents(u64, u64, Vec<Extent>),
}

/// A row for the metadata store: key, and value or `None` to delete.
pub type RowChange = (Vec<u8>, Option<Vec<u8>>);

/// The namespace in memory: a cache of rows over the metadata store, and what was changed since the last checkpoint.
#[derive(Default)]
pub struct Namespace {
    pub(crate) inodes: Inodes,
    pub(crate) dirs: HashMap<Ino, Dir>,
    pub(crate) contents: Table<ContentKey, Box<[u8]>>,
    pub(crate) chunks: Table<ChunkKey, Chunk>,
    pub(crate) xattrs: Table<XattrsKey, Xattrs>,
    pub(crate) blocks: Table<BlockKey, u32>,
    /// Always in memory whole.
    pub(crate) orphans: Table<OrphanKey, Present>,
    /// Always in memory whole.
    pub(crate) garbage: Table<GarbageKey, Present>,
    /// Always in memory whole.
    pub(crate) policies: Table<PolicyKey, PolicyChange>,
    /// Always in memory whole.
    pub(crate) policy_history: Table<HistoryKey, PolicyChange>,
    /// Always in memory whole.
    pub(crate) linked: Table<LinkedKey, Parents>,
    /// Directories in which an entry cannot be decoded; all others of them can.
    pub(crate) torn_dirs: BTreeSet<Ino>,
    /// Rows of theirs that were met and not reported yet.
    pub(crate) torn_rows: Vec<CorruptRow>,
    /// Directories that the store cannot list: of their entries those can be had that are asked for by name.
    pub(crate) unlistable: BTreeSet<Ino>,
    /// Always in memory whole.
    pub(crate) decouplings: Table<DecouplingKey, Decoupling>,
    pub(crate) decoupling_count: usize,
    pub(crate) decoupling_last: u32,
    pub(crate) decoupled: Decoupled,
    /// The decoupling whose map is out: all events belong to its merge.
    pub(crate) merging: Option<RealmId>,
    pub(crate) policy_count: usize,
    pub(crate) policy_version: u64,
    pub(crate) realms: Realms,
    pub(crate) dirty: Dirty,
    pub(crate) generation: u64,
    pub(crate) inode_count: u64,
    /// The shards whose rows are here.
    pub(crate) shards: OwnShards,
    /// The rows are those of the subtree below this directory, which a decoupled client took for itself.
    pub(crate) subtree: Option<Ino>,
    /// Slots of all directories, and bytes of their names.
    pub(crate) entries: usize,
    pub(crate) name_bytes: usize,
    /// Filters of large directories that are not complete.
    pub(crate) name_filters: NameFilters,
    pub(crate) hand: usize,
    /// Directories that ended: their tombstones stay until they are checkpointed.
    pub(crate) dead_dirs: Vec<Ino>,
    /// Tombstones of entries that the running checkpoint writes.
    pub(crate) spent: Vec<(Ino, u64)>,
}

/// The shards of a plate; all, unless set.
#[derive(Clone, Copy)]
pub(crate) struct OwnShards {
    first: u16,
    last: u16,
}

impl Default for OwnShards {
    fn default() -> OwnShards {
        OwnShards { first: 0, last: u16::MAX }
    }
}

/// A name, as far as it is in memory.
pub enum Known<'a> {
    /// The name exists.
    Present(&'a Slot),
    /// It is not there.
    Absent,
}

impl Namespace {
    /// An empty cache over an empty store (for tests: see [`Namespace::open`]).
    pub fn new() -> Namespace {
        Namespace::default()
    }

    /// An empty cache over the rows of a subtree alone, as a decoupled client has it. There the root's parent is
    /// the root itself, and changes from before the decoupling have position 0: positions are the client's own.
    ///
    /// `inode_count` is the file system's.
    pub fn of_subtree(root: Ino, inode_count: u64) -> Namespace {
        Namespace { subtree: Some(root), inode_count, dirty: Dirty::unlisted(), ..Namespace::default() }
    }

    /// The rows are those of these shards alone: inodes of others are [`Fault::Elsewhere`], and events change nothing of theirs.
    ///
    /// # Panics
    /// If there are none.
    pub fn keep_to(&mut self, shards: Range<u16>) {
        assert!(!shards.is_empty(), "a plate has shards");
        self.shards = OwnShards { first: shards.start, last: shards.end - 1 };
    }

    /// Whether the rows of an inode are here.
    #[inline]
    pub fn owns(&self, ino: Ino) -> bool {
        (self.shards.first..=self.shards.last).contains(&ino.shard().0)
    }

    /// The rows of an empty file system: the root directory.
    pub fn format_rows(now: Time, uid: u32, gid: u32) -> Vec<RowChange> {
        let root = Inode {
            ino: Ino::ROOT,
            parent: Ino::ROOT,
            position: Position(0),
            node: Node::new(Kind::Dir, 0, 0),
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            uid,
            gid,
            nlink: 2,
            mode: Mode(0o755),
            flags: 0,
            marks: Cell::new(0),
        };
        vec![
            (row::inode_key(Ino::ROOT), Some(root.encode())),
            (row::count_key(), Some(1u64.to_le_bytes().to_vec())),
        ]
    }

    /// Number of inodes, orphans included.
    pub fn inode_count(&self) -> u64 {
        self.inode_count
    }

    /// Inodes without a name that still exist.
    pub fn orphans(&self) -> Vec<Ino> {
        self.orphans.range(..).map(|(OrphanKey(ino), _)| ino).collect()
    }

    /// Blocks that nothing refers to since a checkpoint that is durable: they can be deleted from the object store,
    /// and then forgotten by [`chiton_model::Event::Swept`]. Nothing while a checkpoint is under way.
    pub fn garbage(&self, max: usize) -> Vec<chiton_types::BlockId> {
        if self.dirty.active() {
            return Vec::new();
        }
        // Rows that a decoupled client may still read stay.
        let kept = self.dirty.before_images.blocks();
        let garbage = self.garbage.clean().map(|GarbageKey(block)| block);
        garbage.filter(|block| kept.binary_search(block).is_err()).take(max).collect()
    }

    /// The answer for the caller after the events of a plan are applied.
    pub fn outcome(&self, planned: Planned) -> Outcome {
        let attr = |ino: Ino| self.inodes.get(ino).map(Inode::attr);
        Outcome {
            attr: planned.subject.and_then(attr),
            gone: planned.gone,
            other: planned.other,
            time: Time(0),
        }
    }

    /// An inode in memory.
    ///
    /// # Errors
    /// [`Fault::Missing`]; [`Fault::Elsewhere`]; `Stale` if the inode is gone.
    #[inline]
    pub fn inode(&self, ino: Ino) -> Result<&Inode, Fault> {
        match self.inodes.get(ino) {
            Some(inode) => {
                inode.marks.set(inode.marks.get() | REFERENCED);
                Ok(inode)
            }
            None if self.inodes.dead.contains_key(&ino) => Err(Refusal::Stale.into()),
            None if !self.owns(ino) => Err(Fault::Elsewhere(ino)),
            None => Err(Need::Inode(ino).into()),
        }
    }

    /// The inode under a name in a directory, with its type.
    ///
    /// # Errors
    /// As [`Namespace::inode`]; `NotDir`.
    pub fn named(&self, dir: Ino, name: &Name) -> Result<Option<(Ino, Kind)>, Fault> {
        Ok(match self.entry(self.dir_inode(dir)?, name)? {
            Known::Present(slot) => slot.kind().map(|kind| (slot.ino, kind)),
            Known::Absent => None,
        })
    }

    /// A directory's inode.
    ///
    /// # Errors
    /// As [`Namespace::inode`]; `NotDir`.
    pub fn dir_inode(&self, ino: Ino) -> Result<&Inode, Fault> {
        let inode = self.inode(ino)?;
        if inode.kind() == Kind::Dir { Ok(inode) } else { Err(Refusal::NotDir.into()) }
    }

    /// The entry `name` of `dir`.
    ///
    /// # Errors
    /// [`Fault::Missing`]; `Io` if its row cannot be read.
    #[inline]
    pub fn entry(&self, dir: &Inode, name: &Name) -> Result<Known<'_>, Fault> {
        if dir.node.share() != Share::All {
            self.has_hash(dir, name)?;
        }
        let hash = name.hash64();
        let held = self.dirs.get(&dir.ino);
        match held.and_then(|d| d.find(hash, name.as_bytes())) {
            Some(slot) if slot.kind().is_some() => Ok(Known::Present(slot)),
            Some(slot) if slot.is_unreadable() => Err(Refusal::Io.into()),
            Some(_) => Ok(Known::Absent),
            None if dir.has(COMPLETE) || self.name_filters.excludes(dir.ino, hash) => Ok(Known::Absent),
            None if dir.entries() <= DIR_WHOLE_ENTRIES_MAX && !self.unlistable.contains(&dir.ino) => {
                Err(Need::Dir(dir.ino).into())
            }
            None => Err(Need::Entry(dir.ino, name.clone()).into()),
        }
    }

    /// That all entries of a directory must be in memory.
    pub(crate) fn need_dir(&self, dir: Ino) -> Fault {
        if self.unlistable.contains(&dir) { Refusal::Io.into() } else { Need::Dir(dir).into() }
    }

    /// Attributes. `Stale` if the inode is gone.
    pub fn attr(&self, ino: Ino) -> Result<Attr, Fault> {
        Ok(self.inode(ino)?.attr())
    }

    /// Rows changed since the last checkpoint began.
    pub fn dirty_rows(&self) -> usize {
        self.dirty.len()
    }

    /// Estimate of the memory in use.
    pub fn memory_bytes(&self) -> usize {
        // A slot is 32 bytes, buckets are about 80 % full.
        self.inodes.memory_bytes()
            + self.entries * 40
            + self.name_bytes
            + self.dirs.len() * 150
            + self.name_filters.memory_bytes()
            + self.contents.memory_bytes()
            + self.chunks.memory_bytes()
            + self.xattrs.memory_bytes()
            + self.blocks.memory_bytes()
            + self.orphans.memory_bytes()
            + self.garbage.memory_bytes()
            + self.policies.memory_bytes()
            + self.policy_history.memory_bytes()
            + self.linked.memory_bytes()
            + self.decouplings.memory_bytes()
            + self.dirty.before_images.memory_bytes()
    }

    /// Every resident inode with its orphan state, for validators and dumps.
    pub(crate) fn resident(&self) -> BTreeMap<Ino, &Inode> {
        self.inodes.iter().map(|i| (i.ino, i)).collect()
    }
}

/// A directory of at most so many entries is fetched whole when one of them is asked for.
pub(crate) const DIR_WHOLE_ENTRIES_MAX: u64 = 4096;
