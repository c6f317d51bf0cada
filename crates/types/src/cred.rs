//! Credentials: the user for whom a call is made.

use std::sync::Arc;

use crate::{Capabilities, Privileges};

/// Credentials of the caller of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups. `None`: not looked up yet; a decision that needs them answers
    /// `NeedGroups` and the caller asks again with `Some` (empty when they cannot be read).
    pub groups: Option<Arc<[u32]>>,
    /// Capabilities. `None`: not looked up yet, as for the groups.
    pub privileges: Option<Privileges>,
    /// The caller's machine allows new names only for files that the caller owns or may read and write
    /// (`fs.protected_hardlinks`).
    pub protected_hardlinks: bool,
    /// The caller's umask, if it is not applied to the modes yet that the caller asks for; else 0.
    pub umask: u16,
}

impl Cred {
    /// The superuser: user and group 0, with all capabilities.
    pub const ROOT: Cred = Cred {
        uid: 0,
        gid: 0,
        groups: None,
        privileges: Some(Privileges::ALL),
        protected_hardlinks: false,
        umask: 0,
    };

    /// A caller whose supplementary groups are known. User 0 has every capability, others have none.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Cred {
        let privileges = Some(Privileges::of_user(uid));
        Cred { groups: Some(groups.into()), privileges, ..Cred::unseen(uid, gid) }
    }

    /// A caller of whom nothing else is known yet.
    pub fn unseen(uid: u32, gid: u32) -> Cred {
        Cred { uid, gid, groups: None, privileges: None, ..Cred::ROOT }
    }

    /// Whether the caller belongs to `gid`; `None` if that depends on groups not looked up.
    pub fn in_group(&self, gid: u32) -> Option<bool> {
        if self.gid == gid {
            return Some(true);
        }
        self.groups.as_ref().map(|groups| groups.contains(&gid))
    }

    /// Whether the caller has a capability over the whole file system; `None`: not looked up.
    pub fn everywhere(&self, wanted: Capabilities) -> Option<bool> {
        self.privileges.as_ref().map(|privileges| privileges.everywhere(wanted))
    }

    /// Whether the caller has a capability over inodes of an owner and a group; `None`: not looked up.
    pub fn over(&self, wanted: Capabilities, uid: u32, gid: u32) -> Option<bool> {
        self.privileges.as_ref().map(|privileges| privileges.over(wanted, uid, gid))
    }

    /// Whether the caller has a capability over inodes of an owner; `None`: not looked up.
    pub fn over_owner(&self, wanted: Capabilities, uid: u32) -> Option<bool> {
        self.privileges.as_ref().map(|privileges| privileges.over_owner(wanted, uid))
    }

    /// Whether these credentials say all that `other` says, and the same: every decision with `other` comes out alike with these.
    pub fn covers(&self, other: &Cred) -> bool {
        let rest = |cred: &Cred| (cred.uid, cred.gid, cred.protected_hardlinks, cred.umask);
        rest(self) == rest(other)
            && (other.groups.is_none() || self.groups == other.groups)
            && (other.privileges.is_none() || self.privileges == other.privileges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_cover_those_that_say_less() {
        let all = Cred::new(5, 6, &[7]);
        let less = Cred::unseen(5, 6);
        assert!(all.covers(&less) && all.covers(&all) && !less.covers(&all));
        assert!(!all.covers(&Cred::unseen(5, 7)));
        assert!(!all.covers(&Cred { groups: Some([8].into()), ..less.clone() }));
        assert!(!all.covers(&Cred { privileges: Some(Privileges::ALL), ..less }));
    }
}
