//! Redundant events go before a journal is stored or merged: what was created and is gone again.
//!
//! ```text
//!   make t · write t · rename t → f · (f replaced by) make u · rename u → f     ──▶   make u · rename u → f
//! ```
//!
//! Invariant: applied to the state before the first event, what is left gives the same tree as all did: names, content
//! and attributes, also the times of directories (of which a touch stays where the last change went).

use chiton_model::{Event, Over};
use chiton_types::{Ino, Time};
use hashbrown::{HashMap, HashSet};

/// Removes what is redundant from a piece of a journal, in place; the order of what is left stays.
pub fn squash(events: &mut Vec<Event>) {
    let mut gone = candidates(events);
    // A directory stays if something that stays happened in it.
    loop {
        let stay = events.iter().filter(|event| !is_dropped(event, &gone));
        let used: Vec<Ino> =
            stay.flat_map(|event| dirs_of(event).into_iter().flatten()).map(|d| d.0).collect();
        let before = gone.len();
        for dir in used {
            gone.remove(&dir);
        }
        if gone.is_empty() {
            return;
        }
        if gone.len() == before {
            break;
        }
    }
    let last = last_changes(events, &gone);
    let mut left = Vec::with_capacity(events.len());
    for (at, mut event) in std::mem::take(events).into_iter().enumerate() {
        if is_dropped(&event, &gone) {
            let dirs = dirs_of(&event).into_iter().flatten();
            left.extend(
                dirs.filter(|(dir, _)| last.get(dir) == Some(&at))
                    .map(|(ino, time)| Event::Touch { ino, time }),
            );
            continue;
        }
        if let Event::Rename { over, .. } = &mut event
            && over.ino().is_some_and(|ino| gone.contains(&ino))
        {
            *over = Over::Nothing;
        }
        left.push(event);
    }
    *events = left;
}

/// Inodes that were made and ended in these events, and had no effect on others meanwhile.
fn candidates(events: &[Event]) -> HashSet<Ino> {
    struct Life {
        names: i64,
        orphan: bool,
    }
    let mut lives: HashMap<Ino, Life> = HashMap::new();
    let mut excluded: HashSet<Ino> = HashSet::new();
    for event in events {
        match event {
            Event::Make { ino, .. } => {
                lives.insert(*ino, Life { names: 1, orphan: false });
            }
            Event::Link { ino, .. } => {
                lives.entry(*ino).and_modify(|life| life.names += 1);
            }
            Event::Unlink { ino, orphan, .. } => {
                lives.entry(*ino).and_modify(|life| {
                    life.names -= 1;
                    life.orphan |= orphan;
                });
            }
            Event::Rename { ino, over, .. } => match over {
                Over::Nothing => {}
                // Ending what was replaced stays an effect, unless that is gone as a whole too; it is simplest to
                // keep who did it.
                Over::Replaced { ino: victim, orphan } => {
                    excluded.insert(*ino);
                    lives.entry(*victim).and_modify(|life| {
                        life.names -= 1;
                        life.orphan |= orphan;
                    });
                }
                Over::Exchanged { ino: other } => excluded.extend([*ino, *other]),
            },
            Event::Clone { from, to, .. } if from != to => {
                excluded.insert(*from);
            }
            Event::Restore { ino, .. } => {
                excluded.insert(*ino);
            }
            Event::Reclaim { ino, from_chunk: 0 } => {
                lives.entry(*ino).and_modify(|life| life.orphan = false);
            }
            _ => {}
        }
    }
    // A file that is still open as an orphan stays: its writer goes on.
    let ended = |life: &Life| life.names == 0 && !life.orphan;
    lives.iter().filter(|(ino, life)| ended(life) && !excluded.contains(*ino)).map(|(ino, _)| *ino).collect()
}

/// The inode that an event is about.
fn subject(event: &Event) -> Option<Ino> {
    match event {
        Event::Make { ino, .. }
        | Event::Link { ino, .. }
        | Event::Unlink { ino, .. }
        | Event::Restore { ino, .. }
        | Event::Rename { ino, .. }
        | Event::SetAttr { ino, .. }
        | Event::Write { ino, .. }
        | Event::Remap { ino, .. }
        | Event::Revert { ino, .. }
        | Event::Xattr { ino, .. }
        | Event::Reclaim { ino, .. }
        | Event::Clone { to: ino, .. } => Some(*ino),
        _ => None,
    }
}

fn is_dropped(event: &Event, gone: &HashSet<Ino>) -> bool {
    subject(event).is_some_and(|ino| gone.contains(&ino))
}

/// The directories in which an event changes a name.
fn dirs_of(event: &Event) -> [Option<(Ino, Time)>; 2] {
    match event {
        Event::Make { parent, time, .. }
        | Event::Link { parent, time, .. }
        | Event::Unlink { parent, time, .. }
        | Event::Restore { parent, time, .. } => [Some((*parent, *time)), None],
        Event::Rename { from, to, time, .. } => [Some((*from, *time)), Some((*to, *time))],
        _ => [None, None],
    }
}

/// Which event is the last that changes names in a directory that stays.
fn last_changes(events: &[Event], gone: &HashSet<Ino>) -> HashMap<Ino, usize> {
    let mut last = HashMap::new();
    for (at, event) in events.iter().enumerate() {
        let dirs = dirs_of(event).into_iter().flatten();
        last.extend(dirs.filter(|(dir, _)| !gone.contains(dir)).map(|(dir, _)| (dir, at)));
    }
    last
}
