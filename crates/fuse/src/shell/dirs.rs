//! Directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use chiton_fuse_session::{ReplyDirectory, ReplyDirectoryPlus, Request};
use chiton_types::{Ino, Name, Refusal};

use super::Shell;
use crate::attr::{GENERATION, file_attr};
use crate::caller::as_caller;
use crate::listing::{self, NAME_BYTES, Wanted};
use crate::listing_pages::Ahead;

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
        let listings = &self.kernel.listings;
        listings.asked(handle, ino);
        let mut ahead = self.kernel.listing_pages.take(handle);
        let name = match self.fill_plus(req, (ino, offset), true, &mut ahead, reply) {
            Ok(Some(name)) => name,
            nothing => {
                listings.over(handle);
                self.kernel.listing_pages.put(handle, ahead);
                return nothing.map(drop);
            }
        };
        let filled = match listings.replied(handle, name) {
            true => Ok(()),
            false => {
                reply.clear();
                listings.over(handle);
                self.fill_plus(req, (ino, offset), false, &mut ahead, reply).map(drop)
            }
        };
        self.kernel.listing_pages.put(handle, ahead);
        filled
    }

    /// Fills a listing with attributes: a name in it that the kernel may keep, if there is one.
    fn fill_plus(
        &self,
        req: &Request,
        (ino, offset): (Ino, u64),
        is_kept: bool,
        ahead: &mut Ahead,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<Option<Name>, Refusal> {
        let mut kept = None;
        let wanted = Wanted { dir: ino, offset, plus: true, rows: reply.rows_left(NAME_BYTES) };
        as_caller(req, |caller| {
            self.router.on(caller, [ino], |route| {
                listing::read(route, caller, &wanted, ahead, |row| {
                    let (mut attr, mut ttl, mut attr_ttl) = row.plus();
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
                    if let crate::router::Route::Realm(slot) = route {
                        slot.note_cached(row.ino);
                    }
                    if !is_kept {
                        (ttl, attr_ttl) = (Duration::ZERO, Duration::ZERO);
                    }
                    attr.shown_ino = self.shown.of(row.ino);
                    let lifetime = self.bounded(ttl);
                    if kept.is_none() && !(lifetime.ttl.is_zero() && attr_ttl.is_zero()) {
                        kept = Name::new(row.name).ok();
                    }
                    let name = OsStr::from_bytes(row.name);
                    reply.add(row.offset, name, &attr_ttl, &lifetime.ttl, &attr, GENERATION)
                })
            })
        })?;
        Ok(kept)
    }

    pub(super) fn sync_dir(&self, req: &Request, ino: Ino) -> Result<(), Refusal> {
        as_caller(req, |caller| self.router.on(caller, [ino], |route| route.fsyncdir()))
    }
}
