//! One machine: a real server and a real client in one process, on a simulated disk. It carries out steps and keeps
//! their history, and it can start on the disk that a crash left.
//!
//! Invariants:
//! - Commits, pushes and checkpoints happen only in steps. (Threads of the server may free orphans and sweep at any
//!   time: this is invisible.)
//! - Every call has another time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chiton_client::data::FilesOptions;
use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_journal::Shape;
use chiton_model::{AttrChange, PartRange, RenameHow, SetTime};
use chiton_runtime::{SeededWorld, World, thread};
use chiton_server::{FilesystemInfo, FormatOptions, Role, Server, ServerOptions};
use chiton_types::{Ino, Kind, Mode, Name, PlateId, Plates, Refusal, Time};

use super::disk::Disk;
use super::live::LiveDisk;
use super::one_plate::Lost;
use super::step::{GROWING, PLACES, Step, vocabulary};
use crate::checkers::crash::{Entry, History};
use crate::model::{Birth, Change, Model, NewInode, Node, unknown};

const SHARDS: u16 = 2;
/// Of two plates: so that the directories of the vocabulary lie as `step.rs` has it.
const SHARDS_OF_TWO: u16 = 20;
/// Payload of a block, in bytes: files of the vocabulary have several.
const BLOCK_BYTES: usize = 16 << 10;
/// Length of a segment, in bytes: that of a few operations.
const SEGMENT_BYTES: usize = 512;
/// Names from which on directories are split, where any are.
const THRESHOLD: usize = 2;
/// How often it is looked whether a directory has been split, and the time between.
const SPLITS_MAX: usize = 5_000;
const SPLIT_PAUSE: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);
const TICK: Duration = Duration::from_millis(1);

pub(crate) struct Machine {
    pub(crate) live: LiveDisk,
    server: Arc<Server>,
    pub(super) client: Client,
    pub(super) world: Arc<SeededWorld>,
    pub(super) plates: Plates,
    /// The tree that the client should see.
    pub(super) model: Model,
    pub(crate) history: History,
    /// Inodes made so far, for numbers that are not known yet.
    pub(super) made: u64,
    /// Number of steps; each writes different bytes.
    pub(super) steps: u8,
    pub(super) held: Vec<u64>,
    /// After each step the plates send each other what they owe, before the next one begins.
    pub(super) is_slow: bool,
    /// Directories are split when they have [`THRESHOLD`] names; those that were, with their parts. One that was folded has none, and is
    /// split when it grows.
    pub(super) splits: Option<BTreeMap<Ino, Vec<PartRange>>>,
}

/// A machine that is off: its disk, and the tree that it should have.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) disk: Disk,
    pub(crate) info: FilesystemInfo,
    pub(crate) model: Model,
    /// The steps of workloads.
    pub(crate) vocabulary: &'static [Step],
    splits: Option<BTreeMap<Ino, Vec<PartRange>>>,
}

/// Settings without automatic work.
fn server_options() -> ServerOptions {
    // Short segments: a commit often begins a new one.
    let journal = chiton_journal::Options {
        segment_bytes: SEGMENT_BYTES,
        flush_interval: LONG,
        dispatch_size: 2,
        ..chiton_journal::Options::default()
    };
    ServerOptions {
        checkpoint_rows: usize::MAX,
        checkpoint_age: LONG,
        journal,
        log: Arc::new(|_| {}),
        ..ServerOptions::default()
    }
}

/// A world whose clock begins so late.
fn world(seed: u64, second: u64) -> Arc<SeededWorld> {
    let world = SeededWorld::new(seed);
    world.advance(Duration::from_secs(second));
    Arc::new(world)
}

/// Starts a server on a disk.
///
/// # Errors
/// The reason why it does not start.
pub(crate) fn start_server(
    live: &LiveDisk,
    info: &FilesystemInfo,
    second: u64,
) -> Result<Arc<Server>, String> {
    let world = world(second, second);
    Server::start_as(Role::serving_plates(info, live.all_stores()), server_options(), world)
        .map_err(|e| e.to_string())
}

/// The difference between a step and the model.
pub(super) type Outcome = Result<(), String>;

