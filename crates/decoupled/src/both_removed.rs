//! Inodes that both sides removed and that ours had changed before.
//!
//! A merge carries out the journal step by step. It would meet the removal by other clients at a step that ours has
//! itself made void.
//!
//! ```text
//!   ours:  write f · rename d/x to d/y · unlink f · unlink d/y · rmdir d        others:  unlink f · unlink d/x · rmdir d
//!          ──▶ f, x and d are agreed on: the server passes over our changes to them         (Settled::REMOVED)
//!   ours:  make d/n · rename d/n to n · rmdir d                                 others:  rmdir d
//!          ──▶ n came through d: d must be there for a moment, so this is a conflict
//! ```
//!
//! Invariant: a change that the merge passes over leaves no trace. No remaining inode was in such a directory, and
//! no remaining file shares content with such a file.

use chiton_model::{Event, Role, Rows};
use chiton_types::Ino;
use hashbrown::HashSet;

/// The effects of the events of a merge on inodes that both sides removed.
pub(crate) struct Traces<'a> {
    removed: &'a HashSet<Ino>,
    /// Files that were made and removed in the journal.
    fleeting: &'a dyn Fn(Ino) -> bool,
    /// Something was done to these before.
    acted: HashSet<Ino>,
    /// Inodes that share a part of their content.
    shared: HashSet<Ino>,
    /// The inodes and the directories into which they were put.
    put: Vec<(Ino, Ino)>,
}

/// Of inodes that both sides removed, those to which ours did something before.
#[derive(Default)]
pub(crate) struct BothRemoved {
    /// The merge passes over the changes to these.
    pub(crate) agreed: Vec<Ino>,
    /// The changes to these left traces, so the removal by other clients conflicts with them.
    pub(crate) contested: HashSet<Ino>,
}

impl<'a> Traces<'a> {
    pub(crate) fn of(removed: &'a HashSet<Ino>, fleeting: &'a dyn Fn(Ino) -> bool) -> Traces<'a> {
        let (acted, shared) = (HashSet::new(), HashSet::new());
        Traces { removed, fleeting, acted, shared, put: Vec::new() }
    }

    /// Notes the inodes and names that an event touches.
    pub(crate) fn note(&mut self, event: &Event) {
        let footprint = event.footprint();
        for touch in footprint.inodes() {
            match touch.role {
                Role::Subject if Some(touch.ino) != footprint.loser() && touch.writes.has_any(Rows::SEEN) => {
                    self.acts(touch.ino);
                }
                Role::Victim if Some(touch.ino) != footprint.loser() => self.acts(touch.ino),
                Role::Source if Some(touch.ino) != footprint.subject_inode() => {
                    self.shared.insert(touch.ino);
                }
                Role::Subject
                | Role::Victim
                | Role::Source
                | Role::Directory
                | Role::Newborn
                | Role::Orphan
                | Role::Root => {}
            }
        }
        for change in footprint.names() {
            if let Some(ino) = change.after {
                self.puts(change.dir, ino);
            }
        }
    }

    fn acts(&mut self, ino: Ino) {
        if self.removed.contains(&ino) {
            self.acted.insert(ino);
        }
    }

    fn puts(&mut self, dir: Ino, ino: Ino) {
        if self.removed.contains(&dir) {
            self.acted.insert(dir);
            self.put.push((dir, ino));
        }
    }

    /// The result, after the last event.
    pub(crate) fn finish(self) -> BothRemoved {
        let mut traceless: HashSet<Ino> = self.removed.difference(&self.shared).copied().collect();
        loop {
            let before = traceless.len();
            for (dir, ino) in &self.put {
                let is_fleeting = (self.fleeting)(*ino) && !self.shared.contains(ino);
                if !is_fleeting && !traceless.contains(ino) {
                    traceless.remove(dir);
                }
            }
            if traceless.len() == before {
                break;
            }
        }
        let (mut agreed, contested): (Vec<Ino>, Vec<Ino>) =
            self.acted.into_iter().partition(|ino| traceless.contains(ino));
        agreed.sort_unstable();
        BothRemoved { agreed, contested: contested.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use chiton_model::Over;
    use chiton_types::{Kind, Time};

    use super::*;
    use crate::event_samples;

    fn make(parent: u64, ino: u64) -> Event {
        event_samples::make(Ino(parent), "n", Ino(ino))
    }

    fn rename(from: u64, to: u64, ino: u64, over: Over) -> Event {
        event_samples::rename((Ino(from), "n"), (Ino(to), "m"), Ino(ino), over)
    }

    fn touch(ino: u64) -> Event {
        Event::Xattr { ino: Ino(ino), name: b"user.k".to_vec(), value: None, ctime: Time(2) }
    }

    fn share(from: u64, to: u64) -> Event {
        let (from, to) = (Ino(from), Ino(to));
        Event::Clone { from, from_offset: 0, to, to_offset: 0, len: 4_096, time: Time(3) }
    }

    /// 10 is a directory, 11 and 12 are files that both removed; 90 and above were made and removed.
    #[test]
    fn changes_without_a_trace_are_passed_over() {
        let over = || Over::Replaced { ino: Ino(7), kind: Kind::File, orphan: false };
        for (events, agreed, contested) in [
            (vec![], &[][..], &[][..]),
            (vec![touch(11), touch(5)], &[11], &[]),
            (vec![rename(1, 1, 11, over())], &[11], &[]),
            // The entries of the directory go with it, or came through it.
            (vec![make(10, 90), rename(1, 10, 12, Over::Nothing)], &[10, 12], &[]),
            (vec![make(10, 50)], &[], &[10]),
            (vec![rename(1, 10, 12, Over::Nothing), share(12, 5)], &[], &[10, 12]),
            (vec![make(10, 90), share(90, 5)], &[], &[10]),
            // An exchange puts both.
            (vec![rename(10, 1, 12, Over::Exchanged { ino: Ino(5), kind: Kind::File })], &[12], &[10]),
            // A content is shared within the file, and before.
            (vec![touch(11), share(11, 11)], &[11], &[]),
            (vec![touch(11), share(11, 90)], &[], &[11]),
        ] {
            let removed: HashSet<Ino> = [10, 11, 12].map(Ino).into_iter().collect();
            let fleeting = |ino: Ino| ino.0 >= 90;
            let mut traces = Traces::of(&removed, &fleeting);
            events.iter().for_each(|event| traces.note(event));
            let outcome = traces.finish();
            assert_eq!(outcome.agreed, agreed.iter().copied().map(Ino).collect::<Vec<_>>(), "{events:?}");
            let expect: HashSet<Ino> = contested.iter().copied().map(Ino).collect();
            assert_eq!(outcome.contested, expect, "{events:?}");
        }
    }
}
