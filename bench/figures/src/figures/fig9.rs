//! Figure 9 of the paper's draft: the variation of clients' times when another one interferes, by their number and
//! by the kind of interference.

use crate::interfere::{self, Interference, Workload};
use crate::load::names;
use crate::walk::Walk;
use crate::{Result, Setting, Table};

/// The number of clients that the draft examines closely.
const CLIENTS: usize = 7;

const KINDS: [(&str, Interference); 5] = [
    ("none", Interference::Files(0)),
    ("create", Interference::Creates),
    ("stat", Interference::Walks(Walk::Stat)),
    ("touch", Interference::Walks(Walk::Touch)),
    ("ls", Interference::Walks(Walk::List)),
];

pub(super) fn run(setting: &Setting) -> Result<()> {
    let policy = setting.policy("posix")?;
    let names = names(setting.scale.pick(60, 1_000, 100_000));
    let mut table = Table::default();
    for run in 0..setting.scale.runs() {
        // Every number of clients alone and with creates, and one of them with everything.
        let few = KINDS.iter().take(2);
        let numbers: &[usize] = setting.scale.pick(&[1], &[1, 4, 10], &[1, 4, 10, 15, 20]);
        let more = numbers.iter().flat_map(|clients| few.clone().map(|kind| (*clients, kind)));
        for (clients, (kind, interference)) in more.chain(KINDS.iter().map(|kind| (CLIENTS, kind))) {
            let interference = *interference;
            let work = Workload {
                clients,
                policy: &policy,
                decoupled: false,
                names: &names,
                interference,
                timed: false,
            };
            let outcome = interfere::run(setting, &work)?;
            for seconds in &outcome.each {
                table.add(kind, clients, run, *seconds, "s");
            }
            if interference != Interference::Files(0) {
                let rate = outcome.acts as f64 / outcome.seconds.max(1e-9);
                table.add(&format!("the other's rate, {kind}"), clients, run, rate, "files/s");
            }
        }
        setting.say(format!("fig9, run {}", run + 1));
    }
    table.add("files", "each client", 0, names.len() as f64, "files");
    setting.write("fig9", &table)
}
