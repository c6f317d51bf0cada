//! Asks the server, before a merge, which of our changes conflict with changes of other clients.
//!
//! ```text
//!   change ─▶ its inode, its name, its name before ─▶ changed, removed: both did something
//!      ├─ a new directory, and theirs has one of that name ─▶ the two are one: its entries are checked in theirs
//!      ├─ a directory that ours removed ─▶ entries that others have added since
//!      └─ a directory that moved ─▶ the path upwards from its new place: over our moves, otherwise in the global namespace
//! ```

use chiton_namespace::Need;
use chiton_types::{Ino, Kind};
use chiton_wire::{Foreign, NEEDS_MAX};
use hashbrown::{HashMap, HashSet};

use crate::calls::ClaimCalls;
use crate::diff::DirName;
use crate::error::RealmError;
use crate::report::{Change, ChangeKind, SideVersion};

/// Maximum depth of the walk upwards. A longer path is a circle.
const DEPTH_MAX: usize = 65_536;

/// One of our changes, and the server's report about it.
pub(crate) struct Row {
    pub(crate) change: Change,
    pub(crate) path: Vec<u8>,
    pub(crate) ino: Ino,
    /// The decoupled side created the inode.
    pub(crate) made: bool,
    /// It is new, and a directory.
    pub(crate) is_dir: bool,
    /// Where it is, or was when it was removed; none if its place did not change.
    pub(crate) place: Option<DirName>,
    /// Its place before it moved.
    pub(crate) from: Option<DirName>,
    pub(crate) theirs: Option<SideVersion>,
    /// Other clients removed it as well.
    pub(crate) both_removed: bool,
    /// It had the name for a while only, or left it for a while.
    pub(crate) is_temporary: bool,
}

impl Row {
    /// A name that ours used only temporarily. The merge checks changes of others to the name, and to the file that
    /// had it.
    pub(crate) fn temporary(ino: Ino, place: &DirName, path: &[u8], made: bool) -> Row {
        let kind = if made { ChangeKind::Created } else { ChangeKind::Renamed };
        Row {
            change: Change::new(path, kind, None),
            path: path.to_vec(),
            ino,
            made,
            is_dir: false,
            place: Some(place.clone()),
            from: None,
            theirs: None,
            both_removed: false,
            is_temporary: true,
        }
    }

    /// Whether other clients know the inode.
    fn asks_inode(&self) -> bool {
        !self.made
    }

    /// Names that it has or had.
    fn names(&self) -> impl Iterator<Item = &DirName> {
        self.place.iter().chain(&self.from)
    }
}

/// Asks the server what other clients changed.
pub(crate) fn ask_all(calls: &ClaimCalls, root: Ino, rows: &mut [Row]) -> Result<(), RealmError> {
    let mut rest: Vec<&mut Row> = rows.iter_mut().collect();
    let mut twins = ask_some(calls, root, &mut rest)?;
    while !twins.is_empty() {
        let theirs = |row: &Row| row.place.as_ref().and_then(|(parent, _)| twins.get(parent).copied());
        let (mut again, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|row| theirs(row).is_some());
        for row in &mut again {
            if let (Some(theirs), Some((parent, _))) = (theirs(row), &mut row.place) {
                *parent = theirs;
            }
        }
        twins = ask_some(calls, root, &mut again)?;
        rest = others;
    }
    note_filled(calls, rows)?;
    note_loops(calls, rows)
}

/// Asks for some. Returns directories of ours that are one with theirs.
fn ask_some(calls: &ClaimCalls, root: Ino, rows: &mut [&mut Row]) -> Result<HashMap<Ino, Ino>, RealmError> {
    let mut twins = HashMap::new();
    // Each asks for an inode and two names at most.
    for some in rows.chunks_mut(NEEDS_MAX / 3) {
        ask(calls, some)?;
        for row in some.iter_mut().filter(|row| row.is_dir && row.theirs == Some(SideVersion::Changed)) {
            // A directory that existed at the base, and that theirs moved to this name, stays a separate directory.
            if let Some(theirs) = calls.directory(root, &row.path)?
                && is_new_to_ours(calls, theirs)?
            {
                twins.insert(row.ino, theirs);
                row.theirs = None;
            }
        }
    }
    Ok(twins)
}

pub(crate) fn is_new_to_ours(calls: &ClaimCalls, ino: Ino) -> Result<bool, RealmError> {
    Ok(calls.rows(vec![Need::Inode(ino)])?.iter().all(|found| found.rows.is_empty()))
}

