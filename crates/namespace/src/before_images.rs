//! Before-images: rows as a decoupled client saw them, kept when others change them.
//!
//! ```text
//!   an event of others in the subtree ─▶ first change of a row ─▶ (decoupling, key) → the row before it
//!   rows for the client: the image if there is one, else the row, unless others made it after the base
//! ```
//!
//! Invariants:
//! - An image is taken once; those of a decoupling go with it. Always in memory whole.
//! - Rows that the decoupling's own merges change are not kept: its client knows these changes.
//!   If others changed a directory, too, our changes in it are carried over to the image.
//! - Where ours changed names or attributes of a file whose content others changed, our changes
//!   are carried over to the image, too: the content in it is still the one that ours knows.
//! - Where nothing is decoupled, nothing is looked up and nothing kept.

mod known;
mod served;

pub use known::KnownFile;

use std::collections::BTreeMap;
use std::ops::Bound;

use chiton_model::{Event, NameChange, Role, Rows};
use chiton_types::codec::{Malformed, Take};
use chiton_types::{BlockId, Ino, Kind, RealmId, ShardId};

use crate::chunk::Chunk;
use crate::fault::{Fault, Need};
use crate::inode::{Inode, OF_XATTRS, SETTABLE, xattr_flags};
use crate::namespace::{Namespace, RowChange};
use crate::row::{self, tag};
use crate::values::{Xattrs, XattrsKey};

/// BeforeImages of all decouplings, and what a checkpoint must write of them.
#[derive(Default)]
pub(crate) struct BeforeImages {
    /// Those for whom the rows that change now are kept.
    keeping: Vec<u32>,
    /// Whose own doing the event is, if it has images.
    own: Option<u32>,
    /// Inodes and extended attributes with an image that change by the decoupling's own doing, as they were before, where that
    /// is carried over to the image.
    carried: Vec<(Vec<u8>, Vec<u8>)>,
    /// A file of which the event shares a range. That changes its map of blocks, but nothing of its content.
    source: Option<Ino>,
    /// The event changes the content of a file, or all of it.
    changes_content: bool,
    /// The attributes that the decoupling's own doing sets, even to the value that they have.
    sets: SetAttributes,
    all: BTreeMap<Place, Option<Vec<u8>>>,
    unwritten: Vec<RowChange>,
    bytes: usize,
}

/// Attributes that an event sets.
#[derive(Default)]
struct SetAttributes {
    mode: bool,
    uid: bool,
    gid: bool,
    atime: bool,
    mtime: bool,
    xattr: Option<Vec<u8>>,
}

impl SetAttributes {
    fn of(event: &Event) -> SetAttributes {
        let mut sets = SetAttributes::default();
        if let Event::SetAttr { mode, uid, gid, atime, mtime, .. } = event {
            (sets.mode, sets.uid, sets.gid) = (mode.is_some(), uid.is_some(), gid.is_some());
            (sets.atime, sets.mtime) = (atime.is_some(), mtime.is_some());
        }
        if let Event::Xattr { name, .. } = event {
            sets.xattr = Some(name.clone());
        }
        sets
    }
}

impl BeforeImages {
    #[inline]
    pub(crate) fn is_keeping(&self) -> bool {
        !self.keeping.is_empty() || self.own.is_some()
    }

    /// A row is about to change that was like this.
    pub(crate) fn keep(&mut self, (key, value): &RowChange) {
        let is_kept = matches!(
            row::tag_of(key),
            Some(tag::INODE | tag::ENTRY | tag::CONTENT | tag::CHUNK | tag::XATTRS)
        );
        let is_shared_only = self
            .source
            .is_some_and(|source| row::tag_of(key) == Some(tag::CHUNK) && row::ino_of(key) == Some(source));
        if !is_kept || is_shared_only {
            return;
        }
        if let Some(id) = self.own {
            self.change_own(id, key, value.as_deref());
        }
        for &id in &self.keeping {
            let entry = self.all.entry(place(id, key));
            if let std::collections::btree_map::Entry::Vacant(vacant) = entry {
                self.bytes += key.len() + value.as_ref().map_or(0, Vec::len) + 100;
                self.unwritten.push((image_key(id, key), Some(encode(value.as_deref()))));
                vacant.insert(value.clone());
            }
        }
    }

