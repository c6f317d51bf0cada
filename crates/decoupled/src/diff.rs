//! Computes the effects of a merge: our changes since the last one, by path, and the conflicting changes of others.

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::{Event, Role, Rows};
use chiton_server::Server;
use chiton_types::{Ino, Kind, Name, Position};
use chiton_wire::Settled;
use hashbrown::{HashMap, HashSet};

use crate::both_removed::{BothRemoved, Traces};
use crate::calls::ClaimCalls;
use crate::conflict_check::{Row, ask_all, removed_by_others};
use crate::error::RealmError;
use crate::report::{Change, ChangeKind, SideVersion};
use crate::text_merge::Agreed;

pub(crate) type DirName = (Ino, Name);

#[derive(Default)]
struct InodeChanges {
    made: bool,
    is_dir: bool,
    added: Vec<DirName>,
    removed: Vec<DirName>,
    /// Names that were taken from it, or that it lost: it did not move away from them.
    taken: BTreeSet<DirName>,
    /// Names that it had for a while only, or left for a while.
    temporary: BTreeSet<DirName>,
    written: bool,
    attributes: bool,
    /// Times were set explicitly, not by a change of content.
    times: bool,
}

impl InodeChanges {
    fn gain(&mut self, place: DirName) {
        match self.removed.iter().position(|removed| *removed == place) {
            Some(at) => drop(self.temporary.insert(self.removed.swap_remove(at))),
            None => self.added.push(place),
        }
    }

    fn lose(&mut self, place: DirName) {
        match self.added.iter().position(|added| *added == place) {
            Some(at) => drop(self.temporary.insert(self.added.remove(at))),
            None => self.removed.push(place),
        }
    }
}

/// The changes that a journal makes, by inode.
#[derive(Default)]
pub(crate) struct Changes {
    by_ino: BTreeMap<Ino, InodeChanges>,
    /// The last places of removed inodes.
    last_place: HashMap<Ino, DirName>,
}

impl Changes {
    fn of(&mut self, ino: Ino) -> &mut InodeChanges {
        self.by_ino.entry(ino).or_default()
    }

    pub(crate) fn note(&mut self, event: &Event) {
        if let Event::Make { ino, kind, .. } = event {
            let of_inode = self.of(*ino);
            of_inode.made = true;
            of_inode.is_dir = *kind == Kind::Dir;
        }
        let footprint = event.footprint();
        // An inode loses its name before it gains another.
        let moves = |ino: Ino| footprint.names().any(|change| change.after == Some(ino));
        for change in footprint.names() {
            if let Some(ino) = change.before {
                let place = (change.dir, change.name.clone());
                if !moves(ino) {
                    self.of(ino).taken.insert(place.clone());
                }
                self.lose(ino, place);
            }
        }
        for change in footprint.names() {
            if let Some(ino) = change.after {
                self.of(ino).gain((change.dir, change.name.clone()));
            }
        }
        if footprint.names().next().is_some() {
            return;
        }
        for touch in footprint.inodes() {
            if touch.role != Role::Subject || !touch.writes.has_any(Rows::SEEN) {
                continue;
            }
            let is_written = touch.writes.has_any(Rows::CONTENT);
            let of_inode = self.of(touch.ino);
            of_inode.written |= is_written;
            of_inode.attributes |= !is_written && touch.writes.has_any(Rows::ATTRS);
            of_inode.times |= matches!(
                event,
                Event::SetAttr { atime: Some(_), .. } | Event::SetAttr { mtime: Some(_), .. }
            );
        }
    }

    fn lose(&mut self, ino: Ino, place: DirName) {
        self.last_place.insert(ino, place.clone());
        self.of(ino).lose(place);
    }

