//! Names: looking them up, making, moving and removing them.

use std::sync::Arc;
use std::time::Duration;

use chiton_client::{Caller, Entry, Groups, Lookup, OpenFlags};
use chiton_fuse_session::{FileHandle, FopenFlags, Request};
use chiton_model::RenameHow;
use chiton_types::{Ino, Kind, Mode, Refusal, access};

use super::Shell;
use crate::attr::{kind_of_mode, mode};
use crate::caller::{as_caller, as_linker, as_maker};
use crate::router::{CachedByKernel, Slot};

/// How long the kernel may believe the name of a realm's root: as long as it may be late to hear that its parent may be
/// searched by fewer.
const ROOT_NAME_TTL: Duration = Duration::from_secs(1);

/// A file that was made, or opened instead.
type Made = (Entry, FileHandle, FopenFlags);

impl CachedByKernel for Made {
    fn cached(&self, note: &mut dyn FnMut(Ino)) {
        self.0.cached(note);
    }
}

impl Shell {
    pub(super) fn look_up(&self, req: &Request, parent: Ino, name: &[u8]) -> Result<Lookup, Refusal> {
        if let b"." | b".." = name {
            return self.look_up_known(req, parent, name == b"..");
        }
        self.kernel.listing_use.looked_up(parent, name);
        as_caller(req, |caller| match self.router.step_on_the_way(parent, name) {
            Some(step) => self.look_up_on_the_way(caller, parent, name, &step),
            None => self.look_up_asking(caller, parent, name),
        })
    }

    /// Asks the server, or the realm that has the directory.
    pub(super) fn look_up_asking(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        name: &[u8],
    ) -> Result<Lookup, Refusal> {
        if let Some(slot) = self.router.slot_named(parent, name) {
            return self.look_up_root(&slot, caller, parent);
        }
        match self.router.on(caller, [parent], |route| route.lookup(caller, parent, name))? {
            Lookup::Found { attr, ttl, .. } if attr.kind == Kind::Dir && self.router.is_border(attr.ino) => {
                let Entry { attr, attr_ttl, .. } = self.attributes_anywhere(caller, attr.ino)?;
                Ok(Lookup::Found { attr, ttl, attr_ttl })
            }
            found => Ok(found),
        }
    }

    /// The kernel finds an inode again that it knew once (open_by_handle_at(2), an NFS server), or the parent of a directory. Callers
    /// never ask: the kernel itself walks along `.` and `..`.
    fn look_up_known(&self, req: &Request, ino: Ino, parent: bool) -> Result<Lookup, Refusal> {
        let mut entry = self.attributes(req, ino)?;
        if parent && ino != self.kernel.root() {
            // A realm does not know what is above its root.
            let above = self.router.above_root(ino);
            entry = self.attributes(req, above.unwrap_or(entry.attr.parent))?;
        }
        Ok(Lookup::Found { attr: entry.attr, ttl: Duration::ZERO, attr_ttl: entry.attr_ttl })
    }

    /// The name of a realm's root belongs to the global namespace; the directory belongs to the realm.
    fn look_up_root(&self, slot: &Arc<Slot>, caller: &Caller<'_>, parent: Ino) -> Result<Lookup, Refusal> {
        let above = self.router.on(caller, [parent], |route| {
            route.access(caller, parent, access::EXEC)?;
            route.getattr(parent, None)
        })?;
        let Entry { attr, attr_ttl, .. } = self.attributes_in(slot, caller, slot.realm().root())?;
        // No client renames it meanwhile.
        let ttl = if above.attr.is_open() { ROOT_NAME_TTL } else { Duration::ZERO };
        Ok(Lookup::Found { attr, ttl, attr_ttl })
    }

    pub(super) fn make_node(
        &self,
        (req, umask): (&Request, u32),
        parent: Ino,
        name: &[u8],
        new_mode: u32,
        rdev: u32,
    ) -> Result<Entry, Refusal> {
        let kind = kind_of_mode(new_mode).ok_or(Refusal::Invalid)?;
        as_maker(req, umask, |caller| {
            self.router
                .on(caller, [parent], |route| route.mknod(caller, parent, name, kind, mode(new_mode), rdev))
        })
    }

