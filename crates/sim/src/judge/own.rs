//! What one client does in a directory of its own, against the naive model: every answer, every read, and the tree
//! at the end, or, if the client's life ended before, some prefix of it (the crash oracle).

use std::collections::BTreeMap;

use chiton_namespace::RenameHow;
use chiton_types::{Ino, Kind, Name, Refusal, Time};

use crate::checkers::crash::{self, Entry};
use crate::history::{Action, Answer, CallId, ClientId, Handle, Happened, History, Violation};
use crate::model::{Change, Model, TIME_UNKNOWN, What, unknown};
use crate::plan::OWN;
use crate::tree::Tree;

pub(super) fn judge(history: &History, tree: Option<&Tree>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut lives: BTreeMap<ClientId, Life> = BTreeMap::new();
    let mut ended: Vec<Life> = Vec::new();
    for event in &history.events {
        match &event.what {
            Happened::Invoked { client, call, action } => {
                if let Action::Mkdir { path } = action
                    && is_root(path)
                {
                    let life = Life::new(path.clone(), *call);
                    ended.extend(lives.insert(*client, life));
                } else if let Some(life) = lives.get_mut(client) {
                    life.invoked(*call, action);
                }
            }
            Happened::Returned { client, call, answer } => {
                if let Some(life) = lives.get_mut(client) {
                    found.extend(life.returned(*call, answer).err());
                }
            }
            Happened::ClientCrashed { client } => {
                if let Some(mut life) = lives.remove(client) {
                    life.cut_off();
                    ended.push(life);
                }
            }
            // What is under way may belong to the session that follows, and then takes effect on what is left of all
            // before: the making of a root is as good there, anything else leaves nothing to compare.
            Happened::SessionLost { client } => {
                if let Some(mut life) = lives.remove(client) {
                    if life.is_being_made() {
                        lives.insert(*client, life);
                    } else if !life.changes_under_way() {
                        life.cut_off();
                        ended.push(life);
                    }
                }
            }
            // Directories' times do not go back: those of what was answered without a time may be later than what comes.
            Happened::ClockSet => lives.values_mut().for_each(|life| life.last_time = TIME_UNKNOWN),
            _ => {}
        }
    }
    ended.extend(lives.into_values());
    if let Some(tree) = tree {
        for life in &ended {
            found.extend(life.judge(tree).err());
        }
    }
    found
}

/// Refusals that say nothing of the tree. Whoever gets one goes on in another directory.
pub(crate) fn is_of_the_outside(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotConnected
            | Refusal::Io
            | Refusal::NoSpace
            | Refusal::ReadOnly
            | Refusal::BadHandle
            | Refusal::Stale
            | Refusal::Busy
    )
}

/// `/own<client>-<n>`: the root of a life.
fn is_root(path: &str) -> bool {
    path.starts_with(OWN) && !path[1..].contains('/')
}

/// What a client did in one directory.
struct Life {
    root: String,
    /// The root was answered.
    made: bool,
    make: CallId,
    /// As the client sees it, buffers included.
    model: Model,
    entries: crash::History,
    handles: BTreeMap<Handle, Ino>,
    under_way: Option<(CallId, Action)>,
    next_unknown: u64,
    last_time: Time,
    /// An answer left open what took effect: from here on nothing is compared but prefixes.
    is_over: bool,
}

impl Life {
    fn new(root: String, make: CallId) -> Life {
        let model = Model::new(TIME_UNKNOWN);
        Life {
            root,
            made: false,
            make,
            entries: crash::History::new(model.clone()),
            model,
            handles: BTreeMap::new(),
            under_way: None,
            next_unknown: 0,
            last_time: Time(0),
            is_over: false,
        }
    }

    fn within(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(&self.root)?;
        rest.starts_with('/').then(|| rest.to_owned())
    }

    fn invoked(&mut self, call: CallId, action: &Action) {
        self.under_way = (!self.is_over).then(|| (call, action.clone()));
    }

    /// What the action under way would do may be there or not.
    fn cut_off(&mut self) {
        self.is_over = true;
        if let Some((_, action)) = self.under_way.take() {
            let ino = self.fresh();
            if let Ok(Some(deed)) = self.deed(&action, ino, TIME_UNKNOWN) {
                // If the model refuses it, so did the server. Nobody was told that anything is pushed or
                // durable.
                let _ = self.carry_out(Deed { durable: false, pushes: Vec::new(), ..deed });
            }
        }
    }

