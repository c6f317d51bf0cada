//! A subtree's policy changes from one cell of Table I to another while the subtree is in use, and server and
//! client die after each step: S54, for all pairs of cells.
//!
//! ```text
//!   set A │ a0 │ fsync │ a1 │ set B (refused while decoupled: merge, then set) │ b0 │ fsync │ b1     │: crash
//! ```
//!
//! After recovery and merge, the files that exist are a prefix of the files that were created, no shorter than
//! promised.

use std::collections::BTreeSet;
use std::sync::Arc;

use chiton_client::OpenFlags;
use chiton_decoupled::Realm;
use chiton_model::XattrHow;
use chiton_policy::{Consistency, Durability};
use chiton_types::Refusal;

use crate::site::{Party, Site};
use crate::tree::tree;

const FILES: [&str; 4] = ["/a0", "/a1", "/b0", "/b1"];
const STEPS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell(Consistency, Durability);

impl Cell {
    fn all() -> impl Iterator<Item = Cell> {
        let levels = [Durability::None, Durability::Local, Durability::Global];
        Consistency::ALL.into_iter().flat_map(move |c| levels.into_iter().map(move |d| Cell(c, d)))
    }

    fn policy(self) -> String {
        format!(
            "consistency: {}\ndurability: {}\ninterfere_policy: block_writes\n",
            self.0.name(),
            self.1.name()
        )
    }

    fn is_decoupled(self) -> bool {
        self.0 != Consistency::Strong
    }

    fn keeps(self) -> bool {
        self.1 != Durability::None
    }
}

/// A job in `/job`, whose policy changes.
struct Job<'a> {
    site: &'a Site,
    party: Party,
    realm: Option<Arc<Realm>>,
    cell: Cell,
    made: usize,
    /// Files that must be there after a crash.
    promised: usize,
}

impl Job<'_> {
    fn set(&mut self, cell: Cell) {
        let root = self.party.client.stat("/job").expect("there").ino;
        let caller = self.party.client.caller();
        let set = || {
            let text = cell.policy();
            self.party.client.setxattr(&caller, root, b"chiton.policy", text.as_bytes(), XattrHow::Set)
        };
        if let Some(realm) = self.realm.take() {
            assert_eq!(set(), Err(Refusal::Busy), "it is decoupled");
            crate::site::merge(&realm);
            // A merge is journalled under every policy, and acknowledged when it is durable.
            self.promised = self.made;
        }
        set().expect("set");
        self.cell = cell;
        if cell.is_decoupled() {
            self.realm = Some(self.party.decouple(root, &cell.policy()).expect("decoupled"));
            // A decoupling's base is durable, never only in memory.
            self.promised = self.made;
        }
    }

    fn client(&self) -> (&chiton_client::Client, &'static str) {
        match &self.realm {
            Some(realm) => (realm.client(), ""),
            None => (&self.party.client, "/job"),
        }
    }

    fn make(&mut self) {
        let (client, at) = self.client();
        let name = FILES[self.made];
        client.create_file(format!("{at}{name}"), name.as_bytes()).expect("made");
        self.made += 1;
    }

    fn fsync(&mut self) {
        let (client, at) = self.client();
        let fh = client.open_path(format!("{at}{}", FILES[self.made - 1]), OpenFlags::READ).expect("opened");
        client.fsync(fh, false).expect("durable");
        client.release(fh).expect("closed");
        if self.cell.keeps() {
            self.promised = self.made;
        }
    }

    fn step(&mut self, step: usize, (a, b): (Cell, Cell)) {
        match step {
            0 => self.set(a),
            1 | 3 | 5 | 7 => self.make(),
            2 | 6 => self.fsync(),
            _ => self.set(b),
        }
    }

    /// Kills server and client, recovers from the remaining journals, and returns the files that exist.
    fn crash(self) -> BTreeSet<String> {
        self.site.kill();
        if let Some(realm) = &self.realm {
            realm.abandon();
        }
        self.party.client.abandon();
        self.site.start();
        let later = self.site.embedded();
        for realm in later.realms.recover() {
            crate::site::merge(&realm.expect("gone on with"));
        }
        assert_eq!(later.realms.list().len(), 0);
        for (name, node) in tree(&later.client, "/job") {
            let content = later.client.read_file(format!("/job{name}"));
            assert_eq!(content, Ok(name.clone().into_bytes()), "{node:?}");
        }
        tree(&later.client, "/job").into_keys().collect()
    }
}

/// The number of files, if they are a prefix of those that were created.
fn prefix(found: &BTreeSet<String>) -> Option<usize> {
    let first: BTreeSet<String> = FILES[..found.len().min(4)].iter().map(|name| (*name).to_owned()).collect();
    (first == *found).then_some(found.len())
}

/// A crash after step `last`; true if it met a decoupled subtree.
fn check(a: Cell, b: Cell, last: usize) -> bool {
    let site = Site::new();
    let party = site.embedded();
    party.mkdir("/job");
    party.client.sync().expect("durable");
    let mut job = Job { site: &site, party, realm: None, cell: a, made: 0, promised: 0 };
    (0..=last).for_each(|step| job.step(step, (a, b)));
    let (made, promised, decoupled) = (job.made, job.promised, job.realm.is_some());
    let found = job.crash();
    let count = prefix(&found).unwrap_or_else(|| panic!("{a:?} to {b:?}, step {last}: {found:?}"));
    assert!(
        (promised..=made).contains(&count),
        "{a:?} to {b:?}, step {last}: {found:?}, promised are {promised} of {made}"
    );
    decoupled
}

#[test]
fn every_policy_change_keeps_promises_over_every_crash() {
    let pairs: Vec<(Cell, Cell)> = Cell::all().flat_map(|a| Cell::all().map(move |b| (a, b))).collect();
    assert_eq!(pairs.len(), 81);
    let decoupled: Vec<bool> = std::thread::scope(|scope| {
        // Most of it is waiting.
        let some = pairs.chunks(3).map(|some| {
            let crashes = move || {
                let steps = some.iter().flat_map(|pair| (0..STEPS).map(move |last| (pair, last)));
                steps.map(|((a, b), last)| check(*a, *b, last)).collect::<Vec<bool>>()
            };
            scope.spawn(crashes)
        });
        let some: Vec<_> = some.collect();
        some.into_iter().flat_map(|thread| thread.join().expect("as promised")).collect()
    });
    let met = decoupled.iter().filter(|met| **met).count();
    assert_eq!(decoupled.len(), 81 * STEPS);
    assert!(met > decoupled.len() / 3, "{met} of {} crashes met a decoupled subtree", decoupled.len());
}
