//! `chiton find`.

use std::io::{BufWriter, Stdout, Write};

use chiton_runtime::{RealWorld, World};
use chiton_trees::{Conditions, Found, Subject, Task, Totals};
use chiton_types::{Kind, Time};
use clap::{Args, ValueEnum};
use glob::Pattern;

use super::ls::line;
use super::report::{AGAIN, Report};
use super::work::{another_answer, repeat};
use super::{Here, Paths, carry_out, place};
use crate::failure::{Failure, Outcome};
use crate::size;

#[derive(Debug, Args)]
#[command(
    after_help = "It prints the paths that meet all conditions, a directory before the names in it, in no other order. Ages count from the last change of content (mtime). Symbolic links are not followed. The server does the work as a job (chiton jobs), which Ctrl-C cancels; --here does it in this process. If that server dies, another begins again, and paths that are printed already are not printed again.\n\nExamples:\n  chiton find /mnt/chiton/home --name '*.log' --size +10M --older 30d\n  chiton find /mnt/chiton/build --type f --newer 1h --json\n  chiton find --server tcp:server:7117 / --type d --max-depth 2"
)]
pub(crate) struct Find {
    #[command(flatten)]
    pub(crate) paths: Paths,
    /// Names (not paths) that match this pattern: *, ?, [a-z]. Quote it.
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    pub(crate) name: Option<Pattern>,
    /// Only this type.
    #[arg(long, value_enum)]
    pub(crate) r#type: Option<Type>,
    /// Larger (+10M), smaller (-10M) or of this size.
    #[arg(long, value_name = "[+-]SIZE", value_parser = size_is, allow_hyphen_values = true)]
    pub(crate) size: Option<SizeIs>,
    /// Changed less than this long ago: 90s, 5m, 12h, 30d.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) newer: Option<i64>,
    /// Changed longer ago than this.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older: Option<i64>,
    /// Enter directories down to this depth: 0 looks at the paths only.
    #[arg(long)]
    pub(crate) max_depth: Option<usize>,
    /// End each path with NUL instead of a new line, for xargs -0.
    #[arg(long, short = '0', conflicts_with = "json")]
    pub(crate) print0: bool,
    #[command(flatten)]
    pub(crate) here: Here,
}

/// A type of inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Type {
    #[value(alias = "f")]
    File,
    #[value(alias = "d")]
    Dir,
    #[value(alias = "l")]
    Symlink,
    #[value(alias = "p")]
    Fifo,
    #[value(alias = "s")]
    Socket,
    #[value(alias = "c")]
    Char,
    #[value(alias = "b")]
    Block,
}

/// A condition on sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeIs {
    Above(u64),
    Below(u64),
    Exactly(u64),
}

pub(crate) fn find(args: &Find) -> Outcome {
    let Paths { paths, at } = &args.paths;
    let (client, said) = place::open(at, paths, "find")?;
    let mut report = Report::begin("looked at", at.json)?;
    let mut subjects = Vec::new();
    for said in &said {
        match said.place(&client) {
            Ok(place) => subjects.push(Subject::from(&place)),
            Err(failure) => report.failed(failure),
        }
    }
    report.print_by(Printer::new(at.json, args.print0));
    let task = Task::Find { subjects, conditions: args.conditions(RealWorld.now()) };
    let done = carry_out(&client, &task, !args.here.here, &mut report, &repeat);
    match report.take_printer().map_or(Ok(()), Printer::end) {
        Ok(()) => {}
        // The reader has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
        Err(e) => return Err(Failure::failed(format!("cannot write the output: {e}"))),
    }
    match done? {
        Totals::Searched(_) => report.result("some of the names are missing", AGAIN),
        _ => Err(another_answer()),
    }
}

/// Prints what is found, each path once also where a search begins again.
pub(super) struct Printer {
    json: bool,
    end: &'static [u8],
    out: BufWriter<Stdout>,
    written: std::io::Result<()>,
    /// Hashes of the paths that were printed.
    printed: Vec<u64>,
    /// Those of them that earlier tries found, sorted.
    before: Vec<u64>,
}

