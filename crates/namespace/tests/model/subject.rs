//! The namespace under test with what a runtime would put around it: a store, a journal, fetching, checkpoints.

use chiton_model::{Event, Op, Outcome};
use chiton_namespace::{
    CheckpointList, Context, Fault, Fetched, Namespace, Need, RowChange, StoredRow, ino_of, plan,
    rows_with_tag, shard_of, start_rows, tag_of,
};
use chiton_types::codec::Take;
use chiton_types::{Cred, Ino, Position, Refusal, SHARDS_DEFAULT, ShardId, Time};

use crate::state::Ask;
use crate::store::MemoryRows;

/// More rounds of fetching than any operation may take.
const ROUNDS_MAX: usize = 200;

pub(crate) struct Subject {
    pub(crate) ns: Namespace,
    pub(crate) rows: MemoryRows,
    /// Encoded events; the first has position 1.
    pub(crate) journal: Vec<Vec<u8>>,
    /// Events whose effects are in `rows`.
    stored: usize,
    checkpoint: Option<Checkpoint>,
    early: Option<(Fetched, u64)>,
}

/// One that is under way.
struct Checkpoint {
    /// Number of events before the checkpoint.
    position: usize,
    /// Being sorted, until the first rows are taken.
    list: Option<CheckpointList>,
    batch: Vec<RowChange>,
    in_store: bool,
}

impl Subject {
    pub(crate) fn new(now: Time, uid: u32, gid: u32) -> Subject {
        let mut rows = MemoryRows::default();
        rows.write(&Namespace::format_rows(now, uid, gid));
        Subject::over(rows)
    }

    pub(crate) fn over(rows: MemoryRows) -> Subject {
        let ns = Namespace::open(&rows).expect("a formatted store");
        Subject { ns, rows, journal: Vec::new(), stored: 0, checkpoint: None, early: None }
    }

    fn fetch(&mut self, need: &Need) {
        let generation = self.ns.generation();
        let Ok(fetched) = Namespace::fetch(&self.rows, need);
        self.ns.install(fetched, generation).expect("rows that the namespace wrote itself");
    }

    /// Asks until nothing is missing; first without supplementary groups and capabilities, as a runtime does.
    pub(crate) fn ask<T>(
        &mut self,
        cred: &Cred,
        question: impl Fn(&Namespace, &Cred) -> Result<T, Fault>,
    ) -> Result<T, Refusal> {
        let mut cred_now = Cred { groups: None, privileges: None, ..cred.clone() };
        for _ in 0..ROUNDS_MAX {
            match question(&self.ns, &cred_now) {
                Ok(answer) => return Ok(answer),
                Err(Fault::Refused(refusal)) => return Err(refusal),
                Err(Fault::Elsewhere(ino) | Fault::Realm(ino)) => panic!("there is one plate: {ino}"),
                Err(Fault::NeedGroups) => {
                    assert!(cred_now.groups.is_none(), "asked for what it was given");
                    cred_now = cred.clone();
                }
                Err(Fault::Missing(needs)) => {
                    assert!(!needs.is_empty(), "nothing is missing, and no answer");
                    needs.iter().for_each(|need| self.fetch(need));
                }
            }
        }
        panic!("no answer after {ROUNDS_MAX} rounds of fetching");
    }

    /// plan, journal, apply, outcome. Also the events, for those who replay them.
    pub(crate) fn run(
        &mut self,
        op: &Op,
        ask: &Ask<'_>,
        is_open: &dyn Fn(Ino) -> bool,
    ) -> Result<(Outcome, Vec<Event>), Refusal> {
        let (planned, events) = self.ask(ask.cred, |ns, cred| {
            let ctx = Context { cred, now: ask.now, offered: ask.offered, is_open, frees: false };
            let mut events = Vec::new();
            let planned = plan(ns, op, &ctx, &mut events);
            assert!(planned.is_ok() || events.is_empty(), "events of a plan that gave {planned:?}");
            Ok((planned?, events))
        })?;
        for event in &events {
            assert_eq!(self.ns.needs(event), [], "after its plan, {event:?} needs rows");
            // Some tests continue from a store that has seen higher positions.
            assert_eq!(
                self.ns.fit(event, Position(u64::MAX), SHARDS_DEFAULT),
                Ok(()),
                "{event:?} after its plan"
            );
            self.apply(event);
        }
        Ok((self.ns.outcome(planned), events))
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        self.journal.push(bytes);
        self.ns.apply(event, Position(self.journal.len() as u64));
    }

