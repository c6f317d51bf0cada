//! Who asks.

use std::sync::Arc;

/// Credentials of the caller of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups. `None`: not looked up yet; a decision that needs them answers
    /// `NeedGroups` and the caller asks again with `Some` (empty when they cannot be read).
    pub groups: Option<Arc<[u32]>>,
}

impl Cred {
    /// The superuser.
    pub const ROOT: Cred = Cred { uid: 0, gid: 0, groups: None };

    /// A caller whose supplementary groups are known.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Cred {
        Cred { uid, gid, groups: Some(groups.into()) }
    }

    /// True for the superuser.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller belongs to `gid`; `None` if that depends on groups not looked up.
    pub fn in_group(&self, gid: u32) -> Option<bool> {
        if self.gid == gid {
            return Some(true);
        }
        self.groups.as_ref().map(|groups| groups.contains(&gid))
    }
}
