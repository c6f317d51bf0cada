//! One large file, written with fsync and read back, beside the same on the local disk.

use chiton_bench::report::Row;
use chiton_bench::seqio::{self, SeqioOptions};

use super::Plan;
use super::subject::{Subject, make_dir, unmount};
use crate::failure::{Failure, Outcome};

const BYTES: u64 = 1 << 30;
/// Files are written in whole calls of this size.
pub(super) const CALL_BYTES: u64 = 4 << 20;

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let disk = plan.dir.join("disk");
    make_dir(&disk)?;
    let subject = Subject::start(plan, "seqio-data")?;
    let mount = subject.mount(&plan.dir.join("seqio-mnt"))?;
    let [mut write, mut read]: [(Vec<f64>, Vec<f64>); 2] = Default::default();
    for _ in 0..plan.rounds {
        let options = |dir| SeqioOptions {
            file_bytes: BYTES / plan.divisor / CALL_BYTES * CALL_BYTES,
            ..SeqioOptions::standard(dir)
        };
        let theirs = seqio::measure(&options(disk.clone())).map_err(Failure::failed)?;
        let ours = seqio::measure(&options(mount.dir().to_path_buf())).map_err(Failure::failed)?;
        write.0.push(theirs.write_mib_per_second);
        write.1.push(ours.write_mib_per_second);
        read.0.push(theirs.read_mib_per_second);
        read.1.push(ours.read_mib_per_second);
    }
    unmount(mount)?;
    subject.end()?;
    Ok(vec![
        Row::new("sequential write with fsync / local disk", "MiB/s", &write.0, &write.1)
            .with_target(0.6)
            .with_bound("copies through FUSE, then the disk"),
        Row::new("sequential read / local disk", "MiB/s", &read.0, &read.1)
            .with_target(0.6)
            .with_bound("copies through FUSE; the store's pages may be cached"),
    ])
}
