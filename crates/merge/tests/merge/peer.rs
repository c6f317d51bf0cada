//! A namespace with a store below it: the server, the decoupled client, or a witness.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use chiton_merge::{Change, MergeContext, MergeStep, Skipped, foreign_to_name, plan_merge};
use chiton_model::merge::{Conflict, MergeMap};
use chiton_model::{Event, Make, Op, Outcome, Over};
use chiton_namespace::{Context, Fault, Mapped, Namespace, RowChange, RowSource, Rows, plan};
use chiton_types::codec::Take;
use chiton_types::{Attr, Cred, Ino, Kind, Mode, Name, Position, Refusal, Time};

#[derive(Clone, Default)]
pub(crate) struct Store(BTreeMap<Vec<u8>, Vec<u8>>);

impl RowSource for Store {
    type Error = Infallible;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Rows, Infallible> {
        let range = self.0.range(start.to_vec()..end.to_vec());
        Ok(range.take(limit).map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}

pub(crate) struct Peer {
    pub(crate) ns: Namespace,
    store: Store,
    pub(crate) position: Position,
    /// Every event applied since it was opened.
    pub(crate) journal: Vec<Event>,
    pub(crate) open: BTreeSet<Ino>,
    /// Of a decoupling that notes what is done here: others do it.
    pub(crate) noted_in: Option<MergeMap>,
}

/// A tree as a user sees it, by path.
pub(crate) type Tree = BTreeMap<String, Node>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) attr: Attr,
    pub(crate) content: Content,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    None,
    Inline(Vec<u8>),
    /// Offset, length, writer, number, offset in the block.
    Blocks(Vec<(u64, u32, u64, u64, u32)>),
}

impl Peer {
    /// An empty file system with a directory `sub` (inode 2), and `out` (3) with a file (4) beside it.
    pub(crate) fn new() -> Peer {
        let mut store = Store::default();
        store.write(Namespace::format_rows(Time(0), 0, 0));
        let mut peer = Peer::over(store, Position(0));
        for (parent, name, ino, make) in [
            (Ino::ROOT, "sub", 2, Make::Dir),
            (Ino::ROOT, "out", 3, Make::Dir),
            (Ino(3), "file", 4, Make::File { content: b"outside".to_vec() }),
        ] {
            let name = Name::try_from(name).expect("a name");
            let op = Op::Make { parent, name, make, mode: Mode(0o755) };
            peer.run(&op, Ino(ino), Time(1)).expect("a free name");
        }
        peer
    }

    fn over(store: Store, position: Position) -> Peer {
        let ns = Namespace::open(&store).expect("a formatted store");
        Peer { ns, store, position, journal: Vec::new(), open: BTreeSet::new(), noted_in: None }
    }

    /// Another one that begins with this one's state.
    pub(crate) fn fork(&mut self) -> Peer {
        self.checkpoint();
        Peer::over(self.store.clone(), self.position)
    }

    pub(crate) fn checkpoint(&mut self) {
        let mut rows = Vec::new();
        self.ns.checkpoint_begin();
        while !self.ns.checkpoint_take(100, &mut rows) {}
        self.store.write(rows);
        self.ns.checkpoint_done();
    }

    /// Nothing is in memory any more.
    pub(crate) fn page_out(&mut self) {
        self.checkpoint();
        self.ns.evict(0);
    }

    fn fetch(&mut self, fault: Fault) -> Result<(), Refusal> {
        match fault {
            Fault::Refused(refusal) => Err(refusal),
            Fault::NeedGroups => panic!("root needs no groups"),
            Fault::Elsewhere(ino) | Fault::Realm(ino) => panic!("there is one plate: {ino}"),
            Fault::Missing(needs) => {
                for need in needs {
                    let generation = self.ns.generation();
                    let Ok(fetched) = Namespace::fetch(&self.store, &need);
                    self.ns.install(fetched, generation).expect("rows that the namespace wrote itself");
                }
                Ok(())
            }
        }
    }

