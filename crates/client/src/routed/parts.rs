//! Directories with parts on several plates: each name goes to the part that has it, listings go through all parts, and `stat` adds up.
//!
//! ```text
//!   a name ──▶ the part in the list, if that is known ──▶ its plate ── OtherPart ─▶ the list, from the home ─▶ once more
//!   stat   ──▶ the home ─▶ every part, all at once ─▶ the sum
//!   list   ──▶ the part that has what follows the cookie ─▶ the next one when that has no more
//! ```
//!
//! Invariants:
//! - A list is a hint: a part carries out nothing outside of its range, and says so.
//! - Callers see the home alone. Its attributes and names are not cached, since they change at several plates.

use std::sync::Arc;

use chiton_model::{Op, PartRange, decode_parts, range_of};
use chiton_types::{Attr, Cred, Ino, Kind, Position, Refusal};
use chiton_wire::{Answer, Call, LeaseMode, Query};

use super::Each;
use super::chain::Next;
use crate::part_lists::List;
use crate::service::{CallError, Underway};

/// A call is sent again so often because its directory turned out to have other parts. It waits at each plate while the directory is split or
/// folded, and may find it changed again.
pub(super) const TRIES: usize = 16;

/// The directories whose names a call is about, if it may have to be sent again to their parts.
pub(super) fn dirs_of(call: &Call) -> Vec<Ino> {
    match call {
        Call::Op { op, .. } => op.footprint().names().map(|touch| touch.dir).collect(),
        Call::Query(Query::Lookup { parent, .. }) => vec![*parent],
        Call::Query(Query::ReadDir { dir, part_end: None, .. }) => vec![*dir],
        _ => Vec::new(),
    }
}

/// The parts of a directory in an answer that have names; none if it has all of them.
pub(crate) fn list_in(bytes: &[u8]) -> Result<Vec<PartRange>, Refusal> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = decode_parts(bytes).map_err(|_| Refusal::Io)?;
    parts.retain(|part| !part.is_folded());
    Ok(parts)
}

/// Whether a refusal says that the list of parts has to be asked for again. A part may have ended, or never begun, without its directory.
pub(super) fn is_elsewhere(refusal: Refusal, is_at_part: bool) -> bool {
    refusal == Refusal::OtherPart || is_at_part && refusal == Refusal::Stale
}

/// The directories whose names operations are about, each once.
pub(super) fn dirs_in(ops: &[Op]) -> Vec<Ino> {
    let mut dirs: Vec<Ino> = Vec::new();
    for op in ops {
        for touch in op.footprint().names() {
            if dirs.last() != Some(&touch.dir) {
                dirs.push(touch.dir);
            }
        }
    }
    dirs.sort_unstable();
    dirs.dedup();
    dirs
}

impl Each {
    /// The call as it is sent: names are in the parts that have them, as far as that is known.
    pub(super) fn placed(&self, mut call: Call) -> Call {
        match &mut call {
            Call::Op { op, .. } => self.parts.place_ops(std::slice::from_mut(op)),
            Call::Batch { ops, .. } => self.parts.place_ops(ops),
            Call::Query(Query::Lookup { parent, name }) => *parent = self.parts.place(*parent, name),
            _ => {}
        }
        call
    }

    /// Whether names of a call were put into parts.
    pub(super) fn has_moved(&self, call: &Call, placed: &Call) -> bool {
        self.parts.has_any() && dirs_of(call) != dirs_of(placed)
    }

    /// Whether a refusal of a call says that the lists of parts of its directories have to be asked for. Names that seem to be on two
    /// plates may be on one if they go to their parts.
    pub(super) fn is_elsewhere(&self, refusal: Refusal, is_at_part: bool, dirs: &[Ino]) -> bool {
        let is_unknown = |dir: &Ino| !self.parts.knows(*dir);
        is_elsewhere(refusal, is_at_part) || refusal == Refusal::CrossDevice && dirs.iter().any(is_unknown)
    }

    /// The parts of a directory of which they are known.
    pub(super) fn list_of(&self, dir: Ino) -> Option<List> {
        self.parts.of(dir)
    }

    pub(super) fn ask_list(&self, cred: &Cred, dir: Ino) -> Box<dyn Underway> {
        self.services[self.index(dir)].start(cred, Call::Query(Query::Parts { dir }))
    }

    /// An answer to a question of the generation `asked`.
    fn learn_list(&self, dir: Ino, answer: Result<Answer, CallError>, asked: u64) -> Result<(), CallError> {
        let list = match answer? {
            Answer::Bytes(bytes) => list_in(&bytes)?,
            _ => return Err(Refusal::Io.into()),
        };
        self.parts.learn(dir, list, asked);
        Ok(())
    }