    /// The decoupling's own doing changes a row that others changed before: its client knows it as it becomes. Of
    /// a directory only the names that change, since names that others made there stay unknown to it; of a file
    /// whose content does not change only the other fields, since the content that others gave it stays unknown.
    fn change_own(&mut self, id: u32, key: &[u8], value: Option<&[u8]>) {
        let Some(image) = self.get(id, key) else { return };
        // Of a file that others made, and a merge changed, the client may learn.
        let keeps = |value: &[u8]| is_dir(value) || (image.is_some() && !self.changes_content);
        let kind = row::tag_of(key);
        match value {
            Some(value) if kind == Some(tag::INODE) && keeps(value) => {
                self.carried.push((key.to_vec(), value.to_vec()));
            }
            value if kind == Some(tag::XATTRS) && !self.changes_content => {
                self.carried.push((key.to_vec(), value.unwrap_or_default().to_vec()));
            }
            _ => {
                self.keep_blocks(id, key);
                self.forget(id, key);
            }
        }
    }

    /// The client may continue to read the blocks that were there: it has seen none of the changes of others, although a merge
    /// makes the row its own.
    fn keep_blocks(&mut self, id: u32, key: &[u8]) {
        let Some(Some(chunk)) = self.get(id, key).filter(|_| row::tag_of(key) == Some(tag::CHUNK)) else {
            return;
        };
        let chunk = chunk.to_vec();
        let mut kept = key.to_vec();
        kept[TAG_AT] = tag::KEPT_CHUNK;
        let times = self.of(id, &kept).count() as u32;
        kept.extend_from_slice(&times.to_be_bytes());
        self.unwritten.push((image_key(id, &kept), Some(encode(Some(&chunk)))));
        self.install(id, kept, Some(chunk));
    }

    fn replace(&mut self, id: u32, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.unwritten.push((image_key(id, &key), Some(encode(value.as_deref()))));
        let is = value.as_ref().map_or(0, Vec::len);
        let was = self.all.insert(place(id, &key), value).flatten().map_or(0, |was| was.len());
        self.bytes = (self.bytes + is).saturating_sub(was);
    }

    fn forget(&mut self, id: u32, key: &[u8]) {
        let value = self.all.remove(&place(id, key)).flatten();
        self.bytes = self.bytes.saturating_sub(key.len() + value.map_or(0, |v| v.len()) + 100);
        self.unwritten.push((image_key(id, key), None));
    }

    pub(crate) fn install(&mut self, id: u32, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len) + 100;
        self.all.insert(place(id, &key), value);
    }

    /// A decoupling is over.
    pub(crate) fn drop_all(&mut self, id: u32) {
        self.unwritten.retain(|(key, _)| image_of(key).is_none_or(|(of, _)| of != id));
        let of_it = self.all.range((id, 0, Vec::new())..).take_while(|((of, ..), _)| *of == id);
        let gone: Vec<Vec<u8>> = of_it.map(|((_, _, key), _)| key.clone()).collect();
        for key in gone {
            self.forget(id, &key);
        }
    }

    /// Rows for a checkpoint that begins.
    pub(crate) fn take_unwritten(&mut self) -> Vec<RowChange> {
        std::mem::take(&mut self.unwritten)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    fn get(&self, id: u32, key: &[u8]) -> Option<Option<&[u8]>> {
        self.all.get(&place(id, key)).map(Option::as_deref)
    }

    /// Those whose keys begin so, with a tag at least, in order.
    fn of<'a>(&'a self, id: u32, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        let from = place(id, prefix);
        let kind = from.1;
        let is_of_it = move |of: u32, tag: u8, key: &[u8]| of == id && tag == kind && key.starts_with(prefix);
        let rest = self.all.range(from..).take_while(move |((of, tag, key), _)| is_of_it(*of, *tag, key));
        rest.map(|((_, _, key), value)| (key.as_slice(), value.as_deref()))
    }

    /// Those of a decoupling whose keys as images come after this one.
    fn after<'a>(&'a self, id: u32, key: &[u8]) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        let from = match image_of(key) {
            Some((_, row)) => Bound::Excluded(place(id, &row)),
            None => Bound::Included((id, 0, Vec::new())),
        };
        let rest = self.all.range((from, Bound::Unbounded)).take_while(move |((of, ..), _)| *of == id);
        rest.map(|((_, _, key), value)| (key.as_slice(), value.as_deref()))
    }

    /// Whether there are any of a decoupling; with this tag, if it is given.
    fn has_any(&self, id: u32, tag: Option<u8>) -> bool {
        let first = self.all.range((id, tag.unwrap_or(0), Vec::new())..).next();
        first.is_some_and(|((of, found, _), _)| *of == id && tag.is_none_or(|tag| tag == *found))
    }

    /// Blocks that an image names.
    pub(crate) fn blocks(&self) -> Vec<BlockId> {
        let maps = self.all.iter().filter(|((_, kind, _), _)| matches!(*kind, tag::CHUNK | tag::KEPT_CHUNK));
        let chunks = maps.filter_map(|(_, value)| Chunk::decode(&mut Take::new(value.as_deref()?)).ok());
        let mut blocks: Vec<BlockId> =
            chunks.flat_map(|chunk| chunk.extents().iter().map(|e| e.block).collect::<Vec<_>>()).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }
}

