//! One plate dies at one of its writes and is started anew, while the others and their sessions continue.
//!
//! ```text
//!   steps ─▶ client ─┬▶ plate 0 ─ write, write, ✝ … ─▶ a new start on the rest of its journal
//!                    └▶ plate 1 ─ continues ──────────▶ both: the tree, at rest, and after a start of all
//! ```
//!
//! Invariants:
//! - The plate learns nothing of the write at which it dies, so it acknowledges nothing that rests on it.
//! - The plates that live lose nothing that they have answered.

use std::sync::Arc;

use chiton_runtime::thread;
use chiton_server::Server;
use chiton_types::PlateId;

use super::disk::Tail;
use super::live::{Doom, LiveDisk, Logged};
use super::machine::{Machine, start_server};
use super::step::Step;
use super::tree::look;
use super::workload::{AGAIN_SECOND, Workload, check_new_numbers, come_to_rest, judge_server};

/// The rest of a plate's journal, and in how many ways it could be left.
type Left = (Tail, usize);

impl Workload<'_> {
    /// Has each plate die after each of its writes from the last step on, in each way. `log` has the writes of a run in which none
    /// dies, those before the last step in its first `from` entries.
    pub(super) fn crash_each_plate(&mut self, log: &[Logged], from: usize) -> Result<(), String> {
        for plate in self.base.info.plates().all() {
            let writes = |log: &[Logged]| log.iter().filter(|logged| logged.plate == plate).count();
            for nth in writes(&log[..from]) + 1..=writes(log) {
                self.done.crash_points += 1;
                let (mut way, mut ways) = (0, 1);
                while way < ways {
                    let doom = Doom { plate, writes: nth };
                    let dies =
                        |what: String| format!("plate {plate} dies after its write {nth}, way {way}: {what}");
                    match self.crash_one(doom, way).map_err(dies)? {
                        Some((_, count)) => ways = count,
                        // Its threads have put their writes together in another way.
                        None => break,
                    }
                    way += 1;
                }
            }
        }
        Ok(())
    }

    /// `None`: the plate did not die.
    fn crash_one(&mut self, doom: Doom, way: usize) -> Result<Option<Left>, String> {
        let mut machine = self.start()?;
        machine.live.doom(doom);
        let (server, live) = (machine.shared_server(), machine.live.clone());
        let mourner = thread::spawn("mourner", move || start_anew(&server, &live, way));
        let mourner = mourner.map_err(|e| format!("a thread: {e}"))?;
        let answered = self.run_until_death(&mut machine);
        machine.live.end_dying();
        mourner.join().map_err(|_| "the plate's start panicked".to_owned())?;
        let left = machine.live.restarted();
        let (left, answered) = match (left, answered) {
            (Some(Ok(left)), Ok(answered)) => (left, answered),
            (left, answered) => {
                machine.power_off();
                answered?;
                return match left {
                    Some(Err(what)) => Err(format!("the plate does not start: {what}")),
                    _ => Ok(None),
                };
            }
        };
        if self.base.splits() {
            // The server may split what the last step has made large, which nobody has awaited.
            machine.live.settle();
        }
        let log = machine.live.clone();
        let judged = self.judge_one(machine.lose_client(), doom.plate, answered);
        judged.map(|()| Some(left)).map_err(|what| {
            let written: Vec<String> = log.log().iter().map(|logged| self.shown(logged)).collect();
            format!("{:?}: {what}\n  all writes:{}", left.0, written.concat())
        })
    }

    /// Carries the steps out until a plate dies. The number of entries that were answered.
    fn run_until_death(&self, machine: &mut Machine) -> Result<usize, String> {
        let steps = self.base.vocabulary;
        for step in self.steps.iter().map(|n| &steps[*n]).chain(&[Step::Sync, Step::Checkpoint]) {
            let before = machine.history.len();
            let said = machine.run(step);
            match (said, machine.live.has_died()) {
                (Ok(()), false) => {}
                (Ok(()), true) => return Ok(machine.history.len()),
                // A session of the client is over.
                (Err(_), true) => return Ok(before),
                (Err(what), false) => return Err(what),
            }
        }
        match (come_to_rest(machine.server(), &machine.live), machine.live.has_died()) {
            (Err(what), false) => Err(what),
            _ => Ok(machine.history.len()),
        }
    }

    fn judge_one(&mut self, lost: Lost, dead: PlateId, answered: usize) -> Result<(), String> {
        let Lost { server, live, history } = lost;
        self.done.crashes += 1;
        self.done.recoveries += 1;
        let begun = history.len();
        let plates = self.base.info.plates();
        let floor = |plate| if plate == dead { history.floor(begun) } else { answered };
        let floors: Vec<usize> = plates.all().map(floor).collect();
        let judge = || {
            let recovered = judge_server(&server, &live)?;
            let judged = history.judge_plates(&floors, begun, &recovered.tree);
            judged.map_err(|violation| violation.what)?;
            check_new_numbers(&recovered, &history, begun)?;
            // The files that showed the new numbers are durable, too.
            come_to_rest(&server, &live)?;
            look(&server)
        };
        let before = judge();
        server.abandon();
        let before = before?;
        // All of it is in the rows, or in the journals, of which nothing is lost.
        let live = LiveDisk::new(live.disk());
        let server = start_server(&live, &self.base.info, AGAIN_SECOND)?;
        let after = look(&server);
        server.abandon();
        match after? == before {
            true => Ok(()),
            false => Err("a start of all plates changes the tree".to_owned()),
        }
    }
}

/// A machine whose client is gone.
pub(super) struct Lost {
    pub(super) server: Arc<Server>,
    pub(super) live: LiveDisk,
    pub(super) history: crate::checkers::crash::History,
}

/// Waits until a plate dies, and starts it on the rest of its journal.
fn start_anew(server: &Server, live: &LiveDisk, way: usize) {
    let Some(plate) = live.wait_death() else { return };
    server.crash_plate(plate);
    let left = live.crash_journal(plate, way);
    let started = server.start_plate(plate, live.at(plate).stores());
    live.set_restarted(started.map(|()| left).map_err(|e| e.to_string()));
}
