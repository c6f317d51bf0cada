//! Clients whose certificate is limited to a subtree: `--allow rw:/home/alice`.
//!
//! ```text
//!   call ─▶ its session has no limit ─▶ as ever
//!                │ it has one
//!                ▼
//!   the directory of the certificate's path: looked up by the first call, and kept while the session lives
//!                ▼
//!   each inode that the call names ─▶ up from parent to parent ─▶ that directory: as ever · the root: EACCES
//!                                       a parent of another plate: that one is asked (peers/subtrees.rs)
//! ```
//!
//! Invariants:
//! - The client's word counts for nothing: whatever inode it names is looked for from below at the moment of the call. The answers of other
//!   plates hold for [`BELIEF`].
//! - A file with several names may be used if one of them is below the directory.
//! - A file that the session has open, or may write to under an exclusive lease, may be used wherever it was moved. A directory may not.
//! - A block may be read by sessions that were shown it in the map of a file, or that wrote it.
//! - `..` of the client's root leads to itself, and attributes name no directory above it.

use std::time::Duration;

use chiton_model::{Op, Outcome, Role};
use chiton_types::{Attr, BlockId, Ino, Kind, Refusal, SessionId};
use chiton_wire::{
    Answer, Call, Content, Failure, LeaseMode, Query, Reach, RefuseReason, Stat, SubtreeQuestion,
    is_policy_attribute,
};
use hashbrown::{HashMap, HashSet};

use crate::counters;
use crate::engine::Engine;
use crate::execute::OpCall;
use crate::moment::Moment;
use crate::policies;
use crate::sessions::Slot;
use crate::step::{Command, Stop};
use crate::wait_queue::Task;

/// How long the answer of another plate is believed. A directory that moves out of the subtree is closed to its clients after that at the
/// latest; if all directories on the way up are of one plate, at once.
pub(crate) const BELIEF: Duration = Duration::from_secs(1);
/// Answers of other plates that are kept; then all are forgotten.
const KNOWN_MAX: usize = 65_536;
/// Blocks that a session was shown and that are remembered; then all are forgotten, and the client asks for its maps again.
const BLOCKS_MAX: usize = 262_144;

/// The limit of a session, from the certificate of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtreeLimit {
    /// An absolute path of names.
    pub path: String,
    /// Names the certificate, for the log of refusals.
    pub owner: String,
}

/// How far a session may reach.
#[derive(Debug, Default)]
pub(crate) enum Limit {
    /// It came back with a start, and its client has not connected.
    #[default]
    Unknown,
    None,
    Below(Box<Below>),
}

/// The state of a session that is limited to a subtree.
#[derive(Debug)]
pub(crate) struct Below {
    limit: SubtreeLimit,
    /// The directory, once it was looked up.
    root: Option<Ino>,
    /// Blocks of files that it was shown.
    blocks: HashSet<BlockId>,
}

/// An answer about a subtree, from another plate or this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) found: Option<Ino>,
    pub(crate) onward: Vec<SubtreeQuestion>,
}

#[derive(Default)]
pub(crate) struct Subtrees {
    /// A session was limited since this start. Else nothing is looked at.
    pub(crate) are_used: bool,
    /// Answers of other plates, and until when they are believed.
    known: HashMap<SubtreeQuestion, (Said, Duration)>,
}

impl Subtrees {
    pub(crate) fn learn(&mut self, question: SubtreeQuestion, said: Said, mono: Duration) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(question, (said, mono + BELIEF));
    }

    /// An answer that is believed. That there is no such path holds for one request: a client may be about to make the directory.
    pub(crate) fn known(&mut self, question: &SubtreeQuestion, mono: Duration) -> Option<Said> {
        let said = self.known.get(question).filter(|(_, until)| mono < *until)?.0.clone();
        let is_nowhere = said.found.is_none() && said.onward.is_empty();
        if is_nowhere && matches!(question, SubtreeQuestion::Path { .. }) {
            self.known.remove(question);
        }
        Some(said)
    }
}

impl Engine {
    /// Limits a session that begins or comes back to the subtree of its certificate. A session keeps the limit with which it began.
    ///
    /// # Errors
    /// If it comes back with another one.
    pub fn limit_session(
        &mut self,
        session: SessionId,
        limit: Option<SubtreeLimit>,
    ) -> Result<(), RefuseReason> {
        let Some(session) = self.clients.sessions.get_mut(session) else { return Ok(()) };
        match (&session.limit, limit) {
            (Limit::Unknown, Some(limit)) => {
                self.subtrees.are_used = true;
                session.decouples = false;
                session.limit = Limit::Below(Box::new(Below { limit, root: None, blocks: HashSet::new() }));
                Ok(())
            }
            (Limit::Unknown, None) => {
                session.limit = Limit::None;
                Ok(())
            }
            (Limit::None, None) => Ok(()),
            (Limit::Below(known), Some(limit)) if known.limit.path == limit.path => {
                session.decouples = false;
                Ok(())
            }
            (Limit::None, Some(_)) | (Limit::Below(_), _) => Err(RefuseReason::SessionGone),
        }
    }

