//! Judges the actions of one client in its own directory against the naive model: every answer, every read, and the
//! tree at the end; or, if the client's life ended before, some prefix of it (the crash oracle).

mod apart;
mod deciders;
mod effect;
mod late;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use apart::own_part;
use apart::{Apart, ending_of};
use chiton_types::{Ino, Kind, Name, PlateId, Plates, Refusal, Time};
use effect::Effect;
use late::Late;

use crate::checkers::crash::{self, Entry};
use crate::history::{Action, Answer, CallId, ClientId, Handle, Happened, History, Seen, Violation};
use crate::model::{Model, TIME_UNKNOWN, unknown};
use crate::plan::OWN;
use crate::tree::Tree;
use crate::users::User;

pub(super) fn judge(history: &History, tree: Option<&Tree>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut lives: BTreeMap<ClientId, Life> = BTreeMap::new();
    let mut ended: Vec<Life> = Vec::new();
    // Directories that a client has decoupled and lost, and those that it resumes.
    let mut left: BTreeMap<String, Life> = BTreeMap::new();
    let mut going: BTreeMap<ClientId, String> = BTreeMap::new();
    let mut ends: BTreeMap<CallId, Action> = BTreeMap::new();
    let mut apart: BTreeSet<ClientId> = BTreeSet::new();
    // Those whose session expired before the decoupling: the directory may be lost with the answer.
    let mut doubtful: BTreeSet<ClientId> = BTreeSet::new();
    let mut late = Late::default();
    for event in &history.events {
        ended.extend(late.note(&event.what));
        match &event.what {
            Happened::Invoked {
                client,
                call,
                user: _,
                action: action @ (Action::MergeSoFar | Action::MergeAll | Action::Discard),
            } => {
                ends.insert(*call, action.clone());
                let life = match going.get(client) {
                    Some(root) => left.get_mut(root),
                    None => lives.get_mut(client),
                };
                if let (Some(life), Some(ending)) = (life, ending_of(action)) {
                    life.asked_to_end(ending);
                }
            }
            Happened::Returned { client, call, answer: Answer::Done } if ends.contains_key(call) => {
                let action = ends.remove(call).expect("it is there");
                let (again, life) = match going.get(client) {
                    Some(root) => (true, left.get_mut(root)),
                    None => (false, lives.get_mut(client)),
                };
                match (life, ending_of(&action)) {
                    (Some(life), Some(ending)) => {
                        // The tree that was found on resuming counts then.
                        life.ended(ending, again);
                        going.remove(client);
                    }
                    (Some(life), None) => life.merged_so_far(),
                    (None, _) => {}
                }
            }
            Happened::Decoupled { client, changed, kept, merges, .. } => {
                doubtful.remove(client);
                if let Some(life) = lives.get_mut(client) {
                    life.taken(*changed, *kept, *merges);
                }
            }
            Happened::ClaimLost { client } => {
                going.remove(client);
                if let Some(mut life) = lives.remove(client) {
                    life.cut_off();
                    left.insert(life.root.clone(), life);
                }
            }
            Happened::WentOn { client, root, tree } => {
                if let Some(life) = left.get_mut(root) {
                    found.extend(life.gone_on_with(tree).err());
                    going.insert(*client, root.clone());
                }
            }
            Happened::IsOver { client, root } => {
                going.remove(client);
                ended.extend(left.remove(root));
            }
            Happened::Invoked { client, call, user, action } => {
                if let Action::Mkdir { path, mode } = action
                    && is_root(path)
                {
                    let mut life = Life::new(history.plates, path.clone(), *mode, *call);
                    life.splits = history.splits;
                    let before = lives.insert(*client, life);
                    ended.extend(late.keep(*client, before, apart.contains(client)));
                    doubtful.remove(client);
                } else if let Some(life) = lives.get_mut(client).filter(|_| !doubtful.contains(client)) {
                    life.invoked(*call, *user, action);
                }
            }
            Happened::Returned { client, call, answer } => {
                if let Some(life) = lives.get_mut(client) {
                    found.extend(life.returned(*call, answer).err());
                }
            }
            Happened::Decided { client, plate, names } => {
                if let Some(life) = lives.get_mut(client) {
                    life.decided_by(*plate, names);
                }
            }
            Happened::ClientCrashed { client } => {
                if let Some(mut life) = lives.remove(client) {
                    life.cut_off();
                    if life.is_taken() {
                        left.insert(life.root.clone(), life);
                    } else {
                        ended.push(life);
                    }
                }
                going.remove(client);
            }
            // Actions of a client in its decoupled directory do not need its session; earlier ones do.
            Happened::SessionLost { client } if apart.contains(client) => {
                let is_untaken = |life: &Life| !life.was_taken() && !life.is_being_made();
                doubtful.extend(lives.get(client).is_some_and(is_untaken).then_some(*client));
            }
            Happened::WorksApart { client } => drop(apart.insert(*client)),
            // An action in flight may belong to the next session, and then apply to the rest of all earlier ones.
            // The creation of a root is right there, too; after anything else there is nothing to compare.
            Happened::SessionLost { client } => {
                if let Some(life) = lives.remove(client) {
                    if life.is_being_made() {
                        lives.insert(*client, life);
                    } else if !life.changes_under_way() {
                        late.begin(*client, life);
                    }
                }
            }
            Happened::DataLost { client, ino } => {
                if let Some(life) = lives.get_mut(client) {
                    life.lost(*ino);
                }
            }
            // Times of directories never go back: times that no client knows may be later than the next ones.
            Happened::ClockSet => lives.values_mut().for_each(Life::clock_changes),
            _ => {}
        }
    }
    ended.extend(lives.into_values());
    ended.extend(left.into_values());
    ended.extend(late.rest());
    if let Some(tree) = tree {
        for life in &ended {
            found.extend(life.judge(tree).err());
        }
    }
    found
}

