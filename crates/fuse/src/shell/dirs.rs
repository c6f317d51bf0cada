//! Directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use chiton_client::Caller;
use chiton_fuse_session::{FileAttr, ReplyDirectory, ReplyDirectoryPlus, Request};
use chiton_types::{Ino, Name, Refusal};

use super::Shell;
use crate::attr::{GENERATION, file_attr};
use crate::caller::as_caller;
use crate::listing::{self, NAME_BYTES, Row, Wanted};
use crate::listing_pages::Ahead;
use crate::listing_use::Beside;
use crate::router::Route;

/// The content of a reply to a listing.
#[derive(Default)]
struct Filled {
    names: usize,
    /// The first name, if it has no attributes.
    bare: Option<Name>,
    /// A name that the kernel may keep, if there is one.
    kept: Option<Name>,
}

impl Shell {
    pub(super) fn open_dir(&self, req: &Request, ino: Ino) -> Result<(), Refusal> {
        as_caller(req, |caller| self.router.on(caller, [ino], |route| route.opendir(caller, ino)))
    }

    pub(super) fn close_dir(&self, req: &Request, ino: Ino) {
        // This fails only if the client has ended, and its open directories with it.
        let _ = as_caller(req, |caller| {
            self.router.on(caller, [ino], |route| {
                route.closedir(ino);
                Ok(())
            })
        });
    }

    pub(super) fn list(
        &self,
        req: &Request,
        ino: Ino,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<(), Refusal> {
        as_caller(req, |caller| {
            self.router.on(caller, [ino], |route| {
                let rows = reply.rows_left(NAME_BYTES);
                let wanted = Wanted { dir: ino, offset, plus: false, rows };
                listing::read(route, caller, &wanted, &mut Ahead::default(), |row| {
                    reply.add(self.shown.of(row.ino), row.offset, row.kind, OsStr::from_bytes(row.name))
                })
            })
        })
    }

    /// Names with attributes. In a shared file system a lease may end before the kernel has read the reply ([`ListingReplies`]).
    ///
    /// [`ListingReplies`]: crate::listing_replies::ListingReplies
    pub(super) fn list_plus(
        &self,
        req: &Request,
        (ino, handle): (Ino, u64),
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<(), Refusal> {
        let kernel = &self.kernel;
        kernel.listings.asked(handle, ino);
        let beside = kernel.listing_use.next(handle);
        let wanted =
            Wanted { dir: ino, offset, plus: beside != Beside::Nothing, rows: reply.rows_left(NAME_BYTES) };
        let mut ahead = kernel.listing_pages.take(handle);
        let mut filled = self.fill_plus(req, &wanted, (beside, true), &mut ahead, reply);
        let kept = filled.as_mut().ok().and_then(|filled| filled.kept.take());
        let is_kept = kept.is_some();
        let is_sound = kept.is_some_and(|name| kernel.listings.replied(handle, name));
        if !is_sound {
            kernel.listings.over(handle);
        }
        if is_kept && !is_sound {
            reply.clear();
            filled = self.fill_plus(req, &wanted, (beside, false), &mut ahead, reply);
        }
        kernel.listing_pages.put(handle, ahead);
        let Filled { names, bare, .. } = filled?;
        kernel.listing_use.replied(handle, ino, names, bare);
        Ok(())
    }

    /// Fills a listing with attributes, those that `beside` says. `is_kept`: the kernel may keep them.
    fn fill_plus(
        &self,
        req: &Request,
        wanted: &Wanted,
        (beside, is_kept): (Beside, bool),
        ahead: &mut Ahead,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<Filled, Refusal> {
        let mut filled = Filled::default();
        as_caller(req, |caller| {
            self.router.on(caller, [wanted.dir], |route| {
                listing::read(route, caller, wanted, ahead, |row| {
                    let name = OsStr::from_bytes(row.name);
                    let is_bare = beside.leaves_out(filled.names);
                    if is_bare && filled.names == 0 {
                        filled.bare = Name::new(row.name).ok();
                    }
                    filled.names += 1;
                    let entry = if is_bare { None } else { self.entry_in_listing(caller, route, &row) };
                    let Some((attr, ttl, attr_ttl)) = entry else {
                        return reply.add_name(row.offset, name, self.shown.of(row.ino), row.kind);
                    };
                    let (ttl, attr_ttl) =
                        if is_kept { (ttl, attr_ttl) } else { (Duration::ZERO, Duration::ZERO) };
                    let lifetime = self.bounded(ttl);
                    if filled.kept.is_none() && !(lifetime.ttl.is_zero() && attr_ttl.is_zero()) {
                        filled.kept = Name::new(row.name).ok();
                    }
                    reply.add(row.offset, name, &attr_ttl, &lifetime.ttl, &attr, GENERATION)
                })
            })
        })?;
        Ok(filled)
    }

    /// The attributes of a row, how long its name may be kept, and how long they; nothing if they are not known.
    fn entry_in_listing(
        &self,
        caller: &Caller<'_>,
        route: &Route,
        row: &Row<'_>,
    ) -> Option<(FileAttr, Duration, Duration)> {
        let entry = row.entry?;
        let (mut attr, mut attr_ttl) = (file_attr(&entry.attr), entry.attr_ttl);
        let is_elsewhere = match route.is_realm() {
            true => self.router.is_border(row.ino),
            false => self.router.slot_at(row.ino).is_some(),
        };
        if is_elsewhere {
            match self.attributes_in_listing(caller, row.ino) {
                Some(here) => (attr, attr_ttl) = (file_attr(&here.attr), here.attr_ttl),
                // The kernel is not to believe them longer than the server is away.
                None => attr_ttl = Duration::ZERO,
            }
        }
        if let Route::Realm(slot) = route {
            slot.note_cached(row.ino);
        }
        attr.shown_ino = self.shown.of(row.ino);
        Some((attr, entry.ttl, attr_ttl))
    }

    pub(super) fn sync_dir(&self, req: &Request, ino: Ino) -> Result<(), Refusal> {
        as_caller(req, |caller| self.router.on(caller, [ino], |route| route.fsyncdir()))
    }
}
