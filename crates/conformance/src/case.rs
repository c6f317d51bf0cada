//! The surroundings of a check: directories to work in, and the steps that checks share.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chiton_model::{AttrChange, Make, Op, Outcome as OpOutcome};
use chiton_runtime::thread;
use chiton_types::{Attr, Cred, Ino, Mode, Name, Refusal};
use chiton_wire::{Answer, Call, Failure, Query};

use crate::client::{Asked, Client, Found};
use crate::finding::{Finding, Outcome, failed, same};
use crate::report::State;
use crate::suite::Target;

/// Users of the checks, who own nothing else.
const ALICE: u32 = 471_101;
const BOB: u32 = 471_102;

/// Between steps of a split or a fold.
const BETWEEN_STEPS: Duration = Duration::from_millis(5);
/// Steps after which a split or a fold should be over.
const STEPS_MAX: usize = 2000;

pub(crate) struct Case<'a> {
    pub(crate) client: &'a Arc<Client>,
    pub(crate) target: &'a Target,
    pub(crate) state: State,
    /// The directory of this check.
    top: Ino,
    dirs: Cell<u32>,
}

/// The checks' name for a name.
pub(crate) fn name(text: &str) -> Name {
    Name::try_from(text).expect("checks use valid names")
}

pub(crate) fn alice() -> Cred {
    Cred::new(ALICE, ALICE, &[])
}

pub(crate) fn bob() -> Cred {
    Cred::new(BOB, BOB, &[])
}

/// An operation that makes something.
pub(crate) fn make(parent: Ino, text: &str, make: Make, mode: u16) -> Op {
    Op::Make { parent, name: name(text), make, mode: Mode(mode) }
}

pub(crate) fn empty() -> Make {
    Make::File { content: Vec::new() }
}

pub(crate) fn unlink(parent: Ino, text: &str) -> Op {
    Op::Unlink { parent, name: name(text) }
}

pub(crate) fn rmdir(parent: Ino, text: &str) -> Op {
    Op::Rmdir { parent, name: name(text) }
}

pub(crate) fn link(ino: Ino, parent: Ino, text: &str) -> Op {
    Op::Link { parent, ino, name: name(text) }
}

