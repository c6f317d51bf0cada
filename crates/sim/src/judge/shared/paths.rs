//! Paths below directories that all clients move: each name on the way is looked up at a moment of its own while the call runs, one
//! after the other, and then the call takes effect at one moment.
//!
//! ```text
//!   rename /t0/d1/f0 → /t2/d0/f1, as it is judged:   look d1 in t0;  look d0 in t2;  move f0 in the one to f1 in the other
//! ```
//!
//! Invariants:
//! - Directories at the top stay, and have the numbers from 0 on. An inode that a call makes has the number of the call.
//! - A refusal says that the call did nothing, and at the moment could do nothing. Which one it is does not matter here.

use std::collections::BTreeMap;

use chiton_types::{Ino, Kind, Refusal};

use super::spans::{CallRecord, Span};
use super::{CONFIGURATIONS_MAX, linear};
use crate::checkers::linear::{Seen, Spec, Verdict};
use crate::history::{Action, Answer, Violation};
use crate::plan::{PATHS, TOPS};

/// The number of something that a call found or made.
type Number = usize;

/// The operation of a call whose paths are resolved: its last names are of the directories that these lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Make(Kind),
    Unlink,
    Rmdir,
    Rename,
    Exchange,
    Link,
    Look,
}

/// Names that are looked up one after the other, from a top on.
type Walk = (Number, Vec<String>);

/// One step of a call.
#[derive(Clone)]
pub(super) struct Call {
    number: Number,
    /// From 0; the last one is the deed.
    step: usize,
    deed: Deed,
    walks: Vec<Walk>,
    /// Of each walk, the name in the directory to which it leads.
    names: Vec<String>,
}

impl Call {
    /// The call of an action; `None`: it is about something else.
    fn new(number: Number, action: &Action) -> Option<Call> {
        let (deed, paths) = match action {
            Action::Mkdir { path, .. } => (Deed::Make(Kind::Dir), vec![path]),
            Action::Create { path, .. } => (Deed::Make(Kind::File), vec![path]),
            Action::Unlink { path } => (Deed::Unlink, vec![path]),
            Action::Rmdir { path } => (Deed::Rmdir, vec![path]),
            Action::Stat { path } => (Deed::Look, vec![path]),
            Action::Rename { from, to } => (Deed::Rename, vec![from, to]),
            Action::Exchange { from, to } => (Deed::Exchange, vec![from, to]),
            Action::Link { from, to } => (Deed::Link, vec![from, to]),
            _ => return None,
        };
        let (mut walks, mut names) = (Vec::new(), Vec::new());
        for path in paths {
            let mut way: Vec<String> =
                path.strip_prefix(PATHS)?.strip_prefix("/t")?.split('/').map(str::to_owned).collect();
            let top = way.remove(0).parse().ok()?;
            names.push(way.pop()?);
            walks.push((top, way));
        }
        if deed == Deed::Link {
            let file = names[0].clone();
            walks[0].1.push(file);
        }
        Some(Call { number, step: 0, deed, walks, names })
    }

    /// Number of names that are looked up before.
    fn looks(&self) -> usize {
        self.walks.iter().map(|(_, way)| way.len()).sum()
    }

    /// The walk to which this step belongs, and the name that it looks up; `None`: it is the last step.
    fn looks_up(&self) -> Option<(usize, &str)> {
        let names =
            self.walks.iter().enumerate().flat_map(|(n, (_, way))| way.iter().map(move |name| (n, name)));
        names.map(|(n, name)| (n, name.as_str())).nth(self.step)
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.walks.iter().zip(&self.names);
        let paths = names.map(|((top, way), name)| format!("t{top}/{}[{name}]", way.join("/")));
        let paths = paths.collect::<Vec<_>>().join(" ");
        write!(f, "{:?} {paths} (call {}, step {})", self.deed, self.number, self.step)
    }
}

#[derive(Clone, Debug)]
pub(super) enum PathAnswer {
    /// A step before the last one.
    Passed,
    /// A step whose turn it is not.
    NotYet,
    Done,
    Refused,
    /// It leads to this, if that is known.
    Found(Option<Number>),
}

