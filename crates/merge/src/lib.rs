//! Merge as a plan: (the decoupled side's event, the server's state, the decoupling's map) → the server's events, or a
//! conflict.
//!
//! ```text
//!   event ──▶ plan_merge ──┬─▶ First(events)   apply them, ask again: something was in the way
//!     ▲                    ├─▶ Emit            the event, translated in place, fits: apply it
//!     └──── asked again ───┼─▶ Instead(events) apply them in its place
//!                          ├─▶ Skip(why)       nothing is to be done
//!                          └─▶ Stop            a conflict, and the policy says abort
//! ```
//!
//! # Getting started
//!
//! ```
//! use chiton_merge::{MergeContext, MergeStep, plan_merge};
//! use chiton_model::Event;
//! use chiton_model::merge::{MergeMap, OnConflict};
//! use chiton_namespace::Namespace;
//! use chiton_types::{Ino, Kind, Mode, Name, Position, Time};
//!
//! # use chiton_namespace::{Fetched, Need};
//! # fn name(text: &str) -> Name {
//! #     Name::try_from(text).expect("a name")
//! # }
//! # fn make(kind: Kind, parent: Ino, ino: Ino, text: &str, content: &[u8]) -> Event {
//! #     let (mode, time, content) = (Mode(0o755), Time(1), content.to_vec());
//! #     Event::Make { kind, mode, parent, ino, time, uid: 0, gid: 0, rdev: 0, name: name(text), content }
//! # }
//! # let mut state = Namespace::new();
//! # let (key, value) = Namespace::format_rows(Time(0), 0, 0).swap_remove(0);
//! # let rows = vec![(key, value.expect("the root's row"))];
//! # let root = Fetched { need: Need::Inode(Ino::ROOT), rows, exhausted: true, unreadable: false };
//! # let generation = state.generation();
//! # state.install(root, generation).expect("a row of the format");
//! // A client decoupled the directory `job` when the server was at position 1. It may use the inode numbers from 100 to 199.
//! let job = Ino(2);
//! state.apply(&make(Kind::Dir, Ino::ROOT, job, "job", b""), Position(1));
//! let mut map = MergeMap::new(job, Position(1), 7, OnConflict::KeepBoth);
//! map.grant(Ino(100), Ino(200));
//! map.note_born_after(job.shard(), 3);
//!
//! // Another client has made a file `out` there since. The journal of the decoupled side has a file of the same name.
//! let mut position = Position(2);
//! state.apply(&make(Kind::File, job, Ino(3), "out", b"theirs"), position);
//! let mut event = make(Kind::File, job, Ino(100), "out", b"ours");
//!
//! // The merge first moves the other file aside, and then makes ours.
//! let mut conflicts = Vec::new();
//! let mut is_done = false;
//! while !is_done {
//!     let ctx = MergeContext { is_open: &|_| false, fresh: Ino(4), now: Time(2) };
//!     let step = plan_merge(&state, &mut event, &mut map, &ctx, &mut conflicts)?;
//!     is_done = !matches!(step, MergeStep::First(_));
//!     let events = match step {
//!         MergeStep::Emit => vec![event.clone()],
//!         MergeStep::First(events) | MergeStep::Instead(events) => events,
//!         MergeStep::Skip(_) | MergeStep::Stop => Vec::new(),
//!     };
//!     for event in &events {
//!         position = position.next();
//!         state.apply(event, position);
//!         map.note_own(position);
//!     }
//! }
//! assert_eq!(state.named(job, &name("out"))?, Some((Ino(100), Kind::File)));
//! assert_eq!(state.named(job, &name("out.theirs"))?, Some((Ino(3), Kind::File)));
//! assert_eq!(conflicts.len(), 1);
//! # Ok::<(), chiton_namespace::Fault>(())
//! ```
//!
//! # Layout
//!
//! - [`plan_merge`] (`lib`): one event. `make`, `names`, `rename`, `exchange`: events that change names. `content`: the others.
//! - `edit`: files that both sides changed. `replaced`: names that others gave to another file. `restored`: inodes that others removed.
//! - `locate`: the place of an inode on the server, free names, reports of conflicts.
//! - [`foreign_to_inode`], [`foreign_to_name`] (`foreign`): the changes of others, for a preview.
//! - [`squash()`]: drops redundant events before a journal is sent. [`rebase()`]: adapts a journal to a state that a merge left.
//!
//! Invariants:
//! - Pure and deterministic; the state is not changed, the map only with the answer (not if rows are missing).
//! - Whatever the event says, the emitted events fit the state: a hostile journal breaks nothing, and touches nothing
//!   outside the decoupled subtree but numbers that are its own.
//! - A caller asks again after it has applied the events of `First`, and so after a crash between them.
//! - Content of two sides is never mixed: a file of ours that others changed becomes again what ours knows before ours'
//!   changes are applied (`edit.rs`).
//! - A conflict is a row that others changed after the base ([`MergeMap::is_foreign`]). A file's row has one position: its
//!   being renamed or linked by others counts as a change of it. A directory's attributes have their own. Where ours changes
//!   names of such a file, which contradicts nothing, the map remembers that the changes of others are still to be met.

