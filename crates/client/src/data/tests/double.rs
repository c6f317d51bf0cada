//! A double of the server: files without names, exact to the byte, and leases that are really recalled.
//!
//! It checks what the real one may rely on: extents in order and within chunks, blocks that exist, `shared` set on
//! every block that more than one extent names, inline content only for files without blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use chiton_model::{AttrChange, Body, CHUNK_BYTES, Extent, Op, Outcome};
use chiton_objects::{Objects, block};
use chiton_runtime::sync::{Condvar, Mutex, MutexGuard};
use chiton_types::{Attr, BlockId, Cred, Ino, Kind, Mode, Position, Refusal, SessionId, Time};
use chiton_wire::{Answer, Call, Content, LeaseMode, Query};

use super::{FileCalls, caller};
use crate::data::Files;
use crate::{CallError, Mark, OpenFlags, Recalls, Service, Underway};

#[derive(Clone)]
enum Stored {
    Inline(Vec<u8>),
    Blocks(BTreeMap<u64, Extent>),
}

struct File {
    attr: Attr,
    body: Stored,
    leases: BTreeMap<u64, LeaseMode>,
    /// Recalls under way: the session, and the lease that it may keep.
    recalls: BTreeMap<u64, LeaseMode>,
    /// Requests that wait, by ticket.
    waiting: BTreeSet<u64>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<Ino, File>,
    position: u64,
    ticket: u64,
    recallers: BTreeMap<u64, Sender<(Ino, LeaseMode)>>,
    fail: Option<(u32, Refusal)>,
    /// Operations that changed content, and commits.
    writes: u32,
    commits: u32,
    kills: u32,
}

/// The double of a server, which the sessions of all members share.
pub(super) struct Double {
    objects: Arc<dyn Objects>,
    state: Mutex<State>,
    changed: Condvar,
}

/// One client's end.
pub(super) struct Session {
    id: u64,
    server: Arc<Double>,
    recalls: Recalls,
    files: OnceLock<Weak<Files>>,
}

impl Double {
    pub(super) fn new(objects: Arc<dyn Objects>) -> Arc<Double> {
        Arc::new(Double { objects, state: Mutex::default(), changed: Condvar::new() })
    }

    pub(super) fn session(self: &Arc<Double>) -> Arc<Session> {
        let mut state = self.state.lock();
        let id = state.recallers.len() as u64 + 1;
        let (sender, receiver) = channel();
        state.recallers.insert(id, sender);
        let session = Arc::new(Session {
            id,
            server: self.clone(),
            recalls: Recalls::default(),
            files: OnceLock::new(),
        });
        let (server, weak) = (Arc::downgrade(self), Arc::downgrade(&session));
        std::thread::spawn(move || {
            while let Ok((ino, keep)) = receiver.recv() {
                if let Some(session) = weak.upgrade() {
                    session.recalls.note(ino);
                    if let Some(files) = session.files.get().and_then(Weak::upgrade) {
                        files.recall(ino, keep);
                    }
                }
                let Some(server) = server.upgrade() else { return };
                let mut state = server.state.lock();
                let file = state.files.get_mut(&ino).expect("a leased file");
                file.recalls.remove(&id);
                let kept = file.leases.get(&id).copied().unwrap_or(LeaseMode::None).min(keep);
                file.leases.insert(id, kept);
                drop(state);
                server.changed.notify_all();
            }
        });
        session
    }

    /// The next `n` operations fail.
    pub(super) fn fail_next(&self, n: u32, refusal: Refusal) {
        self.state.lock().fail = Some((n, refusal));
    }

    /// As after a restart that forgot what came after `position`, which nobody changed since.
    pub(super) fn restart_at(&self, ino: Ino, position: Position) {
        let mut state = self.state.lock();
        state.position = position.0;
        state.files.get_mut(&ino).expect("a file").attr.position = position;
    }

