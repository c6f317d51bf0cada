//! One workload: carried out once, then crashed at each of its writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chiton_admin::RowsOfPlates;
use chiton_metastore::Metastore;
use chiton_model::{Make, Op, Outcome};
use chiton_runtime::thread;
use chiton_server::{FilesystemInfo, Server};
use chiton_types::{Cred, Ino, Kind, Mode, Name, Refusal};
use chiton_wire::{Answer, Call};

use super::disk::{Canary, Crash, Disk};
use super::live::{LiveDisk, Logged};
use super::machine::{Base, Machine, start_server};
use super::shown;
use super::step::Step;
use super::tree::{Sessions, look};
use crate::checkers::compare::difference;
use crate::checkers::crash::History;
use crate::checkers::structure;
use crate::tree::Tree;

/// Clock of a workload, and of the servers that recover, in seconds.
const WORKLOAD_SECOND: u64 = 100;
pub(super) const RECOVERY_SECOND: u64 = 1000;
pub(super) const AGAIN_SECOND: u64 = 2000;
/// One in this many recoveries is itself crashed at each of its writes.
const AGAIN_ONE_IN: u64 = 32;
/// How often it is looked whether the plates have come to rest, and the time between.
const RESTS_MAX: usize = 2_000;
const REST: Duration = Duration::from_millis(1);
/// So often the part is looked for that has the name of something new.
const PROBES_MAX: usize = 10;

/// A failure, with everything that is needed to repeat it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The steps by their place in the vocabulary.
    pub steps: Vec<usize>,
    /// The steps, the crash, and the violation.
    pub what: String,
}

/// The result of one workload.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) crash_points: u64,
    pub(crate) crashes: u64,
    pub(crate) recoveries: u64,
    pub(crate) failure: Option<Failure>,
}

pub(crate) struct Workload<'a> {
    pub(super) base: &'a Base,
    pub(super) steps: &'a [usize],
    pub(super) done: Done,
    canary: Option<Canary>,
    /// The result of recovery on each disk.
    recovered: BTreeMap<u64, Result<Recovered, String>>,
}

/// The result of recovery on a disk.
pub(super) struct Recovered {
    pub(super) tree: Tree,
    /// Numbers of inodes that are made now: a directory's, and that of a file on each plate.
    next: Vec<Ino>,
    /// Writes of the server before any request.
    log: Vec<Logged>,
}

