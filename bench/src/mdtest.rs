//! The benchmark mdtest: tasks create, stat, read and remove files and directories in a tree, with the original's options.
//!
//! ```text
//!   DIR/test-dir.0-0/mdtest_tree.0 ─┬─ file.mdtest.RANK.0 …         node 0
//!                                   └─ mdtest_tree.0.1 ─┬─ …        node 1 of branch 2: its parent is (1 - 1) / 2
//!                                                       └─ mdtest_tree.0.3
//! ```
//!
//! With `unique_dirs` each task has a tree of its own, else all work in that of task 0.
//!
//! Invariants:
//! - A file or directory is named after the task that made it; with a stride, other tasks stat, read and remove it.
//! - What a run made is gone afterwards, if it had the phase of removal.

use std::io;

use serde::{Deserialize, Serialize};

use crate::target::Target;
use crate::tasks::{Seat, Task};

pub const FILE_CREATION: &str = "File creation";
pub const FILE_STAT: &str = "File stat";
pub const FILE_READ: &str = "File read";
pub const FILE_REMOVAL: &str = "File removal";
pub const DIRECTORY_CREATION: &str = "Directory creation";
pub const DIRECTORY_STAT: &str = "Directory stat";
pub const DIRECTORY_REMOVAL: &str = "Directory removal";
pub const TREE_CREATION: &str = "Tree creation";
pub const TREE_REMOVAL: &str = "Tree removal";

/// Bytes that IO500's mdtest-hard writes to each file.
pub const HARD_BYTES: usize = 3_901;

/// The settings; the letters are the original's.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Mdtest {
    /// Work on files (`-D` leaves them out).
    pub files: bool,
    /// Work on directories (`-F` leaves them out).
    pub directories: bool,
    /// Files, and as many directories, of each task (`-n`).
    pub items: u64,
    /// Levels of directories below the root of a tree (`-z`).
    pub depth: u32,
    /// Directories in each directory of a tree (`-b`).
    pub branch: u64,
    /// Items lie in the lowest directories only (`-L`).
    pub leaf_only: bool,
    /// A tree for each task (`-u`).
    pub unique_dirs: bool,
    /// Bytes that are written to each file when it is made (`-w`).
    pub write_bytes: usize,
    /// Bytes that are read of each file (`-e`).
    pub read_bytes: usize,
    /// After the writes of a file, make it durable (`-y`).
    pub fsync: bool,
    /// A task works on the items that the task so many ranks further made (`-N`): once that far for stat, twice for read, three times
    /// for removal.
    pub stride: usize,
    /// Empty files are made, and files examined and removed, so many in a call; 1: one by one.
    pub batch: usize,
    /// Which phases there are (`-C -T -E -r`).
    pub parts: Parts,
    /// Numbers the folder in which all of it happens.
    pub iteration: usize,
}

/// Phases that are asked for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Parts {
    pub create: bool,
    pub stat: bool,
    pub read: bool,
    pub remove: bool,
}

impl Parts {
    pub const ALL: Parts = Parts { create: true, stat: true, read: true, remove: true };
}

impl Mdtest {
    /// Empty files in one directory: create, stat, remove.
    pub fn files(items: u64) -> Mdtest {
        Mdtest {
            files: true,
            directories: false,
            items,
            depth: 0,
            branch: 1,
            leaf_only: false,
            unique_dirs: false,
            write_bytes: 0,
            read_bytes: 0,
            fsync: false,
            stride: 0,
            batch: 1,
            parts: Parts { read: false, ..Parts::ALL },
            iteration: 0,
        }
    }

    /// As IO500's mdtest-easy: empty files in directories of each task's own.
    pub fn easy(items: u64) -> Mdtest {
        Mdtest { unique_dirs: true, leaf_only: true, stride: 1, ..Mdtest::files(items) }
    }

    /// As IO500's mdtest-hard: small files in one directory that all tasks share.
    pub fn hard(items: u64) -> Mdtest {
        let (write_bytes, read_bytes, parts) = (HARD_BYTES, HARD_BYTES, Parts::ALL);
        Mdtest { write_bytes, read_bytes, parts, stride: 1, ..Mdtest::files(items) }
    }

    /// As [`Mdtest::nodes`], unless there are more than a million.
    pub fn nodes_checked(&self) -> Option<u64> {
        let level = |level| self.branch.checked_pow(level);
        let nodes = (0..=self.depth).try_fold(0_u64, |sum, at| sum.checked_add(level(at)?))?;
        (nodes <= 1_000_000).then_some(nodes)
    }