impl Base {
    /// The tree of the vocabulary: half of it in a checkpoint, the rest in the journal.
    pub(crate) fn new(shape: Shape, plates: u16, splits: bool) -> Result<Base, String> {
        let live = LiveDisk::new(Disk::new(shape, plates));
        let world = world(1, 1);
        let shared: chiton_runtime::SharedWorld = world.clone();
        let shards = if plates == 1 { SHARDS } else { SHARDS_OF_TWO };
        let options = FormatOptions { shards, plates, ..FormatOptions::default() };
        let info = Server::format_with(&live.all_stores(), &options, &shared).map_err(|e| e.to_string())?;
        let vocabulary = vocabulary(plates, splits);
        let splits = splits.then(BTreeMap::new);
        let model = Model::new(world.now());
        let empty = Base { disk: live.disk(), info, model, vocabulary, splits };
        let mut machine = Machine::start(&empty, 10)?;
        machine.set_policy()?;
        let first = [
            Step::Mkdir("/a"),
            Step::Mkdir("/b"),
            Step::Create("/a/s", 100),
            Step::Create("/a/l", 30_000),
            Step::SetXattr("/a/s"),
            Step::Checkpoint,
        ];
        let then = [
            Step::Mkdir("/a/d"),
            Step::Mkdir("/b/e"),
            Step::Link("/a/s", "/b/h"),
            Step::Write { path: "/a/l", offset: 30_000, bytes: 10_000 },
            Step::Sync,
        ];
        let growing = if empty.splits.is_some() { &GROWING[..] } else { &[] };
        for step in growing.iter().chain(&first).chain(&then) {
            machine.run(step)?;
        }
        let mut model = machine.model.clone();
        model.close_all();
        let all = empty.info.plates();
        let lies_as_said = |(path, plate): &(&str, u16)| {
            model.find(path).and_then(|ino| all.of(ino)) == Some(PlateId(*plate))
        };
        if plates > 1 && !PLACES.iter().all(lies_as_said) {
            return Err(
                "the directories are born on other plates: choose another number of shards".to_owned()
            );
        }
        let disk = machine.live.disk().after(&super::disk::Crash::kept(usize::from(plates)));
        let base = Base {
            disk,
            info: empty.info,
            model,
            vocabulary: empty.vocabulary,
            splits: machine.splits.clone(),
        };
        machine.power_off();
        Ok(base)
    }
}

impl Base {
    /// Whether directories are split when they have [`THRESHOLD`] names.
    pub(super) fn splits(&self) -> bool {
        self.splits.is_some()
    }
}

impl Machine {
    /// Starts a server and a client on a disk.
    ///
    /// # Errors
    /// The reason why they do not start.
    pub(crate) fn start(base: &Base, second: u64) -> Result<Machine, String> {
        let live = LiveDisk::new(base.disk.clone());
        let world = world(second, second);
        let server = Server::start_as(
            Role::serving_plates(&base.info, live.all_stores()),
            server_options(),
            world.clone(),
        )
        .map_err(|e| e.to_string())?;
        let files =
            FilesOptions { block_bytes: BLOCK_BYTES, flush_interval: LONG, ..FilesOptions::default() };
        let options = ClientOptions {
            identity: "ace".to_owned(),
            user: Some((0, 0, Vec::new())),
            files,
            world: world.clone(),
            ..ClientOptions::default()
        };
        let client = chiton_embedded::client(&server, options).map_err(|e| e.to_string())?;
        let (model, plates) = (base.model.clone(), base.info.plates());
        let mut history = History::over(plates, base.model.clone());
        let known = base.splits.iter().flatten();
        known.for_each(|(dir, parts)| history.set_parts(*dir, parts.clone()));
        Ok(Machine {
            live,
            server,
            client,
            world,
            plates,
            model,
            history,
            made: 0,
            steps: 0,
            held: Vec::new(),
            is_slow: false,
            splits: base.splits.clone(),
        })
    }

    /// Has each directory split at the threshold, if some are.
    fn set_policy(&mut self) -> Outcome {
        if self.splits.is_none() {
            return Ok(());
        }
        let policy = format!("huge: threshold\nhuge_threshold: {THRESHOLD}");
        self.change_policy(policy)
    }

    /// The server looks at a directory that was folded when the plate of that directory decides about a name in it, or makes a file without a
    /// name there. Then it may be split.
    fn note_growth(&mut self, entry: &Entry, decider: Option<usize>) {
        let (Entry::Act(change, _), Some(splits)) = (entry, &mut self.splits) else { return };
        let dirs = match change {
            Change::Rename { from, to, .. } => vec![*from, *to],
            Change::MakeUnnamed { parent, .. } => vec![*parent],
            change => change.name().map(|(dir, _)| dir).into_iter().collect(),
        };
        for dir in dirs.into_iter().filter(|dir| decider == Some(self.history.plate(*dir))) {
            if splits.get(&dir).is_some_and(Vec::is_empty) {
                splits.remove(&dir);
            }
        }
    }