    /// The root is asked for, and not answered.
    fn is_being_made(&self) -> bool {
        !self.made && !self.is_over
    }

    fn changes_under_way(&self) -> bool {
        let action = self.under_way.as_ref().map(|(_, action)| action);
        let changes = |action| {
            self.deed(action, unknown(0), TIME_UNKNOWN)
                .map(|deed| deed.is_some_and(|d| !d.changes.is_empty()))
        };
        action.is_some_and(|action| changes(action).unwrap_or(true))
    }

    fn fresh(&mut self) -> Ino {
        self.next_unknown += 1;
        unknown(self.next_unknown)
    }

    fn returned(&mut self, call: CallId, answer: &Answer) -> Result<(), Violation> {
        if call == self.make {
            if let Answer::Attr(seen) = answer {
                self.made = true;
                self.last_time = seen.ctime;
            }
            self.is_over |= !self.made;
            return Ok(());
        }
        let Some((_, action)) = self.under_way.take_if(|(under_way, _)| *under_way == call) else {
            return Ok(());
        };
        if let Answer::Refused(refusal) = answer {
            return self.refused(call, &action, *refusal);
        }
        let (ino, time) = match answer {
            Answer::Attr(seen) => (seen.ino, self.time(seen.ctime)),
            _ => (self.fresh(), TIME_UNKNOWN),
        };
        let wrong = |what: String| Err(violation(format!("call {}, {}: {what}", call.0, brief(&action))));
        match self.deed(&action, ino, time) {
            Err(refusal) => return wrong(format!("was answered, should be refused: {refusal}")),
            Ok(None) => {}
            Ok(Some(deed)) => {
                if let Err(refusal) = self.carry_out(deed) {
                    return wrong(format!("was answered, should be refused: {refusal}"));
                }
            }
        }
        match self.expected(&action) {
            Some(expected) if expected != *answer => {
                wrong(format!("was answered {}, should be {}", short(answer), short(&expected)))
            }
            _ => Ok(()),
        }
    }

    /// A time that was answered; not known once the server's clock went back, for directories' times do not.
    fn time(&mut self, answered: Time) -> Time {
        if answered < self.last_time {
            self.last_time = TIME_UNKNOWN;
        }
        if self.last_time == TIME_UNKNOWN {
            return TIME_UNKNOWN;
        }
        self.last_time = answered;
        answered
    }

    fn refused(&mut self, call: CallId, action: &Action, refusal: Refusal) -> Result<(), Violation> {
        // The outside may always be in the way; what was done in parts may be done in part.
        if is_of_the_outside(refusal) {
            self.under_way = Some((call, action.clone()));
            self.cut_off();
            return Ok(());
        }
        let ino = self.fresh();
        let before = self.model.clone();
        let would = match self.deed(action, ino, TIME_UNKNOWN) {
            Err(refusal) => Err(refusal),
            Ok(None) => self.expected(action).map_or(Err(Refusal::NotFound), |_| Ok(())),
            Ok(Some(deed)) => {
                deed.changes.iter().try_for_each(|(change, _)| self.model.apply(change, TIME_UNKNOWN))
            }
        };
        self.model = before;
        match would {
            Ok(()) => Err(violation(format!(
                "call {}, {}: was refused ({refusal}), should be carried out",
                call.0,
                brief(action)
            ))),
            Err(_) => Ok(()),
        }
    }

    fn find(&self, path: &str) -> Result<Ino, Refusal> {
        let within = self.within(path).ok_or(Refusal::CrossRealm)?;
        self.model.find(&within).ok_or(Refusal::NotFound)
    }

    /// What an action that follows symbolic links may be about.
    fn no_link(&self, path: &str) -> Result<Ino, Refusal> {
        let ino = self.find(path)?;
        let kind = self.model.node(ino).map(|node| node.kind);
        if kind == Some(Kind::Symlink) { Err(Refusal::Loop) } else { Ok(ino) }
    }

    fn parent(&self, path: &str) -> Result<(Ino, Name), Refusal> {
        let within = self.within(path).ok_or(Refusal::CrossRealm)?;
        self.model.find_parent(&within).ok_or(Refusal::NotFound)
    }