impl<'a> Case<'a> {
    pub(crate) fn new(client: &'a Arc<Client>, target: &'a Target, state: State, top: Ino) -> Case<'a> {
        Case { client, target, state, top, dirs: Cell::new(0) }
    }

    // ---- directories --------------------------------------------------------------------------------

    /// A new directory that everybody may change, in the state that is checked.
    pub(crate) fn dir(&self) -> Outcome<Ino> {
        let dir = self.whole_dir()?;
        if self.state == State::Split {
            self.split(dir)?;
        }
        Ok(dir)
    }

    /// A new directory that everybody may change.
    pub(crate) fn whole_dir(&self) -> Outcome<Ino> {
        let number = self.dirs.get();
        self.dirs.set(number + 1);
        Ok(self.subdir(self.top, &format!("dir{number}"))?.ino)
    }

    /// Splits a directory to the end.
    pub(crate) fn split(&self, dir: Ino) -> Outcome {
        let mut before = None;
        for _ in 0..STEPS_MAX {
            match self.client.operate(&Cred::ROOT, &Op::Split { dir }, false)? {
                Ok(_) => {}
                Err(Failure::Refused(Refusal::Busy)) => {
                    thread::sleep(BETWEEN_STEPS);
                    continue;
                }
                Err(Failure::Refused(Refusal::CrossDevice)) => {
                    let why = "a policy or a decoupling keeps the names of the scratch directory together";
                    return Err(Finding::NotApplicable(why.to_owned()));
                }
                Err(failure) => return Err(failed(format!("split {dir}"), "Op", format!("{failure:?}"))),
            }
            let now = self.parts(dir)?;
            if before.as_ref() == Some(&now) {
                self.client.learn(dir)?;
                return Ok(());
            }
            before = Some(now);
        }
        Err(failed(format!("split {dir}"), "an end", format!("{STEPS_MAX} steps that each changed it")))
    }

    /// Folds a directory to the end.
    pub(crate) fn fold(&self, dir: Ino) -> Outcome {
        for _ in 0..STEPS_MAX {
            self.done(&Cred::ROOT, &Op::Fold { dir })?;
            if self.parts(dir)?.is_empty() {
                return Ok(());
            }
            thread::sleep(BETWEEN_STEPS);
        }
        Err(failed(format!("fold {dir}"), "a directory without parts", format!("{STEPS_MAX} steps")))
    }

    /// Whether there are plates to split a directory over.
    pub(crate) fn needs_plates(&self) -> Outcome {
        match self.client.server.plate_count() {
            1 => Err(Finding::NotApplicable("the file system has one plate".to_owned())),
            _ => Ok(()),
        }
    }

    pub(crate) fn parts(&self, dir: Ino) -> Outcome<Vec<chiton_model::PartRange>> {
        let answer = self.client.parts(dir)?;
        answer
            .map_err(|failure| failed(format!("ask for the parts of {dir}"), "Bytes", format!("{failure:?}")))
    }

    // ---- operations ---------------------------------------------------------------------------------

    /// Carries out an operation that no rule forbids.
    pub(crate) fn done(&self, cred: &Cred, op: &Op) -> Outcome<OpOutcome> {
        let answer = self.client.operate(cred, op, false)?;
        answer.map_err(|failure| failed(op.describe(), "Op", format!("{failure:?}")))
    }

    /// Carries out an operation that makes something, and returns its attributes.
    pub(crate) fn made(&self, cred: &Cred, op: &Op) -> Outcome<Attr> {
        let outcome = self.done(cred, op)?;
        outcome.attr.ok_or_else(|| failed(op.describe(), "attributes", "an outcome without attributes"))
    }

    pub(crate) fn file(&self, dir: Ino, text: &str) -> Outcome<Attr> {
        self.made(&Cred::ROOT, &make(dir, text, empty(), 0o644))
    }

    /// A directory that everybody may change.
    pub(crate) fn subdir(&self, dir: Ino, text: &str) -> Outcome<Attr> {
        self.made(&Cred::ROOT, &make(dir, text, Make::Dir, 0o777))
    }

    pub(crate) fn chmod(&self, ino: Ino, mode: u16) -> Outcome {
        let change = AttrChange { mode: Some(Mode(mode)), ..AttrChange::default() };
        self.done(&Cred::ROOT, &Op::SetAttr { ino, change }).map(drop)
    }

    /// The operation is refused, for this reason and no other.
    pub(crate) fn refused(&self, cred: &Cred, op: &Op, refusal: Refusal) -> Outcome {
        let answer = self.client.operate(cred, op, false)?;
        is_refused(&op.describe(), answer, refusal)
    }

    // ---- questions ----------------------------------------------------------------------------------

    pub(crate) fn attr(&self, ino: Ino) -> Outcome<Attr> {
        let answer = self.client.attr(ino)?;
        answer.map_err(|failure| {
            failed(format!("ask for the attributes of {ino}"), "Attr", format!("{failure:?}"))
        })
    }

    /// An inode that does not exist any more.
    pub(crate) fn is_gone(&self, ino: Ino) -> Outcome {
        is_refused(&format!("ask for the attributes of {ino}"), self.client.attr_at(ino)?, Refusal::Stale)
    }

    /// The operation took the last name of an inode. If it is no orphan, it does not exist any more. (With several plates, that of the inode
    /// decides, and the outcome does not say it.)
    pub(crate) fn has_gone(&self, ino: Ino, outcome: &OpOutcome) -> Outcome {
        same("the inode that goes", Some(ino), outcome.gone.map(|gone| gone.ino))?;
        if outcome.gone.is_some_and(|gone| !gone.orphan) && self.client.server.plate_count() == 1 {
            return self.is_gone(ino);
        }
        let step = format!("ask for the attributes of {ino}, an orphan");
        match self.client.attr_at(ino)? {
            Ok(attr) => same(&step, 0, attr.nlink),
            answer => is_refused(&step, answer, Refusal::Stale),
        }
    }

    /// The inode under a name.
    pub(crate) fn found(&self, dir: Ino, text: &str) -> Outcome<Attr> {
        let step = format!("look up {text} in {dir}");
        match self.client.lookup(&Cred::ROOT, dir, &name(text))? {
            Ok(Found::Inode(attr)) => Ok(attr),
            other => Err(failed(step, "an inode", format!("{other:?}"))),
        }
    }

    pub(crate) fn is_absent(&self, dir: Ino, text: &str) -> Outcome {
        let answer = self.client.lookup(&Cred::ROOT, dir, &name(text))?;
        same(&format!("look up {text} in {dir}"), Ok(Found::Absent), answer)
    }

    /// The names of a directory, each of which is there once.
    pub(crate) fn names(&self, dir: Ino, entries_max: u32) -> Outcome<BTreeSet<String>> {
        let answer = self.client.entries(&Cred::ROOT, dir, entries_max, false)?;
        let entries =
            answer.map_err(|failure| failed(format!("list {dir}"), "Entries", format!("{failure:?}")))?;
        let mut names = BTreeSet::new();
        for entry in entries {
            let text = entry.name.to_string();
            if !names.insert(text.clone()) {
                return Err(failed(format!("list {dir}"), "each name once", format!("{text} twice")));
            }
        }
        Ok(names)
    }

    /// The directory has these names and no others.
    pub(crate) fn has_names(&self, dir: Ino, entries_max: u32, expected: &BTreeSet<String>) -> Outcome {
        let names = self.names(dir, entries_max)?;
        let missing: Vec<&String> = expected.difference(&names).collect();
        let surplus: Vec<&String> = names.difference(expected).collect();
        if missing.is_empty() && surplus.is_empty() {
            return Ok(());
        }
        let seen = format!("{} names; missing: {missing:?}; not to be there: {surplus:?}", names.len());
        Err(failed(format!("list {dir}"), format!("{} names", expected.len()), seen))
    }

    /// Opens an inode, without a check.
    pub(crate) fn open(&self, ino: Ino) -> Outcome {
        let query = Query::Open { ino, want: 0, content: false };
        match self.client.server.ask(ino, &Cred::ROOT, Call::Query(query))? {
            Ok(Answer::Attr { .. }) => Ok(()),
            other => Err(failed(format!("open {ino}"), "Attr", format!("{other:?}"))),
        }
    }

    /// Ends one of the opens of a file.
    pub(crate) fn close(&self, ino: Ino) -> Outcome {
        match self.client.server.ask(ino, &Cred::ROOT, Call::Closed { inos: vec![ino] })? {
            Ok(Answer::Done) => Ok(()),
            other => Err(failed(format!("close {ino}"), "Done", format!("{other:?}"))),
        }
    }

    /// Creates `count` files whose names begin with `prefix`.
    pub(crate) fn files(&self, dir: Ino, prefix: &str, count: usize) -> Outcome<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for n in 0..count {
            let text = format!("{prefix}{n}");
            self.file(dir, &text)?;
            names.insert(text);
        }
        Ok(names)
    }
}

/// The answer is this refusal.
pub(crate) fn is_refused<T: std::fmt::Debug>(
    step: &str,
    answer: Result<T, Failure>,
    refusal: Refusal,
) -> Outcome {
    match answer {
        Err(Failure::Refused(seen)) if seen == refusal => Ok(()),
        Err(failure) => Err(failed(step, format!("Refused({refusal:?})"), format!("{failure:?}"))),
        Ok(answer) => Err(failed(step, format!("Refused({refusal:?})"), format!("{answer:?}"))),
    }
}

/// The answer is there.
pub(crate) fn answered<T>(step: &str, answer: Asked<T>) -> Outcome<T> {
    answer?.map_err(|failure| failed(step, "an answer", format!("{failure:?}")))
}