    /// Directories of a tree.
    pub fn nodes(&self) -> u64 {
        (0..=self.depth).map(|level| self.branch.pow(level)).sum()
    }

    /// Directories that hold items.
    pub fn nodes_with_items(&self) -> u64 {
        if self.leaf_only { self.branch.pow(self.depth) } else { self.nodes() }
    }

    fn steps(&self) -> Vec<Step> {
        let Parts { create, stat, read, remove } = self.parts;
        let (dirs, files) = (self.directories, self.files);
        let all = [
            (create, Step::TreeCreation),
            (dirs && create, Step::Directories(Act::Create)),
            (dirs && stat, Step::Directories(Act::Stat)),
            (dirs && remove, Step::Directories(Act::Remove)),
            (files && create, Step::Files(Act::Create)),
            (files && stat, Step::Files(Act::Stat)),
            (files && read, Step::Files(Act::Read)),
            (files && remove, Step::Files(Act::Remove)),
            (remove, Step::TreeRemoval),
        ];
        all.into_iter().filter_map(|(is_wanted, step)| is_wanted.then_some(step)).collect()
    }

    pub(crate) fn phases(&self) -> Vec<&'static str> {
        self.steps().into_iter().map(Step::name).collect()
    }

    pub(crate) fn task<'a>(&'a self, target: &'a dyn Target, seat: Seat) -> MdtestTask<'a> {
        MdtestTask { load: self, steps: self.steps(), content: vec![0x5a; self.write_bytes], target, seat }
    }

    fn top(&self) -> String {
        format!("test-dir.0-{}", self.iteration)
    }

    /// The parent's path and the name of each directory of a tree, parents first.
    fn tree(&self, owner: usize) -> Vec<(String, String)> {
        let mut nodes: Vec<(String, String)> = vec![(self.top(), format!("mdtest_tree.{owner}"))];
        for node in 1..self.nodes() {
            let (dir, name) = &nodes[((node - 1) / self.branch) as usize];
            nodes.push((format!("{dir}/{name}"), format!("mdtest_tree.{owner}.{node}")));
        }
        nodes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    TreeCreation,
    Directories(Act),
    Files(Act),
    TreeRemoval,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Create,
    Stat,
    Read,
    Remove,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::TreeCreation => TREE_CREATION,
            Step::Directories(Act::Create) => DIRECTORY_CREATION,
            Step::Directories(Act::Stat | Act::Read) => DIRECTORY_STAT,
            Step::Directories(Act::Remove) => DIRECTORY_REMOVAL,
            Step::Files(Act::Create) => FILE_CREATION,
            Step::Files(Act::Stat) => FILE_STAT,
            Step::Files(Act::Read) => FILE_READ,
            Step::Files(Act::Remove) => FILE_REMOVAL,
            Step::TreeRemoval => TREE_REMOVAL,
        }
    }
}

impl Act {
    /// How many strides further the maker of the items is.
    fn strides(self) -> usize {
        match self {
            Act::Create => 0,
            Act::Stat => 1,
            Act::Read => 2,
            Act::Remove => 3,
        }
    }
}

/// One of the tasks that mdtest runs side by side.
pub(crate) struct MdtestTask<'a> {
    load: &'a Mdtest,
    steps: Vec<Step>,
    content: Vec<u8>,
    target: &'a dyn Target,
    seat: Seat,
}

impl Task for MdtestTask<'_> {
    fn run(&mut self, phase: usize) -> io::Result<u64> {
        match self.steps[phase] {
            Step::TreeCreation => self.make_tree(),
            Step::Directories(act) => self.items("dir", act),
            Step::Files(act) => self.items("file", act),
            Step::TreeRemoval => self.remove_tree(),
        }
    }
}

