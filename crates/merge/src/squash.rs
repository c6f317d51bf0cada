//! Redundant events go before a journal is stored or merged: files that were created and removed again leave no event.
//!
//! ```text
//!   make t · write t · rename t → f · (f replaced by) make u · rename u → f     ──▶   make u · rename u → f
//! ```
//!
//! Invariant: applied to the state before the first event, the rest gives the same tree as all did: names, content
//! and attributes, also the times of directories (of which a touch stays where the last change went).

use chiton_model::{Event, InodeTouch, Over, Role};
use chiton_types::Ino;
use hashbrown::{HashMap, HashSet};

/// Removes redundant events from a piece of a journal, in place; the order of the rest stays.
pub fn squash(events: &mut Vec<Event>) {
    let mut gone = candidates(events);
    // A directory stays if something that stays happened in it.
    loop {
        let stay = events.iter().filter(|event| !is_dropped(event, &gone));
        let used: Vec<Ino> = stay.flat_map(dirs_of).collect();
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
            let dirs = dirs_of(&event).into_iter().filter(|dir| last.get(dir) == Some(&at));
            left.extend(dirs.filter_map(|ino| Some(Event::Touch { ino, time: event.time()? })));
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
        let footprint = event.footprint();
        if let Event::Make { ino, .. } = event {
            lives.insert(*ino, Life { names: 0, orphan: false });
        }
        for change in footprint.names() {
            if let Some(life) = change.before.and_then(|ino| lives.get_mut(&ino)) {
                life.names -= 1;
            }
            if let Some(life) = change.after.and_then(|ino| lives.get_mut(&ino)) {
                life.names += 1;
            }
        }
        let stays = |touch: &&InodeTouch| match touch.role {
            // Its content lives on elsewhere.
            Role::Source => footprint.subject_inode() != Some(touch.ino),
            // Ending the replaced inode stays an effect, unless that is gone as a whole too; it is simplest to keep the event that
            // did it.
            Role::Subject => footprint.inodes().iter().any(|touch| touch.role == Role::Victim),
            Role::Victim => footprint.loser().is_none(),
            Role::Directory | Role::Newborn | Role::Orphan | Role::Root => false,
        };
        excluded.extend(footprint.inodes().iter().filter(stays).map(|touch| touch.ino));
        if let Event::Restore { ino, .. } = event {
            excluded.insert(*ino);
        }
        if let Event::Unlink { orphan: true, .. }
        | Event::Rename { over: Over::Replaced { orphan: true, .. }, .. } = event
            && let Some(life) = footprint.loser().and_then(|ino| lives.get_mut(&ino))
        {
            life.orphan = true;
        }
        if let Event::Reclaim { ino, from_chunk: 0 } = event
            && let Some(life) = lives.get_mut(ino)
        {
            life.orphan = false;
        }
    }
    // A file that is still open as an orphan stays: its writer continues.
    let ended = |life: &Life| life.names == 0 && !life.orphan;
    lives.iter().filter(|(ino, life)| ended(life) && !excluded.contains(*ino)).map(|(ino, _)| *ino).collect()
}

fn is_dropped(event: &Event, gone: &HashSet<Ino>) -> bool {
    event.footprint().subject_inode().is_some_and(|ino| gone.contains(&ino))
}

/// The directories in which an event changes a name, each once.
fn dirs_of(event: &Event) -> Vec<Ino> {
    let mut dirs: Vec<Ino> = event.footprint().names().map(|change| change.dir).collect();
    dirs.dedup();
    dirs
}

/// Which event is the last that changes names in a directory that stays.
fn last_changes(events: &[Event], gone: &HashSet<Ino>) -> HashMap<Ino, usize> {
    let mut last = HashMap::new();
    for (at, event) in events.iter().enumerate() {
        let dirs = dirs_of(event).into_iter().filter(|dir| !gone.contains(dir));
        last.extend(dirs.map(|dir| (dir, at)));
    }
    last
}