    /// As after a restart that forgot what came after `position`, when the file with blocks was shorter.
    pub(super) fn restart_shorter(&self, ino: Ino, size: u64, position: Position) {
        self.restart_at(ino, position);
        let mut state = self.state.lock();
        let file = state.files.get_mut(&ino).expect("a file");
        file.leases.clear();
        file.attr.size = size;
        let Stored::Blocks(map) = &mut file.body else { panic!("an inline file") };
        punch(map, size..u64::MAX);
    }

    /// Waits until the server's view of a file satisfies `is`.
    pub(super) fn wait_until(&self, ino: Ino, is: impl Fn(&Attr) -> bool) {
        let mut state = self.state.lock();
        while !is(&state.files[&ino].attr) {
            self.changed.wait(&mut state);
        }
    }

    /// Operations that wrote, commits, operations that cleared set-id bits.
    pub(super) fn counts(&self) -> (u32, u32, u32) {
        let state = self.state.lock();
        (state.writes, state.commits, state.kills)
    }

    /// The blocks of a file, each once.
    pub(super) fn blocks(&self, ino: Ino) -> BTreeSet<BlockId> {
        match &self.state.lock().files[&ino].body {
            Stored::Inline(_) => BTreeSet::new(),
            Stored::Blocks(map) => map.values().map(|e| e.block).collect(),
        }
    }

    pub(super) fn is_inline(&self, ino: Ino) -> bool {
        matches!(self.state.lock().files[&ino].body, Stored::Inline(_))
    }

    /// As compaction does: the same bytes in new blocks, the old ones deleted.
    pub(super) fn compact(&self, ino: Ino) {
        let mut state = self.state.lock();
        let file = state.files.get_mut(&ino).expect("a file");
        let Stored::Blocks(map) = &mut file.body else { panic!("an inline file has nothing to compact") };
        let mut old = BTreeSet::new();
        for (n, e) in map.values_mut().enumerate() {
            let bytes = block::read_block(&*self.objects, &e.block.key(), None).expect("its block");
            old.insert(e.block);
            e.block = BlockId { writer: 999, number: n as u64 + 1 };
            self.objects.put(&e.block.key(), &block::encode_block(&[&bytes])).expect("put");
        }
        for block in old {
            self.objects.delete(&block.key()).expect("delete");
        }
    }