/// Decoupling, tag and key of a row: maps of one decoupling are found without its other rows.
type Place = (u32, u8, Vec<u8>);

fn place(id: u32, key: &[u8]) -> Place {
    (id, row::tag_of(key).unwrap_or_default(), key.to_vec())
}

/// Offset of the tag in a key.
const TAG_AT: usize = 2;

/// The row's shard, the image's tag, the decoupling, the row's tag and the rest of its key → what it was.
pub(crate) fn image_key(id: u32, key: &[u8]) -> Vec<u8> {
    let rest = key.get(TAG_AT..).unwrap_or_default();
    let shard = row::shard_of(key).unwrap_or(ShardId(0));
    row::row_key(shard, tag::IMAGE, &[&id.to_be_bytes(), rest].concat())
}

/// The tag of the row of which a key's row is an image.
pub fn image_tag(key: &[u8]) -> Option<u8> {
    matches!(key, [_, _, tag::IMAGE, ..]).then(|| key.get(7).copied()).flatten()
}

/// Decoupling and row of an image's key.
pub(crate) fn image_of(key: &[u8]) -> Option<(u32, Vec<u8>)> {
    let [_, _, tag::IMAGE, rest @ ..] = key else { return None };
    let (id, rest) = rest.split_first_chunk::<4>()?;
    let (tag, rest) = rest.split_first()?;
    Some((u32::from_be_bytes(*id), row::row_key(row::shard_of(key)?, *tag, rest)))
}

/// A flag, and the row's value if there was one.
pub(crate) fn encode(value: Option<&[u8]>) -> Vec<u8> {
    let mut v = vec![u8::from(value.is_some())];
    v.extend_from_slice(value.unwrap_or_default());
    v
}

/// Decoupling, the row's key, its value.
pub(crate) type Image = (u32, Vec<u8>, Option<Vec<u8>>);

pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Image, Malformed> {
    let bad = Malformed { expected: "a row as it was" };
    let (id, row) = image_of(key).ok_or(bad.clone())?;
    let value = match value {
        [0] => None,
        [1, value @ ..] => Some(value.to_vec()),
        _ => return Err(bad),
    };
    Ok((id, row, value))
}

impl Namespace {
    /// From now on until [`Namespace::merged`] what is applied is this decoupling's own doing (for replay).
    pub fn begin_own(&mut self, id: RealmId) {
        self.merging = Some(id);
    }

    /// To be called before an event is applied: notes for whom the rows that it changes are kept.
    #[inline]
    pub(crate) fn begin_keeping(&mut self, event: &Event) {
        if self.decoupling_count > 0 {
            self.find_keeping(event);
        }
    }