    fn below(&self, session: SessionId) -> Option<&Below> {
        match &self.clients.sessions.get(session)?.limit {
            Limit::Below(below) => Some(below),
            Limit::Unknown | Limit::None => None,
        }
    }

    /// The directory to which a session is limited; `None` if it is not limited.
    pub(crate) fn root_of_session(&mut self, session: SessionId, m: &Moment) -> Result<Option<Ino>, Stop> {
        if !self.subtrees.are_used {
            return Ok(None);
        }
        let Some(below) = self.below(session) else { return Ok(None) };
        if below.root.is_some() {
            return Ok(below.root);
        }
        // Operations that are carried out again after a start wait for no client.
        let settled = self.recovery.is_none() && !self.is_resending();
        let names = below.limit.path.trim_start_matches('/').as_bytes().to_vec();
        let question = SubtreeQuestion::Path { settled, from: self.settings.root, names };
        let root = self.find_in_subtree(question, m)?.ok_or(Refusal::NotFound)?;
        if let Some(Limit::Below(below)) = self.clients.sessions.get_mut(session).map(|s| &mut s.limit) {
            below.root = Some(root);
        }
        Ok(Some(root))
    }

    /// Refuses a call that reaches out of the subtree of its session. Operations, targets and declarations are looked at one by one.
    pub(crate) fn stay_in_subtree(&mut self, task: &Task, slot: Slot, m: &Moment) -> Result<(), Stop> {
        let (session, call) = (task.session, &task.request.call);
        if !self.subtrees.are_used || self.below(session).is_none() {
            return Ok(());
        }
        let what = counters::name_of(call);
        match call.reach() {
            Reach::Own | Reach::Each => Ok(()),
            Reach::Everything => Err(self.denied(session, what, None)),
            Reach::Inode(ino) => {
                if let Call::Query(Query::GetXattr { name, .. }) = call
                    && is_policy_attribute(name)
                    && name != policies::OWN
                {
                    // They name the directories whose policies hold, which may be above.
                    return Err(Refusal::NoXattr.into());
                }
                self.may_reach(session, slot, ino, what, m)
            }
        }
    }

    /// Refuses an inode that is not in the subtree of a session.
    pub(crate) fn may_reach(
        &mut self,
        session: SessionId,
        slot: Slot,
        ino: Ino,
        what: &str,
        m: &Moment,
    ) -> Result<(), Stop> {
        match self.reaches(session, slot, ino, m)? {
            true => Ok(()),
            false => Err(self.denied(session, what, Some(ino))),
        }
    }

    fn reaches(&mut self, session: SessionId, slot: Slot, ino: Ino, m: &Moment) -> Result<bool, Stop> {
        let Some(root) = self.root_of_session(session, m)? else { return Ok(true) };
        if ino == root {
            return Ok(true);
        }
        if self.shards.ns.owns(ino) {
            self.await_birth(ino)?;
            // One that is gone is refused as such: the client looks its name up again.
            let attr = self.shards.ns.attr(ino)?;
            if attr.kind != Kind::Dir && self.clients.opens.has(ino, slot) {
                return Ok(true);
            }
        }
        Ok(self.find_in_subtree(SubtreeQuestion::Within { ino, root }, m)?.is_some())
    }

    /// Refuses an operation that touches something outside the subtree of its session.
    pub(crate) fn keep_in_subtree(&mut self, call: &OpCall<'_>, m: &Moment) -> Result<(), Stop> {
        if !self.subtrees.are_used || call.slot == Slot::SERVER || self.below(call.session).is_none() {
            return Ok(());
        }
        let what = Op::COUNTERS[call.op.counter()];
        let footprint = call.op.footprint();
        for touch in footprint.inodes().iter().filter(|touch| touch.role != Role::Newborn) {
            // Content that the client has acknowledged under its lease.
            let is_held = matches!(call.op, Op::Write { .. })
                && self.clients.leases.mode(touch.ino, call.slot) == LeaseMode::Exclusive;
            if !is_held {
                self.may_reach(call.session, call.slot, touch.ino, what, m)?;
            }
        }
        Ok(())
    }

    /// Of these inodes those that a session may declare as its own after a start; `None`: all.
    pub(crate) fn reachable(
        &mut self,
        (session, slot): (SessionId, Slot),
        inodes: impl Iterator<Item = Ino>,
        m: &Moment,
    ) -> Result<Option<HashSet<Ino>>, Stop> {
        if !self.subtrees.are_used || self.below(session).is_none() {
            return Ok(None);
        }
        let mut reachable = HashSet::new();
        for ino in inodes {
            let reaches = match self.reaches(session, slot, ino, m) {
                Err(Stop::Fail(_)) => false,
                reaches => reaches?,
            };
            match reaches {
                true => drop(reachable.insert(ino)),
                false => drop(self.denied(session, "reopen", Some(ino))),
            }
        }
        Ok(Some(reachable))
    }