    /// Applies an event as replay does.
    pub(crate) fn replay(&mut self, bytes: &[u8], position: Position) {
        let mut take = Take::new(bytes);
        let event = Event::decode(&mut take).expect("an event of the journal");
        assert!(take.is_empty(), "{event:?} is followed by bytes");
        let mut rounds = 0;
        loop {
            let needs = self.ns.needs(&event);
            if needs.is_empty() {
                break;
            }
            needs.iter().for_each(|need| self.fetch(need));
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "{event:?} still needs {needs:?}");
        }
        assert_eq!(self.ns.fit(&event, Position(u64::MAX), SHARDS_DEFAULT), Ok(()), "replaying {event:?}");
        self.ns.apply(&event, position);
    }

    pub(crate) fn checkpoint_begin(&mut self) {
        if self.checkpoint.is_none() {
            self.ns.checkpoint_begin();
            let list = Some(self.ns.checkpoint_list());
            let position = self.journal.len();
            self.checkpoint = Some(Checkpoint { position, list, batch: Vec::new(), in_store: false });
        }
    }

    pub(crate) fn checkpoint_take(&mut self, rows: usize) {
        if let Some(Checkpoint { list, batch, in_store: false, .. }) = &mut self.checkpoint {
            give_back(&mut self.ns, list);
            self.ns.checkpoint_take(rows, batch);
        }
    }

    /// Takes the rest and writes the batch; the namespace does not know yet.
    pub(crate) fn checkpoint_store(&mut self) {
        let Some(Checkpoint { position, list, batch, in_store: in_store @ false }) = &mut self.checkpoint
        else {
            return;
        };
        give_back(&mut self.ns, list);
        while !self.ns.checkpoint_take(7, batch) {}
        batch.iter().for_each(|(key, value)| in_range_of_its_shard(key, value.as_deref()));
        self.rows.write(batch);
        self.stored = *position;
        *in_store = true;
    }

    pub(crate) fn checkpoint_done(&mut self) {
        self.checkpoint_store();
        if self.checkpoint.take().is_some() {
            self.ns.checkpoint_done();
        }
    }

    pub(crate) fn fetch_early(&mut self, need: &Need) {
        let generation = self.ns.generation();
        let Ok(fetched) = Namespace::fetch(&self.rows, need);
        self.early = Some((fetched, generation));
    }

    pub(crate) fn install_late(&mut self) {
        if let Some((fetched, generation)) = self.early.take() {
            self.ns.install(fetched, generation).expect("rows that the namespace wrote itself");
        }
    }

    pub(crate) fn crash(&mut self) {
        self.ns = Namespace::open(&self.rows).expect("a formatted store");
        (self.checkpoint, self.early) = (None, None);
        for n in self.stored..self.journal.len() {
            let bytes = self.journal[n].clone();
            self.replay(&bytes, Position(n as u64 + 1));
        }
    }
}

/// A row of an inode stands in the range of the inode's shard, every other row in that of the plate's first shard; and a start
/// reads exactly the rows that are always in memory.
fn in_range_of_its_shard(key: &[u8], value: Option<&[u8]>) {
    if let Some(value) = value {
        let row = StoredRow::decode(key, value).expect("a row as the format says").expect("a row");
        assert_eq!(row.key(), key);
        let (shard, is_kept) = match &row {
            StoredRow::Inode(inode) => (inode.ino.shard(), false),
            StoredRow::Entry { dir: ino, .. }
            | StoredRow::Content(ino, _)
            | StoredRow::Chunk(ino, ..)
            | StoredRow::Xattrs(ino, _) => (ino.shard(), false),
            StoredRow::Orphan(ino) | StoredRow::Policy(ino, _) | StoredRow::Linked(ino, _) => {
                (ino.shard(), true)
            }
            StoredRow::Image(_, row, _) => (ino_of(row).expect("a row of an inode").shard(), true),
            StoredRow::References(..) => (ShardId(0), false),
            StoredRow::Garbage(_)
            | StoredRow::PolicyChange(..)
            | StoredRow::Decoupling(_)
            | StoredRow::DecouplingLast(_)
            | StoredRow::InodeCount(_) => (ShardId(0), true),
        };
        let (from, to) = start_rows();
        assert_eq!((&from[..]..&to[..]).contains(&key), is_kept, "{row:?}");
        assert_eq!(shard_of(key), Some(shard), "{row:?}");
        let (from, to) = rows_with_tag(shard, tag_of(key).expect("a tag"));
        assert!((&from[..]..&to[..]).contains(&key), "{row:?} is not in the range of {shard:?}");
    }
}

fn give_back(ns: &mut Namespace, list: &mut Option<CheckpointList>) {
    if let Some(mut list) = list.take() {
        list.sort();
        ns.checkpoint_listed(list);
    }
}
