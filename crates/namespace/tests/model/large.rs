//! A directory that is never loaded whole: names come one by one, lists slice by slice.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::OnceLock;

use chiton_model::{Make, Op};
use chiton_namespace::Fault;
use chiton_types::{Cred, Ino, Kind, Mode, Name, Refusal, ShardId, Time};
use proptest::prelude::*;

use crate::state::Ask;
use crate::store::MemoryRows;
use crate::subject::Subject;

/// Names that the histories use; the directory is born with the even ones, and stays large.
const NAMES: u16 = 9_000;

#[derive(Clone, Debug)]
enum Step {
    Make(u16),
    Unlink(u16),
    /// A whole run of names, so that slices are empty.
    UnlinkRun(u16),
    Lookup(u16),
    List {
        page: u8,
    },
    Begin,
    Take(u8),
    Store,
    Done,
    /// To this share of the memory in use, in quarters.
    Evict(u8),
    Crash,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..NAMES).prop_map(Step::Make),
        6 => (0..NAMES).prop_map(Step::Unlink),
        1 => (0..NAMES).prop_map(Step::UnlinkRun),
        4 => (0..NAMES).prop_map(Step::Lookup),
        1 => any::<u8>().prop_map(|page| Step::List { page }),
        3 => Just(Step::Begin),
        3 => any::<u8>().prop_map(Step::Take),
        2 => Just(Step::Store),
        3 => Just(Step::Done),
        3 => (0..4u8).prop_map(Step::Evict),
        1 => Just(Step::Crash),
    ]
}

struct Large {
    subject: Subject,
    entries: BTreeMap<Name, Ino>,
    made: u64,
}

fn name(n: u16) -> Name {
    Name::new(format!("file-{n:05}").as_bytes()).expect("a name")
}

impl Large {
    /// Every second name and a run at the end, all of it in the store and nothing in memory.
    fn new() -> Large {
        static BORN: OnceLock<(MemoryRows, BTreeMap<Name, Ino>)> = OnceLock::new();
        let (rows, entries) = BORN.get_or_init(|| {
            let subject = Subject::new(Time(0), 0, 0);
            let mut large = Large { subject, entries: BTreeMap::new(), made: 1 };
            large.fill();
            large.subject.checkpoint_begin();
            large.subject.checkpoint_done();
            (large.subject.rows, large.entries)
        });
        Large { subject: Subject::over(rows.clone()), entries: entries.clone(), made: u64::from(NAMES) }
    }

    /// The same, all of it in memory and nothing in the store: its entries leave memory later.
    fn complete() -> Large {
        let subject = Subject::new(Time(0), 0, 0);
        let mut large = Large { subject, entries: BTreeMap::new(), made: 1 };
        large.fill();
        large
    }

    fn fill(&mut self) {
        (0..NAMES).filter(|n| n % 2 == 0 || *n > 8_000).for_each(|n| self.make(n));
    }

    fn run(&mut self, op: &Op) -> Result<Option<Ino>, Refusal> {
        let ask = Ask { cred: &Cred::ROOT, now: Time(5), offered: Ino::new(ShardId(0), self.made) };
        let (outcome, _) = self.subject.run(op, &ask, &|_| false)?;
        Ok(outcome.attr.map(|a| a.ino))
    }

    fn make(&mut self, n: u16) {
        self.made += 1;
        let (parent, name, make) = (Ino::ROOT, name(n), Make::File { content: Vec::new() });
        let found = self.run(&Op::Make { parent, name: name.clone(), make, mode: Mode(0o644) });
        match self.entries.entry(name) {
            Entry::Occupied(taken) => assert_eq!(found, Err(Refusal::Exists), "{}", taken.key()),
            Entry::Vacant(free) => drop(free.insert(found.expect("a free name").expect("a new inode"))),
        }
    }