    pub(crate) fn ask<T>(&mut self, question: impl Fn(&Namespace) -> Result<T, Fault>) -> Result<T, Refusal> {
        for _ in 0..1000 {
            match question(&self.ns) {
                Ok(answer) => return Ok(answer),
                Err(fault) => self.fetch(fault)?,
            }
        }
        panic!("no answer after many rounds of fetching");
    }

    /// Carries out an operation as root; its outcome and events.
    pub(crate) fn run(&mut self, op: &Op, offered: Ino, now: Time) -> Result<(Outcome, Vec<Event>), Refusal> {
        let open = self.open.clone();
        let (planned, events) = self.ask(|ns| {
            let is_open = |ino: Ino| open.contains(&ino);
            let ctx = Context { cred: &Cred::ROOT, now, offered, is_open: &is_open, frees: false };
            let mut events = Vec::new();
            Ok((plan(ns, op, &ctx, &mut events)?, events))
        })?;
        for event in &events {
            self.apply(event);
        }
        Ok((self.ns.outcome(planned), events))
    }

    /// Applies an event that came through a journal.
    pub(crate) fn apply(&mut self, event: &Event) {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        let event = Event::decode(&mut Take::new(&bytes)).expect("it was encoded");
        loop {
            let needs = self.ns.needs(&event);
            if needs.is_empty() {
                break;
            }
            self.fetch(Fault::Missing(needs)).expect("nothing is refused");
        }
        assert_eq!(
            self.ns.fit(&event, Position(u64::MAX), chiton_types::SHARDS_DEFAULT),
            Ok(()),
            "{event:?} does not fit the state"
        );
        if let Some(mut map) = self.noted_in.take() {
            self.note_taken(&event, &mut map);
            self.noted_in = Some(map);
        }
        self.position = self.position.next();
        self.ns.apply(&event, self.position);
        self.journal.push(event);
    }

    /// As a server does before it applies what others do.
    fn note_taken(&mut self, event: &Event, map: &mut MergeMap) {
        let taken = match event {
            Event::Unlink { parent, name, ino, .. } => vec![(*ino, *parent, name, false)],
            Event::Rename { from, from_name, to, to_name, ino, over, .. } => {
                let victim =
                    over.ino().map(|victim| (victim, *to, to_name, matches!(over, Over::Exchanged { .. })));
                [Some((*ino, *from, from_name, true)), victim].into_iter().flatten().collect()
            }
            _ => Vec::new(),
        };
        for (ino, dir, name, moves) in taken {
            // An inode below another policy is not of the subtree.
            if !self.open.contains(&ino) || self.ask(|ns| ns.realm(dir)) != Ok(Ino::ROOT) {
                continue;
            }
            let attr = self.ask(|ns| ns.attr(ino)).expect("it is there");
            let change = self.ask(|ns| foreign_to_name(ns, dir, name, map)).expect("it is there");
            let position = Position(if change == Change::Changed { u64::MAX } else { 0 });
            let is_last = !moves && (attr.kind == Kind::Dir || attr.nlink <= 1);
            map.note_contested(ino, dir, name, position, is_last);
        }
    }

    /// Merges one event, and returns its outcome. `Err`: the policy forbids it.
    pub(crate) fn merge(
        &mut self,
        event: &Event,
        map: &mut MergeMap,
        fresh: &mut u64,
        report: &mut Vec<Conflict>,
    ) -> Result<Option<Skipped>, Conflict> {
        let mut event = event.clone();
        let is_open = self.open.clone();
        for _ in 0..1000 {
            let ctx =
                MergeContext { is_open: &|ino| is_open.contains(&ino), fresh: Ino(*fresh), now: Time(9999) };
            let before = (event.clone(), map.clone());
            match plan_merge(&self.ns, &mut event, map, &ctx, report) {
                Ok(MergeStep::Emit) => {
                    self.apply_own(&event, map);
                    return Ok(None);
                }
                Ok(MergeStep::First(events)) => {
                    *fresh += 1;
                    events.iter().for_each(|event| self.apply_own(event, map));
                }
                Ok(MergeStep::Instead(events)) => {
                    events.iter().for_each(|event| self.apply_own(event, map));
                    return Ok(None);
                }
                Ok(MergeStep::Skip(why)) => return Ok(Some(why)),
                Ok(MergeStep::Stop) => return Err(report.last().expect("it is reported").clone()),
                Err(fault) => {
                    // Even if inodes are translated already, the decisions are not taken.
                    assert_eq!(
                        map.ranges(),
                        before.1.ranges(),
                        "{:?} was counted without an answer",
                        before.0
                    );
                    self.fetch(fault).expect("merges refuse by skipping");
                }
            }
        }
        panic!("{event:?} is asked for again without end");
    }

