//! Creates and removes through mounts, beside the trivial in-memory FUSE file system.

use std::path::Path;

use chiton_bench::report::Row;
use chiton_bench::tasks::Phase;
use chiton_bench::trivial_mount::TrivialMount;

use super::subject::{Subject, make_dir, unmount};
use super::{Plan, loads};
use crate::failure::{Failure, Outcome};

const FILES: u64 = 20_000;
const BOUND: &str = "CPU: FUSE crossings";

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let floor_dir = plan.dir.join("floor");
    make_dir(&floor_dir)?;
    let floor = TrivialMount::spawn(&floor_dir).map_err(Failure::failed)?;
    let subject = Subject::start(plan, "mount-data")?;
    let mount = subject.mount(&plan.dir.join("mnt"))?;
    let mut rows = Vec::new();
    for (processes, target) in [(1, 0.8), (4, 0.7)] {
        let mut theirs = Rates::default();
        let mut ours = Rates::default();
        for _ in 0..plan.rounds {
            theirs.add(&run(floor.dir(), processes, FILES / plan.divisor)?);
            ours.add(&run(mount.dir(), processes, FILES / plan.divisor)?);
        }
        for (phase, theirs, ours) in
            [("create", theirs.create, ours.create), ("remove", theirs.remove, ours.remove)]
        {
            let name = format!("mounted {phase}s, one directory, {processes} proc / trivial FUSE");
            rows.push(Row::new(&name, "ops/s", &theirs, &ours).with_target(target).with_bound(BOUND));
        }
    }
    unmount(mount)?;
    subject.end()?;
    floor.unmount().map_err(Failure::failed)?;
    Ok(rows)
}

#[derive(Default)]
struct Rates {
    create: Vec<f64>,
    remove: Vec<f64>,
}

impl Rates {
    fn add(&mut self, phases: &[Phase]) {
        self.create.push(loads::creates(phases));
        self.remove.push(loads::removes(phases));
    }
}

fn run(dir: &Path, processes: usize, files: u64) -> Outcome<Vec<Phase>> {
    loads::files(dir, processes, files / processes as u64, 0)
}