impl PartialEq for PathAnswer {
    fn eq(&self, other: &PathAnswer) -> bool {
        use PathAnswer::{Done, Found, NotYet, Passed, Refused};
        match (self, other) {
            (Found(Some(a)), Found(Some(b))) => a == b,
            (Found(_), Found(_))
            | (Passed, Passed)
            | (NotYet, NotYet)
            | (Done, Done)
            | (Refused, Refused) => true,
            (Found(_) | Passed | NotYet | Done | Refused, _) => false,
        }
    }
}

/// How far a call is: its steps so far, and where each walk is; `None`: a name was missing.
type Progress = (usize, Option<Vec<Number>>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tree {
    dirs: BTreeMap<Number, BTreeMap<String, Number>>,
    calls: BTreeMap<Number, Progress>,
}

impl Tree {
    /// The top directories, without entries.
    fn new() -> Tree {
        let dirs = (0..TOPS as usize).map(|top| (top, BTreeMap::new())).collect();
        Tree { dirs, calls: BTreeMap::new() }
    }

    fn look(&self, dir: Number, name: &str) -> Option<Number> {
        self.dirs.get(&dir)?.get(name).copied()
    }

    /// Whether a directory is another or lies below it.
    fn is_within(&self, dir: Number, above: Number) -> bool {
        let below =
            |above: &Number| self.dirs.get(above).into_iter().flat_map(|names| names.values().copied());
        let mut todo = vec![above];
        while let Some(at) = todo.pop() {
            if at == dir {
                return true;
            }
            todo.extend(below(&at));
        }
        false
    }

    fn set(&mut self, dir: Number, name: &str, to: Option<Number>) {
        let names = self.dirs.get_mut(&dir).expect("looked at before");
        match to {
            Some(to) => names.insert(name.to_owned(), to),
            None => names.remove(name),
        };
    }

    /// Carries a call out in the directories that its paths led to; `None`: it is refused.
    fn act(&mut self, call: &Call, dirs: &[Number]) -> Option<PathAnswer> {
        let last = |n: usize| (dirs[n], call.names[n].as_str());
        let (dir, name) = last(0);
        let here = self.look(dir, name);
        // A directory may be gone.
        let is_there = |tree: &Tree, dir: Number| tree.dirs.contains_key(&dir).then_some(());
        if call.deed != Deed::Link {
            is_there(self, dir)?;
        }
        match call.deed {
            Deed::Look => return here.map(|found| PathAnswer::Found(Some(found))),
            Deed::Make(kind) => {
                if here.is_some() {
                    return None;
                }
                self.set(dir, name, Some(call.number));
                if kind == Kind::Dir {
                    self.dirs.insert(call.number, BTreeMap::new());
                }
                return Some(PathAnswer::Found(Some(call.number)));
            }
            Deed::Unlink => {
                here.filter(|found| !self.dirs.contains_key(found))?;
                self.set(dir, name, None);
            }
            Deed::Rmdir => {
                let gone = here.filter(|found| self.dirs.get(found).is_some_and(BTreeMap::is_empty))?;
                self.set(dir, name, None);
                self.dirs.remove(&gone);
            }
            Deed::Link => {
                // The file was found by the steps before.
                let (file, (dir, name)) = (dirs[0], last(1));
                let has_name = self.dirs.values().any(|names| names.values().any(|named| *named == file));
                is_there(self, dir)?;
                if !has_name || self.dirs.contains_key(&file) || self.look(dir, name).is_some() {
                    return None;
                }
                self.set(dir, name, Some(file));
            }
            Deed::Rename => {
                let (moved, (to, to_name)) = (here?, last(1));
                is_there(self, to)?;
                let there = self.look(to, to_name);
                if there == Some(moved) {
                    return Some(PathAnswer::Done);
                }
                let is_dir = self.dirs.contains_key(&moved);
                if is_dir && self.is_within(to, moved) {
                    return None;
                }
                if let Some(there) = there {
                    match (is_dir, self.dirs.get(&there)) {
                        (true, Some(names)) if names.is_empty() => drop(self.dirs.remove(&there)),
                        (false, None) => {}
                        _ => return None,
                    }
                }
                self.set(dir, name, None);
                self.set(to, to_name, Some(moved));
            }
            Deed::Exchange => {
                let (moved, (to, to_name)) = (here?, last(1));
                is_there(self, to)?;
                let there = self.look(to, to_name)?;
                let loops =
                    |moved: Number, to: Number| self.dirs.contains_key(&moved) && self.is_within(to, moved);
                if there != moved && (loops(moved, to) || loops(there, dir)) {
                    return None;
                }
                self.set(dir, name, Some(there));
                self.set(to, to_name, Some(moved));
            }
        }
        Some(PathAnswer::Done)
    }
}

/// The tree below the tops.
pub(super) struct Paths;

impl Spec for Paths {
    type State = Tree;
    type Call = Call;
    type Answer = PathAnswer;

    fn step(&self, state: &Tree, call: &Call) -> (Tree, PathAnswer) {
        let mut after = state.clone();
        let begun = || (0, Some(call.walks.iter().map(|(top, _)| *top).collect()));
        let (step, at) = after.calls.remove(&call.number).unwrap_or_else(begun);
        if step != call.step {
            return (state.clone(), PathAnswer::NotYet);
        }
        let answer = match (call.looks_up(), at) {
            (Some((walk, name)), at) => {
                let at = at.and_then(|mut at: Vec<Number>| {
                    at[walk] = state.look(at[walk], name)?;
                    Some(at)
                });
                after.calls.insert(call.number, (step + 1, at));
                PathAnswer::Passed
            }
            (None, Some(at)) => after.act(call, &at).unwrap_or(PathAnswer::Refused),
            (None, None) => PathAnswer::Refused,
        };
        (after, answer)
    }
}

/// Whether an action changes something below the tops.
pub(super) fn changes(action: &Action) -> bool {
    Call::new(0, action).is_some_and(|call| call.deed != Deed::Look)
}

/// The answer to the last step; `None`: whether it took effect is not known.
fn said(answer: &Answer, call: &Call, numbers: &BTreeMap<Ino, Number>) -> Option<PathAnswer> {
    match answer {
        Answer::Refused(Refusal::Stale | Refusal::Busy | Refusal::ReadOnly) => None,
        Answer::Refused(_) => Some(PathAnswer::Refused),
        Answer::Attr(seen) if call.deed == Deed::Look => {
            Some(PathAnswer::Found(numbers.get(&seen.ino).copied()))
        }
        Answer::Attr(_) if matches!(call.deed, Deed::Make(_)) => Some(PathAnswer::Found(None)),
        _ => Some(PathAnswer::Done),
    }
}

/// Judges from the beginning until changes are lost: from then on the tree is not known.
pub(super) fn judge(calls: &[CallRecord<'_>], span: &Span) -> Option<Violation> {
    if !span.is_first {
        return None;
    }
    let all = calls.iter().enumerate();
    let calls: Vec<(Call, &CallRecord<'_>)> =
        all.filter_map(|(n, call)| Some((Call::new(n + TOPS as usize, call.action)?, call))).collect();
    let mut numbers: BTreeMap<Ino, Number> = BTreeMap::new();
    for (call, record) in &calls {
        if let (Deed::Make(_), Some((_, Answer::Attr(seen)))) = (call.deed, record.ended) {
            numbers.insert(seen.ino, call.number);
        }
    }
    let mut seen: Vec<Seen<Call, PathAnswer>> = Vec::new();
    for (call, record) in calls.into_iter().filter(|(_, record)| record.begun < span.to) {
        let answered = record.answered().filter(|(at, _)| *at < span.to);
        let ended = answered.and_then(|(at, answer)| Some((at, said(answer, &call, &numbers)?)));
        if ended.is_none() && call.deed == Deed::Look {
            continue;
        }
        for step in 0..=call.looks() {
            let is_last = step == call.looks();
            let ended = ended.clone().map(|(at, last)| (at, if is_last { last } else { PathAnswer::Passed }));
            let call = Call { step, ..call.clone() };
            seen.push(Seen { by: record.client.0, call, begun: record.begun, ended });
        }
    }
    match linear::check(&Paths, &Tree::new(), &seen, CONFIGURATIONS_MAX) {
        Verdict::Not(violation) => Some(violation),
        Verdict::Linearizable(_) | Verdict::Undecided => None,
    }
}

#[cfg(test)]
mod tests;
