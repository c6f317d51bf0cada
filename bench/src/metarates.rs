//! The benchmark metarates, as the thesis of FPFS runs it (4.7.2): tasks create and close, stat, and set the times of empty files.
//!
//! Invariants:
//! - The files are shared out evenly: the first tasks have one more if they do not divide.
//! - A phase of its own removes the directories: that of files holds no attempt to remove a directory that others still use.
//! - With a stride, a task examines and touches the files of another one, which its client has not cached.

use std::io;

use serde::{Deserialize, Serialize};

use crate::mdtest::named;
use crate::target::Target;
use crate::tasks::{Seat, Task};

pub const CREATE_CLOSE: &str = "Create-close";
pub const STAT: &str = "Stat";
pub const UTIME: &str = "Utime";
pub const REMOVAL: &str = "Removal";
const PREPARATION: &str = "Preparation";
const CLEARANCE: &str = "Clearance";

const PHASES: [&str; 6] = [PREPARATION, CREATE_CLOSE, STAT, UTIME, REMOVAL, CLEARANCE];

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Metarates {
    /// Of all tasks together.
    pub files: u64,
    /// So many directories, which the tasks share; 0: one for each task.
    pub dirs: usize,
    /// A task examines the files of the task so many ranks further, and touches those of the one twice as far.
    pub stride: usize,
    /// Files are made, examined and removed so many in a call; 1: one by one.
    pub batch: usize,
    /// Has the phase that sets times.
    pub utime: bool,
}

impl Metarates {
    pub(crate) fn phases(&self) -> Vec<&'static str> {
        PHASES.into_iter().filter(|name| self.utime || *name != UTIME).collect()
    }

    pub(crate) fn task<'a>(&'a self, target: &'a dyn Target, seat: Seat) -> MetaratesTask<'a> {
        MetaratesTask { load: self, target, seat }
    }
}

pub(crate) struct MetaratesTask<'a> {
    load: &'a Metarates,
    target: &'a dyn Target,
    seat: Seat,
}

impl Task for MetaratesTask<'_> {
    fn run(&mut self, phase: usize) -> io::Result<u64> {
        let Seat { rank, .. } = self.seat;
        let (own, target) = (self.dir(rank), self.target);
        let has_dir = self.load.dirs == 0 || rank < self.load.dirs;
        let names = |each: &dyn Fn(&str, &[String]) -> io::Result<()>, strides| self.batches(strides, each);
        let is_by_batches = self.load.batch > 1;
        match self.load.phases()[phase] {
            PREPARATION => {
                if has_dir {
                    target.mkdir("", &own).map_err(|e| named(&e, "", &own))?;
                }
                Ok(0)
            }
            CREATE_CLOSE if is_by_batches => names(&|dir, names| target.create_each(dir, names), 0),
            CREATE_CLOSE => self.each(0, |dir, name| target.create(dir, name, &[], false)),
            STAT if is_by_batches => names(&|dir, names| target.stat_each(dir, names), 1),
            STAT => self.each(1, |dir, name| target.stat(dir, name)),
            UTIME => self.each(2, |dir, name| target.utime(dir, name)),
            REMOVAL if is_by_batches => names(&|dir, names| target.unlink_each(dir, names), 0),
            REMOVAL => self.each(0, |dir, name| target.unlink(dir, name)),
            _ => {
                if has_dir {
                    target.rmdir("", &own).map_err(|e| named(&e, "", &own))?;
                }
                Ok(0)
            }
        }
    }
}

impl MetaratesTask<'_> {
    fn dir(&self, rank: usize) -> String {
        format!("metarates.{}", if self.load.dirs == 0 { rank } else { rank % self.load.dirs })
    }

    /// The directory of the files that the task so many strides further made, their maker, and their number.
    fn files(&self, strides: usize) -> (String, usize, u64) {
        let Seat { rank, tasks } = self.seat;
        let maker = (rank + strides * self.load.stride) % tasks;
        (self.dir(maker), maker, share(self.load.files, maker, tasks))
    }

    /// Calls with each of these files.
    fn each(&self, strides: usize, call: impl Fn(&str, &str) -> io::Result<()>) -> io::Result<u64> {
        let (dir, maker, count) = self.files(strides);
        for number in 0..count {
            let name = file(maker, number);
            call(&dir, &name).map_err(|e| named(&e, &dir, &name))?;
        }
        Ok(count)
    }

    /// The same, with many in a call.
    fn batches(&self, strides: usize, call: &dyn Fn(&str, &[String]) -> io::Result<()>) -> io::Result<u64> {
        let (dir, maker, count) = self.files(strides);
        let names: Vec<String> = (0..count).map(|number| file(maker, number)).collect();
        for names in names.chunks(self.load.batch) {
            call(&dir, names).map_err(|e| named(&e, &dir, &names[0]))?;
        }
        Ok(count)
    }
}

/// The name of a file.
fn file(maker: usize, number: u64) -> String {
    format!("file.{maker}.{number}")
}

/// The files of one task.
fn share(files: u64, rank: usize, tasks: usize) -> u64 {
    files / tasks as u64 + u64::from((rank as u64) < files % tasks as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (files, tasks) in [(10, 3), (2, 3), (9, 3), (0, 2)] {
            let shares: Vec<u64> = (0..tasks).map(|rank| share(files, rank, tasks)).collect();
            assert_eq!(shares.iter().sum::<u64>(), files);
            assert!(shares[0] - shares[tasks - 1] <= 1, "{shares:?}");
        }
    }
}
