//! Which files have a state here.
//!
//! Invariants:
//! - A file has one state at a time, and keeps it as long as it has handles.

use std::collections::BTreeMap;
use std::sync::Arc;

use chiton_types::Ino;
use hashbrown::{HashMap, HashSet};

use super::file::FileState;

#[derive(Default)]
pub(super) struct Table {
    pub(super) files: HashMap<Ino, Arc<FileState>>,
    /// Those without handles, the longest so first.
    pub(super) idle: BTreeMap<u64, Ino>,
    pub(super) idle_stamp: u64,
    /// Files without a state whose size is being set.
    pub(super) resizing: HashSet<Ino>,
}