    /// Waits until the others' leases on a file are at most `most`.
    fn clear<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        session: u64,
        ino: Ino,
        most: LeaseMode,
        lease: bool,
    ) -> MutexGuard<'a, State> {
        state.ticket += 1;
        let ticket = state.ticket;
        loop {
            let State { files, recallers, .. } = &mut *state;
            let Some(file) = files.get_mut(&ino) else { return state };
            let holds = file.leases.get(&session).is_some_and(|&l| l > LeaseMode::None);
            // A lease that is being given up is not given again before that is done.
            let giving = lease && file.recalls.contains_key(&session);
            let others: Vec<u64> =
                file.leases.iter().filter(|&(&s, &l)| s != session && l > most).map(|(&s, _)| s).collect();
            let first = file.waiting.first().is_none_or(|&first| first >= ticket);
            if others.is_empty() && (first || holds) && !giving {
                file.waiting.remove(&ticket);
                self.changed.notify_all();
                return state;
            }
            file.waiting.insert(ticket);
            for other in others {
                if let std::collections::btree_map::Entry::Vacant(recall) = file.recalls.entry(other) {
                    recall.insert(most);
                    let _ = recallers[&other].send((ino, most));
                }
            }
            self.changed.wait(&mut state);
        }
    }

    fn operation(&self, session: u64, op: Op) -> Result<Answer, Refusal> {
        let mut state = self.state.lock();
        if let Some((n, refusal)) = &mut state.fail
            && *n > 0
        {
            *n -= 1;
            return Err(*refusal);
        }
        let ino = match &op {
            Op::Write { ino, .. } | Op::SetAttr { ino, .. } => *ino,
            Op::Clone { to, from, .. } => {
                let (to, from) = (*to, *from);
                state = self.clear(state, session, from, LeaseMode::Shared, false);
                to
            }
            _ => return Err(Refusal::Unsupported),
        };
        state = self.clear(state, session, ino, LeaseMode::None, false);
        let State { files, position, writes, kills, .. } = &mut *state;
        *position += 1;
        let at = Position(*position);
        match op {
            Op::Write { body, size, mtime, kill_setid, .. } => {
                *writes += 1;
                *kills += u32::from(kill_setid);
                let named: BTreeSet<BlockId> = files
                    .values()
                    .filter_map(|f| match &f.body {
                        Stored::Blocks(map) => Some(map.values().map(|e| e.block)),
                        Stored::Inline(_) => None,
                    })
                    .flatten()
                    .collect();
                let file = files.get_mut(&ino).ok_or(Refusal::Stale)?;
                match body {
                    Body::Inline(bytes) => {
                        assert!(
                            matches!(file.body, Stored::Inline(_)),
                            "inline content for a file with blocks"
                        );
                        assert!(size >= file.attr.size, "a write does not cut");
                        assert_eq!(bytes.len() as u64, size);
                        file.body = Stored::Inline(bytes);
                    }
                    Body::Extents(extents) => {
                        if size < file.attr.size {
                            return Err(Refusal::Invalid);
                        }
                        self.check(session, &extents, size, &named);
                        if matches!(file.body, Stored::Inline(_)) {
                            file.body = Stored::Blocks(BTreeMap::new());
                        }
                        let Stored::Blocks(map) = &mut file.body else { unreachable!("set above") };
                        for e in extents {
                            insert_extent(map, e);
                        }
                    }
                }
                file.attr.size = size;
                file.attr.mtime = mtime;
                file.attr.position = at;
            }
            Op::SetAttr { change: AttrChange { size: Some(size), .. }, .. } => {
                let file = files.get_mut(&ino).ok_or(Refusal::Stale)?;
                match &mut file.body {
                    Stored::Inline(bytes) => bytes.truncate(size as usize),
                    Stored::Blocks(map) => {
                        punch(map, size..u64::MAX);
                        if size == 0 {
                            file.body = Stored::Inline(Vec::new());
                        }
                    }
                }
                file.attr.size = size;
                file.attr.position = at;
            }
            Op::Clone { from, from_offset, to_offset, len, .. } => {
                let source = files.get_mut(&from).ok_or(Refusal::Stale)?;
                if from_offset + len > source.attr.size {
                    return Err(Refusal::Invalid);
                }
                let Stored::Blocks(map) = &mut source.body else { return Err(Refusal::Invalid) };
                let mut part = map.clone();
                punch(&mut part, 0..from_offset);
                punch(&mut part, from_offset + len..u64::MAX);
                for e in map.values_mut() {
                    e.shared = true;
                }
                let file = files.get_mut(&ino).ok_or(Refusal::Stale)?;
                if matches!(&file.body, Stored::Inline(bytes) if bytes.is_empty()) {
                    file.body = Stored::Blocks(BTreeMap::new());
                }
                let Stored::Blocks(map) = &mut file.body else { return Err(Refusal::Invalid) };
                punch(map, to_offset..to_offset + len);
                for mut e in part.into_values() {
                    e.offset = e.offset - from_offset + to_offset;
                    e.shared = true;
                    insert_extent(map, e);
                }
                file.attr.size = file.attr.size.max(to_offset + len);
                file.attr.position = at;
            }
            _ => return Err(Refusal::Unsupported),
        }
        let file = &files[&ino];
        let lease = file.leases.get(&session).copied().unwrap_or(LeaseMode::None);
        let outcome = Outcome { attr: Some(file.attr.clone()), gone: None, other: None, time: Time(0) };
        drop(state);
        self.changed.notify_all();
        Ok(Answer::Op { position: at, outcome, lease, parent_leased: false })
    }

    fn check(&self, session: u64, extents: &[Extent], size: u64, named: &BTreeSet<BlockId>) {
        let mut end = 0;
        for e in extents {
            assert!(e.len > 0 && e.offset >= end, "in order, without overlap: {extents:?}");
            assert_eq!(e.offset / CHUNK_BYTES, (e.end() - 1) / CHUNK_BYTES, "within a chunk");
            end = e.end();
            if e.block.is_hole() {
                continue;
            }
            assert!(e.end() <= size, "size {size} covers {e:?}");
            assert_eq!(e.block.writer, session, "own blocks only");
            let times = extents.iter().filter(|o| o.block == e.block).count();
            assert!(e.shared || (times == 1 && !named.contains(&e.block)), "{e:?} must be shared");
            let bytes = block::read_block(&*self.objects, &e.block.key(), None).expect("the block is stored");
            assert!(u64::from(e.block_offset) + u64::from(e.len) <= bytes.len() as u64, "within the block");
        }
    }

    fn answer(&self, session: u64, call: Call) -> Result<Answer, Refusal> {
        match call {
            Call::Op { op, .. } => self.operation(session, op),
            Call::Lease { ino, mode } => {
                let most = if mode == LeaseMode::Exclusive { LeaseMode::None } else { LeaseMode::Shared };
                let mut state = self.clear(self.state.lock(), session, ino, most, true);
                let file = state.files.get_mut(&ino).ok_or(Refusal::Stale)?;
                let lease = file.leases.entry(session).or_insert(LeaseMode::None);
                *lease = mode.max(*lease);
                Ok(Answer::Lease { mode: *lease, attr: file.attr.clone(), is_watched: false })
            }
            Call::Query(Query::Map { ino, offset, len }) => {
                let mut state = self.clear(self.state.lock(), session, ino, LeaseMode::Shared, false);
                // A server may decline at any time, for instance because the file is fought over.
                let declines = state.position.is_multiple_of(3);
                let file = state.files.get_mut(&ino).ok_or(Refusal::Stale)?;
                let mut lease = file.leases.get(&session).copied().unwrap_or(LeaseMode::None);
                if file.recalls.contains_key(&session) {
                    lease = LeaseMode::None;
                } else if lease == LeaseMode::None && file.waiting.is_empty() && !declines {
                    lease = LeaseMode::Shared;
                    file.leases.insert(session, lease);
                }
                let content = match &file.body {
                    Stored::Inline(bytes) => Content::Inline(bytes.clone()),
                    Stored::Blocks(map) => {
                        let start = offset / CHUNK_BYTES * CHUNK_BYTES;
                        let end =
                            (offset + len).div_ceil(CHUNK_BYTES).max(offset / CHUNK_BYTES + 1) * CHUNK_BYTES;
                        let extents = map.range(start..end).map(|(_, e)| *e).collect();
                        Content::Extents { start, end, extents }
                    }
                };
                Ok(Answer::Map { attr: file.attr.clone(), lease, content })
            }
            _ => Err(Refusal::Unsupported),
        }
    }
}