    /// Our changes, with the conflicting changes of other clients if the policy lets others act (`others_act`).
    /// `sent` reads the events that a merge sends.
    pub(crate) fn diff(
        &self,
        server: &Server,
        calls: &ClaimCalls,
        root: Ino,
        (events, sent): (u64, &SentEvents<'_>),
        others_act: bool,
    ) -> Result<Compared, RealmError> {
        let mut paths = Paths { server, last_place: &self.last_place, known: HashMap::new() };
        let mut rows: Vec<Row> = Vec::new();
        for (ino, of_inode) in &self.by_ino {
            let is_gone = !of_inode.removed.is_empty() && of_inode.added.is_empty() && !server.has_name(*ino);
            for (kind, place, from) in of_inode.changes(is_gone) {
                let path = match &place {
                    Some(place) => paths.of_place(place),
                    None => paths.of_inode(*ino),
                };
                let was = from.as_ref().map(|place| paths.of_place(place));
                let change = Change::new(&path, kind, was.as_deref());
                let (made, is_dir) = (of_inode.made, of_inode.is_dir);
                let (theirs, both_removed, is_temporary) = (None, false, false);
                rows.push(Row {
                    change,
                    path,
                    ino: *ino,
                    made,
                    is_dir,
                    place,
                    from,
                    theirs,
                    both_removed,
                    is_temporary,
                });
            }
            let temporary = of_inode.temporary.iter().filter(|place| others_act && !of_inode.names(place));
            rows.extend(
                temporary.map(|place| Row::temporary(*ino, place, &paths.of_place(place), of_inode.made)),
            );
        }
        rows.sort_by(|a, b| a.change.cmp(&b.change));
        if others_act {
            ask_all(calls, root, &mut rows)?;
        }
        let gone = self.gone(server, &rows, sent)?;
        for row in rows.iter_mut().filter(|row| gone.contested.contains(&row.ino)) {
            row.theirs = Some(SideVersion::Removed);
        }
        forget_hidden(calls, &mut rows, &gone, sent)?;
        let (mut changes, mut bases) = (Vec::new(), Vec::new());
        let (mut conflicts, mut inos) = (Vec::new(), Vec::new());
        for row in rows {
            if !row.is_temporary {
                changes.push(row.change.clone());
                let lost = row.place.filter(|_| row.change.kind == ChangeKind::Removed);
                bases.push(row.from.or(lost));
            }
            inos.extend(row.theirs.map(|_| row.ino));
            conflicts.extend(row.theirs.map(|theirs| (row.change, theirs)));
        }
        let timed = self.by_ino.iter().filter(|(_, of_inode)| of_inode.times).map(|(ino, _)| *ino).collect();
        Ok(Compared { events, changes, bases, conflicts, inos, timed, gone: gone.agreed })
    }

    /// The inodes that both sides removed.
    fn gone(&self, server: &Server, rows: &[Row], sent: &SentEvents<'_>) -> Result<BothRemoved, RealmError> {
        let rows = rows.iter().filter(|row| row.both_removed && !server.has_name(row.ino));
        let mut removed: HashSet<Ino> = rows.map(|row| row.ino).collect();
        if removed.is_empty() {
            return Ok(BothRemoved::default());
        }
        // An open file changes on with its changes.
        let open: HashSet<Ino> = server.open_orphans().into_iter().collect();
        removed.retain(|ino| !open.contains(ino));
        let is_fleeting = |ino: Ino| {
            let of_inode = self.by_ino.get(&ino).filter(|of_inode| of_inode.made && !of_inode.is_dir);
            of_inode.is_some_and(|of_inode| of_inode.added.is_empty()) && !open.contains(&ino)
        };
        let mut traces = Traces::of(&removed, &is_fleeting);
        sent(&mut |event| traces.note(event))?;
        Ok(traces.finish())
    }
}

/// Removes rows of temporary names that the merge hides ([`crate::temporary_names`]) or whose change leaves no
/// trace. Other clients cannot conflict with these, unless they removed the directory in which such a name stood.
fn forget_hidden(
    calls: &ClaimCalls,
    rows: &mut Vec<Row>,
    gone: &BothRemoved,
    sent: &SentEvents<'_>,
) -> Result<(), RealmError> {
    let is_agreed = |ino: Ino| gone.agreed.binary_search(&ino).is_ok();
    rows.retain(|row| !row.is_temporary || !(row.theirs.is_none() || is_agreed(row.ino)));
    let temporary: HashSet<DirName> =
        rows.iter().filter(|row| row.is_temporary).filter_map(|row| row.place.clone()).collect();
    if temporary.is_empty() {
        return Ok(());
    }
    let dirs: HashSet<Ino> = temporary.iter().map(|(dir, _)| *dir).collect();
    let mut used: HashSet<(Ino, DirName)> = HashSet::new();
    // Inodes, and the directories that the merge needs for a name of them.
    let mut entered: HashSet<(Ino, Ino)> = HashSet::new();
    sent(&mut |event| {
        let mut uses = |ino: Ino, dir: Ino, name: &Name| {
            let place = (dir, name.clone());
            if temporary.contains(&place) {
                used.insert((ino, place));
            }
            if dirs.contains(&dir) {
                entered.insert((ino, dir));
            }
        };
        // An event that only removes a name uses none.
        let footprint = event.footprint();
        for change in footprint.names() {
            let bearers = [change.before, change.after].into_iter().flatten();
            bearers
                .filter(|ino| Some(*ino) != footprint.loser())
                .for_each(|ino| uses(ino, change.dir, change.name));
        }
    })?;
    let removed = removed_by_others(calls, dirs.into_iter().filter(|dir| !is_agreed(*dir)).collect())?;
    let is_used = |row: &Row| {
        row.place.as_ref().is_some_and(|place| {
            used.contains(&(row.ino, place.clone()))
                || removed.contains(&place.0) && entered.contains(&(row.ino, place.0))
        })
    };
    rows.retain(|row| !row.is_temporary || is_used(row));
    Ok(())
}

/// Passes the events that a merge sends to a visitor.
pub(crate) type SentEvents<'a> = dyn Fn(&mut dyn FnMut(&Event)) -> Result<(), RealmError> + 'a;

/// The outcome of a comparison with the changes of others.
pub(crate) struct Compared {
    /// Events of the journal that are not merged.
    pub(crate) events: u64,
    /// Our changes. One that puts another inode in the place of an inode is in it twice.
    pub(crate) changes: Vec<Change>,
    /// Of each change that moved or removed something: its name at the base.
    pub(crate) bases: Vec<Option<DirName>>,
    /// Those that others contradict.
    pub(crate) conflicts: Vec<(Change, SideVersion)>,
    /// Which inode each conflict is about.
    pub(crate) inos: Vec<Ino>,
    /// Inodes of which ours set times.
    pub(crate) timed: HashSet<Ino>,
    /// Inodes that both sides removed and ours had changed before, without a trace of the change.
    pub(crate) gone: Vec<Ino>,
}

impl Compared {
    /// Equal outcomes on both sides are no conflict. (Of a file that moved only the content is the same.)
    pub(crate) fn leave_out(&mut self, agreed: &[Agreed]) {
        let same: HashSet<&[u8]> =
            agreed.iter().filter(|one| one.is_same()).map(|one| one.path.as_slice()).collect();
        let is_agreed = |change: &Change| {
            !matches!(change.kind, ChangeKind::Renamed | ChangeKind::Linked) && same.contains(path_of(change))
        };
        let conflicts = std::mem::take(&mut self.conflicts).into_iter();
        let left =
            conflicts.zip(std::mem::take(&mut self.inos)).filter(|((change, _), _)| !is_agreed(change));
        (self.conflicts, self.inos) = left.unzip();
    }

