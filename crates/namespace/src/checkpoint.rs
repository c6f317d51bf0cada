//! The dirty rows, as they were at one position, for one atomic batch of the metadata store.

use chiton_types::Ino;

use crate::dirty::{CheckpointList, DirtyKey, is_dirty};
use crate::inode::COMPLETE;
use crate::namespace::{Namespace, RowChange};
use crate::row;
use crate::values::{
    BlockKey, ChunkKey, ContentKey, DecouplingKey, GarbageKey, HistoryKey, LinkedKey, OrphanKey, PolicyKey,
    XattrsKey,
};

impl Namespace {
    /// Begins a checkpoint of the state as it is now. One at a time: the rows that [`Namespace::checkpoint_take`]
    /// hands out must become durable, however often that is tried, before [`Namespace::checkpoint_done`].
    pub fn checkpoint_begin(&mut self) {
        self.dirty.begin();
        let count = (row::count_key(), Some(self.inode_count.to_le_bytes().to_vec()));
        self.dirty.saved().push(count);
        let images = self.dirty.before_images.take_unwritten();
        self.dirty.saved().extend(images);
        if self.decoupling_last > 0 {
            let last = (row::decoupling_last_key(), Some(self.decoupling_last.to_le_bytes().to_vec()));
            self.dirty.saved().push(last);
        }
    }

    /// The list of the rows to write, to be sorted without a lock and given back before the first
    /// [`Namespace::checkpoint_take`]. Worth it for many rows: in the order of their keys they are neighbours in
    /// memory, and the store need not sort them.
    pub fn checkpoint_list(&mut self) -> CheckpointList {
        self.dirty.lend()
    }

    /// Gives back a list that [`Namespace::checkpoint_list`] made.
    pub fn checkpoint_listed(&mut self, list: CheckpointList) {
        self.dirty.give_back(list);
    }

    /// Encodes up to about `rows_max` rows of the checkpoint, as they were when it began; true when there are no more.
    /// Rows that were changed meanwhile, in no order, come with the last.
    pub fn checkpoint_take(&mut self, rows_max: usize, out: &mut Vec<RowChange>) -> bool {
        let end = out.len() + rows_max;
        while out.len() < end {
            let Some(key) = self.dirty.next_saving() else {
                out.append(self.dirty.saved());
                return true;
            };
            match key {
                DirtyKey::Inode(ino) => out.extend(self.take_inode(ino)),
                DirtyKey::Entry(dir, hash) => self.take_entries(dir, hash, out),
                DirtyKey::Content(ino) => out.extend(self.contents.take(ContentKey(ino), &self.dirty)),
                DirtyKey::Chunk(ino, n) => out.extend(self.chunks.take(ChunkKey(ino, n), &self.dirty)),
                DirtyKey::Xattrs(ino) => out.extend(self.xattrs.take(XattrsKey(ino), &self.dirty)),
                DirtyKey::Block(block) => out.extend(self.blocks.take(BlockKey(block), &self.dirty)),
                DirtyKey::Orphan(ino) => out.extend(self.orphans.take(OrphanKey(ino), &self.dirty)),
                DirtyKey::Policy(ino) => out.extend(self.policies.take(PolicyKey(ino), &self.dirty)),
                DirtyKey::History(n) => out.extend(self.policy_history.take(HistoryKey(n), &self.dirty)),
                DirtyKey::Decoupling(id) => out.extend(self.decouplings.take(DecouplingKey(id), &self.dirty)),
                DirtyKey::Linked(ino) => out.extend(self.linked.take(LinkedKey(ino), &self.dirty)),
                DirtyKey::Garbage(block) => out.extend(self.garbage.take(GarbageKey(block), &self.dirty)),
            }
        }
        false
    }

    /// The checkpoint's rows are durable in the store.
    pub fn checkpoint_done(&mut self) {
        self.dirty.done();
        self.generation += 1;
        self.orphans.drop_absent();
        self.garbage.drop_absent();
        self.policies.drop_absent();
        self.policy_history.drop_absent();
        self.linked.drop_absent();
        self.decouplings.drop_absent();
        for (dir, hash) in std::mem::take(&mut self.spent) {
            if self.inodes.get(dir).is_some_and(|d| d.has(COMPLETE)) {
                self.forget_absent(dir, hash);
            }
        }
        for dir in std::mem::take(&mut self.dead_dirs) {
            let Some(held) = self.dirs.get_mut(&dir) else { continue };
            let (before, names_before) = (held.len(), held.name_bytes());
            held.drop_clean();
            self.entries -= before - held.len();
            self.name_bytes -= names_before - held.name_bytes();
            if held.len() == 0 {
                self.dirs.remove(&dir);
            } else {
                self.dead_dirs.push(dir);
            }
        }
    }

    /// In a directory that is in memory whole, "absent" need not be remembered once the store knows it.
    fn forget_absent(&mut self, dir: Ino, hash: u64) {
        let Some(held) = self.dirs.get_mut(&dir) else { return };
        let spent: Vec<Vec<u8>> = held
            .with_hash(hash)
            .filter(|(_, slot)| slot.kind().is_none() && !slot.is_unreadable() && !is_dirty(&slot.marks))
            .map(|(name, _)| name.to_vec())
            .collect();
        for name in spent {
            held.remove(hash, &name);
            self.entries -= 1;
            self.name_bytes -= name.len();
        }
    }

    fn take_inode(&self, ino: Ino) -> Option<RowChange> {
        if let Some(inode) = self.inodes.get(ino) {
            return self.dirty.take_mark(&inode.marks).then(|| (row::inode_key(ino), Some(inode.encode())));
        }
        let marks = self.inodes.dead.get(&ino)?;
        self.dirty.take_mark(marks).then(|| (row::inode_key(ino), None))
    }

    fn take_entries(&mut self, dir: Ino, hash: u64, out: &mut Vec<RowChange>) {
        let Some(held) = self.dirs.get(&dir) else { return };
        for (name, slot) in held.with_hash(hash) {
            if self.dirty.take_mark(&slot.marks) {
                let value = slot.kind().map(|kind| row::encode_entry(slot.ino, kind, slot.position));
                if value.is_none() {
                    self.spent.push((dir, hash));
                }
                out.push((row::entry_key(dir, hash, name), value));
            }
        }
    }
}