fn ask(calls: &ClaimCalls, rows: &mut [&mut Row]) -> Result<(), RealmError> {
    let inodes = rows.iter().filter(|row| row.asks_inode()).map(|row| row.ino).collect();
    let names = rows.iter().flat_map(|row| row.names().cloned()).collect();
    let (of_inodes, of_names) = calls.check(inodes, names)?;
    let (mut of_inodes, mut of_names) = (of_inodes.into_iter(), of_names.into_iter());
    for row in rows {
        let inode = if row.asks_inode() { of_inodes.next() } else { None }.unwrap_or(Foreign::Same);
        // A move or a further link keeps the changes that theirs made to the inode.
        let goes_along = matches!(row.change.kind, ChangeKind::Renamed | ChangeKind::Linked);
        let inode = if goes_along && inode == Foreign::Changed { Foreign::Same } else { inode };
        let mut said: Vec<Foreign> = of_names.by_ref().take(row.names().count()).collect();
        // The old name is gone. If the inode still exists, theirs moved it; otherwise theirs removed it.
        let gone = had(row).and(said.last_mut()).filter(|was| **was == Foreign::Removed);
        if let Some(was) = gone {
            *was = match inode {
                Foreign::Removed => Foreign::Removed,
                Foreign::Same | Foreign::Changed => Foreign::Changed,
            };
        }
        // Both sides removed it, so there is no conflict about it. Theirs may have put something else under its name.
        if row.change.kind == ChangeKind::Removed && inode == Foreign::Removed {
            let is_name_taken = said.contains(&Foreign::Changed);
            (row.theirs, row.both_removed) = (is_name_taken.then_some(SideVersion::Changed), true);
            continue;
        }
        said.push(inode);
        row.theirs = match said.into_iter().find(|foreign| *foreign != Foreign::Same) {
            Some(Foreign::Changed) => Some(SideVersion::Changed),
            Some(Foreign::Removed) => Some(SideVersion::Removed),
            Some(Foreign::Same) | None => None,
        };
    }
    Ok(())
}

/// Those of these inodes that other clients removed.
pub(crate) fn removed_by_others(calls: &ClaimCalls, inodes: Vec<Ino>) -> Result<HashSet<Ino>, RealmError> {
    let mut removed = HashSet::new();
    for some in inodes.chunks(NEEDS_MAX) {
        let (found, _) = calls.check(some.to_vec(), Vec::new())?;
        let pairs = some.iter().zip(found);
        removed.extend(pairs.filter(|(_, foreign)| *foreign == Foreign::Removed).map(|(ino, _)| *ino));
    }
    Ok(removed)
}

/// The name that the inode no longer has. The server is asked about it last.
fn had(row: &Row) -> Option<&DirName> {
    match row.change.kind {
        ChangeKind::Removed => row.place.as_ref(),
        _ => row.from.as_ref(),
    }
}

/// Finds directories that ours removed and in which other clients created entries.
fn note_filled(calls: &ClaimCalls, rows: &mut [Row]) -> Result<(), RealmError> {
    // Names that went with it, or before it.
    let left: HashSet<DirName> = rows.iter().filter_map(had).cloned().collect();
    let removed = |row: &&mut Row| row.change.kind == ChangeKind::Removed && row.theirs.is_none();
    for row in rows.iter_mut().filter(removed) {
        let mut cookie = 0;
        while let Some((entries, end)) = calls.names(row.ino, cookie)? {
            if entries.iter().any(|entry| !left.contains(&(row.ino, entry.name.clone()))) {
                row.theirs = Some(SideVersion::Changed);
                break;
            }
            match entries.last() {
                Some(last) if !end => cookie = last.cookie,
                _ => break,
            }
        }
    }
    Ok(())
}

/// Finds directories that ours moved below a directory that others moved below them.
fn note_loops(calls: &ClaimCalls, rows: &mut [Row]) -> Result<(), RealmError> {
    let moved =
        |row: &Row| matches!(row.change.kind, ChangeKind::Renamed | ChangeKind::Created) && !row.is_temporary;
    let ours: HashMap<Ino, Ino> = rows
        .iter()
        .filter(|row| moved(row))
        .filter_map(|row| Some((row.ino, row.place.as_ref()?.0)))
        .collect();
    let mut known: HashMap<Ino, Option<(Kind, Ino)>> = HashMap::new();
    let mut kind_and_parent = |ino: Ino| -> Result<Option<(Kind, Ino)>, RealmError> {
        if let Some(found) = known.get(&ino) {
            return Ok(*found);
        }
        let found = calls.attr(ino)?.map(|attr| (attr.kind, attr.parent));
        known.insert(ino, found);
        Ok(found)
    };
    let renamed =
        |row: &&mut Row| moved(row) && row.change.kind == ChangeKind::Renamed && row.theirs.is_none();
    for row in rows.iter_mut().filter(renamed) {
        if kind_and_parent(row.ino)?.is_none_or(|(kind, _)| kind != Kind::Dir) {
            continue;
        }
        let mut at = ours.get(&row.ino).copied();
        for _ in 0..DEPTH_MAX {
            let Some(dir) = at.filter(|dir| *dir != Ino::ROOT) else { break };
            if dir == row.ino {
                row.theirs = Some(SideVersion::Changed);
                break;
            }
            at = match ours.get(&dir) {
                Some(parent) => Some(*parent),
                None => kind_and_parent(dir)?.map(|(_, parent)| parent),
            };
        }
    }
    Ok(())
}
