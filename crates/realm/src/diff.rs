//! What a merge would do: what was changed since the last one, by path, and what others changed too.

use std::collections::BTreeMap;

use chiton_namespace::{Event, Over};
use chiton_proto::{Foreign, NEEDS_MAX};
use chiton_server::Server;
use chiton_types::{Ino, Kind, Name};
use hashbrown::HashMap;

use crate::calls::ClaimCalls;
use crate::error::RealmError;
use crate::report::{Change, ChangeKind, Diff, SideVersion};

type Place = (Ino, Name);

/// What happened to one inode.
#[derive(Default)]
struct Life {
    made: bool,
    is_dir: bool,
    added: Vec<Place>,
    removed: Vec<Place>,
    written: bool,
    attributes: bool,
}

impl Life {
    fn gain(&mut self, place: Place) {
        match self.removed.iter().position(|removed| *removed == place) {
            Some(at) => drop(self.removed.swap_remove(at)),
            None => self.added.push(place),
        }
    }

    fn lose(&mut self, place: Place) {
        match self.added.iter().position(|added| *added == place) {
            Some(at) => drop(self.added.remove(at)),
            None => self.removed.push(place),
        }
    }
}

/// What events did, by inode.
#[derive(Default)]
pub(crate) struct Lives {
    by_ino: BTreeMap<Ino, Life>,
    /// Where inodes were that are gone.
    last_place: HashMap<Ino, Place>,
}

impl Lives {
    fn of(&mut self, ino: Ino) -> &mut Life {
        self.by_ino.entry(ino).or_default()
    }

    /// One event more.
    pub(crate) fn note(&mut self, event: &Event) {
        match event {
            Event::Make { parent, name, ino, kind, .. } => {
                let life = self.of(*ino);
                life.made = true;
                life.is_dir = *kind == Kind::Dir;
                life.gain((*parent, name.clone()));
            }
            Event::Link { parent, name, ino, .. } | Event::Restore { parent, name, ino, .. } => {
                self.of(*ino).gain((*parent, name.clone()));
            }
            Event::Unlink { parent, name, ino, .. } => self.lose(*ino, (*parent, name.clone())),
            Event::Rename { from, from_name, to, to_name, ino, over, .. } => {
                let (old, new) = ((*from, from_name.clone()), (*to, to_name.clone()));
                match over {
                    Over::Nothing => {}
                    Over::Replaced { ino, .. } => self.lose(*ino, new.clone()),
                    Over::Exchanged { ino } => {
                        self.lose(*ino, new.clone());
                        self.of(*ino).gain(old.clone());
                    }
                }
                self.lose(*ino, old);
                self.of(*ino).gain(new);
            }
            Event::SetAttr { ino, size, .. } => {
                let life = self.of(*ino);
                life.written |= size.is_some();
                life.attributes |= size.is_none();
            }
            Event::Write { ino, .. } | Event::Clone { to: ino, .. } => self.of(*ino).written = true,
            Event::Xattr { ino, .. } => self.of(*ino).attributes = true,
            Event::Touch { .. }
            | Event::Remap { .. }
            | Event::Reclaim { .. }
            | Event::Swept { .. }
            | Event::Reserve { .. }
            | Event::SessionOpened { .. }
            | Event::SessionClosed { .. }
            | Event::Policy(_)
            | Event::Decoupled(_)
            | Event::Attached(_)
            | Event::Granted { .. }
            | Event::Merged(_)
            | Event::DecouplingEnded { .. }
            | Event::Noop => {}
        }
    }

    fn lose(&mut self, ino: Ino, place: Place) {
        self.last_place.insert(ino, place.clone());
        self.of(ino).lose(place);
    }

    /// The changes, with what others did to the same.
    pub(crate) fn diff(
        &self,
        server: &Server,
        calls: &ClaimCalls,
        root: Ino,
        events: u64,
    ) -> Result<Diff, RealmError> {
        let mut paths = Paths { server, last_place: &self.last_place, known: HashMap::new() };
        let mut rows: Vec<Row> = Vec::new();
        for (ino, life) in &self.by_ino {
            for (kind, place, from) in life.changes() {
                let path = match &place {
                    Some(place) => paths.of_place(place),
                    None => paths.of_inode(*ino),
                };
                let was = from.as_ref().map(|place| paths.of_place(place));
                let name = place.filter(|_| kind != ChangeKind::Removed);
                // Of what is new nobody else knows anything but its name.
                let inode = (kind != ChangeKind::Created && kind != ChangeKind::Linked) || name.is_none();
                let dir = (kind == ChangeKind::Created && life.is_dir).then_some(*ino);
                let change = Change::new(&path, kind, was.as_deref());
                rows.push(Row { change, path, name, inode: inode.then_some(*ino), dir, theirs: None });
            }
        }
        rows.sort_by(|a, b| a.change.cmp(&b.change));
        ask_all(calls, root, &mut rows)?;
        let mut diff = Diff { events, ..Diff::default() };
        for row in rows {
            diff.changes.push(row.change.clone());
            diff.conflicts.extend(row.theirs.map(|theirs| (row.change, theirs)));
        }
        Ok(diff)
    }
}