/// Refusals that say nothing about the tree. The client continues in another directory.
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

/// A call that is not answered.
struct UnderWay {
    call: CallId,
    user: User,
    action: Action,
}

/// The actions of a client in one directory.
pub(crate) struct Life {
    root: String,
    /// The creation of the root was acknowledged.
    made: bool,
    make: CallId,
    /// As the client sees it, buffers included.
    model: Model,
    entries: crash::History,
    handles: BTreeMap<Handle, Ino>,
    under_way: Option<UnderWay>,
    next_unknown: u64,
    last_time: Time,
    /// Files with lost content: reads of them are no longer predictable.
    lossy: BTreeSet<Ino>,
    /// Handles that must report the loss at their next sync or close (S23).
    owed: BTreeSet<Handle>,
    /// The file of a write in flight: the write may be among the lost ones, or come after them.
    lost_under_way: Option<Ino>,
    /// An answer left open whether the action took effect: from here on only prefixes are compared.
    is_over: bool,
    /// Its client has taken it for itself.
    apart: Option<Apart>,
    /// Directories are split over plates.
    splits: bool,
    /// The plate that has decided the call under way, and the call's names.
    decider: Option<(PlateId, Vec<Name>)>,
    /// The entry of a call without an answer, if it is not known which plate has decided it.
    undecided: Option<usize>,
}

impl Life {
    /// For a directory whose creation, with this mode, was requested by this call, in a file system with these plates.
    pub(crate) fn new(plates: Plates, root: String, mode: u16, make: CallId) -> Life {
        let model = Model::rooted(mode, TIME_UNKNOWN);
        Life {
            root,
            made: false,
            make,
            entries: crash::History::over(plates, model.clone()),
            model,
            handles: BTreeMap::new(),
            under_way: None,
            next_unknown: 0,
            last_time: Time(0),
            lossy: BTreeSet::new(),
            owed: BTreeSet::new(),
            lost_under_way: None,
            is_over: false,
            apart: None,
            splits: false,
            decider: None,
            undecided: None,
        }
    }

