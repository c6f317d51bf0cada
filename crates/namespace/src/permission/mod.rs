//! Who may do what: every decision about permissions, for servers that plan operations and for clients that carry them
//! out before the server knows of them. The rules are those of Linux's local file systems.
//!
//! ```text
//!   Cred (user, groups, capabilities) ─┐
//!   Subject (mode, owner, lists) ──────┼──▶ allowed, with what follows from it (group, mode, lists)
//!   the change that is asked for ──────┘    or Denial: refused, or more must be known first
//! ```
//!
//! Invariants:
//! - Pure functions of their arguments. A caller who carries more (groups, capabilities, a list) is answered alike
//!   wherever less was enough.
//! - A capability is asked for only where the mode, the lists and ownership do not allow it.
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

use chiton_types::{Attr, Cred, Kind, Mode, Refusal};

/// An access control list of an inode, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub enum List<'a> {
    /// There is none.
    None,
    /// There is one that is not known here.
    Unknown,
    /// This one.
    Is(&'a Acl),
}

/// What decisions look at in an inode.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Type.
    pub kind: Kind,
    /// Permissions. With an access list the group's bits are its mask.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Access list.
    pub list: List<'a>,
}

impl Subject<'_> {
    /// An inode of which only the attributes are known.
    pub fn seen(attr: &Attr) -> Subject<'static> {
        let list = if attr.lists & Attr::ACCESS_LIST == 0 { List::None } else { List::Unknown };
        Subject { kind: attr.kind, mode: attr.mode, uid: attr.uid, gid: attr.gid, list }
    }
}

/// Why something is not allowed, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It is forbidden.
    Refused(Refusal),
    /// It depends on supplementary groups or capabilities that the credentials do not carry.
    NeedCred,
    /// It depends on an access control list that is not known here.
    NeedList,
}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Denial {
        Denial::Refused(refusal)
    }
}

/// True of what is known to be true; what is not known has to be looked up.
fn require(known: Option<bool>, otherwise: Refusal) -> Result<(), Denial> {
    match known {
        Some(true) => Ok(()),
        Some(false) => Err(otherwise.into()),
        None => Err(Denial::NeedCred),
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
fn is_owner(cred: &Cred, inode: &Subject<'_>) -> Option<bool> {
    either(Some(cred.uid == inode.uid), || cred.over_owner(chiton_types::Capabilities::FOWNER, inode.uid))
}