    /// Waits until the server has split each directory that has enough names, unless a plate dies.
    pub(super) fn await_splits(&mut self) -> Outcome {
        let Some(mut known) = self.splits.take() else { return Ok(()) };
        let is_large = |node: &Node| node.kind == Kind::Dir && node.entries.len() >= THRESHOLD;
        let large = self.model.nodes().filter(|(ino, node)| is_large(node) && !known.contains_key(ino));
        for dir in large.map(|(ino, _)| ino).collect::<Vec<_>>() {
            let mut tries = 0..SPLITS_MAX;
            let parts = loop {
                if self.live.has_died() {
                    break Vec::new();
                }
                match self.client.parts(dir) {
                    Ok(parts) if parts.is_empty() && tries.next().is_some() => thread::sleep(SPLIT_PAUSE),
                    Ok(parts) if parts.is_empty() => return Err(format!("directory {dir} is not split")),
                    Ok(parts) => break parts,
                    // The plate dies.
                    Err(refusal) if tries.next().is_none() => {
                        return Err(format!("the parts of {dir}: {refusal}"));
                    }
                    Err(_) => thread::sleep(SPLIT_PAUSE),
                }
            };
            if !parts.is_empty() {
                self.history.set_parts(dir, parts.clone());
                known.insert(dir, parts);
            }
        }
        self.splits = Some(known);
        Ok(())
    }

