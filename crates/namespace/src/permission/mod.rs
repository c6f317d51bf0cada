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
pub use attrs::{Changed, change, may_set_flags, may_truncate, written};
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
    if inode.flags & flag == 0 {
        return Ok(None);
    }
    let value = state.xattrs(inode)?.and_then(|xattrs| xattrs.0.get(name));
    // An invalid list was not put there by `plan`: it lets nobody in.
    Ok(Acl::decode(value.map_or(&[], |value| value)).map_err(|_| Refusal::Io)?)
}

/// Passes if `known` is true; if it is unknown, the caller's groups have to be looked up.
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
            flags: 0,
            content: ContentIn::Nothing,
        }
    }

    #[test]
    fn flags_refuse_what_linux_refuses() {
        use chiton_model::{AttrChange, SetTime};
        use chiton_types::access::{READ, WRITE};

        const KEPT: Result<(), Fault> = Err(Fault::Refused(Refusal::NotPermitted));
        let state = OnlyXattrs::default();
        let cred = Cred::ROOT;
        let with = |kind, flags| InodeFacts { flags, ..inode(kind, 0o777, 0, 0) };
        // The refusals of an immutable inode, and of an append-only one.
        let check =
            |of: fn(&OnlyXattrs, &Cred, &InodeFacts) -> Result<(), Fault>, kind, immutable, append_only| {
                let refused = |flags| of(&state, &cred, &with(kind, flags)) == KEPT;
                assert_eq!(refused(Attr::IMMUTABLE), immutable);
                assert_eq!(refused(Attr::APPEND_ONLY), append_only);
                assert_eq!(of(&state, &cred, &with(kind, 0)), Ok(()));
            };
        fn changes(change: AttrChange, state: &OnlyXattrs, cred: &Cred, i: &InodeFacts) -> Result<(), Fault> {
            super::change(state, cred, i, &change, Time(9)).map(drop)
        }
        check(|s, c, i| may(s, c, i, READ), Kind::File, false, false);
        check(|s, c, i| may(s, c, i, WRITE), Kind::File, true, false);
        check(may_change_names, Kind::Dir, true, false);
        check(|_, c, i| may_remove(c, i, &inode(Kind::File, 0o777, 0, 0)), Kind::Dir, false, true);
        check(|_, c, i| may_remove(c, &inode(Kind::Dir, 0o777, 0, 0), i), Kind::File, true, true);
        check(may_link, Kind::File, true, true);
        check(|s, c, i| may_set_xattr(s, c, i, b"user.a"), Kind::File, true, true);
        let by_handle = |s: &OnlyXattrs, c: &Cred, i: &InodeFacts| {
            may_truncate(
                s,
                c,
                i,
                &AttrChange { size: Some(0), size_by_handle: true, ..AttrChange::default() },
            )
        };
        check(by_handle, Kind::File, true, true);
        let chmod = |s: &OnlyXattrs, c: &Cred, i: &InodeFacts| {
            changes(AttrChange { mode: Some(Mode(0o600)), ..AttrChange::default() }, s, c, i)
        };
        check(chmod, Kind::File, true, true);
        let touch = |s: &OnlyXattrs, c: &Cred, i: &InodeFacts| {
            changes(AttrChange { mtime: Some(SetTime::Now), ..AttrChange::default() }, s, c, i)
        };
        check(touch, Kind::File, true, false);
        let set_time = |s: &OnlyXattrs, c: &Cred, i: &InodeFacts| {
            changes(AttrChange { mtime: Some(SetTime::At(Time(1))), ..AttrChange::default() }, s, c, i)
        };
        check(set_time, Kind::File, true, true);
    }

    #[test]
    fn flags_are_set_with_their_capability_only() {
        use chiton_types::{Capabilities, Privileges};

        let owner = |capabilities| Cred {
            privileges: Some(Privileges { capabilities, ..Privileges::ALL }),
            ..Cred::new(10, 10, &[])
        };
        let file = |flags| InodeFacts { flags, ..inode(Kind::File, 0o644, 10, 10) };
        let with = owner(Capabilities::LINUX_IMMUTABLE);
        let without = owner(Capabilities::NONE);
        assert_eq!(may_set_flags(&with, &file(0), Attr::IMMUTABLE), Ok(()));
        assert_eq!(may_set_flags(&with, &file(Attr::IMMUTABLE), 0), Ok(()));
        for (before, after) in [(0, Attr::APPEND_ONLY), (Attr::IMMUTABLE, 0)] {
            let refused = Err(Fault::Refused(Refusal::NotPermitted));
            assert_eq!(may_set_flags(&without, &file(before), after), refused, "{before} {after}");
        }
        assert_eq!(
            may_set_flags(&without, &file(Attr::IMMUTABLE), Attr::IMMUTABLE),
            Ok(()),
            "nothing changes"
        );
        let unknown = Err(Fault::Refused(Refusal::Unsupported));
        assert_eq!(may_set_flags(&with, &file(0), Attr::ACCESS_LIST), unknown);
    }
}