    fn unlink(&mut self, n: u16) {
        let found = self.run(&Op::Unlink { parent: Ino::ROOT, name: name(n) });
        let expect = self.entries.remove(&name(n)).map(|_| None).ok_or(Refusal::NotFound);
        assert_eq!(found, expect, "{}", name(n));
    }

    fn list(&mut self, page: u8) {
        let mut found = BTreeMap::new();
        let mut after = 0;
        loop {
            let max = 10 + usize::from(page) * 3;
            let listing = self
                .subject
                .ask(&Cred::ROOT, |ns, _| ns.readdir(Ino::ROOT, after, max))
                .expect("a directory");
            for (name, ino, kind, cookie) in listing.entries {
                assert!(cookie > after && kind == Kind::File, "{name} at {cookie} after {after}");
                after = cookie;
                found.insert(name, ino);
            }
            if listing.end {
                break;
            }
        }
        assert!(found == self.entries, "{} entries listed, {} there", found.len(), self.entries.len());
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Make(n) => self.make(*n),
            Step::Unlink(n) => self.unlink(*n),
            Step::UnlinkRun(n) => {
                // In the order of the listing, where a slice would be.
                let mut order: Vec<u16> =
                    (0..NAMES).filter(|&n| self.entries.contains_key(&name(n))).collect();
                order.sort_unstable_by_key(|&n| name(n).hash64());
                let start = usize::from(*n) % order.len().max(1);
                let spare = self.entries.len().saturating_sub(4_300);
                order.iter().skip(start).take(spare.min(150)).for_each(|&n| self.unlink(n));
            }
            Step::Lookup(n) => {
                let found = self.subject.ask(&Cred::ROOT, |ns, cred| ns.lookup(cred, Ino::ROOT, &name(*n)));
                assert_eq!(found, Ok(self.entries.get(&name(*n)).copied()), "{}", name(*n));
            }
            Step::List { page } => self.list(*page),
            Step::Begin => self.subject.checkpoint_begin(),
            Step::Take(rows) => self.subject.checkpoint_take(usize::from(*rows)),
            Step::Store => self.subject.checkpoint_store(),
            Step::Done => self.subject.checkpoint_done(),
            Step::Evict(quarters) => {
                let ns = &mut self.subject.ns;
                ns.evict(ns.memory_bytes() / 4 * usize::from(*quarters));
            }
            Step::Crash => self.subject.crash(),
        }
    }
}

proptest! {
    #![proptest_config(crate::config(8))]

    #[test]
    fn large_directory(steps in proptest::collection::vec(steps(), 1..200), was_complete in any::<bool>()) {
        let mut large = if was_complete { Large::complete() } else { Large::new() };
        // After a crash nothing is in memory.
        for step in steps.iter().filter(|step| !was_complete || !matches!(step, Step::Crash)) {
            large.step(step);
        }
        large.list(20);
        let attr = large.subject.ask(&Cred::ROOT, |ns, _| ns.attr(Ino::ROOT)).expect("the root");
        prop_assert_eq!(attr.size, large.entries.len() as u64 * 32);
        prop_assert_eq!(large.subject.ns.inode_count(), large.entries.len() as u64 + 1);
        prop_assert_eq!(large.subject.ns.validate(), []);
    }
}

#[test]
fn a_directory_that_was_in_memory_answers_for_absent_names_without_the_store() {
    let mut large = Large::complete();
    large.subject.checkpoint_begin();
    large.subject.checkpoint_done();
    large.subject.ns.evict(0);
    // The directory's inode comes back.
    large.step(&Step::Lookup(0));
    let ns = &large.subject.ns;
    let is_missing = |n: u16| {
        let found = ns.lookup(&Cred::ROOT, Ino::ROOT, &name(n));
        matches!(found, Err(Fault::Missing(_)))
    };
    assert!((0..8_000).step_by(2).any(is_missing), "entries have left memory");
    let count = (1..8_000).step_by(2).filter(|n| is_missing(*n)).count();
    assert!(count < 200, "{count} of 4,000 absent names need the store");
}