    /// What an action does to the model; `None`: nothing, or it is not about this directory.
    fn deed(&self, action: &Action, ino: Ino, time: Time) -> Result<Option<Deed>, Refusal> {
        if action.clone().paths_mut().iter().any(|path| self.within(path).is_none()) {
            return Ok(None);
        }
        let make = |path: &str, what: What, mode: u16| -> Result<Change, Refusal> {
            let (parent, name) = self.parent(path)?;
            Ok(Change::Make { parent, name, ino, what, mode })
        };
        let one = |change: Change| Ok(Some(Deed::act(vec![(change, time)])));
        let pushed = |ino: Ino, change: Change| {
            Ok(Some(Deed { pushes: vec![Some(ino)], ..Deed::act(vec![(change, TIME_UNKNOWN)]) }))
        };
        match action {
            Action::Mkdir { path } => one(make(path, What::Dir, 0o755)?),
            Action::Create { path, content } => one(make(path, What::File(content.clone()), 0o644)?),
            Action::Symlink { path, target } => {
                one(make(path, What::Symlink(target.clone().into_bytes()), 0o777)?)
            }
            Action::Link { from, to } => {
                let ino = self.find(from)?;
                let (parent, name) = self.parent(to)?;
                one(Change::Link { ino, parent, name })
            }
            Action::Unlink { path } => {
                let (parent, name) = self.parent(path)?;
                one(Change::Unlink { parent, name })
            }
            Action::Rmdir { path } => {
                let (parent, name) = self.parent(path)?;
                one(Change::Rmdir { parent, name })
            }
            Action::Rename { from, to } => one(self.rename(from, to, RenameHow::Replace)?),
            Action::Exchange { from, to } => one(self.rename(from, to, RenameHow::Exchange)?),
            Action::SetXattr { path, name, value } => {
                let value = (!value.is_empty()).then(|| value.clone());
                one(Change::Xattr { ino: self.no_link(path)?, name: name.clone(), value })
            }
            Action::Chmod { path, mode } => {
                let ino = self.no_link(path)?;
                pushed(ino, Change::Set { ino, mode: Some(*mode), atime: None, mtime: None })
            }
            Action::SetTimes { path, time } => {
                let ino = self.no_link(path)?;
                pushed(ino, Change::Set { ino, mode: None, atime: Some(*time), mtime: Some(*time) })
            }
            Action::Truncate { path, size } => {
                let ino = self.no_link(path)?;
                pushed(ino, Change::Truncate { ino, size: *size })
            }
            Action::Open { path, create, truncate, handle } => {
                let mut changes = Vec::new();
                // What another handle of this client has buffered goes before it is cut off.
                let mut pushes: Vec<Option<Ino>> =
                    self.handles.get(handle).map(|before| Some(*before)).into_iter().collect();
                let opened = match self.no_link(path) {
                    Ok(there) if self.model.node(there).is_some_and(|node| node.kind == Kind::Dir) => {
                        return Err(Refusal::IsDir);
                    }
                    Ok(there) => {
                        if *truncate {
                            pushes.push(Some(there));
                            changes.push((Change::Truncate { ino: there, size: 0 }, TIME_UNKNOWN));
                        }
                        there
                    }
                    Err(Refusal::NotFound) if *create => {
                        changes.push((make(path, What::File(Vec::new()), 0o644)?, TIME_UNKNOWN));
                        ino
                    }
                    Err(refusal) => return Err(refusal),
                };
                changes.push((Change::Open { ino: opened }, TIME_UNKNOWN));
                if let Some(before) = self.handles.get(handle) {
                    changes.push((Change::Close { ino: *before }, TIME_UNKNOWN));
                }
                Ok(Some(Deed { pushes, opens: Some((*handle, opened)), ..Deed::act(changes) }))
            }
            Action::Write { handle, offset, bytes } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                let change = Change::Write { ino, pieces: vec![(*offset, bytes.clone())], size: 0 };
                Ok(Some(Deed { buffers: Some(ino), ..Deed::act(vec![(change, TIME_UNKNOWN)]) }))
            }
            Action::PunchHole { handle, offset, len } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                // Where nothing is stored but in the client's buffer, the hole is made there.
                let change = Change::Punch { ino, offset: *offset, len: *len };
                Ok(Some(Deed { buffers: Some(ino), ..Deed::act(vec![(change, TIME_UNKNOWN)]) }))
            }
            Action::Fsync { handle } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                Ok(Some(Deed { pushes: vec![Some(ino)], durable: true, ..Deed::act(Vec::new()) }))
            }
            Action::Close { handle } => {
                let Some(&ino) = self.handles.get(handle) else { return Ok(None) };
                let changes = vec![(Change::Close { ino }, TIME_UNKNOWN)];
                Ok(Some(Deed { pushes: vec![Some(ino)], closes: Some(*handle), ..Deed::act(changes) }))
            }
            Action::FsyncDir => Ok(Some(Deed { durable: true, ..Deed::act(Vec::new()) })),
            Action::Sync => Ok(Some(Deed { pushes: vec![None], durable: true, ..Deed::act(Vec::new()) })),
            Action::Read { .. }
            | Action::ReadFile { .. }
            | Action::Stat { .. }
            | Action::ReadLink { .. }
            | Action::GetXattr { .. }
            | Action::List { .. } => Ok(None),
        }
    }

    fn rename(&self, from: &str, to: &str, how: RenameHow) -> Result<Change, Refusal> {
        let (from, from_name) = self.parent(from)?;
        let (to, to_name) = self.parent(to)?;
        Ok(Change::Rename { from, from_name, to, to_name, how })
    }

    fn carry_out(&mut self, deed: Deed) -> Result<(), Refusal> {
        for (change, time) in &deed.changes {
            self.model.apply(change, *time)?;
        }
        for which in deed.pushes {
            self.entries.push(Entry::Pushed(which));
        }
        for (change, time) in deed.changes {
            self.entries.push(match deed.buffers {
                Some(ino) => Entry::Buffered(ino, change, time),
                None => Entry::Act(change, time),
            });
        }
        if deed.durable {
            self.entries.push(Entry::Durable);
        }
        if let Some(handle) = deed.closes {
            self.handles.remove(&handle);
        }
        if let Some((handle, ino)) = deed.opens {
            self.handles.insert(handle, ino);
        }
        Ok(())
    }

    /// What a reading action must answer, as far as the model knows.
    fn expected(&self, action: &Action) -> Option<Answer> {
        match action {
            Action::Read { handle, offset, len } => {
                let content = &self.model.node(*self.handles.get(handle)?)?.content;
                let start = (*offset as usize).min(content.len());
                let end = content.len().min(start + *len as usize);
                Some(Answer::Bytes(content[start..end].to_vec()))
            }
            Action::Write { bytes, .. } => Some(Answer::Written(bytes.len() as u64)),
            _ => None,
        }
    }

    fn judge(&self, tree: &Tree) -> Result<(), Violation> {
        let mut own = Tree::default();
        for (path, node) in &tree.nodes {
            let Some(rest) = path.strip_prefix(&self.root) else { continue };
            if rest.is_empty() {
                let root = crate::tree::Node { ino: Ino::ROOT, mode: 0o755, ..node.clone() };
                own.nodes.insert("/".to_owned(), root);
            } else if rest.starts_with('/') {
                own.nodes.insert(rest.to_owned(), node.clone());
            }
        }
        if own.nodes.is_empty() {
            // Its making was not answered, or not durable.
            return match self.made && self.entries.floor(self.entries.len()) > 0 {
                true => Err(violation(format!("{} is missing", self.root))),
                false => Ok(()),
            };
        }
        self.entries
            .judge(self.entries.len(), &own)
            .map(drop)
            .map_err(|found| Violation { what: format!("in {}: {}", self.root, found.what), ..found })
    }
}

/// What an action does.
#[derive(Default)]
struct Deed {
    changes: Vec<(Change, Time)>,
    /// First what is buffered of this file, or of all, is pushed.
    pushes: Vec<Option<Ino>>,
    /// The changes stay in the client's buffers.
    buffers: Option<Ino>,
    durable: bool,
    opens: Option<(Handle, Ino)>,
    closes: Option<Handle>,
}

impl Deed {
    fn act(changes: Vec<(Change, Time)>) -> Deed {
        Deed { changes, ..Deed::default() }
    }
}

fn violation(what: String) -> Violation {
    Violation { checker: "one client", what }
}

fn cut(mut text: String) -> String {
    if text.len() > 300 {
        text.truncate(300);
        text.push('…');
    }
    text
}

fn brief(action: &Action) -> String {
    cut(format!("{action:?}"))
}

fn short(answer: &Answer) -> String {
    match answer {
        Answer::Bytes(bytes) => {
            let runs: Vec<String> = bytes
                .chunk_by(|a, b| a == b)
                .take(12)
                .map(|run| format!("{}x{}", run.len(), run[0]))
                .collect();
            format!("{} bytes: {}", bytes.len(), runs.join(" "))
        }
        answer => cut(format!("{answer:?}")),
    }
}
