//! A trace of operations on metadata: its text, the tree that it needs, and a generator with the mix of the HP trace.
//!
//! ```text
//!   # a comment
//!   lookup   usr/src/main.c              one operation a line, fields parted by tabs
//!   rename   usr/src/a   usr/src/b       only operations that succeeded
//! ```
//!
//! Invariants:
//! - A trace can be replayed in its order on the tree of [`Trace::tree_before`]: each operation finds its names.

use std::collections::BTreeSet;
use std::fmt;

use chiton_runtime::{SeededWorld, World as _};

/// The effect of an operation on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Lookup,
    Stat,
    Open,
    Unlink,
    Create,
    Rename,
    Mkdir,
    Rmdir,
    RenameDir,
}

impl Kind {
    /// With the count in the 21 hours of the thesis's trace (Table 4.1).
    pub const ALL: [(Kind, &'static str, u64); 9] = [
        (Kind::Lookup, "lookup", 13_908_189),
        (Kind::Stat, "stat", 2_827_387),
        (Kind::Open, "open", 2_572_124),
        (Kind::Unlink, "unlink", 67_883),
        (Kind::Create, "create", 41_755),
        (Kind::Rename, "rename", 7_683),
        (Kind::Mkdir, "mkdir", 7_389),
        (Kind::Rmdir, "rmdir", 6_973),
        (Kind::RenameDir, "renamedir", 5),
    ];

    pub fn word(self) -> &'static str {
        Kind::ALL[self as usize].1
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub kind: Kind,
    pub path: String,
    /// The new path of a rename, else empty.
    pub to: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub calls: Vec<Call>,
}

/// Directories and files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub dirs: BTreeSet<String>,
    pub files: BTreeSet<String>,
}

/// The path of the directory, and the name in it.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Trace {
    /// # Errors
    /// The number of the line, and its fault.
    pub fn parse(text: &str) -> Result<Trace, String> {
        let mut calls = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            calls.push(Call::parse(line).map_err(|why| format!("line {}: {why}", number + 1))?);
        }
        Ok(Trace { calls })
    }

    /// The tree that has to be there before the first operation: of a trace as it was collected, all that it shows of it.
    pub fn tree_before(&self) -> Tree {
        let (mut before, mut now) = (Tree::default(), Tree::default());
        let mut has_children: BTreeSet<&str> = BTreeSet::new();
        for call in &self.calls {
            has_children.extend(ancestors(&call.path).chain(ancestors(&call.to)));
        }
        for call in &self.calls {
            let is_new = matches!(call.kind, Kind::Create | Kind::Mkdir);
            let is_dir = matches!(call.kind, Kind::Rmdir | Kind::RenameDir)
                || has_children.contains(call.path.as_str());
            let target = ancestors(&call.path).chain(ancestors(&call.to)).map(|dir| (dir, true));
            for (path, is_dir) in target.chain((!is_new).then_some((call.path.as_str(), is_dir))) {
                if now.has(path) {
                    continue;
                }
                for tree in [&mut before, &mut now] {
                    let all = if is_dir { &mut tree.dirs } else { &mut tree.files };
                    all.insert(path.to_owned());
                }
            }
            now.apply(call);
        }
        before
    }

    /// A trace of so many operations with the mix of the thesis's, on a tree of its own.
    pub fn generate(operations: u64, seed: u64) -> Trace {
        Generator::new(operations, seed).run()
    }
}

/// The directories above a path, the top excepted.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| &path[..at])
}

impl Call {
    fn parse(line: &str) -> Result<Call, String> {
        let mut fields = line.split('\t');
        let word = fields.next().unwrap_or_default();
        let known = Kind::ALL.iter().find(|(_, name, _)| *name == word);
        let (kind, ..) = known.ok_or_else(|| format!("{word:?} is no operation"))?;
        let mut path = || {
            let path = fields.next().unwrap_or_default().trim_matches('/');
            let is_good = path.split('/').all(|name| !matches!(name, "" | "." | ".."));
            if is_good {
                Ok(path.to_owned())
            } else {
                Err(format!("{word} needs a path of plain names, not {path:?}"))
            }
        };
        let is_rename = matches!(kind, Kind::Rename | Kind::RenameDir);
        let call = Call { kind: *kind, path: path()?, to: if is_rename { path()? } else { String::new() } };
        match fields.next() {
            None => Ok(call),
            Some(rest) => Err(format!("{rest:?} is one field too many for {word}")),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}", self.kind.word(), self.path)?;
        if self.to.is_empty() { Ok(()) } else { write!(f, "\t{}", self.to) }
    }
}

