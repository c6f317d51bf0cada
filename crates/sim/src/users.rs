//! The users of a run: root, and two ordinary users with a common group.

use std::sync::Arc;

use chiton_client::{Caller, Groups, LookUp, Standing};
use chiton_types::Privileges;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    /// User 0.
    #[default]
    Root,
    /// User 101, whose own group has the same number.
    First,
    /// User 102, in the same group.
    Second,
}

/// The group to which both ordinary users belong, beside their own.
pub const TEAM: u32 = 200;

impl User {
    pub const ALL: [User; 3] = [User::Root, User::First, User::Second];

    /// The user's number, and that of the user's own group.
    pub fn id(self) -> u32 {
        match self {
            User::Root => 0,
            User::First => 101,
            User::Second => 102,
        }
    }

    pub fn groups(self) -> &'static [u32] {
        if self == User::Root { &[] } else { &[TEAM] }
    }

    /// Whether the user belongs to a group.
    pub fn is_in(self, group: u32) -> bool {
        self.id() == group || self.groups().contains(&group)
    }

    /// As the caller of a request: groups and capabilities are found out only when a decision depends on them, as on a mount.
    pub fn caller(&self) -> Caller<'_> {
        Caller { uid: self.id(), gid: self.id(), groups: Groups::Lazy(self) }
    }
}

impl LookUp for User {
    fn standing(&self) -> Standing {
        Standing { groups: Arc::from(self.groups()), privileges: Privileges::of_user(self.id()) }
    }
}