    /// The server, for a look at the tree.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// The tree that the client should see.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    pub(crate) fn shared_server(&self) -> Arc<Server> {
        self.server.clone()
    }

    /// Kills the client.
    pub(super) fn lose_client(self) -> Lost {
        drop(self.client);
        Lost { server: self.server, live: self.live, history: self.history }
    }

    pub(crate) fn power_off(self) {
        self.server.abandon();
        drop(self.client);
    }

    /// Carries out a step.
    ///
    /// # Errors
    /// If it was answered otherwise than the model has it.
    pub(crate) fn run(&mut self, step: &Step) -> Outcome {
        self.steps += 1;
        let said = match *step {
            Step::Create(path, bytes) => self.create(path, bytes),
            Step::Write { path, offset, bytes } => self.write(path, OpenFlags::WRITE, Some(offset), bytes),
            Step::WriteSync { path, offset, bytes } => {
                self.write(path, OpenFlags { sync: true, ..OpenFlags::WRITE }, Some(offset), bytes)
            }
            Step::Append(path, bytes) => {
                self.write(path, OpenFlags { append: true, ..OpenFlags::WRITE }, None, bytes)
            }
            Step::Hold { path, offset, bytes } => self.hold(path, offset, bytes),
            Step::Punch { path, offset, bytes } => self.punch(path, offset, bytes),
            Step::Copy(from, to) => self.copy(from, to),
            Step::Truncate(path, size) => self.truncate(path, size),
            Step::Rename(from, to) => self.rename(from, to, RenameHow::Replace),
            Step::Exchange(from, to) => self.rename(from, to, RenameHow::Exchange),
            Step::Link(from, to) => self.link(from, to),
            Step::Unlink(path) => self.unlink(path),
            Step::UnlinkOpen(path) => self.unlink_open(path),
            Step::Unnamed(path, bytes) => self.link_unnamed(path, bytes),
            Step::HoldUnnamed(path, bytes) => self.make_unnamed(path, bytes).map(drop),
            Step::Whiteout(from, to) => self.rename(from, to, RenameHow::Whiteout),
            Step::Mkdir(path) => self.mkdir(path),
            Step::Rmdir(path) => match self.at(path) {
                None => self.absent(path),
                Some((parent, name)) => {
                    let change = Change::Rmdir { parent, name: name.clone() };
                    self.change(change, |client| client.rmdir(&client.caller(), parent, name.as_bytes()))
                }
            },
            Step::RemoveTree(path) => self.remove_tree(path),
            Step::Symlink(target, path) => {
                let what = NewInode::Symlink(target.as_bytes().to_vec());
                self.make(path, what, |client, parent, name| {
                    let made = client.symlink(&client.caller(), parent, name, target.as_bytes());
                    made.map(|entry| entry.attr.ino)
                })
            }
            Step::SetXattr(path) => self.xattr(path, Some(vec![self.steps; 40])),
            Step::RemoveXattr(path) => self.xattr(path, None),
            Step::Chmod(path, mode) => {
                let set = AttrChange { mode: Some(Mode(mode)), ..AttrChange::default() };
                self.set(path, Some(mode), None, set)
            }
            Step::Times(path) => {
                let time = Time(i64::from(self.steps) * 1_000_003);
                let set = AttrChange {
                    atime: Some(SetTime::At(time)),
                    mtime: Some(SetTime::At(time)),
                    ..AttrChange::default()
                };
                self.set(path, None, Some(time), set)
            }
            Step::Fold(path) => self.fold(path),
            Step::Fsync(path) => self.fsync(path),
            Step::FsyncDir => self.durable(|client| client.fsyncdir()),
            Step::Sync => self.durable(|client| client.sync()),
            Step::Checkpoint => self.server.tidy(),
        };
        let said = said.and_then(|()| self.await_splits());
        if self.is_slow {
            self.live.settle();
        }
        said.map_err(|what| format!("{step}: {what}"))
    }

    // ---- the meaning of calls ---------------------------------------------------------------------------

    /// Records the beginning of an entry; later writes come after it.
    pub(super) fn begin(&mut self, entry: Entry) {
        self.history.push(entry.clone());
        self.note_growth(&entry, self.history.last_decider());
        self.live.set_begun(self.history.len());
    }

    pub(super) fn now(&self) -> Time {
        self.world.now()
    }

    pub(super) fn tick(&self) {
        self.world.advance(TICK);
    }

    /// A change that takes effect when it is answered.
    pub(super) fn change(
        &mut self,
        change: Change,
        call: impl FnOnce(&Client) -> Result<(), Refusal>,
    ) -> Outcome {
        self.tick();
        let now = self.now();
        let expected = self.model.clone().apply(&change, now);
        let crosses = self.crosses(&change);
        if expected.is_ok() && !crosses {
            self.model.apply(&change, now).expect("just tried");
            self.begin(Entry::Act(change, now));
        }
        same_over(call(&self.client), expected, crosses)?;
        self.await_splits()
    }

    /// Whether a change is refused because it concerns several plates.
    pub(super) fn crosses(&self, change: &Change) -> bool {
        match change {
            _ if self.plates.count() == 1 => false,
            // The whiteout's number comes from the plate of the directory that it is left in.
            Change::Rename { from, from_name, to, to_name, how, .. } if how.leaves_whiteout() => {
                self.history.plate_of_name(*from, from_name) != self.history.plate_of_name(*to, to_name)
            }
            // It was born beside the directory's own inode.
            Change::LinkUnnamed { ino, parent, name } => {
                self.history.plate(*ino) != self.history.plate_of_name(*parent, name)
            }
            Change::Link { .. }
            | Change::Rename { .. }
            | Change::Make { .. }
            | Change::MakeUnnamed { .. }
            | Change::Unlink { .. }
            | Change::Rmdir { .. }
            | Change::RemoveTree { .. }
            | Change::Write { .. }
            | Change::Punch { .. }
            | Change::Copy { .. }
            | Change::Truncate { .. }
            | Change::Set { .. }
            | Change::Xattr { .. }
            | Change::List { .. }
            | Change::Open { .. }
            | Change::Close { .. } => false,
        }
    }

    /// The same for one that makes an inode.
    pub(super) fn make(
        &mut self,
        path: &str,
        what: NewInode,
        call: impl FnOnce(&Client, Ino, &[u8]) -> Result<Ino, Refusal>,
    ) -> Outcome {
        let Some((parent, name)) = self.at(path) else { return self.absent(path) };
        self.tick();
        let now = self.now();
        self.made += 1;
        let mode = if what == NewInode::Dir { 0o755 } else { 0o644 };
        let make = |ino| Change::Make {
            parent,
            name: name.clone(),
            ino,
            what: what.clone(),
            birth: Birth::of_root(mode),
        };
        let expected = self.model.clone().apply(&make(unknown(self.made)), now);
        if expected.is_ok() {
            self.begin(Entry::Act(make(unknown(self.made)), now));
        }
        let answer = call(&self.client, parent, name.as_bytes());
        if let (Ok(ino), Ok(())) = (&answer, &expected) {
            self.model.apply(&make(*ino), now).expect("just tried");
            self.history.replace_last(Entry::Act(make(*ino), now));
        }
        same(answer.map(drop), expected)?;
        self.await_splits()
    }

    /// The same for a file without a name in the directory of a path: its handle.
    pub(super) fn open_unnamed(&mut self, path: &str) -> Result<Option<(Ino, u64)>, String> {
        let Some((parent, _)) = self.at(path) else { return self.absent(path).map(|()| None) };
        self.tick();
        let now = self.now();
        self.made += 1;
        let make = |ino| Change::MakeUnnamed { parent, ino, mode: 0o644 };
        let expected = self.model.clone().apply(&make(unknown(self.made)), now);
        if expected.is_ok() {
            self.begin(Entry::Act(make(unknown(self.made)), now));
        }
        let client = &self.client;
        let made = client.create_unnamed(&client.caller(), parent, Mode(0o644), OpenFlags::READ_WRITE);
        let made = made.map(|(entry, fh)| (entry.attr.ino, fh));
        same(made.map(drop), expected)?;
        let Ok((ino, fh)) = made else { return Ok(None) };
        self.model.apply(&make(ino), now).expect("just tried");
        self.history.replace_last(Entry::Act(make(ino), now));
        self.await_splits()?;
        Ok(Some((ino, fh)))
    }

    /// A change of content that stays with the client until it is pushed.
    pub(super) fn buffer(&mut self, ino: Ino, change: Change) {
        let now = self.now();
        // After a crash an unlinked open file is invisible, and absent from the model.
        if self.model.node(ino).is_some() {
            self.model.apply(&change, now).expect("content of a file that is there");
        }
        self.begin(Entry::Buffered(ino, change, now));
    }

    pub(super) fn push(&mut self, which: Option<Ino>) {
        self.begin(Entry::Pushed(which));
    }

    /// A promise of durability for everything that was answered.
    pub(super) fn durable(&mut self, call: impl FnOnce(&Client) -> Result<(), Refusal>) -> Outcome {
        self.tick();
        self.push(None);
        same(call(&self.client), Ok(()))?;
        self.begin(Entry::Durable);
        Ok(())
    }

    pub(super) fn at(&self, path: &str) -> Option<(Ino, Name)> {
        self.model.find_parent(path)
    }

    /// The path, or its directory, does not exist: the client must report that, too.
    pub(super) fn absent(&self, path: &str) -> Outcome {
        match self.client.lstat(path) {
            Err(Refusal::NotFound | Refusal::NotDir) => Ok(()),
            answer => Err(format!("{path} should not be there: {answer:?}")),
        }
    }

    /// The inode of a path that is one of a file.
    pub(super) fn file(&self, path: &str) -> Option<Ino> {
        self.model.find(path)
    }

    /// Opens a file; `None` if the model has none there, or a directory.
    pub(super) fn open(&mut self, path: &str, flags: OpenFlags) -> Result<Option<(Ino, u64)>, String> {
        let expected = match self.file(path).map(|ino| (ino, self.model.node(ino).expect("found").kind)) {
            Some((ino, chiton_types::Kind::File)) => Ok(ino),
            Some((_, chiton_types::Kind::Dir)) => Err(Refusal::IsDir),
            Some(_) => Err(Refusal::Invalid),
            None => Err(Refusal::NotFound),
        };
        match (self.client.open_path(path, flags), expected) {
            (Ok(fh), Ok(ino)) => Ok(Some((ino, fh))),
            (Err(said), Err(should)) if said == should || is_missing(said) && is_missing(should) => Ok(None),
            (said, should) => Err(format!("open says {said:?}, should say {should:?}")),
        }
    }

    /// Closes a handle, which pushes its writes.
    pub(super) fn close(&mut self, ino: Ino, fh: u64) -> Outcome {
        self.push(Some(ino));
        same(self.client.release(fh), Ok(()))
    }
}

/// Compares an answer with the model's.
pub(super) fn same(answer: Result<(), Refusal>, expected: Result<(), Refusal>) -> Outcome {
    if answer == expected { Ok(()) } else { Err(format!("answered {answer:?}, should be {expected:?}")) }
}

/// The same of a change that may concern several plates: these refuse it, if nothing else does.
pub(super) fn same_over(
    answer: Result<(), Refusal>,
    expected: Result<(), Refusal>,
    crosses: bool,
) -> Outcome {
    match (answer, expected) {
        (Err(Refusal::CrossDevice), _) if crosses => Ok(()),
        (answer, Ok(())) if crosses => same(answer, Err(Refusal::CrossDevice)),
        (answer, expected) => same(answer, expected),
    }
}

fn is_missing(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::NotFound | Refusal::NotDir)
}