impl Tree {
    fn has(&self, path: &str) -> bool {
        self.dirs.contains(path) || self.files.contains(path)
    }

    pub(crate) fn len(&self) -> usize {
        self.dirs.len() + self.files.len()
    }

    /// As it is after an operation.
    pub fn apply(&mut self, call: &Call) {
        match call.kind {
            Kind::Lookup | Kind::Stat | Kind::Open => {}
            Kind::Create => drop(self.files.insert(call.path.clone())),
            Kind::Mkdir => drop(self.dirs.insert(call.path.clone())),
            Kind::Unlink => drop(self.files.remove(&call.path)),
            Kind::Rmdir => drop(self.dirs.remove(&call.path)),
            Kind::Rename => {
                self.files.remove(&call.path);
                self.files.insert(call.to.clone());
            }
            Kind::RenameDir => {
                for all in [&mut self.dirs, &mut self.files] {
                    let below = format!("{}/", call.path);
                    let moved: Vec<String> =
                        all.iter().filter(|p| **p == call.path || p.starts_with(&below)).cloned().collect();
                    for path in moved {
                        all.remove(&path);
                        all.insert(format!("{}{}", call.to, &path[call.path.len()..]));
                    }
                }
            }
        }
    }
}

/// Operations on a tree of 40 files a directory, most of them on few files.
struct Generator {
    random: SeededWorld,
    /// How many of each kind are still to come, in the order of [`Kind::ALL`].
    left: [u64; 9],
    dirs: Vec<String>,
    files: Vec<String>,
    /// Directories that the trace made, with nothing in them.
    empty_dirs: Vec<String>,
    named: u64,
}

const FILES_A_DIR: u64 = 40;
/// An initial file for so many operations.
const OPERATIONS_A_FILE: u64 = 50;

impl Generator {
    fn new(operations: u64, seed: u64) -> Generator {
        let total: u64 = Kind::ALL.iter().map(|(.., count)| count).sum();
        let mut left = Kind::ALL.map(|(_, _, count)| (count * operations).div_ceil(total));
        // The most frequent operation gives up the share that rounding up added.
        left[0] = left[0].saturating_sub(left.iter().sum::<u64>().saturating_sub(operations));
        let files = (operations / OPERATIONS_A_FILE).max(left[Kind::Unlink as usize] + 4);
        let dirs: Vec<String> = (0..files.div_ceil(FILES_A_DIR))
            .scan(Vec::new(), |made: &mut Vec<String>, number| {
                let above = (number as usize).checked_sub(1).map(|n| made[n / 4].clone());
                let path = above.map_or(format!("d{number}"), |above| format!("{above}/d{number}"));
                made.push(path.clone());
                Some(path)
            })
            .collect();
        let file = |n: u64| format!("{}/f{n}", dirs[(n / FILES_A_DIR) as usize]);
        let files = (0..files).map(file).collect();
        Generator { random: SeededWorld::new(seed), left, dirs, files, empty_dirs: Vec::new(), named: 0 }
    }

    fn below(&self, end: usize) -> usize {
        (self.random.random() % end as u64) as usize
    }

    /// Small numbers are much likelier: the product of three uniform ones.
    fn skewed(&self, end: usize) -> usize {
        let unit = || (self.random.random() >> 11) as f64 / (1u64 << 53) as f64;
        (unit() * unit() * unit() * end as f64) as usize
    }

    fn new_path(&mut self, letter: char) -> String {
        self.named += 1;
        format!("{}/{letter}{}", self.dirs[self.skewed(self.dirs.len())], self.named)
    }

    fn run(mut self) -> Trace {
        let mut calls = Vec::new();
        while self.left.iter().any(|left| *left > 0) {
            let mut at = self.random.random() % self.left.iter().sum::<u64>();
            let kind = self.left.iter().position(|left| {
                let is_here = at < *left;
                at = at.saturating_sub(*left);
                is_here
            });
            let mut kind = Kind::ALL[kind.unwrap_or(0)].0;
            if matches!(kind, Kind::Rmdir | Kind::RenameDir) && self.empty_dirs.is_empty() {
                kind = Kind::Mkdir;
            }
            let left = &mut self.left[kind as usize];
            *left = left.saturating_sub(1);
            let (path, to) = self.paths(kind);
            calls.push(Call { kind, path, to });
        }
        Trace { calls }
    }

