//! Creation and traversal of directories, as the thesis of FPFS measures them (4.7.2): every task makes a hierarchy of empty files in
//! directories of its own, then reads all of its directories.
//!
//! The hierarchy has the numbers that the thesis names for a Linux source tree, 50,000 files in 14,000 directories, at any scale. Each
//! directory has four directories below it, and the files are spread evenly.

use std::io;

use serde::{Deserialize, Serialize};

use crate::mdtest::named;
use crate::target::Target;
use crate::tasks::{Seat, Task};

pub const CREATION: &str = "Creation of directories";
pub const TRAVERSAL: &str = "Traversal of directories";
pub const REMOVAL: &str = "Removal of directories";
const PHASES: [&str; 3] = [CREATION, TRAVERSAL, REMOVAL];

const FILES_A_TREE: u64 = 50_000;
const DIRS_A_TREE: u64 = 14_000;
const BRANCH: usize = 4;

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Hierarchy {
    /// Files of each task.
    pub files: u64,
}

impl Hierarchy {
    fn dirs(&self) -> u64 {
        (self.files * DIRS_A_TREE / FILES_A_TREE).max(1)
    }

    pub(crate) fn phases() -> Vec<&'static str> {
        PHASES.to_vec()
    }

    pub(crate) fn task<'a>(&'a self, target: &'a dyn Target, seat: Seat) -> HierarchyTask<'a> {
        let mut paths: Vec<(String, String)> = vec![(String::new(), format!("tree.{}", seat.rank))];
        for node in 1..self.dirs() as usize {
            let (dir, name) = &paths[(node - 1) / BRANCH];
            let dir = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            paths.push((dir, format!("dir{node}")));
        }
        HierarchyTask { load: self, target, paths }
    }
}

pub(crate) struct HierarchyTask<'a> {
    load: &'a Hierarchy,
    target: &'a dyn Target,
    /// The parent's path and the name of each directory, parents first.
    paths: Vec<(String, String)>,
}

impl Task for HierarchyTask<'_> {
    fn run(&mut self, phase: usize) -> io::Result<u64> {
        let (target, dirs) = (self.target, self.paths.len() as u64);
        match PHASES[phase] {
            CREATION => {
                self.each_dir(false, |dir, name, _| target.mkdir(dir, name))?;
                self.each_file(|dir, name| target.create(dir, name, &[], false))?;
                Ok(dirs + self.load.files)
            }
            // An operation for each directory and each entry, as in the creation.
            TRAVERSAL => {
                let mut found = 1;
                self.each_dir(false, |_, _, path| target.list(path).map(|entries| found += entries))?;
                if found != dirs + self.load.files {
                    return Err(io::Error::other(format!("the traversal found {found} entries")));
                }
                Ok(found)
            }
            _ => {
                self.each_file(|dir, name| target.unlink(dir, name))?;
                self.each_dir(true, |dir, name, _| target.rmdir(dir, name))?;
                Ok(dirs + self.load.files)
            }
        }
    }
}

impl HierarchyTask<'_> {
    fn each_dir(
        &self,
        is_upwards: bool,
        mut call: impl FnMut(&str, &str, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut at = |(dir, name): &(String, String)| {
            let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            call(dir, name, &path).map_err(|e| named(&e, dir, name))
        };
        if is_upwards {
            self.paths.iter().rev().try_for_each(at)
        } else {
            self.paths.iter().try_for_each(&mut at)
        }
    }

    fn each_file(&self, call: impl Fn(&str, &str) -> io::Result<()>) -> io::Result<()> {
        let dirs = self.paths.len() as u64;
        for (number, (dir, name)) in self.paths.iter().enumerate() {
            let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            let files = self.load.files / dirs + u64::from((number as u64) < self.load.files % dirs);
            for file in 0..files {
                let name = format!("file{file}");
                call(&path, &name).map_err(|e| named(&e, &path, &name))?;
            }
        }
        Ok(())
    }
}
