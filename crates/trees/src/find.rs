//! Names of trees that meet conditions: find.
//!
//! Invariants:
//! - Conditions are numbers and times, not ages: a server with another clock finds the same.
//! - Paths keep their bytes on the way from a server.

use chiton_client::Client;
use chiton_model::field::Code;
use chiton_model::text::kind_name;
use chiton_types::{Attr, Kind, Malformed, Put, Take, Time};
use glob::Pattern;
use serde_json::{Value, json};

use crate::scan::scan_for;
use crate::{Place, Seen, Watch};

/// Conditions on a name. A condition that is absent is met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The name (not the path) matches this pattern: `*`, `?`, `[a-z]`.
    pub name: Option<Pattern>,
    /// The type of the inode.
    pub kind: Option<Kind>,
    /// At least so many bytes.
    pub size_min: Option<u64>,
    /// At most so many bytes.
    pub size_max: Option<u64>,
    /// Content changed at this time or later.
    pub mtime_min: Option<Time>,
    /// Content changed at this time or earlier.
    pub mtime_max: Option<Time>,
    /// Directories are entered down to this depth; 0 looks at the places only.
    pub depth_max: Option<usize>,
}

/// A name that meets the conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its path, which begins as the caller's own.
    pub path: Vec<u8>,
    /// Its attributes; of a symbolic link, its own.
    pub attr: Attr,
}

/// Totals of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Searched {
    /// Names that were looked at.
    pub names: u64,
    /// Of these, the names that meet the conditions.
    pub found: u64,
    /// Names that could not be looked at.
    pub refused: u64,
    /// Whether the watch ended it.
    pub stopped: bool,
}

/// Gives the watch every name at and below these places that meets the conditions, a directory before the names in it.
pub fn find(client: &Client, places: &[Place], conditions: &Conditions, watch: &mut dyn Watch) -> Searched {
    let mut done = Searched::default();
    let mut counting = Counting { refused: 0, watch };
    let mut see = |seen: &Seen<'_>, watch: &mut dyn Watch| {
        done.names += 1;
        if conditions.are_met_by(seen) {
            done.found += 1;
            watch.found(Found { path: seen.path.to_vec(), attr: seen.attr.clone() });
        }
        conditions.depth_max.is_none_or(|most| seen.depth < most)
    };
    scan_for(client, places, &mut see, &mut counting);
    let Counting { refused, watch } = counting;
    Searched { refused, stopped: watch.is_stopped(), ..done }
}

/// Counts refusals on their way.
struct Counting<'a> {
    refused: u64,
    watch: &'a mut dyn Watch,
}

impl Watch for Counting<'_> {
    fn refused(&mut self, refused: crate::Refused) {
        self.refused += 1;
        self.watch.refused(refused);
    }

    fn found(&mut self, found: Found) {
        self.watch.found(found);
    }

    fn progress(&mut self, names: u64) {
        self.watch.progress(names);
    }

    fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }
}

impl Conditions {
    fn are_met_by(&self, seen: &Seen<'_>) -> bool {
        let attr = seen.attr;
        let name = seen.name.rsplit(|&b| b == b'/').find(|part| !part.is_empty()).unwrap_or(b"/");
        self.name.as_ref().is_none_or(|pattern| pattern.matches(&String::from_utf8_lossy(name)))
            && self.kind.is_none_or(|kind| kind == attr.kind)
            && self.size_min.is_none_or(|least| attr.size >= least)
            && self.size_max.is_none_or(|most| attr.size <= most)
            && self.mtime_min.is_none_or(|first| attr.mtime >= first)
            && self.mtime_max.is_none_or(|last| attr.mtime <= last)
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name.as_ref().map(Pattern::as_str), "type": self.kind.map(kind_name),
            "size_min": self.size_min, "size_max": self.size_max,
            "mtime_min": self.mtime_min.map(|time| time.0), "mtime_max": self.mtime_max.map(|time| time.0),
            "depth_max": self.depth_max,
        })
    }

    pub(crate) fn from_json(conditions: &Value) -> Option<Conditions> {
        let text = |key: &str| given(&conditions[key], Value::as_str);
        let number = |key: &str| given(&conditions[key], Value::as_u64);
        let time = |key: &str| Some(given(&conditions[key], Value::as_i64)?.map(Time));
        let kind = match text("type")? {
            None => None,
            Some(word) => Some((1..=u8::MAX).map_while(Kind::from_u8).find(|kind| kind_name(*kind) == word)?),
        };
        Some(Conditions {
            name: match text("name")? {
                None => None,
                Some(pattern) => Some(Pattern::new(pattern).ok()?),
            },
            kind,
            size_min: number("size_min")?,
            size_max: number("size_max")?,
            mtime_min: time("mtime_min")?,
            mtime_max: time("mtime_max")?,
            depth_max: match number("depth_max")? {
                None => None,
                Some(depth) => Some(usize::try_from(depth).ok()?),
            },
        })
    }
}

