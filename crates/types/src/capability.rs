//! Capabilities of Linux, and the inodes over which a caller has them.
//!
//! A process has its capabilities in its user namespace. Over an inode they count only if the inode's owner and group
//! have a number in that namespace (Linux: `capable_wrt_inode_uidgid`):
//!
//! ```text
//!   namespace of the mount   every inode
//!   namespace of a container inodes whose owner and group are in its uid_map and gid_map
//! ```

use std::sync::Arc;

/// Most ranges in one map of a user namespace: Linux takes no more.
pub const ID_RANGES_MAX: usize = 340;

/// A set of capabilities: bit `n` is the capability with the number `n` of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Capabilities(pub u64);

impl Capabilities {
    pub const NONE: Capabilities = Capabilities(0);
    /// Every capability that there is, or will be.
    pub const ALL: Capabilities = Capabilities(u64::MAX);
    /// CAP_CHOWN: change owner and group.
    pub const CHOWN: Capabilities = Capabilities(1 << 0);
    /// CAP_DAC_OVERRIDE: read, write and search whatever the mode says.
    pub const DAC_OVERRIDE: Capabilities = Capabilities(1 << 1);
    /// CAP_DAC_READ_SEARCH: read and search whatever the mode says.
    pub const DAC_READ_SEARCH: Capabilities = Capabilities(1 << 2);
    /// CAP_FOWNER: act as the owner.
    pub const FOWNER: Capabilities = Capabilities(1 << 3);
    /// CAP_FSETID: keep set-id bits, and set them for groups of others.
    pub const FSETID: Capabilities = Capabilities(1 << 4);
    /// CAP_LINUX_IMMUTABLE: set and clear the flags immutable and append-only.
    pub const LINUX_IMMUTABLE: Capabilities = Capabilities(1 << 9);
    /// CAP_SYS_ADMIN: `trusted.` and `security.` attributes; administration.
    pub const SYS_ADMIN: Capabilities = Capabilities(1 << 21);
    /// CAP_MKNOD: make devices.
    pub const MKNOD: Capabilities = Capabilities(1 << 27);
    /// CAP_SETFCAP: give files capabilities.
    pub const SETFCAP: Capabilities = Capabilities(1 << 31);

    /// True if every capability of `wanted` is in the set.
    pub fn has(self, wanted: Capabilities) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Those of both sets.
    #[must_use]
    pub fn and(self, more: Capabilities) -> Capabilities {
        Capabilities(self.0 | more.0)
    }
}

/// Consecutive user or group numbers, as the mount counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    pub first: u32,
    pub count: u32,
}

impl IdRange {
    /// True if `id` is one of them.
    pub fn has(self, id: u32) -> bool {
        id.checked_sub(self.first).is_some_and(|distance| distance < self.count)
    }
}

/// The owners and groups that have a number in a user namespace; at most [`ID_RANGES_MAX`] ranges each.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct IdMaps {
    pub users: Vec<IdRange>,
    pub groups: Vec<IdRange>,
}

/// The inodes over which capabilities count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every inode, and the file system itself: the caller is in the user namespace of the mount.
    Everywhere,
    /// Inodes whose owner and group are in these maps.
    Mapped(Arc<IdMaps>),
}

/// A caller's capabilities and the inodes over which they count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    pub capabilities: Capabilities,
    /// The user namespace in which they count.
    pub scope: Scope,
}

impl Privileges {
    /// Those of a superuser in the user namespace of the mount.
    pub const ALL: Privileges = Privileges { capabilities: Capabilities::ALL, scope: Scope::Everywhere };
    /// Those of an ordinary user.
    pub const NONE: Privileges = Privileges { capabilities: Capabilities::NONE, scope: Scope::Everywhere };

    /// All for user 0, none for others: where nothing more is known of a caller.
    pub fn of_user(uid: u32) -> Privileges {
        if uid == 0 { Privileges::ALL } else { Privileges::NONE }
    }

    /// Whether a capability counts over the whole file system.
    pub fn everywhere(&self, wanted: Capabilities) -> bool {
        self.capabilities.has(wanted) && self.scope == Scope::Everywhere
    }

    /// Whether a capability counts over inodes of an owner, whatever their group.
    pub fn over_owner(&self, wanted: Capabilities, uid: u32) -> bool {
        self.capabilities.has(wanted)
            && match &self.scope {
                Scope::Everywhere => true,
                Scope::Mapped(maps) => maps.users.iter().any(|range| range.has(uid)),
            }
    }

    /// Whether a capability counts over inodes of an owner and a group.
    pub fn over(&self, wanted: Capabilities, uid: u32, gid: u32) -> bool {
        self.over_owner(wanted, uid)
            && match &self.scope {
                Scope::Everywhere => true,
                Scope::Mapped(maps) => maps.groups.iter().any(|range| range.has(gid)),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_count_over_mapped_inodes_only() {
        let range = |first, count| vec![IdRange { first, count }];
        let maps = IdMaps { users: range(100_000, 10), groups: range(200_000, 1) };
        let inside = Privileges { capabilities: Capabilities::CHOWN, scope: Scope::Mapped(Arc::new(maps)) };
        assert!(inside.over(Capabilities::CHOWN, 100_009, 200_000));
        assert!(!inside.over(Capabilities::CHOWN, 100_010, 200_000));
        assert!(!inside.over(Capabilities::CHOWN, 99_999, 200_000));
        assert!(!inside.over(Capabilities::CHOWN, 100_000, 200_001));
        assert!(!inside.over(Capabilities::FOWNER, 100_000, 200_000));
        assert!(inside.over_owner(Capabilities::CHOWN, 100_000));
        assert!(!inside.everywhere(Capabilities::CHOWN));
        assert!(Privileges::ALL.everywhere(Capabilities::SYS_ADMIN));
        assert!(Privileges::of_user(0).over(Capabilities::DAC_OVERRIDE, 5, 6));
        assert!(!Privileges::of_user(1).over(Capabilities::DAC_OVERRIDE, 1, 1));
    }
}