    /// Asks which of these directories have parts, and continues with `then` when that is known.
    pub(super) fn learn(
        self: Arc<Each>,
        cred: Cred,
        dirs: Vec<Ino>,
        then: impl FnOnce(Arc<Each>, Cred) -> Next + Send + 'static,
    ) -> Next {
        let asked = self.parts.generation();
        let under_way: Vec<_> = dirs.iter().map(|dir| self.ask_list(&cred, *dir)).collect();
        let learnt = move |answers: Vec<Result<Answer, CallError>>| {
            for (dir, answer) in dirs.into_iter().zip(answers) {
                match self.learn_list(dir, answer, asked) {
                    // A directory that is gone is refused when the call is sent.
                    Ok(()) | Err(CallError::Refused(Refusal::Stale | Refusal::NotFound)) => {}
                    Err(error) => return Next::Answer(Err(error)),
                }
            }
            then(self, cred)
        };
        Next::All(under_way, Box::new(learnt))
    }

    /// The directories of a batch of which it is not known whether they have parts.
    pub(super) fn unknown_dirs(&self, ops: &[Op]) -> Vec<Ino> {
        let mut dirs = dirs_in(ops);
        dirs.retain(|dir| !self.parts.knows(*dir));
        dirs
    }

    // ---- listings -----------------------------------------------------------------------------------

    /// The entries that follow a cookie in a directory with these parts.
    pub(super) fn start_parted_listing(
        self: Arc<Each>,
        cred: Cred,
        list: List,
        call: Call,
        tries: usize,
    ) -> Next {
        let Call::Query(Query::ReadDir { dir, cookie, entries_max, plus, .. }) = call else {
            return Next::Answer(Err(Refusal::Invalid.into()));
        };
        let next = cookie.saturating_add(1);
        let at = list.iter().rposition(|part| part.first <= next).unwrap_or(0);
        let part = list[at];
        let cookie = cookie.max(part.first.saturating_sub(1));
        let part_end = range_of(&list, part.ino).map(|(_, last)| last);
        let query = Query::ReadDir { dir: part.ino, cookie, entries_max, plus, part_end };
        let of_part = self.clone().start_listing(self.index(part.ino), cred.clone(), Call::Query(query));
        of_part.then(move |answer| {
            let answer = match answer {
                Err(CallError::Refused(Refusal::OtherPart | Refusal::Stale)) if tries > 0 => {
                    let call = Call::Query(Query::ReadDir { dir, cookie, entries_max, plus, part_end: None });
                    return self
                        .learn(cred, vec![dir], move |each, cred| each.start_placed(cred, call, tries - 1));
                }
                // Parts end with their directory, which a caller may still have open: it has no names any more.
                Err(CallError::Refused(Refusal::Stale)) if part.ino != dir => Ok(Answer::Entries {
                    entries: Vec::new(),
                    end: true,
                    parent_leased: false,
                    parent_open: false,
                }),
                answer => answer,
            };
            let Ok(Answer::Entries { entries, end, parent_leased, parent_open }) = answer else {
                return Next::Answer(answer);
            };
            match list.get(at + 1).filter(|_| end) {
                Some(next) if entries.is_empty() => {
                    let cookie = next.first - 1;
                    let query = Query::ReadDir { dir, cookie, entries_max, plus, part_end: None };
                    self.start_parted_listing(cred, list, Call::Query(query), tries)
                }
                further => {
                    let end = end && further.is_none();
                    Next::Answer(Ok(Answer::Entries { entries, end, parent_leased, parent_open }))
                }
            }
        })
    }

    // ---- sums ---------------------------------------------------------------------------------------

    /// An answer as the caller is to see it: attributes of a directory with parts are a sum over them. An operation that was carried out
    /// stays so where its directory is gone by now, with the attributes that it was answered with: its caller would ask again.
    pub(super) fn summed(self: Arc<Each>, cred: Cred, answer: Result<Answer, CallError>) -> Next {
        let is_summed = |answer: &&Answer| matches!(answer, Answer::Op { .. }) && dir_attr(answer).is_some();
        match answer.as_ref().ok().filter(is_summed).cloned() {
            None => self.summed_over_parts(cred, answer),
            Some(carried_out) => self.summed_over_parts(cred, answer).then(|summed| {
                let is_gone = matches!(summed, Err(CallError::Refused(Refusal::Stale | Refusal::NotFound)));
                Next::Answer(if is_gone { Ok(carried_out) } else { summed })
            }),
        }
    }

    fn summed_over_parts(self: Arc<Each>, cred: Cred, answer: Result<Answer, CallError>) -> Next {
        let Some(attr) = answer.as_ref().ok().and_then(dir_attr) else { return Next::Answer(answer) };
        if !attr.is_parted() {
            self.parts.note_plain(attr.ino);
            return Next::Answer(answer);
        }
        if attr.flags & Attr::PART != 0 {
            // Its directory is meant.
            let home = attr.parent;
            let underway = self.ask_attr(&cred, home);
            return Next::one(underway, move |of_home| {
                let attr = match &of_home {
                    Ok(Answer::Attr { attr, .. }) if attr.flags & Attr::PART == 0 => attr.clone(),
                    Ok(_) => return Next::Answer(Err(Refusal::Stale.into())),
                    Err(_) => return Next::Answer(of_home),
                };
                self.summed_over_parts(cred, answer.map(|answer| with_attr(answer, attr)))
            });
        }
        let (home, sum) = (attr.ino, attr.clone());
        match self.list_of(home) {
            None => self.learn(cred, vec![home], move |each, cred| each.sum_again(cred, home, answer)),
            Some(list) => self.add_parts(cred, list, sum, answer),
        }
    }