    fn find_keeping(&mut self, event: &Event) {
        let mut keeping = std::mem::take(&mut self.dirty.before_images.keeping);
        keeping.clear();
        let is_all_own = self.decoupling_count == 1 && self.merging.is_some();
        if let Some(place) = event.footprint().imaged_place().filter(|_| !is_all_own) {
            // Where the root is unknown, it is kept for all.
            let root = self.decoupled_root(place).ok();
            let merging = self.merging;
            let concerned = self.decouplings().filter(|d| Some(d.id) != merging);
            keeping.extend(concerned.filter(|d| root.is_none_or(|r| r == Some(d.root()))).map(|d| d.id.0));
        }
        self.know_shared(event, &keeping);
        self.dirty.before_images.keeping = keeping;
        // A change for a moment only is none.
        let passes = matches!(event, Event::Revert { to, .. } if to.temporary);
        let own = self.merging.map(|id| id.0).filter(|_| !passes);
        self.dirty.before_images.own = own.filter(|id| self.dirty.before_images.has_any(*id, None));
        if self.dirty.before_images.own.is_some() {
            self.dirty.before_images.sets = SetAttributes::of(event);
        }
        let footprint = event.footprint();
        let source = footprint.inodes().iter().find(|touch| touch.role == Role::Source);
        self.dirty.before_images.source =
            source.map(|touch| touch.ino).filter(|ino| footprint.subject_inode() != Some(*ino));
        self.dirty.before_images.changes_content = footprint.alters(Rows::CONTENT);
    }

    /// A row of others that a merge made known to the decoupling (a directory that became one with its own, a name that
    /// both gave) is kept as it is now, not as it was at the base.
    fn know_shared(&mut self, event: &Event, keeping: &[u32]) {
        for &id in keeping {
            let Some(map) = self.decoupling(RealmId(id)).map(|d| &d.map) else { continue };
            if !map.has_names_apart() {
                continue;
            }
            let is_nothing = |key: &[u8]| matches!(self.dirty.before_images.get(id, key), Some(None));
            let mut keys = Vec::new();
            let footprint = event.footprint();
            for NameChange { dir, name, .. } in footprint.names() {
                let found = self.dirs.get(&dir).and_then(|held| held.find(name.hash64(), name.as_bytes()));
                let Some(slot) = found.filter(|slot| slot.kind().is_some()) else { continue };
                let key = row::entry_key(dir, name.hash64(), name.as_bytes());
                let is_another = || {
                    let image = self.dirty.before_images.get(id, &key).flatten();
                    image.is_some_and(|image| image.get(..8) != Some(&slot.ino.0.to_le_bytes()[..]))
                };
                let is_older = is_nothing(&key) || is_another();
                keys.extend((map.has_at(slot.ino, dir, name) && is_older).then_some(key));
            }
            let dirs = footprint.writes(Rows::ATTRS).filter(|ino| map.is_bound(*ino));
            keys.extend(dirs.map(row::inode_key).filter(|key| is_nothing(key)));
            keys.iter().for_each(|key| self.dirty.before_images.forget(id, key));
        }
    }

    /// To be called when the event is applied.
    #[inline]
    pub(crate) fn end_keeping(&mut self) {
        if self.dirty.before_images.is_keeping() {
            self.carry_over();
        }
    }

    /// Adds the client's own changes to the images.
    fn carry_over(&mut self) {
        self.dirty.before_images.keeping.clear();
        let Some(id) = self.dirty.before_images.own.take() else { return };
        for (key, before) in std::mem::take(&mut self.dirty.before_images.carried) {
            let ino = ino_of(&key);
            if row::tag_of(&key) == Some(tag::XATTRS) {
                self.carry_over_xattrs(id, ino, key, &before);
                continue;
            }
            let (Ok(before), Some(Some(image))) =
                (Inode::decode(ino, &before), self.dirty.before_images.get(id, &key))
            else {
                continue;
            };
            let (Some(now), Ok(mut image)) = (self.inodes.get(ino), Inode::decode(ino, image)) else {
                self.dirty.before_images.forget(id, &key);
                continue;
            };
            image.nlink = image.nlink.wrapping_add(now.nlink.wrapping_sub(before.nlink));
            if now.kind() == Kind::Dir {
                let gained = now.entries().wrapping_sub(before.entries());
                image.node.set_entries(image.entries().wrapping_add(gained));
                (image.parent, image.mode, image.uid, image.gid) = (now.parent, now.mode, now.uid, now.gid);
                (image.mtime, image.ctime) = (now.mtime, now.ctime);
                image.flags = image.flags & !SETTABLE | now.flags & SETTABLE;
            } else {
                carry(&mut image, &before, now, &self.dirty.before_images.sets);
            }
            if self.dirty.before_images.get(id, &row::xattrs_key(ino)).is_none() {
                image.flags = image.flags & !OF_XATTRS | now.flags & OF_XATTRS;
            }
            self.dirty.before_images.replace(id, key, Some(image.encode()));
        }
    }