impl Life {
    /// What was done, where if that is a name, and where it was before.
    fn changes(&self) -> Vec<(ChangeKind, Option<Place>, Option<Place>)> {
        let mut changes = Vec::new();
        let (mut added, mut removed) = (self.added.iter().cloned(), self.removed.iter().cloned());
        if let Some(place) = added.next() {
            changes.push(match (self.made, removed.next()) {
                (true, _) => (ChangeKind::Created, Some(place), None),
                (false, Some(from)) => (ChangeKind::Renamed, Some(place), Some(from)),
                (false, None) => (ChangeKind::Linked, Some(place), None),
            });
        }
        changes.extend(added.map(|place| (ChangeKind::Linked, Some(place), None)));
        changes.extend(removed.map(|place| (ChangeKind::Removed, Some(place), None)));
        let is_gone = !self.removed.is_empty() && self.added.is_empty();
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

/// A change, and what the server is asked about it.
struct Row {
    change: Change,
    path: Vec<u8>,
    name: Option<Place>,
    inode: Option<Ino>,
    /// It is a new directory.
    dir: Option<Ino>,
    theirs: Option<SideVersion>,
}

/// Asks what others did. Where both sides made a directory of one name, it is one, and what is in it is asked for in theirs.
fn ask_all(calls: &ClaimCalls, root: Ino, rows: &mut [Row]) -> Result<(), RealmError> {
    let mut rest: Vec<&mut Row> = rows.iter_mut().collect();
    while !rest.is_empty() {
        let mut twins: HashMap<Ino, Ino> = HashMap::new();
        for some in rest.chunks_mut(NEEDS_MAX / 2) {
            ask(calls, some)?;
            for row in some.iter_mut() {
                let (Some(dir), Some(SideVersion::Changed)) = (row.dir, row.theirs) else { continue };
                if let Some(theirs) = calls.directory(root, &row.path)? {
                    twins.insert(dir, theirs);
                    row.theirs = None;
                }
            }
        }
        rest.retain_mut(|row| {
            let theirs = row.name.as_ref().and_then(|(parent, _)| twins.get(parent).copied());
            if let (Some(theirs), Some((parent, _))) = (theirs, &mut row.name) {
                *parent = theirs;
            }
            theirs.is_some()
        });
    }
    Ok(())
}

fn ask(calls: &ClaimCalls, rows: &mut [&mut Row]) -> Result<(), RealmError> {
    let inodes = rows.iter().filter_map(|row| row.inode).collect();
    let names = rows.iter().filter_map(|row| row.name.clone()).collect();
    let (of_inodes, of_names) = calls.check(inodes, names)?;
    let (mut of_inodes, mut of_names) = (of_inodes.into_iter(), of_names.into_iter());
    for row in rows {
        let of_inode = row.inode.and_then(|_| of_inodes.next());
        let of_name = row.name.as_ref().and_then(|_| of_names.next());
        // Ours moves what theirs changed as it is.
        let of_inode =
            of_inode.filter(|foreign| row.change.kind != ChangeKind::Renamed || *foreign == Foreign::Removed);
        row.theirs = match (of_name.unwrap_or(Foreign::Same), of_inode.unwrap_or(Foreign::Same)) {
            (Foreign::Same, Foreign::Same) => None,
            (Foreign::Changed, _) | (Foreign::Same, Foreign::Changed) => Some(SideVersion::Changed),
            (Foreign::Removed, _) | (Foreign::Same, Foreign::Removed) => Some(SideVersion::Removed),
        };
    }
    Ok(())
}

/// Paths from the subtree's root, without a `/` before them.
struct Paths<'a> {
    server: &'a Server,
    last_place: &'a HashMap<Ino, Place>,
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

    fn of_place(&mut self, (dir, name): &Place) -> Vec<u8> {
        let above = self.of_inode(*dir);
        if above.is_empty() { name.as_bytes().to_vec() } else { [&above, name.as_bytes()].join(&b'/') }
    }
}
