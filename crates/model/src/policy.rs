//! The record of a directory's policy.

use chiton_types::codec::{Malformed, Take};
use chiton_types::{Ino, Time};

use crate::field::{Code, Fixed, Max};
use crate::record;

/// Longest text of a policy.
pub const POLICY_BYTES_MAX: usize = 16 << 10;
/// Changes of policies that are remembered.
pub const POLICY_HISTORY_MAX: u64 = 4096;

record! {
    /// A policy, or that there is none any more: the state of a directory, and a line of the history.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PolicyChange "a change of a policy" {
        pub ino: Ino,
        /// Number of the change: 1, 2, 3 …
        pub version: u64,
        /// Path of the directory at that time.
        pub path: Vec<u8>,
        /// The text; `None`: removed.
        pub text: Option<Vec<u8>> as Option<Max<u8, POLICY_BYTES_MAX>>,
        pub uid: u32 as Fixed,
        pub time: Time,
        /// The directory whose policy this one extends: the nearest above with a policy, or the root.
        pub around: Ino,
        /// Directories with policies that extended that one until then, and extend this one from now on; if the policy is removed, the
        /// reverse.
        pub below: Vec<Ino>,
    }
}

impl PolicyChange {
    pub fn decode(value: &[u8]) -> Result<PolicyChange, Malformed> {
        let mut v = Take::new(value);
        let change = PolicyChange::take(&mut v)?;
        v.finish()?;
        Ok(change)
    }
}
