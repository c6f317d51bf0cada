//! Figures 5.12 to 5.15: mdtest, where each of many processes creates 100 files in a new shared directory, ten times after a warm-up.

use chiton_bench::mdtest::{FILE_CREATION, Mdtest};
use chiton_bench::tasks::Load;

use super::{COMPARED, runs};
use crate::huge::directory;
use crate::measure;
use crate::servers::{Servers, counts};
use crate::{Result, Setting, Table};

const FILES: u64 = 100;

pub(super) fn run(setting: &Setting) -> Result<()> {
    let clients: &[usize] = setting.scale.pick(&[2], &[4, 16], &[16, 64, 128, 256]);
    let iterations = setting.scale.pick(2, 3, 11);
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for &count in counts(setting) {
            for huge in COMPARED {
                let servers = Servers::start(setting, count)?;
                let dir = directory(setting, &servers, huge, setting.scale.pick(50, 200, 8_000))?;
                for &clients in clients {
                    for iteration in 0..iterations {
                        let load = Load::Mdtest(Mdtest { iteration, ..Mdtest::files(FILES) });
                        let all = measure::load(&servers, &dir, &load, clients)?;
                        let created = all.iter().find(|measured| measured.phase.name == FILE_CREATION);
                        // The first iteration is a warm-up.
                        if let Some(created) = created.filter(|_| iteration > 0) {
                            let at = run * (iterations - 1) + iteration - 1;
                            created.add(&mut table, &format!("{huge}, servers {count}"), clients, at);
                        }
                    }
                }
            }
            setting.say(format!("fig5_12, run {}: {count} server(s)", run + 1));
        }
    }
    setting.write("fig5_12", &table)
}
