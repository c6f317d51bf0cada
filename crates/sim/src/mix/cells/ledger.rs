//! The actions of a job, and the part that must survive any death.

use chiton_types::{Ino, Plates};

use super::super::case::Victim;
use super::Cell;
use crate::checkers::crash::{Entry, History};
use crate::history::{Action, Answer, CallId};
use crate::judge::Life;
use crate::model::{Change, Model, TIME_UNKNOWN};
use crate::tree::{Node, Tree};
use crate::users::User;

pub(super) struct Ledger {
    pub(super) life: Life,
    calls: u64,
    /// Number of entries that survive the death of all, of the client's machine, and of the server.
    floors: [usize; 3],
    /// A machine died during the last action, which may have been carried out afterwards.
    pub(super) late: bool,
}

impl Ledger {
    /// For an existing empty directory.
    pub(super) fn new(root: &str, made: Answer) -> Result<Ledger, String> {
        let mut life = Life::new(Plates::one(1), root.to_owned(), 0o755, CallId(0));
        life.returned(CallId(0), &made).map_err(|wrong| wrong.what)?;
        Ok(Ledger { life, calls: 0, floors: [0; 3], late: false })
    }

    pub(super) fn begins(&mut self, action: &Action) -> CallId {
        self.calls += 1;
        self.life.invoked(CallId(self.calls), User::Root, action);
        CallId(self.calls)
    }

    pub(super) fn answered(&mut self, call: CallId, answer: &Answer) -> Result<(), String> {
        self.life.returned(call, answer).map_err(|wrong| wrong.what)
    }

    pub(super) fn len(&self) -> usize {
        self.life.entries().len()
    }

    /// The first `count` entries survive any death.
    pub(super) fn is_safe(&mut self, count: usize) {
        self.floors.iter_mut().for_each(|floor| *floor = (*floor).max(count));
    }

    /// All so far was carried out, by the client or by the server; one of these cells held.
    pub(super) fn carried_out(&mut self, by_client: bool, cells: &[Cell]) {
        let now = self.len();
        if by_client || cells.iter().all(|cell| cell.keeps()) {
            self.floors[2] = now;
        }
        if !by_client {
            self.floors[1] = now;
        }
    }

    fn floor(&self, dead: Option<Victim>) -> usize {
        match dead {
            None => self.len(),
            Some(Victim::Both(_)) => self.floors[0],
            Some(Victim::Side(_)) => self.floors[1].max(self.floors[0]),
            Some(Victim::Server) => self.floors[2].max(self.floors[0]),
        }
    }

    /// Judges the directory. `dead`: the victim, if its death may have lost anything. `aside`: a file whose buffers
    /// a live client pushes whatever the server has lost, and its initial state.
    pub(super) fn judge(
        &self,
        dead: Option<Victim>,
        found: &Tree,
        aside: Option<(Ino, &Node)>,
    ) -> Result<usize, String> {
        let (floor, all) = (self.floor(dead), self.life.entries().entries());
        let mut found = found.clone();
        let is_aside = |entry: &Entry| aside.is_some_and(|(ino, _)| is_about(entry, ino));
        if let Some((_, node)) = aside {
            found.nodes.insert("/held".to_owned(), node.clone());
        }
        let kept: Vec<Entry> = all.iter().filter(|entry| !is_aside(entry)).cloned().collect();
        let floor = all[..floor].iter().filter(|entry| !is_aside(entry)).count();
        let history = |entries: &[Entry]| {
            let mut history = History::new(Model::new(TIME_UNKNOWN));
            entries.iter().for_each(|entry| history.push(entry.clone()));
            history
        };
        let judged = history(&kept).judge_from(floor, kept.len(), &found);
        let Err(wrong) = judged else { return Ok(floor) };
        // The last action may have been carried out after the server came back without earlier ones.
        if let Some(last) = kept.last().filter(|_| self.late) {
            for n in floor..kept.len() {
                let moved = [&kept[..n], std::slice::from_ref(last)].concat();
                if fits(&moved) && history(&moved).judge_from(n + 1, n + 1, &found).is_ok() {
                    return Ok(n);
                }
            }
        }
        Err(format!("{} of {} entries must be there; {}", floor, kept.len(), wrong.what))
    }
}

/// Whether an entry changes only this file's content or openings.
fn is_about(entry: &Entry, ino: Ino) -> bool {
    match entry {
        Entry::Buffered(of, ..) | Entry::Pushed(Some(of)) | Entry::Lost(of) => *of == ino,
        Entry::Act(Change::Open { ino: of } | Change::Close { ino: of }, _) => *of == ino,
        _ => false,
    }
}

/// Whether the model carries all of it out.
fn fits(entries: &[Entry]) -> bool {
    let mut model = Model::new(TIME_UNKNOWN);
    entries.iter().all(|entry| match entry {
        Entry::Act(change, time) => model.apply(change, *time).is_ok(),
        _ => true,
    })
}
