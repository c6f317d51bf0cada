//! Figure 6b: interference that is allowed, and that is blocked.
//!
//! The paper blocks in a strong subtree. Here a policy can exclude other clients only while the subtree is
//! decoupled; so both are measured: strong clients alone and interfered with, and decoupled clients alone,
//! interfered with, and blocking.

use crate::interfere::{self, Interference, Workload};
use crate::load::names;
use crate::{Result, Setting, Table};

pub(super) fn run(setting: &Setting) -> Result<()> {
    let posix = setting.policy("posix")?;
    let (allow, block) = (setting.policy("interfere-allow")?, setting.policy("interfere-block")?);
    let strong = names(setting.scale.pick(60, 2_000, 100_000));
    let alone = names(setting.scale.pick(60, 100_000, 100_000));
    // One in a hundred, as in the paper.
    let some = |names: &[String]| (names.len() / 100).max(1);
    let kinds = [
        ("strong, none", &posix, false, &strong, 0),
        ("strong, allow", &posix, false, &strong, some(&strong)),
        ("decoupled, none", &block, true, &alone, 0),
        ("decoupled, allow", &allow, true, &alone, some(&alone)),
        ("decoupled, block", &block, true, &alone, some(&alone)),
    ];
    let mut table = Table::default();
    for run in 0..setting.scale.runs() {
        for &clients in setting.scale.clients() {
            for (series, policy, is_decoupled, names, interfering) in kinds {
                let interference = Interference::Files(interfering);
                let decoupled = is_decoupled;
                let work = Workload { clients, policy, decoupled, names, interference, timed: false };
                let outcome = interfere::run(setting, &work)?;
                table.add(series, clients, run, outcome.slowest(), "s");
                if series == "decoupled, block" {
                    let each = outcome.seconds / outcome.refused.max(1) as f64;
                    table.add("refused", clients, run, outcome.refused as f64, "operations");
                    table.add("a refusal takes", clients, run, each * 1e6, "us");
                }
            }
            setting.say(format!("fig6b, run {}: {clients} clients", run + 1));
        }
    }
    for run in 0..setting.scale.pick(1, 5, 10) {
        isolated(setting, &block, run, &mut table)?;
        setting.say(format!("fig6b, run {}: single creates", run + 1));
    }
    table.add("files", "strong", 0, strong.len() as f64, "files");
    table.add("files", "decoupled", 0, alone.len() as f64, "files");
    setting.write("fig6b", &table)
}

/// The times of single creates of one decoupled client that blocks others: without others, and while another one
/// keeps trying.
fn isolated(setting: &Setting, block: &str, run: usize, table: &mut Table) -> Result<()> {
    let names = names(setting.scale.pick(60, 200_000, 1_000_000));
    for (series, interference) in
        [("single creates, none", Interference::Files(0)), ("single creates, block", Interference::Creates)]
    {
        let work =
            Workload { clients: 1, policy: block, decoupled: true, names: &names, interference, timed: true };
        let outcome = interfere::run(setting, &work)?;
        for (x, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            table.add(series, x, run, outcome.creates.us(share), "us");
        }
        if interference == Interference::Creates {
            let rate = outcome.refused as f64 / outcome.seconds.max(1e-9);
            table.add("refused at full speed", 1, run, rate, "operations/s");
        }
    }
    Ok(())
}
