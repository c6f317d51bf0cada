//! Checks policies, which are recorded twice: at directories, and in the history.
//!
//! Both are held in memory in short, as the server holds them whole. Every plate has the policies of all directories. Those of a
//! directory's own plate count, with the history of plate 0; the other plates have copies. After a directory has ended, its policy may be
//! left on other plates.

use std::collections::BTreeMap;

use chiton_model::field::Code;
use chiton_model::{POLICY_HISTORY_MAX, PolicyChange};
use chiton_namespace::{StoredRow, inode_row, tag};
use chiton_types::{Ino, Kind, PlateId};

use crate::fsck::rows::inode;
use crate::fsck::{CheckError, Problem, Run, plate_histories};

/// A policy row in short.
#[derive(Clone, Copy, PartialEq, Eq)]
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
    /// By the directory in the key and by plate.
    copies: BTreeMap<(Ino, PlateId), PolicyRecord>,
}

impl Policies {
    /// Records a row of a policy or of the history, which a plate has; `is_copy`: the directory is on another.
    pub(crate) fn note(&mut self, plate: PlateId, is_copy: bool, row: &StoredRow) {
        match row {
            StoredRow::Policy(ino, change) if is_copy => {
                self.copies.insert((*ino, plate), PolicyRecord::new(change));
            }
            StoredRow::PolicyChange(..) if plate != PlateId(0) => {}
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
        self.check_copies(run)?;
        for problem in plate_histories::differences(&run.rows.parts)? {
            run.report(problem)?;
        }
        Ok(())
    }

    fn check_copies(&self, run: &mut Run<'_>) -> Result<(), CheckError> {
        let plates: Vec<PlateId> = run.rows.parts.iter().map(|(plate, _)| *plate).collect();
        for &ino in self.carried.keys() {
            let own = run.rows.home(&inode_row(tag::POLICY, ino));
            for &plate in plates.iter().filter(|plate| Some(**plate) != own) {
                self.check_copy(run, ino, plate)?;
            }
        }
        for &(ino, plate) in self.copies.keys().filter(|(ino, _)| !self.carried.contains_key(ino)) {
            self.check_copy(run, ino, plate)?;
        }
        Ok(())
    }

    fn check_copy(&self, run: &mut Run<'_>, ino: Ino, plate: PlateId) -> Result<(), CheckError> {
        if self.copies.get(&(ino, plate)) != self.carried.get(&ino) && can_carry(run, ino)? == Some(true) {
            run.report(Problem::StalePolicy { plate, ino })?;
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
    Ok(match inode(run.rows.joint, ino)? {
        Some(inode) => Some(inode.node.kind() == Kind::Dir && inode.nlink > 0),
        None if run.rows.joint.get(&inode_row(tag::INODE, ino))?.is_none() => Some(false),
        None => None,
    })
}
