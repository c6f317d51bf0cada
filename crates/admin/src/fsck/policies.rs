//! Checks policies, which are recorded twice: at directories, and in the history.
//!
//! Both are held in memory in short, as the server holds them whole.

use std::collections::BTreeMap;

use chiton_model::{POLICY_HISTORY_MAX, PolicyChange};
use chiton_namespace::StoredRow;
use chiton_types::{Ino, Kind};

use crate::fsck::rows::inode;
use crate::fsck::{CheckError, Problem, Run};

/// A policy row in short.
#[derive(Clone, Copy)]
struct Told {
    ino: Ino,
    version: u64,
    has_text: bool,
    crc: u32,
}

impl Told {
    fn new(change: &PolicyChange, value: &[u8]) -> Told {
        let PolicyChange { ino, version, text, .. } = change;
        Told { ino: *ino, version: *version, has_text: text.is_some(), crc: crc32c::crc32c(value) }
    }
}

#[derive(Default)]
pub(crate) struct Policies {
    /// By the directory in the key.
    carried: BTreeMap<Ino, Told>,
    /// By the number in the key.
    history: BTreeMap<u64, Told>,
}

impl Policies {
    /// Records a row of a policy or of the history.
    pub(crate) fn note(&mut self, row: &StoredRow, value: &[u8]) {
        match row {
            StoredRow::Policy(ino, change) => {
                self.carried.insert(*ino, Told::new(change, value));
            }
            StoredRow::PolicyChange(version, change) => {
                self.history.insert(*version, Told::new(change, value));
            }
            _ => {}
        }
    }

    pub(crate) fn check(&self, run: &mut Run<'_>) -> Result<(), CheckError> {
        let mut latest: BTreeMap<Ino, Told> = BTreeMap::new();
        for (&version, &told) in &self.history {
            if told.version == version {
                latest.insert(told.ino, told);
                continue;
            }
            let carried = self.carried.values().find(|p| p.version == version);
            run.report(Problem::WrongPolicyHistory { version, is: carried.map(|p| p.ino) })?;
        }
        for (&ino, carried) in &self.carried {
            self.check_carried(run, ino, carried, latest.get(&ino))?;
        }
        for (&ino, told) in
            latest.iter().filter(|(ino, told)| told.has_text && !self.carried.contains_key(ino))
        {
            // A directory that was removed has none any more.
            if can_carry(run, ino)? == Some(true) {
                run.report(Problem::WrongPolicy { ino, is: Some(told.version) })?;
            }
        }
        Ok(())
    }

    fn check_carried(
        &self,
        run: &mut Run<'_>,
        ino: Ino,
        carried: &Told,
        latest: Option<&Told>,
    ) -> Result<(), CheckError> {
        let Some(can_carry) = can_carry(run, ino)? else { return Ok(()) };
        if !can_carry {
            return run.report(Problem::WrongPolicy { ino, is: None });
        }
        let of_latest = latest.filter(|told| told.has_text).map(|told| told.version);
        if carried.ino != ino
            || !carried.has_text
            || latest.is_some_and(|told| told.version > carried.version)
        {
            return run.report(Problem::WrongPolicy { ino, is: of_latest });
        }
        let version = carried.version;
        let oldest =
            self.history.keys().next_back().map_or(0, |last| last.saturating_sub(POLICY_HISTORY_MAX));
        let agrees = match self.history.get(&version) {
            Some(told) if told.ino == ino => told.crc == carried.crc,
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
        Some(inode) => Some(inode.kind == Kind::Dir && inode.nlink > 0),
        None if run.store.get(&chiton_namespace::inode_row_key(ino))?.is_none() => Some(false),
        None => None,
    })
}