impl MdtestTask<'_> {
    fn has_tree(&self) -> bool {
        self.load.unique_dirs || self.seat.rank == 0
    }

    fn make_tree(&self) -> io::Result<u64> {
        if !self.has_tree() {
            return Ok(0);
        }
        let top = self.load.top();
        match self.target.mkdir("", &top) {
            // Of another task, or of an earlier run with a part of the phases.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(|e| named(&e, "", &top))?,
        }
        let tree = self.load.tree(self.seat.rank);
        for (dir, name) in &tree {
            self.target.mkdir(dir, name).map_err(|e| named(&e, dir, name))?;
        }
        Ok(tree.len() as u64)
    }

    fn remove_tree(&self) -> io::Result<u64> {
        if !self.has_tree() {
            return Ok(0);
        }
        let tree = self.load.tree(self.seat.rank);
        for (dir, name) in tree.iter().rev() {
            self.target.rmdir(dir, name).map_err(|e| named(&e, dir, name))?;
        }
        // The last task to come here succeeds.
        match self.target.rmdir("", &self.load.top()) {
            Err(e) if matches!(e.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => {}
            removed => removed.map_err(|e| named(&e, "", &self.load.top()))?,
        }
        Ok(tree.len() as u64)
    }

    fn items(&self, kind: &str, act: Act) -> io::Result<u64> {
        let load = self.load;
        let maker = (self.seat.rank + act.strides() * load.stride) % self.seat.tasks;
        let tree = load.tree(if load.unique_dirs { maker } else { 0 });
        let holders = &tree[(load.nodes() - load.nodes_with_items()) as usize..];
        let each = load.items.div_ceil(holders.len() as u64);
        let mut next = 0;
        for (dir, name) in holders {
            let dir = format!("{dir}/{name}");
            let end = (next + each).min(load.items);
            self.items_of(&dir, &format!("{kind}.mdtest.{maker}."), next..end, act)?;
            next = end;
        }
        Ok(load.items)
    }

    fn items_of(&self, dir: &str, prefix: &str, numbers: std::ops::Range<u64>, act: Act) -> io::Result<()> {
        let (target, load) = (self.target, self.load);
        let is_file = prefix.starts_with("file");
        let by_batches =
            load.batch > 1 && is_file && act != Act::Read && (act != Act::Create || load.write_bytes == 0);
        if by_batches {
            let names: Vec<String> = numbers.map(|number| format!("{prefix}{number}")).collect();
            let some = |names: &[String]| match act {
                Act::Create => target.create_each(dir, names),
                Act::Stat | Act::Read => target.stat_each(dir, names),
                Act::Remove => target.unlink_each(dir, names),
            };
            return names
                .chunks(load.batch)
                .try_for_each(|names| some(names).map_err(|e| named(&e, dir, &names[0])));
        }
        let mut name = String::new();
        for number in numbers {
            name.clear();
            name.push_str(prefix);
            name.push_str(&number.to_string());
            let done = match act {
                Act::Create if is_file => target.create(dir, &name, &self.content, load.fsync),
                Act::Create => target.mkdir(dir, &name),
                Act::Stat => target.stat(dir, &name),
                Act::Read => target.read(dir, &name, load.read_bytes),
                Act::Remove if is_file => target.unlink(dir, &name),
                Act::Remove => target.rmdir(dir, &name),
            };
            done.map_err(|e| named(&e, dir, &name))?;
        }
        Ok(())
    }
}

/// The error with the path to which it happened.
pub(crate) fn named(error: &io::Error, dir: &str, name: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{dir}/{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_the_original_s_shape() {
        let load = Mdtest { depth: 2, branch: 2, ..Mdtest::files(10) };
        let paths: Vec<String> =
            load.tree(3).into_iter().map(|(dir, name)| format!("{dir}/{name}")).collect();
        assert_eq!(paths.len() as u64, load.nodes());
        assert_eq!(paths[0], "test-dir.0-0/mdtest_tree.3");
        assert_eq!(paths[6], "test-dir.0-0/mdtest_tree.3/mdtest_tree.3.2/mdtest_tree.3.6");
        for (depth, branch, nodes, leaves) in [(0, 1, 1, 1), (0, 9, 1, 1), (3, 1, 4, 1), (2, 3, 13, 9)] {
            let load = Mdtest { depth, branch, leaf_only: true, ..Mdtest::files(1) };
            assert_eq!((load.nodes(), load.nodes_with_items()), (nodes, leaves), "{depth} {branch}");
        }
    }

    #[test]
    fn phases_are_those_that_are_asked_for() {
        let all = Mdtest { directories: true, parts: Parts::ALL, ..Mdtest::files(1) };
        assert_eq!(all.phases().len(), 9);
        let none = Parts { create: false, stat: false, read: false, remove: false };
        let only_stat = Mdtest { parts: Parts { stat: true, ..none }, ..Mdtest::files(1) };
        assert_eq!(only_stat.phases(), [FILE_STAT]);
        let hard = [TREE_CREATION, FILE_CREATION, FILE_STAT, FILE_READ, FILE_REMOVAL, TREE_REMOVAL];
        assert_eq!(Mdtest::hard(1).phases(), hard);
    }
}
