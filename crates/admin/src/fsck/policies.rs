//! Checks policies, which are recorded twice: at directories, and in the history.
//!
//! Both are held in memory in short, as the server holds them whole.

use std::collections::BTreeMap;

use chiton_model::field::Code;
use chiton_model::{POLICY_HISTORY_MAX, PolicyChange};
use chiton_namespace::StoredRow;
use chiton_types::{Ino, Kind};

use crate::fsck::rows::inode;
use crate::fsck::{CheckError, Problem, Run};

/// A policy row in short.
#[derive(Clone, Copy)]
struct PolicyRecord {
    ino: Ino,
    version: u64,
    has_text: bool,
    crc: u32,
}

impl PolicyRecord {
    fn new(change: &PolicyChange) -> PolicyRecord {
        let PolicyChange { ino, version, text, .. } = change;
        // The row of the directory follows what is set above it later, and in a file system that became a cluster its path is that of
        // the day of the copy; the history stays as it was.
        let as_set =
            PolicyChange { path: Vec::new(), around: Ino::ROOT, below: Vec::new(), ..change.clone() };
        let mut bytes = Vec::new();
        PolicyChange::put(&as_set, &mut bytes);
        PolicyRecord { ino: *ino, version: *version, has_text: text.is_some(), crc: crc32c::crc32c(&bytes) }
    }
}

#[derive(Default)]
pub(crate) struct Policies {
    /// By the directory in the key.
    carried: BTreeMap<Ino, PolicyRecord>,
    /// By the number in the key.
    history: BTreeMap<u64, PolicyRecord>,
}

impl Policies {
    /// Records a row of a policy or of the history.
    pub(crate) fn note(&mut self, row: &StoredRow) {
        match row {
            StoredRow::Policy(ino, change) => {
                self.carried.insert(*ino, PolicyRecord::new(change));
            }
            StoredRow::PolicyChange(version, change) => {
                self.history.insert(*version, PolicyRecord::new(change));
            }
            _ => {}
        }
    }

    pub(crate) fn check(&self, run: &mut Run<'_>) -> Result<(), CheckError> {
        let mut latest: BTreeMap<Ino, PolicyRecord> = BTreeMap::new();
        for (&version, &record) in &self.history {
            if record.version == version {
                latest.insert(record.ino, record);
                continue;
            }
            let carried = self.carried.values().find(|p| p.version == version);
            run.report(Problem::WrongPolicyHistory { version, is: carried.map(|p| p.ino) })?;
        }
        for (&ino, carried) in &self.carried {
            self.check_carried(run, ino, carried, latest.get(&ino))?;
        }
        for (&ino, record) in
            latest.iter().filter(|(ino, record)| record.has_text && !self.carried.contains_key(ino))
        {
            // A directory that was removed has none any more.
            if can_carry(run, ino)? == Some(true) {
                run.report(Problem::WrongPolicy { ino, is: Some(record.version) })?;
            }
        }
        Ok(())
    }

    fn check_carried(
        &self,
        run: &mut Run<'_>,
        ino: Ino,
        carried: &PolicyRecord,
        latest: Option<&PolicyRecord>,
    ) -> Result<(), CheckError> {
        let Some(can_carry) = can_carry(run, ino)? else { return Ok(()) };
        if !can_carry {
            return run.report(Problem::WrongPolicy { ino, is: None });
        }
        let of_latest = latest.filter(|record| record.has_text).map(|record| record.version);
        if carried.ino != ino
            || !carried.has_text
            || latest.is_some_and(|record| record.version > carried.version)
        {
            return run.report(Problem::WrongPolicy { ino, is: of_latest });
        }
        let version = carried.version;
        let oldest =
            self.history.keys().next_back().map_or(0, |last| last.saturating_sub(POLICY_HISTORY_MAX));
        let agrees = match self.history.get(&version) {
            Some(record) if record.ino == ino => record.crc == carried.crc,
            // Another directory's change, or a misplaced one, which is reported already.
            Some(_) => true,
            None => version <= oldest,
        };
        if agrees { Ok(()) } else { run.report(Problem::WrongPolicyHistory { version, is: Some(ino) }) }
    }
}

/// Whether it is a directory that has a name; `None` if its row cannot be read.
fn can_carry(run: &Run<'_>, ino: Ino) -> Result<Option<bool>, CheckError> {
    Ok(match inode(run.store, ino)? {
        Some(inode) => Some(inode.node.kind() == Kind::Dir && inode.nlink > 0),
        None if run.store.get(&chiton_namespace::inode_row(chiton_namespace::tag::INODE, ino))?.is_none() => {
            Some(false)
        }
        None => None,
    })
}