    /// The events so far.
    pub(crate) fn entries(&self) -> &crash::History {
        &self.entries
    }

    /// The file that is open under a handle.
    pub(crate) fn file_of(&self, handle: Handle) -> Option<Ino> {
        self.handles.get(&handle).copied()
    }

    /// The client pushed buffered content of a file beside its actions.
    pub(crate) fn pushed(&mut self, ino: Ino) {
        self.entries.push(Entry::Pushed(Some(ino)));
    }

    /// Another clock is used from now on: times of directories become unknown.
    pub(crate) fn clock_changes(&mut self) {
        self.last_time = TIME_UNKNOWN;
    }

    /// Its client has it for itself from now on: its clock and its fsync count.
    fn taken(&mut self, changed: Time, kept: bool, merges: bool) {
        // Times of directories do not go back, though the client's clock may be behind the server's.
        self.last_time = changed;
        self.apart = Some(Apart::new(kept, merges, self.entries.len()));
    }

    /// Its client has it for itself.
    fn is_taken(&self) -> bool {
        self.apart.as_ref().is_some_and(|apart| !apart.is_ended())
    }

    fn was_taken(&self) -> bool {
        self.apart.is_some()
    }

    fn within(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(&self.root)?;
        rest.starts_with('/').then(|| rest.to_owned())
    }

    pub(crate) fn invoked(&mut self, call: CallId, user: User, action: &Action) {
        self.under_way = (!self.is_over).then(|| UnderWay { call, user, action: action.clone() });
        self.lost_under_way = None;
        self.decider = None;
    }

    /// Buffered content of a file was given up.
    fn lost(&mut self, ino: Ino) {
        self.entries.push(Entry::Lost(ino));
        self.lossy.insert(ino);
        self.owed.extend(self.handles.iter().filter(|(_, of)| **of == ino).map(|(handle, _)| *handle));
        let action = self.under_way.as_ref().map(|under_way| &under_way.action);
        if let Some(Action::Write { handle, .. } | Action::PunchHole { handle, .. }) = action
            && self.handles.get(handle) == Some(&ino)
        {
            self.lost_under_way = Some(ino);
        }
    }

    /// Checks that an error of writing back is reported to each descriptor (S23).
    fn check_reported_loss(&mut self, action: &Action, answer: &Answer) -> Result<(), Violation> {
        let (Action::Fsync { handle } | Action::Close { handle } | Action::Open { handle, .. }) = action
        else {
            return Ok(());
        };
        match answer {
            // A refusal for another reason does not come from the end of the handle.
            Answer::Refused(refusal) if !is_of_the_outside(*refusal) => Ok(()),
            Answer::Refused(_) => {
                self.owed.remove(handle);
                Ok(())
            }
            _ if self.owed.remove(handle) => Err(violation(format!(
                "{}: was answered, should say that what was written before is lost",
                brief(action)
            ))),
            _ => Ok(()),
        }
    }

    /// The action in flight may take effect or not.
    pub(crate) fn cut_off(&mut self) {
        self.is_over = true;
        if let Some(UnderWay { user, action, .. }) = self.under_way.take() {
            let ino = self.fresh();
            if let Ok(Some(deed)) = self.deed(user, &action, ino, TIME_UNKNOWN) {
                // If the model refuses it, so did the server. Nothing was acknowledged as pushed or durable.
                let before = self.entries.len();
                let _ = self.carry_out(Effect {
                    durable: false,
                    pushes: Vec::new(),
                    pushes_after: Vec::new(),
                    ..deed
                });
                self.note_undecided(before);
            }
        }
    }

    /// Whether the creation of the root is in flight.
    fn is_being_made(&self) -> bool {
        !self.made && !self.is_over
    }

