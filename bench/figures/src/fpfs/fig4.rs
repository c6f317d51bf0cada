//! Figures 4.6 and 4.7: the HP trace, trees of directories and metarates, by the number of clients and of servers.

use chiton_bench::hierarchy::{self, Hierarchy};
use chiton_bench::metarates::{self, Metarates};
use chiton_bench::replay;
use chiton_bench::tasks::Load;
use chiton_bench::trace::Trace;

use super::runs;
use crate::measure::{self, Measured};
use crate::servers::{Servers, counts};
use crate::{Result, Setting, Table};

/// The phases that count, and the names of their series.
const RATED: [(&str, &str); 6] = [
    (replay::REPLAY, "HP trace"),
    (hierarchy::CREATION, "creation of directories"),
    (hierarchy::TRAVERSAL, "traversal of directories"),
    (metarates::CREATE_CLOSE, "create-close"),
    (metarates::STAT, "stat"),
    (metarates::UTIME, "utime"),
];

pub(super) fn run(setting: &Setting) -> Result<()> {
    let clients: &[usize] = setting.scale.pick(&[2], &[1, 8], &[1, 4, 16, 64]);
    let trace = Trace::generate(setting.scale.pick(200, 2_000, 194_394), 1);
    let files = setting.scale.pick(60, 2_000, 640_000);
    let tree_files = setting.scale.pick(20, 500, 200_000);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for &count in counts(setting) {
            let servers = Servers::start(setting, count)?;
            for &clients in clients {
                let tree = Hierarchy { files: tree_files / clients as u64 };
                let rates = Metarates { files, dirs: 0, stride: 1, batch: 1, utime: true };
                let mut all = measure::trace(&servers, &trace, clients)?;
                all.extend(measure::load(&servers, "/", &Load::Hierarchy(tree), clients)?);
                all.extend(measure::load(&servers, "/", &Load::Metarates(rates), clients)?);
                add(&mut table, &all, count, clients, run);
            }
            setting.say(format!("fig4, run {}: {count} server(s)", run + 1));
        }
    }
    setting.write("fig4", &table)
}

fn add(table: &mut Table, all: &[Measured], servers: usize, clients: usize, run: usize) {
    for measured in all {
        if let Some((_, name)) = RATED.iter().find(|(phase, _)| *phase == measured.phase.name) {
            measured.add(table, &format!("{name}, servers {servers}"), clients, run);
        }
    }
}