fn punch(map: &mut BTreeMap<u64, Extent>, range: std::ops::Range<u64>) {
    for (_, e) in std::mem::take(map) {
        let mut keep = |start: u64, end: u64, split: bool| {
            if start < end {
                let block_offset = e.block_offset + (start - e.offset) as u32;
                let shared = e.shared || split;
                map.insert(
                    start,
                    Extent { offset: start, len: (end - start) as u32, block_offset, shared, ..e },
                );
            }
        };
        let split = e.offset < range.start && range.end < e.end();
        keep(e.offset, e.end().min(range.start), split);
        keep(e.offset.max(range.end), e.end(), split);
    }
}

fn insert_extent(map: &mut BTreeMap<u64, Extent>, e: Extent) {
    punch(map, e.offset..e.end());
    if !e.block.is_hole() {
        map.insert(e.offset, e);
    }
}

impl Session {
    pub(super) fn attach(&self, files: &Arc<Files>) {
        assert!(self.files.set(Arc::downgrade(files)).is_ok(), "attached once");
    }

    /// A new file, held exclusively.
    fn make(&self) -> (Attr, LeaseMode, Mark) {
        let mark = self.recalls.now();
        let mut state = self.server.state.lock();
        state.position += 1;
        let ino = Ino(state.files.len() as u64 + 10);
        let attr = Attr {
            ino,
            kind: Kind::File,
            mode: Mode(0o644),
            nlink: 1,
            uid: super::ALICE,
            gid: super::ALICE,
            rdev: 0,
            size: 0,
            allocated: 0,
            atime: Time(1),
            mtime: Time(1),
            ctime: Time(1),
            btime: Time(1),
            parent: Ino::ROOT,
            flags: 0,
            position: Position(state.position),
        };
        let file = File {
            attr: attr.clone(),
            body: Stored::Inline(Vec::new()),
            leases: BTreeMap::from([(self.id, LeaseMode::Exclusive)]),
            recalls: BTreeMap::new(),
            waiting: BTreeSet::new(),
        };
        state.files.insert(ino, file);
        (attr, LeaseMode::Exclusive, mark)
    }

