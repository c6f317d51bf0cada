//! One workload: carried out once, then crashed at each of its writes.

use std::collections::BTreeMap;

use chiton_model::{Make, Op, Outcome};
use chiton_server::{FilesystemInfo, Server};
use chiton_types::{Cred, Ino, Mode, Name};
use chiton_wire::{Answer, Call};

use super::describe;
use super::disk::{Canary, Crash, Disk};
use super::live::{LiveDisk, Logged};
use super::machine::{Base, Machine, start_server};
use super::step::{Step, VOCABULARY};
use super::tree::look;
use crate::checkers::compare::difference;
use crate::checkers::crash::History;
use crate::checkers::structure;
use crate::tree::Tree;

/// Clock of a workload, and of the servers that recover, in seconds.
const WORKLOAD_SECOND: u64 = 100;
const RECOVERY_SECOND: u64 = 1000;
const AGAIN_SECOND: u64 = 2000;
/// One in this many recoveries is itself crashed at each of its writes.
const AGAIN_ONE_IN: u64 = 32;

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
    base: &'a Base,
    steps: &'a [usize],
    done: Done,
    canary: Option<Canary>,
    /// The result of recovery on each disk.
    recovered: BTreeMap<u64, Result<Recovered, String>>,
}

/// The result of recovery on a disk.
struct Recovered {
    tree: Tree,
    /// Numbers of inodes that are made now, a file's and a directory's.
    next: [Ino; 2],
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
            let what = format!("{}\n  {what}", describe(self.steps));
            self.done.failure = Some(Failure { steps: self.steps.to_vec(), what });
        }
        self.done
    }

    fn try_run(&mut self) -> Result<(), String> {
        let mut machine = Machine::start(self.base, WORKLOAD_SECOND)?;
        let judged =
            self.carry_out(&mut machine).map(|from| (from, machine.live.log(), machine.history.clone()));
        machine.power_off();
        let (from, log, history) = judged?;
        let mut disk = self.base.disk.clone().with_canary(self.canary);
        for at in 0..=log.len() {
            if at >= from {
                let begun = log.get(at).map_or(history.len(), |logged| logged.begun);
                self.crash(&disk, &history, begun).map_err(|what| {
                    let written: Vec<String> =
                        log[..at].iter().map(|l| format!("\n    {}", l.write.shown())).collect();
                    format!(
                        "crash after write {at} of {}: {what}\n  the writes before it:{}",
                        log.len(),
                        written.concat()
                    )
                })?;
            }
            if let Some(Logged { write, .. }) = log.get(at) {
                disk.apply(write);
            }
        }
        Ok(())
    }

    /// Returns the number of writes before the last step.
    fn carry_out(&self, machine: &mut Machine) -> Result<usize, String> {
        let mut from = 0;
        for step in self.steps {
            from = machine.live.log_len();
            machine.run(&VOCABULARY[*step])?;
        }
        machine.run(&Step::Sync)?;
        machine.run(&Step::Checkpoint)?;
        match difference(machine.model(), &look(machine.server())?) {
            Some(what) => Err(format!("without a crash: {what}")),
            None => Ok(from),
        }
    }

    /// Judges all ways in which a crash can end.
    fn crash(&mut self, disk: &Disk, history: &History, begun: usize) -> Result<(), String> {
        self.done.crash_points += 1;
        for crash in disk.crashes() {
            self.done.crashes += 1;
            let left = disk.after(crash);
            let recovered = self.recover(&left).map_err(|what| format!("{crash:?}: {what}"))?;
            history
                .judge(begun, &recovered.tree)
                .map_err(|violation| format!("{crash:?}: {}", violation.what))?;
            // Inodes that the crash removed keep their numbers, too.
            if let Some(ino) = recovered.next.iter().find(|ino| history.made(begun).any(|made| made == **ino))
            {
                return Err(format!("{crash:?}: inode number {ino} is given a second time"));
            }
        }
        Ok(())
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
        let mut disk = left.clone();
        for (n, Logged { write, .. }) in first.log.iter().enumerate() {
            disk.apply(write);
            for crash in [Crash::Kept, Crash::Forgotten] {
                self.done.crashes += 1;
                self.done.recoveries += 1;
                let again = recover(&disk.after(crash), &self.base.info, AGAIN_SECOND).map_err(|what| {
                    format!("and a crash after write {n} of the recovery, {crash:?}: {what}")
                })?;
                if again.tree != first.tree {
                    return Err(format!(
                        "a crash after write {n} of the recovery, {crash:?}, changes the tree"
                    ));
                }
            }
        }
        Ok(())
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

fn judge_server(server: &Server, live: &LiveDisk) -> Result<Recovered, String> {
    let tree = look(server)?;
    server.tidy()?;
    if look(server)? != tree {
        return Err("the tree changes with the first checkpoint".to_owned());
    }
    let rows = LiveDisk::new(live.disk());
    structure::check(&rows, &rows).map_err(|violation| violation.what)?;
    let log = live.log();
    let next = [probe(server, Make::File { content: Vec::new() })?, probe(server, Make::Dir)?];
    Ok(Recovered { tree, next, log })
}

/// Makes something in the root and returns its number.
fn probe(server: &Server, make: Make) -> Result<Ino, String> {
    let session = server.session_embedded("probe", Box::new(|_| {}))?;
    let name = if make == Make::Dir { "probe-dir" } else { "probe" };
    let name = Name::try_from(name).expect("a name");
    let op = Op::Make { parent: Ino::ROOT, name, make, mode: Mode(0o600) };
    match session.ask(&Cred::ROOT, Call::Op { op, open: false }) {
        Ok(Answer::Op { outcome: Outcome { attr: Some(attr), .. }, .. }) => Ok(attr.ino),
        other => Err(format!("nothing new can be made: {other:?}")),
    }
}
