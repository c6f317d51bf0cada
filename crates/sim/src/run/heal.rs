//! The second phase: all faults end, and everything must come right.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use chiton_runtime::thread;

use super::job::end_forsaken;
use super::{Cluster, HEAL, WORK, heal_violation};
use crate::disk::DiskFaults;
use crate::history::{Happened, Violation};
use crate::party::run_in;
use crate::perform::read_tree;
use crate::plan::Fault;
use crate::scheduler::scheduler;
use crate::structure;
use crate::tree::Tree;

impl Cluster {
    /// All faults end; everything must come right.
    pub(super) fn heal(self: &Arc<Cluster>) -> Result<(), Violation> {
        let all_done = |cluster: &Cluster| cluster.clients.iter().all(|program| program.done.load(SeqCst));
        let patience = scheduler().now() + WORK / 2;
        // Long programs are cut short by time, not by number.
        while !all_done(self) && scheduler().now() < patience {
            thread::sleep(Duration::from_millis(200));
            if self.plan.faults.iter().all(|(at, _)| *at < scheduler().now()) {
                break;
            }
        }
        // The last faults come to their ends.
        thread::sleep(Duration::from_secs(45));
        self.healing.store(true, SeqCst);
        self.recorder.line("healing begins".to_owned());
        self.rig.disk.set_faults(DiskFaults::GOOD);
        self.good_weather();
        let answered = |cluster: &Cluster| -> usize {
            cluster.clients.iter().map(|program| program.next.load(SeqCst)).sum()
        };
        let (mut answered_before, mut deadline) = (0, scheduler().now() + HEAL);
        while !all_done(self) {
            // A file of a thousand appended records takes seconds to read: many such calls are not one without an answer.
            if answered(self) > answered_before {
                (answered_before, deadline) = (answered(self), scheduler().now() + HEAL);
            }
            if scheduler().now() > deadline {
                return Err(heal_violation(format!(
                    "calls are not answered {} s after the last fault: {}",
                    HEAL.as_secs(),
                    self.unanswered()
                )));
            }
            if self.is_failed() {
                // An administrator starts a server anew whose journal failed.
                self.crash_server();
            }
            self.start_well()?;
            thread::sleep(Duration::from_millis(500));
        }
        if self.is_failed() {
            self.crash_server();
        }
        self.start_well()?;
        if !self.plan.setup.roles.is_empty() {
            let begun = self.begun.lock().clone();
            self.observe(move |client| end_forsaken(client, &begun))?;
        }
        self.wait_quiet(deadline)?;
        let before = self.observe(read_tree)?;
        self.recorder.push(Happened::Observed { tree: before.clone() });
        self.wait_quiet(deadline)?;
        // Objects of ended decouplings are removed in the background.
        thread::sleep(Duration::from_secs(2));
        self.shut_down()?;
        let strays = self.plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::TakeOver { .. }));
        structure::check(&self.rig.disk, strays)?;
        if self.plan.setup.plates > 1 {
            structure::check_plates_rest(&self.rig.disk)?;
        }
        if !self.plan.setup.roles.is_empty() || self.plan.setup.plates > 1 {
            structure::check_realms(&self.rig.disk, self.info().plates(), strays)?;
        }
        self.start_well()?;
        let after = self.observe(read_tree)?;
        if strays && !self.plan.setup.roles.is_empty() {
            thread::sleep(Duration::from_secs(2));
        }
        self.shut_down()?;
        if !self.plan.setup.roles.is_empty() {
            structure::check_nothing_apart(&self.rig.disk)?;
        }
        same(&before, &after)
    }

    /// Starts a server, if there is none: now it must.
    fn start_well(&self) -> Result<(), Violation> {
        self.start();
        match self.no_start.lock().take() {
            Some(why) => Err(heal_violation(format!("the server does not start: {why}"))),
            None => Ok(()),
        }
    }

    pub(super) fn shut_down(&self) -> Result<(), Violation> {
        let live = self.serving.lock().live.take().ok_or_else(|| heal_violation("there is no server"))?;
        live.shutdown(&self.rig).map_err(|why| heal_violation(format!("the server does not end well: {why}")))
    }

    fn status(&self) -> Option<serde_json::Value> {
        let (party, server) =
            self.serving.lock().live.as_ref().map(|live| (live.party, live.server.clone()))?;
        let text = run_in(party, "status", move || server.report("status"))?;
        serde_json::from_str(&text).ok()
    }

    pub(super) fn is_failed(&self) -> bool {
        self.status().is_some_and(|status| status["health"] == "failed")
    }

    /// Calls that are under way, of each client.
    fn unanswered(&self) -> String {
        let waiting = self.clients.iter().filter(|program| !program.done.load(SeqCst)).map(|program| {
            let at = program.next.load(SeqCst);
            let step = program.steps.get(at.saturating_sub(1));
            format!("client {} at step {at}: {:?}", program.id.0, step.map(|step| &step.action))
        });
        waiting.collect::<Vec<_>>().join("; ")
    }

    /// Waits until nothing is left over: no session of a client, no orphan, no recall.
    fn wait_quiet(&self, deadline: Duration) -> Result<(), Violation> {
        loop {
            let status = self.status();
            let left = |name: &str| {
                let figure = status.as_ref().and_then(|status| status.get(name));
                figure.and_then(|value| value.as_u64().or_else(|| value.as_array().map(|a| a.len() as u64)))
            };
            let names = [
                "orphans",
                "sessions",
                "recalls",
                "waiting",
                "open_inodes",
                "ended_sessions_to_sweep",
                "decouplings",
            ];
            if status.is_some() && names.iter().all(|name| left(name).is_none_or(|count| count == 0)) {
                return Ok(());
            }
            if scheduler().now() > deadline {
                return Err(heal_violation(format!("something is left over: {status:?}")));
            }
            thread::sleep(Duration::from_millis(500));
        }
    }
}

fn same(before: &Tree, after: &Tree) -> Result<(), Violation> {
    if before == after {
        return Ok(());
    }
    let paths = before.nodes.keys().chain(after.nodes.keys());
    let differs = paths.clone().find(|path| before.nodes.get(*path) != after.nodes.get(*path));
    let path = differs.map_or("?", String::as_str);
    Err(heal_violation(format!(
        "after an orderly restart {path} is {:?}, was {:?}",
        after.nodes.get(path),
        before.nodes.get(path)
    )))
}