    fn changes_under_way(&self) -> bool {
        let changes = |UnderWay { user, action, .. }: &UnderWay| {
            self.deed(*user, action, unknown(0), TIME_UNKNOWN)
                .map(|deed| deed.is_some_and(|d| !d.changes.is_empty()))
        };
        self.under_way.as_ref().is_some_and(|under_way| changes(under_way).unwrap_or(true))
    }

    fn fresh(&mut self) -> Ino {
        self.next_unknown += 1;
        unknown(self.next_unknown)
    }

    /// Handles the answer.
    ///
    /// # Errors
    /// The answer is wrong.
    pub(crate) fn returned(&mut self, call: CallId, answer: &Answer) -> Result<(), Violation> {
        if call == self.make {
            if let Answer::Attr(seen) = answer {
                self.made = true;
                self.entries.set_root(seen.ino);
                self.last_time = seen.ctime;
            }
            self.is_over |= !self.made;
            return Ok(());
        }
        let Some(under_way) = self.under_way.take_if(|under_way| under_way.call == call) else {
            return Ok(());
        };
        self.check_reported_loss(&under_way.action, answer)?;
        self.check_birthplace(&under_way.action, answer)?;
        if let Answer::Refused(refusal) = answer {
            return self.refused(under_way, *refusal);
        }
        let UnderWay { user, action, .. } = under_way;
        let (ino, time) = match answer {
            Answer::Attr(seen) if matches!(action, Action::Stat { .. }) => (seen.ino, TIME_UNKNOWN),
            // The times of a file that is being written here are those of the last write (S37).
            Answer::Attr(seen) if self.handles.values().any(|ino| *ino == seen.ino) => {
                (seen.ino, TIME_UNKNOWN)
            }
            // Nor is a file's ctime before its mtime, which the writer chooses: it does not show when a link was
            // created.
            Answer::Attr(seen) if matches!(action, Action::Link { .. }) && seen.ctime <= seen.mtime => {
                (seen.ino, TIME_UNKNOWN)
            }
            Answer::Attr(seen) => (seen.ino, self.time(seen.ctime)),
            _ => (self.fresh(), TIME_UNKNOWN),
        };
        let wrong =
            |what: String| Err(violation(format!("call {}, {user:?}, {}: {what}", call.0, brief(&action))));
        match self.deed(user, &action, ino, time) {
            Err(refusal) => return wrong(format!("was answered, should be refused: {refusal}")),
            Ok(None) => {}
            Ok(Some(deed)) => {
                if let Err(refusal) = self.carry_out(deed) {
                    return wrong(format!("was answered, should be refused: {refusal}"));
                }
            }
        }
        match self.expected(&action, answer) {
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

    fn refused(&mut self, under_way: UnderWay, refusal: Refusal) -> Result<(), Violation> {
        // Faults from outside are always possible; an action of several parts may be done in part.
        if is_of_the_outside(refusal) {
            self.under_way = Some(under_way);
            self.cut_off();
            return Ok(());
        }
        let UnderWay { call, user, action } = &under_way;
        let ino = self.fresh();
        let before = self.model.clone();
        if self.leaves_whiteout_elsewhere(*user, action) && refusal == Refusal::CrossDevice {
            return Ok(());
        }
        let would = match self.deed(*user, action, ino, TIME_UNKNOWN) {
            Err(refusal) => Err(refusal),
            Ok(None) if self.expected(action, &Answer::Refused(refusal)).is_some() => Ok(()),
            // Nothing is known of it.
            Ok(None) => return Ok(()),
            Ok(Some(deed)) => {
                deed.changes.iter().try_for_each(|(change, _)| self.model.apply(change, TIME_UNKNOWN))
            }
        };
        self.model = before;
        let is_of_rights = |refusal| matches!(refusal, Refusal::Access | Refusal::NotPermitted);
        let should = match would {
            Ok(()) => "be carried out".to_owned(),
            // A call that the caller has the right to make is not refused for lack of permission.
            Err(should) if is_of_rights(refusal) && !is_of_rights(should) => format!("be refused: {should}"),
            Err(_) => return Ok(()),
        };
        let wrong =
            format!("call {}, {user:?}, {}: was refused ({refusal}), should {should}", call.0, brief(action));
        // Blocks of a subtree whose claim is void are not taken: that is known when it ends.
        if self.apart.is_some() && refusal == Refusal::NotPermitted {
            self.under_way = Some(under_way);
            self.cut_off();
            return Ok(());
        }
        Err(violation(wrong))
    }

    /// Whether a rename would leave a whiteout on another plate than it takes the name to, or, where directories are split, may do so.
    fn leaves_whiteout_elsewhere(&self, user: User, action: &Action) -> bool {
        let Action::Whiteout { from, to } = action else { return false };
        let plate = |path: &str| Some(self.entries.plate(self.parent(user, path).ok()?.0));
        self.splits || plate(from) != plate(to)
    }

    fn carry_out(&mut self, deed: Effect) -> Result<(), Refusal> {
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
            self.note_decider();
        }
        for which in deed.pushes_after {
            self.entries.push(Entry::Pushed(which));
        }
        if let Some(ino) = deed.buffers.filter(|ino| self.lost_under_way == Some(*ino)) {
            self.entries.push(Entry::Lost(ino));
        }
        if deed.durable && self.apart.as_ref().is_none_or(|apart| apart.kept) {
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

    /// The answer that a reading action must give, as far as the model knows; unknown parts are taken from the given answer.
    fn expected(&self, action: &Action, answer: &Answer) -> Option<Answer> {
        match (action, answer) {
            (Action::Read { handle, offset, len }, _) => {
                let ino = self.handles.get(handle).filter(|ino| !self.lossy.contains(ino))?;
                let content = &self.model.node(*ino)?.content;
                let start = (*offset as usize).min(content.len());
                let end = content.len().min(start + *len as usize);
                Some(Answer::Bytes(content[start..end].to_vec()))
            }
            (Action::Write { bytes, .. }, _) => Some(Answer::Written(bytes.len() as u64)),
            (Action::ReadFile { path }, Answer::Bytes(_)) => {
                let ino = self.model.find(&self.within(path)?)?;
                let node = self.model.node(ino).filter(|node| node.kind == Kind::File)?;
                (!self.lossy.contains(&ino)).then(|| Answer::Bytes(node.content.to_vec()))
            }
            (Action::Stat { path }, Answer::Attr(seen)) => {
                let ino = self.model.find(&self.within(path)?)?;
                let node = self.model.node(ino)?;
                let size = if self.lossy.contains(&ino) { seen.size } else { node.size() };
                let (kind, mode, uid, gid) = (node.kind, node.mode, node.uid, node.gid);
                let nlink = self.model.nlink(ino);
                Some(Answer::Attr(Seen { kind, mode, uid, gid, nlink, size, ..seen.clone() }))
            }
            (Action::List { path }, Answer::Names(names)) => {
                let dir = self.model.node(self.model.find(&self.within(path)?)?)?;
                let ino = |name: &str| names.iter().find(|(seen, _)| seen == name).map(|(_, ino)| *ino);
                let entries = dir.entries.keys().map(Name::to_string);
                let entries = entries.map(|name| (name.clone(), ino(&name).unwrap_or(Ino(0))));
                Some(Answer::Names(entries.collect()))
            }
            _ => None,
        }
    }

    fn judge(&self, tree: &Tree) -> Result<(), Violation> {
        let own = own_part(tree, &self.root);
        if own.nodes.is_empty() {
            // Its making was not answered, or not durable.
            return match self.made && self.entries.floor(self.entries.len()) > 0 {
                true => Err(violation(format!("{} is missing", self.root))),
                false => Ok(()),
            };
        }
        if let Some(apart) = &self.apart {
            return self.judge_apart(apart, &own);
        }
        self.judge_prefixes(&own)
            .map_err(|found| Violation { what: format!("in {}: {}", self.root, found.what), ..found })
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
