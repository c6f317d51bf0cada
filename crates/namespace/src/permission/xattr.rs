//! Extended attributes, by the class of their name.

use chiton_model::XATTR_NAME_BYTES_MAX;
use chiton_types::access::{READ, WRITE};
use chiton_types::{Capabilities, Cred, Kind, Mode, Refusal};

use super::acl::{ACL_ACCESS, ACL_DEFAULT};
use super::{is_owner, may, require};
use crate::fault::Fault;
use crate::plan::{InodeFacts, PlanState};

/// The classes of names.
enum Class {
    User,
    Trusted,
    Capability,
    Security,
    Acl,
}

fn class(name: &[u8]) -> Option<Class> {
    Some(match name {
        b"security.capability" => Class::Capability,
        ACL_ACCESS | ACL_DEFAULT => Class::Acl,
        _ if name.starts_with(b"user.") => Class::User,
        _ if name.starts_with(b"trusted.") => Class::Trusted,
        _ if name.starts_with(b"security.") => Class::Security,
        _ => return None,
    })
}

/// Setting or removing an attribute.
///
/// # Errors
/// As setxattr(2) has them, or a [`Fault`] that names the facts to fetch first.
pub fn may_set_xattr<S: PlanState>(
    state: &S,
    cred: &Cred,
    inode: &InodeFacts,
    name: &[u8],
) -> Result<(), Fault> {
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Refusal::Range.into());
    }
    if name.contains(&0) {
        return Err(Refusal::Invalid.into());
    }
    let class = class(name).ok_or(Refusal::Unsupported)?;
    if [&b"user."[..], b"trusted.", b"security."].contains(&name) {
        return Err(Refusal::Invalid.into());
    }
    if inode.is_kept() {
        return Err(Refusal::NotPermitted.into());
    }
    let allowed = match class {
        Class::User => {
            if !matches!(inode.kind, Kind::File | Kind::Dir) {
                return Err(Refusal::NotPermitted.into());
            }
            if inode.kind == Kind::Dir && inode.mode.has(Mode::STICKY) {
                require(is_owner(cred, inode), Refusal::NotPermitted)?;
            }
            return may(state, cred, inode, WRITE);
        }
        Class::Trusted | Class::Security => cred.everywhere(Capabilities::SYS_ADMIN),
        Class::Capability => cred.over(Capabilities::SETFCAP, inode.uid, inode.gid),
        Class::Acl if inode.kind == Kind::Symlink => return Err(Refusal::Unsupported.into()),
        Class::Acl => is_owner(cred, inode),
    };
    require(allowed, Refusal::NotPermitted)
}

/// Reading an attribute.
///
/// # Errors
/// As getxattr(2) has them, or a [`Fault`] that names the facts to fetch first.
pub fn may_read_xattr<S: PlanState>(
    state: &S,
    cred: &Cred,
    inode: &InodeFacts,
    name: &[u8],
) -> Result<(), Fault> {
    match class(name).ok_or(Refusal::Unsupported)? {
        Class::User if !matches!(inode.kind, Kind::File | Kind::Dir) => Err(Refusal::NoXattr.into()),
        Class::User => may(state, cred, inode, READ),
        Class::Trusted => require(cred.everywhere(Capabilities::SYS_ADMIN), Refusal::NoXattr),
        Class::Acl if inode.kind == Kind::Symlink => Err(Refusal::Unsupported.into()),
        Class::Capability | Class::Security | Class::Acl => Ok(()),
    }
}

/// Whether a list of attributes shows this name.
///
/// # Errors
/// [`Fault::NeedGroups`] if the caller's capabilities must be known first.
pub fn may_list_xattr(cred: &Cred, name: &[u8]) -> Result<bool, Fault> {
    if !name.starts_with(b"trusted.") {
        return Ok(true);
    }
    cred.everywhere(Capabilities::SYS_ADMIN).ok_or(Fault::NeedGroups)
}

#[cfg(test)]
mod tests {
    use chiton_types::Privileges;

    use super::super::tests::{OnlyXattrs, inode};
    use super::*;

    #[test]
    fn each_class_of_names_has_its_capability() {
        let inode = |kind, mode| inode(kind, mode, 1, 1);
        let state = OnlyXattrs::default();
        let with = |uid, capabilities| {
            let privileges = Some(Privileges { capabilities, ..Privileges::ALL });
            Cred { privileges, ..Cred::new(uid, uid, &[]) }
        };
        let (none, admin) = (Capabilities::NONE, Capabilities::SYS_ADMIN);
        let not_permitted = || Err(Refusal::NotPermitted.into());
        let file = inode(Kind::File, 0o644);
        for (cred, inode, name, expect) in [
            (with(1, none), file, &b"user.a"[..], Ok(())),
            (with(2, none), file, b"user.a", Err(Refusal::Access.into())),
            (with(2, none), inode(Kind::Dir, 0o1777), b"user.a", not_permitted()),
            (with(2, Capabilities::FOWNER), inode(Kind::Dir, 0o1777), b"user.a", Ok(())),
            (with(1, none), inode(Kind::Symlink, 0o777), b"user.a", not_permitted()),
            (with(0, none), file, b"trusted.a", not_permitted()),
            (with(2, admin), file, b"trusted.a", Ok(())),
            (with(2, admin), file, b"security.a", Ok(())),
            (with(2, admin), file, b"security.capability", not_permitted()),
            (with(2, Capabilities::SETFCAP), file, b"security.capability", Ok(())),
            (with(1, none), file, ACL_ACCESS, Ok(())),
            (with(2, none), file, ACL_ACCESS, not_permitted()),
            (with(2, Capabilities::FOWNER), file, ACL_ACCESS, Ok(())),
            (with(1, none), inode(Kind::Symlink, 0o777), ACL_ACCESS, Err(Refusal::Unsupported.into())),
            (with(0, Capabilities::ALL), file, b"system.other", Err(Refusal::Unsupported.into())),
            (with(0, Capabilities::ALL), file, b"user.", Err(Refusal::Invalid.into())),
        ] {
            assert_eq!(may_set_xattr(&state, &cred, &inode, name), expect, "{cred:?} {name:?}");
        }
        assert_eq!(may_read_xattr(&state, &with(2, none), &file, b"trusted.a"), Err(Refusal::NoXattr.into()));
        assert_eq!(may_read_xattr(&state, &Cred::unseen(0, 0), &file, b"trusted.a"), Err(Fault::NeedGroups));
        assert_eq!(may_list_xattr(&with(2, none), b"trusted.a"), Ok(false));
        assert_eq!(may_list_xattr(&Cred::unseen(2, 2), b"user.a"), Ok(true));
        assert_eq!(may_list_xattr(&Cred::ROOT, b"trusted.a"), Ok(true));
    }
}
