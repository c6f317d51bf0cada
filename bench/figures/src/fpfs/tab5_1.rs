//! Tables 5.1 and 5.2: creates in one directory by 1, 8 and 64 clients of one server, by processes on its mount, on one of JuiceFS and
//! through NFS, and by one process on the local disk.

use std::path::Path;

use chiton_bench::mdtest::{FILE_CREATION, Mdtest};
use chiton_bench::tasks::{self, Load, Place};

use super::runs;
use crate::juicefs::{self, JuiceFs};
use crate::measure::Files;
use crate::mount::{Mount, chiton};
use crate::nfs;
use crate::servers::Servers;
use crate::site::{Shape, Site};
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
        if let Some(chiton) = chiton(setting) {
            for &clients in clients {
                let site = Site::start(setting, Shape::default())?;
                let mount = Mount::start(&chiton, &site, "mount")?;
                let rate = creates(setting, mount.dir(), files, clients)?;
                mount.end()?;
                table.add("Chiton, mount", clients, run, rate, "ops/s");
            }
        } else {
            setting.say("tab5_1: without mounts: they need root, /dev/fuse, and chiton beside this program");
        }
        if let Some(why) = juicefs::missing() {
            setting.say(format!("tab5_1: without JuiceFS: {why}"));
        } else {
            for &clients in clients {
                let juicefs = JuiceFs::start(setting)?;
                let rate = creates(setting, &juicefs.dir(), files, clients)?;
                table.add("JuiceFS, mount", clients, run, rate, "ops/s");
            }
        }
        if let Some(why) = nfs::missing() {
            setting.say(format!("tab5_1: without NFS: {why}"));
        } else {
            for &clients in clients {
                let rate = nfs::creates(setting, files, clients)?;
                table.add("NFS 4, Ganesha", clients, run, rate, "ops/s");
            }
        }
        let dir = setting.scratch()?;
        let rate = creates(setting, dir.path(), files, 1)?;
        table.add("local file system", 1, run, rate, "ops/s");
        setting.say(format!("tab5_1, run {}: {rate:.0} local creates/s", run + 1));
    }
    setting.write("tab5_1", &table)
}

/// Creates a second of so many files by processes in a directory of a file system.
fn creates(setting: &Setting, dir: &Path, files: usize, clients: usize) -> Result<f64> {
    let load = Load::Mdtest(Mdtest::files((files / clients) as u64));
    let phases = tasks::run(&load, Place::Directory { dir, program: &setting.program }, clients)?;
    let created = phases.iter().find(|phase| phase.name == FILE_CREATION);
    Ok(created.ok_or("mdtest has no creation")?.ops_per_second())
}