    fn carry_over_xattrs(&mut self, id: u32, ino: Ino, key: Vec<u8>, before: &[u8]) {
        let decoded = |bytes: &[u8]| Xattrs::decode(bytes).unwrap_or_default().0;
        let Some(image) = self.dirty.before_images.get(id, &key) else { return };
        let (before, mut image) = (decoded(before), decoded(image.unwrap_or_default()));
        let none = std::collections::BTreeMap::new();
        let now = self.xattrs.value(XattrsKey(ino)).map_or(&none, |xattrs| &xattrs.0);
        for name in before.keys().filter(|name| !now.contains_key(*name)) {
            image.remove(name);
        }
        let set = self.dirty.before_images.sets.xattr.as_ref();
        let is_new = |name: &Vec<u8>, value: &Vec<u8>| Some(name) == set || before.get(name) != Some(value);
        for (name, value) in now.iter().filter(|(name, value)| is_new(name, value)) {
            image.insert(name.clone(), value.clone());
        }
        let image = Xattrs(image);
        let flags = xattr_flags(&image);
        let value = (flags != 0).then(|| crate::tables::TableValue::encode(&image));
        self.dirty.before_images.replace(id, key, value);
        let of_inode = row::inode_key(ino);
        if let Some(Some(Ok(mut inode))) = self
            .dirty
            .before_images
            .get(id, &of_inode)
            .map(|image| image.map(|image| Inode::decode(ino, image)))
        {
            inode.flags = inode.flags & !OF_XATTRS | flags;
            self.dirty.before_images.replace(id, of_inode, Some(inode.encode()));
        }
    }

    /// Whether rows that an event changes are kept: then they must be in memory as they are.
    pub(crate) fn needs_images(&self, event: &Event, needs: &mut Vec<Need>) {
        let mut add = |found: Result<(), Fault>| {
            if let Err(Fault::Missing(more)) = found {
                needs.extend(more);
            }
        };
        let footprint = event.footprint();
        let Some(place) = footprint.imaged_place() else { return };
        add(self.decoupled_root(place).map(drop));
        // Content inside the inode. Maps of blocks are needed whether images are kept or not. An inode that a decoupled client knows does
        // not end meanwhile (`is_pinned`): of one that is freed nothing is kept.
        for ino in footprint.writes(Rows::CONTENT) {
            add(self.inode(ino).and_then(|inode| self.content(inode).map(drop)));
        }
        for NameChange { dir, name, .. } in footprint.names() {
            add(self.dir_inode(dir).and_then(|dir| self.entry(dir, name).map(drop)));
        }
    }
}

fn is_dir(inode: &[u8]) -> bool {
    inode.first() == Some(&(Kind::Dir as u8))
}

/// Carries over an event's changes of a file's attributes and place, not those of its content.
fn carry(image: &mut Inode, before: &Inode, now: &Inode, sets: &SetAttributes) {
    macro_rules! changed {
        ($($field:ident or $set:expr),+) => {
            $(if $set || now.$field != before.$field { image.$field = now.$field; })+
        };
    }
    changed!(parent or false, ctime or false, mode or sets.mode, uid or sets.uid, gid or sets.gid);
    changed!(atime or sets.atime, mtime or sets.mtime);
    if (now.flags ^ before.flags) & SETTABLE != 0 {
        image.flags = image.flags & !SETTABLE | now.flags & SETTABLE;
    }
}

/// The inode in a row's key.
fn ino_of(key: &[u8]) -> Ino {
    row::ino_of(key).unwrap_or(Ino(0))
}