mod content;
mod edit;
mod exchange;
mod locate;
mod make;
mod names;
mod rename;
mod replaced;
mod restored;

mod foreign;
mod rebase;
mod squash;

use chiton_model::merge::{Conflict, MergeMap, Settled};
use chiton_model::{Event, Over};
use chiton_namespace::{Fault, Namespace};
use chiton_types::{Ino, Kind, Refusal, Time};

pub use foreign::{Change, foreign_to_inode, foreign_to_name};
pub use rebase::{Rebased, rebase};
pub use squash::squash;

/// The facts that a merge needs beside the state and the map.
pub struct MergeContext<'a> {
    /// Whether any session of the server has the inode open, or another decoupling needs it as it is.
    pub is_open: &'a dyn Fn(Ino) -> bool,
    /// A new inode number of the server, for a copy. If an answer used it, the next question needs another.
    pub fresh: Ino,
    /// Now, for the copy's birth time.
    pub now: Time,
}

/// How an event is treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeStep {
    /// The event, as it is now, fits: apply it. Done.
    Emit,
    /// Apply these first, then ask again.
    First(Vec<Event>),
    /// Apply these instead of the event. Done.
    Instead(Vec<Event>),
    /// Nothing is to be done. Done.
    Skip(Skipped),
    /// The policy forbids conflicts: the conflict was reported, nothing may be merged from here on.
    Stop,
}

/// Why an event changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// The server decides that itself (reclaiming orphans, its sessions …), or it is so already.
    Needless,
    /// The inode that it is about is gone, by the decoupled side's own doing or by one that stands.
    Gone,
    /// A conflict was reported, and theirs stands.
    Theirs,
    /// It is about something outside the decoupled subtree.
    Outside,
    /// No event that a decoupled client writes.
    Invalid(&'static str),
    /// A limit of the file system forbids it.
    Refused(Refusal),
}

impl Skipped {
    /// Whether something that the decoupled side acknowledged is lost by it (then a report must say so).
    pub fn loses(self) -> bool {
        matches!(self, Skipped::Outside | Skipped::Invalid(_) | Skipped::Refused(_))
    }

    /// Why something is lost, in words; empty if nothing is.
    pub fn reason(self) -> String {
        match self {
            Skipped::Outside => "it is about something outside of the subtree".to_owned(),
            Skipped::Invalid(what) => what.to_owned(),
            Skipped::Refused(refusal) => refusal.to_string(),
            Skipped::Needless | Skipped::Gone | Skipped::Theirs => String::new(),
        }
    }
}

/// How to treat the next event of a decoupled side's journal. The event's inode numbers are translated in place.
/// Conflicts are appended to `report`.
///
/// # Errors
/// [`Fault::Missing`] only: fetch, install, ask again.
pub fn plan_merge(
    state: &Namespace,
    event: &mut Event,
    map: &mut MergeMap,
    ctx: &MergeContext<'_>,
    report: &mut Vec<Conflict>,
) -> Result<MergeStep, Fault> {
    let sets_attributes = event.attributes_of().is_some();
    Merge { state, map, ctx, report, sets_attributes }.plan(event)
}

/// One event being planned: the state is only read; the map and the report grow.
struct Merge<'a> {
    state: &'a Namespace,
    map: &'a mut MergeMap,
    ctx: &'a MergeContext<'a>,
    report: &'a mut Vec<Conflict>,
    /// The event sets attributes of an inode, and changes no content and no name.
    sets_attributes: bool,
}

