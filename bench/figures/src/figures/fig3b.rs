//! Figure 3b: clients create in directories of their own under a strong policy, alone and while another one creates in all of these.

use crate::interfere::{self, Interference, Workload};
use crate::load::names;
use crate::{Result, Setting, Table};

pub(super) fn run(setting: &Setting) -> Result<()> {
    let policy = setting.policy("posix")?;
    let names = names(setting.scale.pick(60, 3_000, 100_000));
    let mut table = Table::default();
    for run in 0..setting.scale.pick(1, 3, 3) {
        for &clients in setting.scale.clients() {
            for (series, interfering) in [("none", 0), ("allow", names.len() / 10)] {
                let work = Workload {
                    clients,
                    policy: &policy,
                    decoupled: false,
                    names: &names,
                    interference: Interference::Files(interfering),
                    timed: false,
                };
                let outcome = interfere::run(setting, &work)?;
                table.add(series, clients, run, outcome.slowest(), "s");
                table.add("made by the other", clients, run, outcome.acts as f64, "files");
                setting.say(format!(
                    "fig3b, run {}: {clients} clients, interference {series}: {:.2} s",
                    run + 1,
                    outcome.slowest()
                ));
            }
        }
    }
    table.add("files", "each client", 0, names.len() as f64, "files");
    setting.write("fig3b", &table)
}
