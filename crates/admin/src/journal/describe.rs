//! An event as a line for people.

use chiton_model::{Body, Event, Over};
use chiton_types::{Name, Time};

use crate::journal::fields::{kind_name, octal, text};

/// A description of the event.
pub fn describe(event: &Event) -> String {
    match event {
        Event::Make { parent, name, ino, kind, mode, uid, gid, content, .. } => {
            let content = match content.len() {
                0 => String::new(),
                n => format!(", {n} bytes"),
            };
            let (kind, mode) = (kind_name(*kind), octal(mode.0));
            format!(
                "make {kind} {} in {parent} as {ino}, mode {mode}, owner {uid}:{gid}{content}",
                quoted(name)
            )
        }
        Event::Link { parent, name, ino, .. } => format!("link {ino} as {} in {parent}", quoted(name)),
        Event::Unlink { parent, name, ino, orphan, .. } => {
            let orphan = if *orphan { ", which is open" } else { "" };
            format!("unlink {} in {parent}, inode {ino}{orphan}", quoted(name))
        }
        Event::Rename { from, from_name, to, to_name, ino, over, .. } => {
            let over = match over {
                Over::Nothing => String::new(),
                Over::Replaced { ino, orphan: false } => format!(", replacing {ino}"),
                Over::Replaced { ino, orphan: true } => format!(", replacing {ino}, which is open"),
                Over::Exchanged { ino } => format!(", exchanged with {ino}"),
            };
            format!(
                "rename {} in {from} to {} in {to}, inode {ino}{over}",
                quoted(from_name),
                quoted(to_name)
            )
        }
        Event::SetAttr { ino, mode, uid, gid, size, atime, mtime, .. } => {
            let mut set = Vec::new();
            set.extend(mode.map(|mode| format!("mode {}", octal(mode.0))));
            set.extend(uid.map(|uid| format!("owner {uid}")));
            set.extend(gid.map(|gid| format!("group {gid}")));
            set.extend(size.map(|size| format!("size {size}")));
            set.extend(atime.map(|time| format!("atime {}", utc(time))));
            set.extend(mtime.map(|time| format!("mtime {}", utc(time))));
            format!("setattr {ino}: {}", if set.is_empty() { "ctime".to_owned() } else { set.join(", ") })
        }
        Event::Write { ino, body, size, .. } => match body {
            Body::Inline(bytes) => format!("write {ino}: {} bytes inline, size {size}", bytes.len()),
            Body::Extents(extents) => {
                let bytes: u64 = extents.iter().map(|e| u64::from(e.len)).sum();
                format!("write {ino}: {bytes} bytes in {} extents, size {size}", extents.len())
            }
        },
        Event::Clone { from, from_offset, to, to_offset, len, .. } => {
            format!("clone {len} bytes of {from} at {from_offset} to {to} at {to_offset}")
        }
        Event::Revert { ino, to } => format!("revert {ino} to {} bytes", to.size),
        Event::Remap { ino, extents } => format!("remap {ino}: {} extents", extents.len()),
        Event::Xattr { ino, name, value, .. } => {
            let name = String::from_utf8_lossy(name);
            match value {
                Some(value) => format!("set xattr {name:?} of {ino}, {} bytes", value.len()),
                None => format!("remove xattr {name:?} of {ino}"),
            }
        }
        Event::Reclaim { ino, from_chunk } => format!("reclaim {ino} from chunk {from_chunk}"),
        Event::Swept { blocks } => format!("swept {} blocks", blocks.len()),
        Event::Reserve { shard, counter_end } => {
            format!("reserve inode numbers of shard {shard} below {counter_end}")
        }
        Event::SessionOpened { session, .. } => format!("session {session} opened"),
        Event::SessionClosed { session } => format!("session {session} closed"),
        Event::Restore { parent, name, ino, .. } => {
            format!("restore {ino} as {} in {parent}", quoted(name))
        }
        Event::Touch { ino, .. } => format!("touch directory {ino}"),
        Event::Policy(change) => {
            let path = String::from_utf8_lossy(&change.path);
            match &change.text {
                Some(text) => {
                    format!("policy {} of {} ({path:?}), {} bytes", change.version, change.ino, text.len())
                }
                None => format!("policy {} removed from {} ({path:?})", change.version, change.ino),
            }
        }
        Event::Decoupled(d) => {
            let branch = d.branch.as_ref().map(|name| format!(", branch {}", quoted(name)));
            format!("decoupling {} of {} for {:?}{}", d.id, d.root(), d.identity, branch.unwrap_or_default())
        }
        Event::Attached(a) => {
            format!("decoupling {} goes on with {:?}, client {}", a.id, a.identity, a.generation)
        }
        Event::Granted { id, ranges } => {
            let count: u64 = ranges.iter().map(|(first, end)| end.0.saturating_sub(first.0)).sum();
            format!("decoupling {id} may use {count} more inode numbers")
        }
        Event::Merged(merged) => match merged.state.window {
            None => format!("decoupling {} is merged up to {}", merged.id, merged.state.merged),
            Some((upto, done)) => {
                format!("decoupling {} is merged by {done} events of its window up to {upto}", merged.id)
            }
        },
        Event::DecouplingEnded { id } => format!("decoupling {id} ends"),
        Event::Skipped { count: 1 } => "nothing".to_owned(),
        Event::Skipped { count } => format!("nothing, in {count} positions"),
    }
}

fn quoted(name: &Name) -> String {
    format!("\"{}\"", text(name).escape_default().to_string().replace("\\\\x", "\\x"))
}

/// A time in UTC, to the millisecond: `2026-11-22 19:47:38.123`.
pub fn utc(time: Time) -> String {
    let (secs, millis) = (time.secs(), time.subsec_nanos() / 1_000_000);
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    // Days of the Gregorian calendar, counted from 1 March 0000, in eras of 400 years.
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}.{millis:03}")
}

#[cfg(test)]
mod tests {
    use chiton_types::{Ino, Kind, Mode};

    use super::*;

    #[test]
    fn lines_say_what_happened() {
        let name = |bytes: &[u8]| Name::new(bytes).expect("a name");
        let make = Event::Make {
            parent: Ino::ROOT,
            name: name(b"a b"),
            ino: Ino(7),
            kind: Kind::File,
            mode: Mode(0o644),
            uid: 1,
            gid: 2,
            rdev: 0,
            time: Time(0),
            content: vec![1],
        };
        assert_eq!(describe(&make), "make file \"a b\" in 1 as 7, mode 0644, owner 1:2, 1 bytes");
        let link = Event::Link { parent: Ino(1), name: name(b"\xff\"\n"), ino: Ino(7), time: Time(0) };
        assert_eq!(describe(&link), "link 7 as \"\\xff\\\"\\n\" in 1");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let check = |secs, expect: &str| assert_eq!(utc(Time::from_parts(secs, 7_000_000)), expect);
        check(0, "1970-01-01 00:00:00.007");
        check(951_782_399, "2000-02-28 23:59:59.007");
        check(951_782_400, "2000-02-29 00:00:00.007");
        check(1_763_841_600, "2025-11-22 20:00:00.007");
        check(-1, "1969-12-31 23:59:59.007");
    }
}
