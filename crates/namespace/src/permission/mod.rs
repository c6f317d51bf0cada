//! Permissions: every decision about them, for servers that plan operations and for clients that answer before they ask a server.
//! The rules are those of Linux's local file systems.
//!
//! ```text
//!   Cred (user, groups, capabilities) ──────┐
//!   InodeFacts (mode, owner), access lists ─┼──▶ allowed, with what follows from it (group, mode, lists)
//!   the change that is asked for ───────────┘    or Fault: refused, or more must be known first
//! ```
//!
//! Invariants:
//! - Pure functions of their arguments. A caller who carries more (groups, capabilities) is answered alike wherever less was
//!   enough.
//! - A capability is asked for only where the mode, the lists and ownership do not allow it; a list is read only where it
//!   decides.
//!
//! One file a question: [`access`] for the rights to read, write and execute, [`names`] for directories and links,
//! [`birth`] for new inodes, [`attrs`] for chmod, chown and utimens, [`xattr`] for extended attributes, [`acl`] for lists.

mod access;
mod acl;
mod attrs;
mod birth;
mod names;
mod xattr;

pub use access::may;
pub use acl::{ACL_ACCESS, ACL_DEFAULT, Acl, AclEntry, AclTag, is_list};
pub use attrs::{Changed, change, may_truncate, written};
pub use birth::{Birth, Newborn, birth};
pub use names::{may_change_names, may_link, may_remove, may_search, room_for_link, room_for_subdirectory};
pub use xattr::{may_list_xattr, may_read_xattr, may_set_xattr};

use chiton_types::{Attr, Cred, Refusal};

use crate::fault::Fault;
use crate::plan::{InodeFacts, PlanState};

/// The access list of an inode, as it is stored.
///
/// # Errors
/// [`Refusal::Io`] if it is no list.
pub fn access_list<S: PlanState>(state: &S, inode: &InodeFacts) -> Result<Option<Acl>, Fault> {
    list(state, inode, Attr::ACCESS_LIST, ACL_ACCESS)
}

/// The default list of a directory.
///
/// # Errors
/// [`Refusal::Io`] if it is no list.
pub fn default_list<S: PlanState>(state: &S, dir: &InodeFacts) -> Result<Option<Acl>, Fault> {
    list(state, dir, Attr::DEFAULT_LIST, ACL_DEFAULT)
}

#[inline]
fn list<S: PlanState>(state: &S, inode: &InodeFacts, flag: u8, name: &[u8]) -> Result<Option<Acl>, Fault> {
    if inode.lists & flag == 0 {
        return Ok(None);
    }
    let value = state.xattrs(inode)?.and_then(|xattrs| xattrs.0.get(name));
    // What is no list was not put there by `plan`: nobody is let in by it.
    Ok(Acl::decode(value.map_or(&[], |value| value)).map_err(|_| Refusal::Io)?)
}

/// True of what is known to be true; what is not known has to be looked up.
fn require(known: Option<bool>, otherwise: Refusal) -> Result<(), Fault> {
    match known {
        Some(true) => Ok(()),
        Some(false) => Err(otherwise.into()),
        None => Err(Fault::NeedGroups),
    }
}

/// One of two is true: the second is looked at only if the first does not decide.
fn either(first: Option<bool>, second: impl FnOnce() -> Option<bool>) -> Option<bool> {
    if first == Some(true) {
        return first;
    }
    match second() {
        Some(true) => Some(true),
        Some(false) => first,
        None => None,
    }
}

/// Whether the caller is the owner of an inode, or acts as the owner (CAP_FOWNER).
fn is_owner(cred: &Cred, inode: &InodeFacts) -> Option<bool> {
    either(Some(cred.uid == inode.uid), || cred.over_owner(chiton_types::Capabilities::FOWNER, inode.uid))
}

#[cfg(test)]
pub(crate) mod tests {
    use chiton_types::{Ino, Kind, Mode, Name, Position, Time};

    use super::*;
    use crate::fault::Need;
    use crate::plan::ContentIn;
    use crate::values::Xattrs;

    /// A state in which nothing is known but the attributes of one inode.
    #[derive(Default)]
    pub(crate) struct OnlyXattrs(pub(crate) Xattrs);

    impl PlanState for OnlyXattrs {
        fn inode(&self, ino: Ino) -> Result<InodeFacts, Fault> {
            Err(Need::Inode(ino).into())
        }

        fn entry(&self, dir: &InodeFacts, name: &Name) -> Result<Option<Ino>, Fault> {
            Err(Need::Entry(dir.ino, name.clone()).into())
        }

        fn xattrs(&self, _: &InodeFacts) -> Result<Option<&Xattrs>, Fault> {
            Ok(Some(&self.0))
        }
    }

    pub(crate) fn inode(kind: Kind, mode: u16, uid: u32, gid: u32) -> InodeFacts {
        InodeFacts {
            ino: Ino(7),
            parent: Ino::ROOT,
            position: Position(1),
            kind,
            mode: Mode(mode),
            uid,
            gid,
            nlink: 1,
            size: 0,
            ctime: Time(0),
            lists: 0,
            content: ContentIn::Nothing,
        }
    }
}