    /// For the server: inodes that both sides removed.
    pub(crate) fn gone_alike(&self) -> impl Iterator<Item = (Ino, Position, Settled)> + '_ {
        self.gone.iter().map(|ino| (*ino, Settled::REMOVED, Settled::Same))
    }

    /// Our changes, each path with the state there in the end.
    pub(crate) fn changes_by_path(&self) -> Vec<Change> {
        let taken = gained(self.changes.iter());
        let is_taken = |change: &Change| taken.contains(path_of(change));
        let lost = self.changes.iter().filter(|change| change.kind == ChangeKind::Removed);
        let replaced: HashSet<&[u8]> = lost.filter(|change| is_taken(change)).map(path_of).collect();
        let left =
            self.changes.iter().filter(|change| change.kind != ChangeKind::Removed || !is_taken(change));
        left.map(|change| change.replacing(&replaced)).collect()
    }

    /// The conflicts, one for each path. `replaced`: whether others have something else at a path of ours.
    pub(crate) fn conflicts_by_path(
        &self,
        mut replaced: impl FnMut(&[u8]) -> Result<bool, RealmError>,
    ) -> Result<Vec<(Change, SideVersion)>, RealmError> {
        let lost = self.changes.iter().filter(|change| change.kind == ChangeKind::Removed);
        let taken = gained(self.changes.iter());
        let both: HashSet<&[u8]> = lost.map(path_of).filter(|path| taken.contains(path)).collect();
        let mut all: Vec<(Change, SideVersion)> = Vec::new();
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        for (change, theirs) in &self.conflicts {
            let known = places.get(path_of(change)).copied();
            let theirs = match *theirs {
                SideVersion::Removed => {
                    let was = change.from_bytes.as_deref().or(change.from.as_ref().map(String::as_bytes));
                    let is_replaced = replaced(was.unwrap_or(path_of(change)))?;
                    if is_replaced { SideVersion::Replaced } else { SideVersion::Removed }
                }
                theirs => theirs,
            };
            match known {
                // The first is the change that made it what it is. Where theirs is there, it was not removed.
                Some(at) => all[at].1 = all[at].1.min(theirs),
                None => {
                    let is_loss = change.kind == ChangeKind::Removed && both.contains(path_of(change));
                    places.insert(path_of(change), all.len());
                    let kind = if is_loss { ChangeKind::Replaced } else { change.replacing(&both).kind };
                    all.push((Change { kind, ..change.clone() }, theirs));
                }
            }
        }
        Ok(all)
    }
}