    fn paths(&mut self, kind: Kind) -> (String, String) {
        let none = String::new();
        match kind {
            Kind::Lookup | Kind::Stat | Kind::Open => {
                (self.files[self.skewed(self.files.len())].clone(), none)
            }
            Kind::Create => {
                let path = self.new_path('c');
                self.files.push(path.clone());
                (path, none)
            }
            Kind::Unlink => {
                let at = self.below(self.files.len());
                (self.files.swap_remove(at), none)
            }
            Kind::Rename => {
                let (at, to) = (self.below(self.files.len()), self.new_path('r'));
                (std::mem::replace(&mut self.files[at], to.clone()), to)
            }
            Kind::Mkdir => {
                let path = self.new_path('m');
                self.empty_dirs.push(path.clone());
                (path, none)
            }
            Kind::Rmdir => {
                let at = self.below(self.empty_dirs.len());
                (self.empty_dirs.swap_remove(at), none)
            }
            Kind::RenameDir => {
                let (at, to) = (self.below(self.empty_dirs.len()), self.new_path('x'));
                (std::mem::replace(&mut self.empty_dirs[at], to.clone()), to)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_it_is_written() {
        let trace = Trace::generate(2_000, 1);
        let text: String = trace.calls.iter().map(|call| format!("{call}\n")).collect();
        assert_eq!(Trace::parse(&format!("# generated\n\n{text}")), Ok(trace));
        assert_eq!(Trace::parse("stat\t/a/b c/").expect("good").calls[0].path, "a/b c");
        for (line, says) in [
            ("write\ta", "line 1: \"write\" is no operation"),
            ("stat", "needs a path"),
            ("stat\ta/../b", "needs a path"),
            ("rename\ta", "needs a path"),
            ("stat\ta\tb", "one field too many"),
        ] {
            let error = Trace::parse(line).expect_err(line);
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn generated_traces_have_the_mix_of_the_thesis() {
        let trace = Trace::generate(100_000, 7);
        assert_eq!(trace.calls.len(), 100_000);
        let total: u64 = Kind::ALL.iter().map(|(.., count)| count).sum();
        for (kind, word, count) in Kind::ALL {
            let found = trace.calls.iter().filter(|call| call.kind == kind).count() as f64;
            let expect = count as f64 / total as f64 * 100_000.0;
            assert!((found - expect).abs() <= 10.0, "{word}: {found}, not {expect}");
        }
        assert_eq!(Trace::generate(100_000, 7), trace);
    }

    #[test]
    fn every_call_finds_its_names() {
        for (operations, seed) in [(20, 1), (3_000, 2), (20_000, 3)] {
            let trace = Trace::generate(operations, seed);
            let mut tree = trace.tree_before();
            for call in &trace.calls {
                let is_new = matches!(call.kind, Kind::Create | Kind::Mkdir);
                assert_eq!(tree.has(&call.path), !is_new, "{call}");
                for path in [&call.path, &call.to] {
                    let (dir, _) = split(path);
                    assert!(dir.is_empty() || tree.dirs.contains(dir), "{call}");
                }
                if call.kind == Kind::Rmdir {
                    let below = format!("{}/", call.path);
                    assert!(
                        !tree.files.iter().chain(&tree.dirs).any(|path| path.starts_with(&below)),
                        "{call}"
                    );
                }
                tree.apply(call);
            }
        }
    }

    #[test]
    fn tree_before_is_what_the_trace_did_not_make() {
        let text = "mkdir\ta/new\ncreate\ta/new/f\nstat\ta/old\nrenamedir\ta/new\tb/n\nstat\tb/n/f\nunlink\tb/n/f\nrmdir\tb/n\n";
        let before = Trace::parse(text).expect("good").tree_before();
        assert_eq!(before.dirs, ["a", "b"].map(str::to_owned).into());
        assert_eq!(before.files, ["a/old".to_owned()].into());
    }
}
