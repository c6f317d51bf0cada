//! Tables 5.1 and 5.2: creates in one directory by 1, 8 and 64 clients of one server, and by one process on the local disk.

use chiton_bench::mdtest::{FILE_CREATION, Mdtest};
use chiton_bench::tasks::{self, Load, Place};

use super::runs;
use crate::measure::Files;
use crate::servers::Servers;
use crate::{Result, Setting, Table};

pub(super) fn run(setting: &Setting) -> Result<()> {
    let files = setting.scale.pick(64, 3_200, 400_000);
    let clients: &[usize] = setting.scale.pick(&[1, 2], &[1, 8, 64], &[1, 8, 64]);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for &clients in clients {
            let servers = Servers::start_one(setting)?;
            let measured = Files { files, dirs: 1, batch: 1, clients }.measure(&servers)?;
            measured[0].1.add(&mut table, "Chiton", clients, run);
        }
        let dir = setting.scratch()?;
        let place = Place::Directory { dir: dir.path(), program: &setting.program };
        let phases = tasks::run(&Load::Mdtest(Mdtest::files(files as u64)), place, 1)?;
        let created = phases.iter().find(|phase| phase.name == FILE_CREATION);
        let rate = created.ok_or("mdtest has no creation")?.ops_per_second();
        table.add("local file system", 1, run, rate, "ops/s");
        setting.say(format!("tab5_1, run {}: {rate:.0} local creates/s", run + 1));
    }
    setting.write("tab5_1", &table)
}
