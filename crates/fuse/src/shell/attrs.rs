//! Attributes of inodes and of the file system.

use std::sync::Arc;

use chiton_client::{Caller, Entry};
use chiton_fuse_session::{FileHandle, Request};
use chiton_model::{AttrChange, XattrHow};
use chiton_namespace::permission::is_list;
use chiton_types::{Capabilities, Ino, Kind, Refusal};
use chiton_wire::StatFs;

use super::Shell;
use crate::caller::{as_caller, as_vouched};
use crate::router::Slot;

/// The attribute with the path of the mount's control socket.
const CONTROL: &[u8] = b"chiton.control";
/// Attributes of policies that the server has and a realm does not. (The realm itself has the policy in force.)
const KEPT_AT_THE_SERVER: [&[u8]; 2] = [b"chiton.policy", b"chiton.policy.crossing"];

impl Shell {
    /// Totals of the file system; those heard last if the server is away.
    pub(super) fn totals(&self) -> Result<StatFs, Refusal> {
        match self.router.global().statfs() {
            Ok(totals) => {
                *self.totals.lock() = Some(totals);
                Ok(totals)
            }
            Err(Refusal::Interrupted) => Ok(self.totals.lock().unwrap_or_default()),
            Err(refusal) => Err(refusal),
        }
    }

    pub(super) fn attributes(&self, req: &Request, ino: Ino) -> Result<Entry, Refusal> {
        as_caller(req, |caller| self.attributes_anywhere(caller, ino))
    }

    /// The attributes of an inode, from the client that serves it.
    pub(super) fn attributes_of(&self, caller: &Caller<'_>, ino: Ino) -> Result<Entry, Refusal> {
        self.router.on(caller, [ino], |route| route.getattr(ino, None))
    }

    /// The attributes of a realm's root, from within.
    pub(super) fn attributes_in(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller<'_>,
        root: Ino,
    ) -> Result<Entry, Refusal> {
        debug_assert_eq!(slot.realm().root(), root, "only a root is seen from without");
        self.attributes_of(caller, root)
    }

    pub(super) fn set_attributes(
        &self,
        req: &Request,
        ino: Ino,
        change: &AttrChange,
        fh: Option<FileHandle>,
    ) -> Result<Entry, Refusal> {
        as_caller(req, |caller| match fh {
            Some(fh) => self.router.on_files(caller, [(fh, ino)], |route, [number]| {
                route.setattr(caller, ino, *change, Some(number))
            }),
            None => self.router.on(caller, [ino], |route| route.setattr(caller, ino, *change, None)),
        })
    }

    pub(super) fn link_target(&self, req: &Request, ino: Ino) -> Result<Vec<u8>, Refusal> {
        as_caller(req, |caller| self.router.on(caller, [ino], |route| route.readlink(ino)))
    }

    pub(super) fn may(&self, req: &Request, ino: Ino, want: u8) -> Result<(), Refusal> {
        as_caller(req, |caller| self.may_anywhere(caller, ino, want))
    }

    /// The process may be in chdir(2): if it asks for access to a directory, it may work there from now on.
    pub(super) fn note_entered(&self, req: &Request, ino: Ino) {
        if self.router.branch().is_none()
            && self.router.slot_of(ino).is_none()
            && ino != self.kernel.root()
            && let Ok(Entry { attr, .. }) = self.attributes(req, ino)
            && attr.kind == Kind::Dir
        {
            self.kernel.moves.entered(ino, attr.parent);
        }
    }

    pub(super) fn set_xattr(
        &self,
        req: &Request,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<(), Refusal> {
        let how = match flags {
            0 => XattrHow::Set,
            libc::XATTR_CREATE => XattrHow::Create,
            libc::XATTR_REPLACE => XattrHow::Replace,
            _ => return Err(Refusal::Invalid),
        };
        supported(name)?;
        self.note_overlay(name);
        as_vouched(req, vouched(name), |caller| {
            self.router.on(caller, [ino], |route| route.setxattr(caller, ino, name, value, how))
        })
    }

    pub(super) fn xattr(&self, req: &Request, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Refusal> {
        supported(name)?;
        self.note_overlay(name);
        if name == CONTROL {
            return self.control.clone().ok_or(Refusal::NoXattr);
        }
        as_vouched(req, vouched(name), |caller| {
            if KEPT_AT_THE_SERVER.contains(&name) && self.router.slot_of(ino).is_some() {
                // Inodes that were created in the realm have none.
                let kept = self.router.global().getxattr(caller, ino, name);
                return kept
                    .map_err(|refusal| if refusal == Refusal::Stale { Refusal::NoXattr } else { refusal });
            }
            self.router.on(caller, [ino], |route| route.getxattr(caller, ino, name))
        })
    }

    /// The kernel's overlayfs begins to use a layer on this mount if it asks for one of its attributes. It keeps names of its layers for as long as it
    /// is mounted, and fails with ESTALE at one that the kernel has invalidated. So from then on the kernel is given no names to keep.
    fn note_overlay(&self, name: &[u8]) {
        if OF_OVERLAYS.iter().any(|prefix| name.starts_with(prefix)) {
            self.kernel.keep_mounts();
        }
    }

    pub(super) fn xattrs(&self, req: &Request, ino: Ino) -> Result<Vec<u8>, Refusal> {
        as_caller(req, |caller| self.router.on(caller, [ino], |route| route.listxattr(caller, ino)))
    }

    pub(super) fn remove_xattr(&self, req: &Request, ino: Ino, name: &[u8]) -> Result<(), Refusal> {
        supported(name)?;
        as_vouched(req, vouched(name), |caller| {
            self.router.on(caller, [ino], |route| route.removexattr(caller, ino, name))
        })
    }
}

/// Beginnings of the names of overlayfs's attributes; the second with its option `userxattr`.
const OF_OVERLAYS: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// The capability that the kernel checked before it sent a request for an attribute with this name.
fn vouched(name: &[u8]) -> Capabilities {
    match name {
        b"security.capability" => Capabilities::SETFCAP,
        _ if name.starts_with(b"trusted.") || name.starts_with(b"security.") => Capabilities::SYS_ADMIN,
        _ => Capabilities::NONE,
    }
}

/// Of the `system.` attributes only access control lists are supported.
fn supported(name: &[u8]) -> Result<(), Refusal> {
    if name.starts_with(b"system.") && !is_list(name) { Err(Refusal::Unsupported) } else { Ok(()) }
}