    pub(super) fn make_dir(
        &self,
        (req, umask): (&Request, u32),
        parent: Ino,
        name: &[u8],
        mode: Mode,
    ) -> Result<Entry, Refusal> {
        as_maker(req, umask, |caller| {
            self.router.on(caller, [parent], |route| route.mkdir(caller, parent, name, mode))
        })
    }

    pub(super) fn make_symlink(
        &self,
        req: &Request,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Refusal> {
        as_caller(req, |caller| {
            self.router.on(caller, [parent], |route| route.symlink(caller, parent, name, target))
        })
    }

    pub(super) fn make_file(
        &self,
        (req, umask): (&Request, u32),
        parent: Ino,
        name: &[u8],
        mode: Mode,
        flags: OpenFlags,
    ) -> Result<Made, Refusal> {
        as_maker(req, umask, |caller| {
            self.router.on(caller, [parent], |route| {
                let (entry, number) = route.create(caller, parent, name, mode, flags)?;
                let was_kept = !self.is_shared() || route.is_realm();
                let (fh, how) = self.open_answer(route, entry.attr.ino, (number, flags), was_kept);
                Ok((entry, fh, how))
            })
        })
    }

    pub(super) fn make_link(
        &self,
        req: &Request,
        ino: Ino,
        parent: Ino,
        name: &[u8],
    ) -> Result<Entry, Refusal> {
        as_linker(req, |caller| {
            self.router.on(caller, [parent, ino], |route| {
                if !self.unnamed.has(ino) {
                    return route.link(caller, ino, parent, name);
                }
                let entry = route.link_unnamed(caller, ino, parent, name)?;
                self.unnamed.named(ino);
                Ok(entry)
            })
        })
    }

    pub(super) fn make_unnamed(
        &self,
        (req, umask): (&Request, u32),
        parent: Ino,
        mode: Mode,
        flags: OpenFlags,
    ) -> Result<Made, Refusal> {
        as_maker(req, umask, |caller| {
            self.router.on(caller, [parent], |route| {
                let (entry, number) = route.create_unnamed(caller, parent, mode, flags)?;
                let ino = entry.attr.ino;
                self.unnamed.made(ino);
                let was_kept = !self.is_shared() || route.is_realm();
                let (fh, how) = self.open_answer(route, ino, (number, flags), was_kept);
                Ok((entry, fh, how))
            })
        })
    }

    pub(super) fn remove(
        &self,
        req: &Request,
        parent: Ino,
        name: &[u8],
        is_dir: bool,
    ) -> Result<(), Refusal> {
        as_caller(req, |caller| {
            if is_dir && let Some(slot) = self.router.slot_named(parent, name) {
                self.give_back_removed(&slot, caller, parent)?;
            }
            self.router.on(caller, [parent], |route| match is_dir {
                true => route.rmdir(caller, parent, name),
                false => route.unlink(caller, parent, name),
            })
        })
    }

    /// The root of a subtree that is decoupled here is about to be removed. If it is empty, its changes are merged
    /// first: they removed the entries that the global namespace still has.
    fn give_back_removed(&self, slot: &Arc<Slot>, caller: &Caller<'_>, parent: Ino) -> Result<(), Refusal> {
        self.router
            .on(caller, [parent], |route| route.access(caller, parent, access::WRITE | access::EXEC))?;
        let root = slot.realm().root();
        let is_empty = self.router.on(caller, [root], |route| {
            // As root: that it may be removed, not that it may be read, is asked.
            let groups: Arc<[u32]> = Arc::new([]);
            let as_root = Caller { uid: 0, gid: 0, groups: Groups::Known(&groups) };
            Ok(u32::from(route.readdir(&as_root, root, 0, 1, false)?.0.is_empty()))
        })? == 1;
        if !is_empty {
            return Err(Refusal::NotEmpty);
        }
        self.router.give_back_whole(slot)
    }

    pub(super) fn rename_name(
        &self,
        req: &Request,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        how: RenameHow,
    ) -> Result<(), Refusal> {
        as_caller(req, |caller| {
            self.router
                .on(caller, [from.0, to.0], |route| route.rename(caller, from.0, from.1, to.0, to.1, how))
        })
    }
}