    /// A path may have left the subtree while it was on its way, if a directory on it moved: then the answer is not given.
    pub(crate) fn stayed_in_subtree(
        &mut self,
        session: SessionId,
        answer: &Answer,
        m: &Moment,
    ) -> Result<(), Stop> {
        let Some(root) = self.root_of_session(session, m)? else { return Ok(()) };
        let Answer::Resolved(resolved) = answer else { return Ok(()) };
        let passed = resolved.inodes.iter().map(|(attr, _)| attr.ino);
        for ino in passed.chain(resolved.names.iter().map(|(dir, _, _)| *dir)) {
            if self.find_in_subtree(SubtreeQuestion::Within { ino, root }, m)?.is_none() {
                return Err(self.denied(session, "resolve", Some(ino)));
            }
        }
        Ok(())
    }

    /// Whether the runtime may answer a call in which the engine has no part.
    pub(crate) fn may_ask_outside(&mut self, session: SessionId, call: &Call) -> Result<(), Failure> {
        if !self.subtrees.are_used {
            return Ok(());
        }
        let Some(below) = self.below(session) else { return Ok(()) };
        let is_allowed = match call {
            Call::GetBlock { block, .. } if block.writer == session.0 => true,
            // The client asks for the map again: this start may not have shown it.
            Call::GetBlock { block, .. } if !below.blocks.contains(block) => {
                return Err(Failure::Refused(Refusal::Stale));
            }
            Call::GetBlock { .. } => true,
            call => call.reach() != Reach::Everything,
        };
        match is_allowed {
            true => Ok(()),
            false => Err(match self.denied(session, counters::name_of(call), None) {
                Stop::Fail(failure) => failure,
                Stop::Missing(_) | Stop::Wait(_) | Stop::Yield => Failure::Refused(Refusal::Access),
            }),
        }
    }

    /// Leaves out of an answer what lies above the client's root, and notes the blocks that it shows.
    pub(crate) fn hide_above(&mut self, session: SessionId, answer: &mut Answer) {
        let Some(Limit::Below(below)) = self.clients.sessions.get_mut(session).map(|s| &mut s.limit) else {
            return;
        };
        let Some(root) = below.root else { return };
        let hide_above = |attr: &mut Attr| {
            if attr.ino == root {
                attr.parent = root;
            }
        };
        let outcome = |outcome: &mut Outcome| outcome.attr.iter_mut().for_each(hide_above);
        match answer {
            Answer::Op { outcome: done, .. } => outcome(done),
            Answer::Batch(results) => results.iter_mut().flatten().for_each(|(_, done)| outcome(done)),
            Answer::Names { attr, .. } | Answer::Attr { attr, .. } | Answer::Lease { attr, .. } => {
                hide_above(attr)
            }
            Answer::Map { attr, content, .. } => {
                hide_above(attr);
                if let Content::Extents { extents, .. } = content {
                    if below.blocks.len() + extents.len() > BLOCKS_MAX {
                        below.blocks.clear();
                    }
                    below.blocks.extend(extents.iter().map(|extent| extent.block));
                }
            }
            Answer::Resolved(resolved) => resolved.inodes.iter_mut().for_each(|(attr, _)| hide_above(attr)),
            Answer::Entries { entries, .. } => {
                entries
                    .iter_mut()
                    .filter_map(|entry| entry.attr.as_mut())
                    .for_each(|(attr, _)| hide_above(attr));
            }
            Answer::Stats(stats) => {
                for stat in stats.iter_mut().flatten() {
                    if let Stat::Attr { attr, .. } = stat {
                        hide_above(attr);
                    }
                }
            }
            Answer::Done
            | Answer::WriteBehind(_)
            | Answer::CarriedOut { .. }
            | Answer::Absent { .. }
            | Answer::Elsewhere { .. }
            | Answer::Bytes(_)
            | Answer::StatFs(_)
            | Answer::Lock(_)
            | Answer::Realm(_) => {}
        }
    }

    /// The refusal, with a line for the log and the history.
    fn denied(&mut self, session: SessionId, what: &str, ino: Option<Ino>) -> Stop {
        if let Some(Below { limit: SubtreeLimit { path, owner }, .. }) = self.below(session) {
            let whereof = match ino {
                Some(ino) => format!("{what} of inode {ino}, which is not in {path}"),
                None => format!("{what}, which is about more than {path}"),
            };
            self.queue.commands.push(Command::Denied(format!("refused {owner}: {whereof}")));
        }
        Refusal::Access.into()
    }
}