    /// As Query::Open: writers elsewhere write back first.
    pub(super) fn ask_open(&self, ino: Ino) -> (Attr, LeaseMode, Mark) {
        let mark = self.recalls.now();
        let state = self.server.clear(self.server.state.lock(), self.id, ino, LeaseMode::Shared, false);
        let file = &state.files[&ino];
        let lease = match file.recalls.contains_key(&self.id) {
            true => LeaseMode::None,
            false => file.leases.get(&self.id).copied().unwrap_or(LeaseMode::None),
        };
        (file.attr.clone(), lease, mark)
    }
}

impl FileCalls for Session {
    fn create(&self, files: &Files) -> (Ino, u64) {
        let changes = files.changes();
        let (attr, lease, mark) = self.make();
        let ino = attr.ino;
        (
            ino,
            caller(|c| files.open(c, attr, lease, (mark, changes), OpenFlags::READ_WRITE, None))
                .expect("open"),
        )
    }

    fn open(&self, files: &Files, ino: Ino, flags: OpenFlags) -> u64 {
        let changes = files.changes();
        if flags.reads_only() {
            // As Query::Open that asks for the content.
            let (mark, asked_at) = (self.recalls.now(), Duration::ZERO);
            let query = Query::Map { ino, offset: 0, len: 1 };
            let Ok(Answer::Map { attr, lease, content }) = self.server.answer(self.id, Call::Query(query))
            else {
                panic!("a file is opened");
            };
            let content = Some((content, asked_at));
            return caller(|c| files.open(c, attr, lease, (mark, changes), flags, content)).expect("open");
        }
        let (attr, lease, mark) = self.ask_open(ino);
        caller(|c| files.open(c, attr, lease, (mark, changes), flags, None)).expect("open")
    }

    fn stat(&self, ino: Ino) -> Attr {
        self.ask_open(ino).0
    }
}

struct Ready(Option<Result<Answer, CallError>>);

impl Future for Ready {
    type Output = Result<Answer, CallError>;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(self.0.take().expect("polled once"))
    }
}

impl Underway for Ready {
    fn wait(mut self: Box<Self>) -> Result<Answer, CallError> {
        self.0.take().expect("waited for once")
    }
}

impl Service for Session {
    fn call(&self, _: &Cred, call: Call) -> Result<Answer, CallError> {
        Ok(self.server.answer(self.id, call)?)
    }

    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        Box::new(Ready(Some(self.call(cred, call))))
    }
}

impl crate::Session for Session {
    fn session(&self, _ino: Ino) -> SessionId {
        SessionId(self.id)
    }

    fn closed(&self, _: Ino) {}

    fn valid_until(&self, _ino: Ino) -> Duration {
        Duration::MAX
    }

    fn recalls(&self) -> &Recalls {
        &self.recalls
    }
}

impl crate::Durability for Session {
    fn durable(&self) -> Position {
        Position(0)
    }

    fn commit(&self, _: Position) -> Result<(), Refusal> {
        self.server.state.lock().commits += 1;
        Ok(())
    }
}

impl crate::PlateLookup for Session {}

impl crate::Connection for Session {
    fn is_embedded(&self) -> bool {
        false
    }
}