/// A value that may be absent; `None` if it is of another type.
fn given<'v, T>(value: &'v Value, read: impl FnOnce(&'v Value) -> Option<T>) -> Option<Option<T>> {
    match value {
        Value::Null => Some(None),
        value => read(value).map(Some),
    }
}

impl Found {
    /// Appends it as a server sends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_bytes(&self.path);
        Attr::put(&self.attr, out);
    }

    /// Reads what [`Found::put`] appends.
    ///
    /// # Errors
    /// If it is something else.
    pub fn take(from: &mut Take<'_>) -> Result<Found, Malformed> {
        Ok(Found { path: from.bytes()?.to_vec(), attr: Attr::take(from)? })
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::{Ino, Mode, Position};

    use super::*;

    fn attr(kind: Kind, size: u64, mtime: i64) -> Attr {
        Attr {
            ino: Ino(1 << 50),
            kind,
            mode: Mode(0o4640),
            nlink: 2,
            uid: 3,
            gid: 4,
            rdev: 5,
            size,
            allocated: 7,
            atime: Time(-8),
            mtime: Time(mtime),
            ctime: Time(10),
            btime: Time(11),
            parent: Ino(12),
            flags: Attr::XATTRS,
            position: Position(1 << 40),
        }
    }

    #[test]
    fn what_is_found_survives_its_way_and_cut_bytes_are_refused() {
        let found = Found { path: b"/a/\xff".to_vec(), attr: attr(Kind::File, 6, 9) };
        let mut bytes = Vec::new();
        found.put(&mut bytes);
        assert_eq!(Found::take(&mut Take::new(&bytes)), Ok(found));
        for cut in 0..bytes.len() {
            assert!(Found::take(&mut Take::new(&bytes[..cut])).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn names_meet_all_conditions_or_are_left_out() {
        let check = |conditions: &Conditions, kind, size, mtime, expect: bool| {
            let attr = attr(kind, size, mtime);
            let seen = Seen { path: b"/dir/a.log", name: b"a.log", attr: &attr, depth: 1 };
            assert_eq!(conditions.are_met_by(&seen), expect, "{conditions:?}: {kind:?} {size} {mtime}");
        };
        let all = Conditions::default();
        check(&all, Kind::Dir, 0, 0, true);
        let some = Conditions {
            name: Pattern::new("*.log").ok(),
            kind: Some(Kind::File),
            size_min: Some(10),
            size_max: Some(20),
            mtime_min: Some(Time(-5)),
            mtime_max: Some(Time(5)),
            depth_max: Some(3),
        };
        for (kind, size, mtime, expect) in [
            (Kind::File, 10, -5, true),
            (Kind::File, 20, 5, true),
            (Kind::Dir, 15, 0, false),
            (Kind::File, 9, 0, false),
            (Kind::File, 21, 0, false),
            (Kind::File, 15, -6, false),
            (Kind::File, 15, 6, false),
        ] {
            check(&some, kind, size, mtime, expect);
        }
        check(&Conditions { name: Pattern::new("*.txt").ok(), ..all.clone() }, Kind::File, 0, 0, false);
        for conditions in [all, some] {
            assert_eq!(Conditions::from_json(&conditions.to_json()), Some(conditions));
        }
        for bad in [json!({ "type": "door" }), json!({ "name": "a[" }), json!({ "size_min": -1 })] {
            assert_eq!(Conditions::from_json(&bad), None, "{bad}");
        }
    }
}
