//! `chiton find`.

use std::io::Write;

use chiton_runtime::{RealWorld, World};
use chiton_trees::{Seen, scan};
use chiton_types::{Kind, Time};
use clap::{Args, ValueEnum};
use glob::Pattern;

use super::Paths;
use super::ls::line;
use super::place;
use super::report::{AGAIN, Report};
use crate::failure::{Failure, Outcome};
use crate::size;

#[derive(Debug, Args)]
#[command(
    after_help = "It prints the paths that meet all conditions, a directory before the names in it, in no other order. Ages count from the last change of content (mtime). Symbolic links are not followed.\n\nExamples:\n  chiton find /mnt/chiton/home --name '*.log' --size +10M --older 30d\n  chiton find /mnt/chiton/build --type f --newer 1h --json\n  chiton find --server tcp:server:7117 / --type d --max-depth 2"
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
    let mut places = Vec::new();
    for said in &said {
        match said.place(&client) {
            Ok(place) => places.push(place),
            Err(failure) => report.failed(failure),
        }
    }
    let now = RealWorld.now();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    let mut see = |seen: &Seen<'_>| {
        if args.meets(seen, now) && written.is_ok() {
            written = match (at.json, args.print0) {
                (true, _) => {
                    writeln!(out, "{}", line(&String::from_utf8_lossy(seen.path), seen.attr, None))
                }
                (false, print0) => {
                    out.write_all(seen.path).and_then(|()| out.write_all(if print0 { b"\0" } else { b"\n" }))
                }
            };
        }
        written.is_ok() && args.max_depth.is_none_or(|most| seen.depth < most)
    };
    scan(&client, &places, &mut see, &mut report);
    match written.and_then(|()| out.flush()) {
        Ok(()) => report.result("some of the names are missing", AGAIN),
        // The reader has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Failure::failed(format!("cannot write the output: {e}"))),
    }
}

impl Find {
    fn meets(&self, seen: &Seen<'_>, now: Time) -> bool {
        let attr = seen.attr;
        let age = now.0.saturating_sub(attr.mtime.0);
        let name = seen.name.rsplit(|&b| b == b'/').find(|part| !part.is_empty()).unwrap_or(b"/");
        self.name.as_ref().is_none_or(|pattern| pattern.matches(&String::from_utf8_lossy(name)))
            && self.r#type.is_none_or(|kind| kind.is(attr.kind))
            && self.size.is_none_or(|size| size.has(attr.size))
            && self.newer.is_none_or(|most| age < most)
            && self.older.is_none_or(|least| age > least)
    }
}

impl Type {
    fn is(self, kind: Kind) -> bool {
        let wanted = match self {
            Type::File => Kind::File,
            Type::Dir => Kind::Dir,
            Type::Symlink => Kind::Symlink,
            Type::Fifo => Kind::Fifo,
            Type::Socket => Kind::Socket,
            Type::Char => Kind::Char,
            Type::Block => Kind::Block,
        };
        kind == wanted
    }
}

impl SizeIs {
    fn has(self, bytes: u64) -> bool {
        match self {
            SizeIs::Above(limit) => bytes > limit,
            SizeIs::Below(limit) => bytes < limit,
            SizeIs::Exactly(size) => bytes == size,
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
        for bad in ["", "5", "d", "5y", "999999999999w"] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }
}