impl Merge<'_> {
    fn plan(&mut self, event: &mut Event) -> Result<MergeStep, Fault> {
        let (given_up, gained) = (names::given_up(event, self.map), names::gained(event, self.map));
        let step = self.step(event).and_then(|step| {
            let step = self.with_kinds(step, event);
            self.note_unmet(step, event)
        });
        match step {
            Err(Fault::Refused(refusal)) => Ok(MergeStep::Skip(Skipped::Refused(refusal))),
            Err(Fault::NeedGroups) => unreachable!("merges ask as root, whose groups decide nothing"),
            Ok(step @ (MergeStep::Emit | MergeStep::Instead(_) | MergeStep::Skip(_))) => {
                // Ours does not see an inode again that it removed, even if it stands; it does see one that it could not move.
                let stands = matches!(step, MergeStep::Skip(Skipped::Theirs));
                let removed = matches!(event, Event::Unlink { .. });
                for (ino, place) in given_up {
                    let was_contested = self.map.contested.forget(ino, &place);
                    if (was_contested && !stands) || (removed && stands) {
                        self.map.note_gone(place);
                    }
                }
                gained.iter().for_each(|place| self.map.note_gained(place));
                Ok(step)
            }
            other => other,
        }
    }

    fn step(&mut self, event: &mut Event) -> Result<MergeStep, Fault> {
        match event {
            Event::Make { .. } => self.merge_make(event),
            Event::Link { .. } => self.merge_link(event),
            Event::Unlink { .. } => self.merge_unlink(event),
            Event::Rename { over: Over::Exchanged { .. }, .. } => self.merge_exchange(event),
            Event::Rename { .. } => self.merge_rename(event),
            Event::SetAttr {
                mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, ..
            } => self.merge_change_time(event),
            Event::SetAttr { ino, ctime: time, .. }
            | Event::Write { ino, mtime: time, .. }
            | Event::Clone { to: ino, time, .. }
            | Event::Xattr { ino, ctime: time, .. }
            | Event::Flags { ino, ctime: time, .. } => {
                *ino = self.map.translate(*ino);
                let (ino, time) = (*ino, *time);
                self.merge_content(event, ino, time)
            }
            Event::Touch { .. } => self.merge_touch(event),
            Event::Reclaim { .. } | Event::Skipped { .. } => Ok(MergeStep::Skip(Skipped::Needless)),
            Event::Remap { .. }
            | Event::Policy(_)
            | Event::Decoupled(_)
            | Event::Attached(_)
            | Event::Granted { .. }
            | Event::Merged(_)
            | Event::DecouplingEnded { .. }
            | Event::Swept { .. }
            | Event::Reserve { .. }
            | Event::SessionOpened { .. }
            | Event::SessionClosed { .. }
            | Event::Revert { .. }
            | Event::Restore { .. }
            | Event::Owes { .. }
            | Event::CarriedOut { .. }
            | Event::Settled { .. }
            | Event::Guarded { .. }
            | Event::GuardEnded { .. }
            | Event::Lent { .. }
            | Event::PeerOpened { .. }
            | Event::Refused { .. }
            | Event::Parts { .. }
            | Event::Part { .. }
            | Event::Moved { .. }
            | Event::Folded { .. }
            | Event::Detached { .. }
            | Event::Parent { .. } => {
                Ok(MergeStep::Skip(Skipped::Invalid("an event that only a server writes")))
            }
        }
    }

    /// The types of inodes in the events are those of the state, whatever the decoupled side's journal says.
    fn with_kinds(&self, mut step: MergeStep, event: &mut Event) -> MergeStep {
        let events = match &mut step {
            MergeStep::Emit => std::slice::from_mut(event),
            MergeStep::First(events) | MergeStep::Instead(events) => events,
            MergeStep::Skip(_) | MergeStep::Stop => return step,
        };
        for event in events {
            event.set_kinds(|ino| self.state.inode(ino).ok().map(|inode| inode.kind()));
        }
        step
    }

    /// An inode that becomes ours by a change of names keeps in the map that others changed it.
    fn note_unmet(&mut self, step: MergeStep, event: &Event) -> Result<MergeStep, Fault> {
        let events = match &step {
            MergeStep::Emit => std::slice::from_ref(event),
            MergeStep::First(events) | MergeStep::Instead(events) => events,
            MergeStep::Skip(_) | MergeStep::Stop => return Ok(step),
        };
        for event in events {
            if matches!(event, Event::Make { .. } | Event::Restore { .. }) {
                continue;
            }
            for change in event.footprint().names() {
                let Some(ino) = change.after.or(change.before) else { continue };
                let inode = self.state.inode(ino)?;
                // Both sides did the same: nothing to merge, and the changes that ours made on top of it contain it.
                let is_met = self.map.settled(inode.ino, inode.position) == Some(Settled::Same);
                if inode.kind() != Kind::Dir && self.map.is_foreign(inode.position) && !is_met {
                    self.map.note_standing(ino);
                }
            }
        }
        Ok(step)
    }
}

/// Ends the planning of an event because of what a question found.
macro_rules! found {
    ($question:expr) => {
        match $question? {
            Ok(found) => found,
            Err(step) => return Ok(step),
        }
    };
}
use found;