    /// Whether a directory has other parts than these by now, which are then known: the answer to a question of the generation `asked`.
    pub(super) fn has_changed(
        &self,
        dir: Ino,
        list: &[PartRange],
        (now, asked): (&Result<Answer, CallError>, u64),
    ) -> bool {
        let Ok(Answer::Bytes(bytes)) = now else { return false };
        match list_in(bytes) {
            Ok(now) if now[..] != list[..] => {
                self.parts.learn(dir, now, asked);
                true
            }
            _ => false,
        }
    }

    /// Begins with the home again, whose list is now known.
    fn sum_again(self: Arc<Each>, cred: Cred, home: Ino, answer: Result<Answer, CallError>) -> Next {
        let underway = self.ask_attr(&cred, home);
        Next::one(underway, move |of_home| match of_home {
            Ok(Answer::Attr { attr, .. }) => {
                let answer = answer.map(|answer| with_attr(answer, attr.clone()));
                match self.list_of(home).filter(|_| attr.is_parted()) {
                    Some(list) => self.add_parts(cred, list, attr, answer),
                    None => Next::Answer(answer),
                }
            }
            Ok(_) => Next::Answer(Err(Refusal::Stale.into())),
            Err(error) => Next::Answer(Err(error)),
        })
    }

    /// Adds the attributes of parts to those of the home, which were read when this list was known already. If the home has given away more
    /// names by now, they may have been counted at neither.
    fn add_parts(
        self: Arc<Each>,
        cred: Cred,
        list: List,
        mut sum: Attr,
        answer: Result<Answer, CallError>,
    ) -> Next {
        let home = sum.ino;
        let parts = list.iter().filter(|part| part.ino != home);
        let mut under_way: Vec<_> = parts.map(|part| self.ask_attr(&cred, part.ino)).collect();
        let asked = self.parts.generation();
        under_way.push(self.ask_list(&cred, home));
        let add = move |mut of_parts: Vec<Result<Answer, CallError>>| {
            if of_parts.pop().is_some_and(|now| self.has_changed(home, &list, (&now, asked))) {
                return self.sum_again(cred, home, answer);
            }
            for of_part in of_parts {
                match of_part {
                    Ok(Answer::Attr { attr, .. }) => {
                        add(&mut sum, &attr);
                    }
                    // Parts end with their directory.
                    Ok(_) | Err(CallError::Refused(Refusal::Stale | Refusal::NotFound)) => {}
                    Err(error) => return Next::Answer(Err(error)),
                }
            }
            sum.position = Position(0);
            Next::Answer(answer.map(|answer| with_attr(answer, sum)))
        };
        Next::All(under_way, Box::new(add))
    }
}

/// Adds the attributes of a part to those of its directory. The access time is the directory's own: a part begins with the time of the last
/// change.
pub(super) fn add(sum: &mut Attr, part: &Attr) {
    sum.size += part.size;
    sum.nlink += part.nlink.saturating_sub(2);
    sum.mtime = sum.mtime.max(part.mtime);
    sum.ctime = sum.ctime.max(part.ctime);
}

/// The attributes in an answer, if they are a directory's.
fn dir_attr(answer: &Answer) -> Option<&Attr> {
    let attr = match answer {
        Answer::Attr { attr, .. } => Some(attr),
        Answer::Op { outcome, .. } => outcome.attr.as_ref(),
        Answer::Resolved(resolved) => resolved.end().map(|(attr, _)| attr),
        _ => None,
    };
    attr.filter(|attr| attr.kind == Kind::Dir)
}

/// The answer with other attributes, on which there is no lease.
fn with_attr(answer: Answer, of: Attr) -> Answer {
    match answer {
        Answer::Attr { parent_leased, parent_open, .. } => {
            Answer::Attr { attr: of, lease: LeaseMode::None, parent_leased, parent_open }
        }
        Answer::Op { position, mut outcome, parent_leased, .. } => {
            outcome.attr = Some(of);
            Answer::Op { position, outcome, lease: LeaseMode::None, parent_leased }
        }
        Answer::Resolved(mut resolved) => {
            if let Some(end) = resolved.inodes.last_mut() {
                *end = (of, LeaseMode::None);
            }
            Answer::Resolved(resolved)
        }
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::Time;

    use super::*;

    #[test]
    fn a_split_leaves_the_access_time() {
        let dir = crate::tests::fake_server::attr(Ino(1));
        let mut sum = Attr { atime: Time(3), mtime: Time(5), ..dir.clone() };
        add(&mut sum, &Attr { atime: Time(9), mtime: Time(9), ..dir });
        assert_eq!((sum.atime, sum.mtime), (Time(3), Time(9)));
    }
}