impl<'a> Workload<'a> {
    /// These steps, on a disk that breaks a rule.
    pub(crate) fn new(base: &'a Base, steps: &'a [usize], canary: Option<Canary>) -> Workload<'a> {
        Workload { base, steps, done: Done::default(), canary, recovered: BTreeMap::new() }
    }

    /// Carries it out and judges every crash.
    pub(crate) fn run(mut self) -> Done {
        if let Err(what) = self.try_run() {
            let what = format!("{}\n  {what}", shown(self.steps, self.base.vocabulary));
            self.done.failure = Some(Failure { steps: self.steps.to_vec(), what });
        }
        self.done
    }

    fn try_run(&mut self) -> Result<(), String> {
        let mut machine = self.start()?;
        let judged =
            self.carry_out(&mut machine).map(|from| (from, machine.live.log(), machine.history.clone()));
        machine.power_off();
        let (from, log, history) = judged?;
        let mut disk =
            self.base.disk.clone().with_canary(self.canary.filter(|canary| !canary.is_of_plates()));
        for at in 0..=log.len() {
            if at == from {
                disk = disk.with_canary(self.canary);
            }
            if at >= from {
                let begun = log.get(at).map_or(history.len(), |logged| logged.begun);
                self.crash(&disk, &history, begun).map_err(|what| {
                    let written: Vec<String> = log[..at].iter().map(|l| self.shown(l)).collect();
                    format!(
                        "crash after write {at} of {}: {what}\n  the writes before it:{}",
                        log.len(),
                        written.concat()
                    )
                })?;
            }
            if let Some(Logged { plate, write, .. }) = log.get(at) {
                disk.apply(*plate, write);
            }
        }
        // The canaries are of a disk that is replayed.
        if self.canary.is_none() && self.base.info.plates > 1 {
            self.crash_each_plate(&log, from)?;
        }
        Ok(())
    }

    /// In every second workload over plates, these come to rest after each step: else the next step often comes first.
    pub(super) fn start(&self) -> Result<Machine, String> {
        let mut machine = Machine::start(self.base, WORKLOAD_SECOND)?;
        let is_second = self.steps.iter().sum::<usize>() % 2 == 1;
        machine.is_slow = self.base.info.plates > 1 && (is_second || self.canary.is_some());
        Ok(machine)
    }

    /// Returns the number of writes before the last step.
    fn carry_out(&self, machine: &mut Machine) -> Result<usize, String> {
        let mut from = 0;
        for step in self.steps {
            from = machine.live.log_len();
            machine.run(&self.base.vocabulary[*step])?;
        }
        machine.run(&Step::Sync)?;
        machine.run(&Step::Checkpoint)?;
        if self.base.info.plates > 1 {
            come_to_rest(machine.server(), &machine.live)?;
        }
        match difference(machine.model(), &look(machine.server())?) {
            Some(what) => Err(format!("without a crash: {what}")),
            None => Ok(from),
        }
    }

    /// Judges all ways in which a crash can end.
    fn crash(&mut self, disk: &Disk, history: &History, begun: usize) -> Result<(), String> {
        self.done.crash_points += 1;
        // Nothing is durable on a disk that does not sync: the agreements of plates are wrong.
        let floor = if self.canary.is_some_and(Canary::breaks_promises) { 0 } else { history.floor(begun) };
        for crash in disk.crashes() {
            self.done.crashes += 1;
            let left = disk.after(&crash);
            let recovered = self.recover(&left).map_err(|what| format!("{crash}: {what}"))?;
            history
                .judge_from(floor, begun, &recovered.tree)
                .map_err(|violation| format!("{crash}: {}", violation.what))?;
            check_new_numbers(recovered, history, begun).map_err(|what| format!("{crash}: {what}"))?;
        }
        Ok(())
    }

    pub(super) fn shown(&self, logged: &Logged) -> String {
        match self.base.info.plates {
            1 => format!("\n    {}", logged.write.shown()),
            _ => format!("\n    plate {}: {}", logged.plate, logged.write.shown()),
        }
    }

    fn recover(&mut self, left: &Disk) -> Result<&Recovered, String> {
        let fingerprint = left.fingerprint();
        if !self.recovered.contains_key(&fingerprint) {
            self.done.recoveries += 1;
            let mut result = recover(left, &self.base.info, RECOVERY_SECOND);
            if let Ok(first) = &result
                && fingerprint.is_multiple_of(AGAIN_ONE_IN)
                && let Err(what) = self.recover_again(left, first)
            {
                result = Err(what);
            }
            self.recovered.insert(fingerprint, result);
        }
        self.recovered[&fingerprint].as_ref().map_err(Clone::clone)
    }

    /// Crashes the recovery, too, at each of its writes: the next one finds the same.
    fn recover_again(&mut self, left: &Disk, first: &Recovered) -> Result<(), String> {
        let mut disk = left.clone().with_canary(self.canary.filter(|canary| !canary.is_of_plates()));
        let count = usize::from(self.base.info.plates);
        for (n, Logged { plate, write, .. }) in first.log.iter().enumerate() {
            disk.apply(*plate, write);
            for crash in [Crash::kept(count), Crash::forgotten(count)] {
                self.done.crashes += 1;
                self.done.recoveries += 1;
                let again = recover(&disk.after(&crash), &self.base.info, AGAIN_SECOND).map_err(|what| {
                    format!("and a crash after write {n} of the recovery, {crash}: {what}")
                })?;
                if again.tree != first.tree {
                    return Err(format!(
                        "a crash after write {n} of the recovery, {crash}, changes the tree"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Inodes that the crash removed keep their numbers, too.
pub(super) fn check_new_numbers(
    recovered: &Recovered,
    history: &History,
    begun: usize,
) -> Result<(), String> {
    match recovered.next.iter().find(|ino| history.made(begun).any(|made| made == **ino)) {
        Some(ino) => Err(format!("inode number {ino} is given a second time")),
        None => Ok(()),
    }
}

/// Starts a server on a disk and reads the tree, before and after its background work.
fn recover(left: &Disk, info: &FilesystemInfo, second: u64) -> Result<Recovered, String> {
    let live = LiveDisk::new(left.clone());
    let server =
        start_server(&live, info, second).map_err(|what| format!("the server does not start: {what}"))?;
    let looked = judge_server(&server, &live);
    server.abandon();
    looked
}

pub(super) fn judge_server(server: &Server, live: &LiveDisk) -> Result<Recovered, String> {
    let tree = look(server)?;
    come_to_rest(server, live)?;
    if look(server)? != tree {
        return Err("the tree changes with the first checkpoint".to_owned());
    }
    let rest = LiveDisk::new(live.disk());
    let rows: Vec<Arc<dyn Metastore>> =
        rest.plates().map(|plate| Arc::new(plate) as Arc<dyn Metastore>).collect();
    let rows = RowsOfPlates::new(server.plates(), rows);
    structure::check_plates(&rows, &rest).map_err(|violation| violation.what)?;
    let log = live.log();
    let next = new_numbers(server, &tree)?;
    Ok(Recovered { tree, next, log })
}

/// Does all that is else done by and by; then no plate owes another anything, and no row is guarded.
pub(super) fn come_to_rest(server: &Server, live: &LiveDisk) -> Result<(), String> {
    for _ in 0..RESTS_MAX {
        server.tidy()?;
        if live.plates().all(|plate| plate.under_way().is_none()) {
            // A plate may have carried out the last effect after its rows were written.
            return server.tidy();
        }
        // Messages between plates are carried out by threads of the server.
        thread::sleep(REST);
    }
    let under_way = live.plates().find_map(|plate| plate.under_way());
    Err(format!("the plates do not come to rest: {}", under_way.unwrap_or_default()))
}

/// Makes something in a directory of each plate, and a directory in the root: their numbers.
fn new_numbers(server: &Server, tree: &Tree) -> Result<Vec<Ino>, String> {
    let plates = server.plates();
    let sessions = Sessions::begin(server, "probe")?;
    let dirs = || tree.nodes.values().filter(|node| node.kind == Kind::Dir).map(|node| node.ino);
    let dir_of = |plate| dirs().find(|ino| plates.of(*ino) == Some(plate));
    let mut numbers = vec![probe(&sessions, Ino::ROOT, Make::Dir)?];
    for dir in plates.all().filter_map(dir_of) {
        numbers.push(probe(&sessions, dir, Make::File { content: Vec::new() })?);
    }
    Ok(numbers)
}

/// Makes something in a directory and returns its number.
fn probe(sessions: &Sessions, parent: Ino, make: Make) -> Result<Ino, String> {
    let name = if make == Make::Dir { "probe-dir" } else { "probe" };
    let name = Name::try_from(name).expect("a name");
    let dir = parent;
    let mut tries = 0..PROBES_MAX;
    loop {
        let parent = sessions.part_of(dir, &name)?;
        let op = Op::Make { parent, name: name.clone(), make: make.clone(), mode: Mode(0o600) };
        match sessions.of(parent)?.ask(&Cred::ROOT, Call::Op { op, open: false }) {
            Ok(Answer::Op { outcome: Outcome { attr: Some(attr), .. }, .. }) => return Ok(attr.ino),
            // The server has split it meanwhile: an earlier probe was its second name.
            Err(chiton_wire::Failure::Refused(Refusal::OtherPart)) if tries.next().is_some() => {}
            other => return Err(format!("nothing new can be made: {other:?}")),
        }
    }
}