impl Printer {
    fn new(json: bool, print0: bool) -> Printer {
        let end = if print0 { b"\0" } else { b"\n" };
        let out = BufWriter::new(std::io::stdout());
        Printer { json, end, out, written: Ok(()), printed: Vec::new(), before: Vec::new() }
    }

    pub(super) fn print(&mut self, found: &Found) {
        let hash = xxhash_rust::xxh3::xxh3_64(&found.path);
        if self.written.is_err() || self.before.binary_search(&hash).is_ok() {
            return;
        }
        self.printed.push(hash);
        self.written = match self.json {
            true => writeln!(self.out, "{}", line(&String::from_utf8_lossy(&found.path), &found.attr, None)),
            false => self.out.write_all(&found.path).and_then(|()| self.out.write_all(self.end)),
        };
    }

    /// Shows what there is so far.
    pub(super) fn flush(&mut self) {
        if self.written.is_ok() {
            self.written = self.out.flush();
        }
    }

    pub(super) fn begin_again(&mut self) {
        self.before.append(&mut self.printed);
        self.before.sort_unstable();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.written.is_err()
    }

    fn end(mut self) -> std::io::Result<()> {
        self.flush();
        self.written
    }
}

impl Find {
    fn conditions(&self, now: Time) -> Conditions {
        let (size_min, size_max) = self.size.map_or((None, None), SizeIs::limits);
        let ago = |age: i64| now.0.saturating_sub(age);
        Conditions {
            name: self.name.clone(),
            kind: self.r#type.map(Type::kind),
            size_min,
            size_max,
            mtime_min: self.newer.map(|most| Time(ago(most).saturating_add(1))),
            mtime_max: self.older.map(|least| Time(ago(least).saturating_sub(1))),
            depth_max: self.max_depth,
        }
    }
}

impl Type {
    fn kind(self) -> Kind {
        match self {
            Type::File => Kind::File,
            Type::Dir => Kind::Dir,
            Type::Symlink => Kind::Symlink,
            Type::Fifo => Kind::Fifo,
            Type::Socket => Kind::Socket,
            Type::Char => Kind::Char,
            Type::Block => Kind::Block,
        }
    }
}

impl SizeIs {
    /// The least and the largest size that meets it.
    fn limits(self) -> (Option<u64>, Option<u64>) {
        match self {
            SizeIs::Above(limit) => (Some(limit.saturating_add(1)), None),
            // Nothing is smaller than nothing.
            SizeIs::Below(0) => (Some(1), Some(0)),
            SizeIs::Below(limit) => (None, Some(limit - 1)),
            SizeIs::Exactly(size) => (Some(size), Some(size)),
        }
    }
}

fn size_is(text: &str) -> Result<SizeIs, String> {
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(limit), _) => size::parse(limit).map(SizeIs::Above),
        (_, Some(limit)) => size::parse(limit).map(SizeIs::Below),
        _ => size::parse(text).map(SizeIs::Exactly),
    }
}

/// An age in nanoseconds.
fn age(text: &str) -> Result<i64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds: i64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err("write an age as a number with s, m, h, d or w behind it".to_owned()),
    };
    let number: i64 =
        number.parse().map_err(|_| "write an age as a number with s, m, h, d or w behind it")?;
    number
        .checked_mul(seconds)
        .and_then(|seconds| seconds.checked_mul(1_000_000_000))
        .ok_or_else(|| "the age is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_as_people_write_them() {
        assert_eq!(size_is("+10M"), Ok(SizeIs::Above(10 << 20)));
        assert_eq!(size_is("-1K"), Ok(SizeIs::Below(1 << 10)));
        assert_eq!(size_is("0"), Ok(SizeIs::Exactly(0)));
        assert!(size_is("+x").is_err());
        assert_eq!(age("2m"), Ok(120_000_000_000));
        assert_eq!(age("1w"), Ok(604_800_000_000_000));
        assert_eq!(SizeIs::Above(10).limits(), (Some(11), None));
        assert_eq!(SizeIs::Below(10).limits(), (None, Some(9)));
        assert_eq!(SizeIs::Below(0).limits(), (Some(1), Some(0)));
        assert_eq!(SizeIs::Exactly(3).limits(), (Some(3), Some(3)));
        for bad in ["", "5", "d", "5y", "999999999999w"] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }
}