/// Paths that ours gave to something.
fn gained<'a>(changes: impl Iterator<Item = &'a Change>) -> HashSet<&'a [u8]> {
    let gains = |change: &&Change| {
        matches!(change.kind, ChangeKind::Created | ChangeKind::Renamed | ChangeKind::Linked)
    };
    changes.filter(gains).map(path_of).collect()
}

fn path_of(change: &Change) -> &[u8] {
    change.path_bytes.as_deref().unwrap_or(change.path.as_bytes())
}

impl Change {
    /// The same change, if it gives something a path of which ours removed what was there.
    fn replacing(&self, replaced: &HashSet<&[u8]>) -> Change {
        let gains = matches!(self.kind, ChangeKind::Created | ChangeKind::Renamed | ChangeKind::Linked);
        let kind = if gains && replaced.contains(path_of(self)) { ChangeKind::Replaced } else { self.kind };
        Change { kind, ..self.clone() }
    }
}

impl InodeChanges {
    /// Whether a name is one that it has got or lost in the end.
    fn names(&self, place: &DirName) -> bool {
        self.added.contains(place) || self.removed.contains(place)
    }

    /// Each change: its kind, the name if it concerns one, and the previous name.
    fn changes(&self, is_gone: bool) -> Vec<(ChangeKind, Option<DirName>, Option<DirName>)> {
        let mut changes = Vec::new();
        let mut added = self.added.iter().cloned();
        let (taken, left): (Vec<_>, Vec<_>) =
            self.removed.iter().cloned().partition(|place| self.taken.contains(place));
        let mut removed = left.into_iter();
        if let Some(place) = added.next() {
            changes.push(match (self.made, removed.next()) {
                (true, _) => (ChangeKind::Created, Some(place), None),
                (false, Some(from)) => (ChangeKind::Renamed, Some(place), Some(from)),
                (false, None) => (ChangeKind::Linked, Some(place), None),
            });
        }
        changes.extend(added.map(|place| (ChangeKind::Linked, Some(place), None)));
        changes.extend(removed.chain(taken).map(|place| (ChangeKind::Removed, Some(place), None)));
        if !self.made && !is_gone {
            if self.written {
                changes.push((ChangeKind::Written, None, None));
            } else if self.attributes {
                changes.push((ChangeKind::Attributes, None, None));
            }
        }
        changes
    }
}

/// Paths from the subtree's root, without a `/` before them.
struct Paths<'a> {
    server: &'a Server,
    last_place: &'a HashMap<Ino, DirName>,
    known: HashMap<Ino, Vec<u8>>,
}

impl Paths<'_> {
    fn of_inode(&mut self, ino: Ino) -> Vec<u8> {
        if let Some(path) = self.known.get(&ino) {
            return path.clone();
        }
        let path = match self.server.path_of(ino) {
            Some(path) => path.strip_prefix(b"/").unwrap_or(&path).to_vec(),
            // It is gone: where it was last.
            None => match self.last_place.get(&ino).cloned() {
                Some(place) => self.of_place(&place),
                None => format!("(inode {ino})").into_bytes(),
            },
        };
        self.known.insert(ino, path.clone());
        path
    }

    fn of_place(&mut self, (dir, name): &DirName) -> Vec<u8> {
        let above = self.of_inode(*dir);
        if above.is_empty() { name.as_bytes().to_vec() } else { [&above, name.as_bytes()].join(&b'/') }
    }
}