    fn apply_own(&mut self, event: &Event, map: &mut MergeMap) {
        // The rows that a plan of consecutive events needs are in memory, or are made by the event before.
        self.apply(event);
        map.note_own(self.position);
    }

    pub(crate) fn list(&mut self, dir: Ino) -> Vec<(Name, Ino, Kind)> {
        let page = self.ask(|ns| ns.readdir(dir, 0, 100_000)).expect("a directory");
        page.entries.into_iter().map(|(name, ino, kind, _)| (name, ino, kind)).collect()
    }

    /// The tree below a directory, itself under "".
    pub(crate) fn tree(&mut self, root: Ino) -> Tree {
        let mut tree = Tree::new();
        let mut todo = vec![(String::new(), root)];
        while let Some((path, ino)) = todo.pop() {
            let node = self.node(ino);
            if node.attr.kind == Kind::Dir {
                for (name, ino, _) in self.list(ino) {
                    let slash = if path.is_empty() { "" } else { "/" };
                    todo.push((format!("{path}{slash}{}", String::from_utf8_lossy(name.as_bytes())), ino));
                }
            }
            assert!(tree.len() < 100_000, "a loop of directories at {path}");
            tree.insert(path, node);
        }
        tree
    }

    /// Vouches for files as the server of the base does.
    pub(crate) fn vouch(&mut self, root: Ino, map: &mut MergeMap) {
        let tree = self.tree(root);
        for (path, node) in tree.iter().filter(|(_, node)| node.attr.kind != Kind::Dir) {
            let found_in = tree[path.rsplit_once('/').map_or("", |(dir, _)| dir)].attr.ino;
            if node.attr.nlink > 1 || node.attr.parent != found_in {
                map.vouch(node.attr.ino);
            }
        }
    }

    pub(crate) fn node(&mut self, ino: Ino) -> Node {
        let mut attr = self.ask(|ns| ns.attr(ino)).expect("an inode that has a name");
        attr.position = Position(0);
        let content = match attr.kind {
            Kind::File => match self.ask(|ns| ns.map(ino, 0, attr.size)).expect("a file") {
                Mapped::Inline(bytes) => Content::Inline(bytes),
                Mapped::Extents(_, _, extents) => Content::Blocks(
                    extents
                        .iter()
                        .map(|e| (e.offset, e.len, e.block.writer, e.block.number, e.block_offset))
                        .collect(),
                ),
            },
            Kind::Symlink => Content::Inline(self.ask(|ns| ns.readlink(ino)).expect("a symbolic link")),
            _ => Content::None,
        };
        let names = self.ask(|ns| ns.xattr_names(&Cred::ROOT, ino)).expect("an inode");
        let names = names.split(|b| *b == 0).filter(|name| !name.is_empty());
        let xattrs = names
            .map(|name| {
                let value = self.ask(|ns| ns.xattr(&Cred::ROOT, ino, name));
                (name.to_vec(), value.unwrap_or_default())
            })
            .collect();
        Node { attr, content, xattrs }
    }

    /// Everything in memory, and consistent.
    pub(crate) fn validate(&mut self) {
        self.tree(Ino::ROOT);
        for ino in self.ns.orphans() {
            self.node(ino);
        }
        assert_eq!(self.ns.validate(), [], "the namespace contradicts itself");
    }
}

impl Store {
    fn write(&mut self, batch: Vec<RowChange>) {
        for (key, value) in batch {
            match value {
                Some(value) => self.0.insert(key, value),
                None => self.0.remove(&key),
            };
        }
    }
}
