//! The offsets of a directory stream.
//!
//! An offset says where the *next* read continues: 0 begins, 1 is after `.`, 2 after `..`, and a hash (4 and above)
//! is after every name of that hash. So telldir and seekdir work across any change of the directory.
//!
//! ```text
//!   names    .   ..   a(17)   b(23)   c(23)   d(90)
//!   offset   1    2    17      17 *    23      90       * not 23: a read that continues there would lose c
//! ```
//!
//! Invariants:
//! - A reply that is cut between two names of one hash shows the first of them again, and loses none. (Only the
//!   session knows the size of a reply.)
//! - Such names at the very beginning of a reply move on even so: otherwise more of them than fit one reply would
//!   list for ever.

use std::cell::Cell;

use chiton_client::{Caller, Client, Entry, Listed};
use chiton_fuse_session::FileType;
use chiton_types::{Ino, Refusal};

use crate::attr::file_type;
use crate::listing_pages::{Ahead, Page};

/// Bytes of a name, as the mount expects them before it knows the names.
pub(crate) const NAME_BYTES: usize = 12;
/// Entries with attributes in a page of which the mount keeps what the kernel has no room for.
const KEPT_ENTRIES: usize = 128;

const AFTER_DOT: u64 = 1;
const AFTER_DOT_DOT: u64 = 2;
/// Lowest offset that is a hash.
const FIRST_COOKIE: u64 = 4;

pub(crate) struct Row<'a> {
    pub(crate) ino: Ino,
    pub(crate) kind: FileType,
    pub(crate) name: &'a [u8],
    /// The offset from which the next read continues.
    pub(crate) offset: u64,
    /// Its attributes. `.` and `..` have none, since the kernel takes nothing but their numbers; nor has the root of a subtree that
    /// another client has decoupled, of which only the name is shown.
    pub(crate) entry: Option<&'a Entry>,
}

/// A kernel's request for a listing.
pub(crate) struct Wanted {
    pub(crate) dir: Ino,
    pub(crate) offset: u64,
    /// READDIRPLUS: entries come with their attributes.
    pub(crate) plus: bool,
    /// About so many rows fit the reply.
    pub(crate) rows: usize,
}

/// Shows the rows of a directory from an offset on, until `show` returns that the reply is full, or the reply is nearly full, or the end.
/// `ahead` is of the same open directory. The rest of a page stays there, if the client can later report its state.
pub(crate) fn read(
    client: &Client,
    caller: &Caller<'_>,
    wanted: &Wanted,
    ahead: &mut Ahead,
    mut show: impl FnMut(Row<'_>) -> bool,
) -> Result<(), Refusal> {
    let &Wanted { dir, offset, plus, rows } = wanted;
    let (mut start, shown) = (offset, Cell::new(0));
    if start < AFTER_DOT_DOT {
        let parent = client.getattr(dir, None)?.attr.parent;
        for (name, ino, after) in [(&b"."[..], dir, AFTER_DOT), (b"..", parent, AFTER_DOT_DOT)] {
            let row = Row { ino, kind: FileType::Directory, name, offset: after, entry: None };
            if start < after && show(row) {
                return Ok(());
            }
        }
        start = AFTER_DOT_DOT;
    }
    let mut show = |entry: &Listed, offset| {
        shown.set(shown.get() + 1);
        let (ino, kind, name) = (entry.ino, file_type(entry.kind), entry.name.as_bytes());
        show(Row { ino, kind, name, offset, entry: entry.entry.as_ref() })
    };
    if let Some(page) = ahead.take(cookie(offset)) {
        let mut rest = with_offsets(page.after(cookie(offset)), offset);
        let is_full = loop {
            let Some((entry, next)) = rest.next() else { break false };
            match Page::renewed(entry, |name| client.remembered(caller, dir, name)) {
                Some(Some(now)) if show(&now, next) => break true,
                Some(_) => start = next,
                None => {
                    ahead.give_up();
                    break false;
                }
            }
        };
        drop(rest);
        if is_full {
            ahead.keep(page);
            return Ok(());
        }
        if page.end && page.after(cookie(start)).is_empty() {
            return Ok(());
        }
    }
    loop {
        let left = rows.saturating_sub(shown.get()).max(1);
        // The kernel asks again; a page for the last few rows would cost as much as one for a whole reply.
        if shown.get() > 0 && left < rows / 4 {
            return Ok(());
        }
        let keeps = plus && client.remembers_names() && !ahead.is_useless();
        let most = if keeps { left.max(KEPT_ENTRIES) } else { left };
        let from = cookie(start);
        let (entries, end) =
            client.readdir(caller, dir, from, u32::try_from(most).unwrap_or(u32::MAX), plus)?;
        if with_offsets(&entries, start).any(|(entry, offset)| show(entry, offset)) {
            if keeps {
                ahead.keep(Page { from, entries, end });
            }
            return Ok(());
        }
        match entries.last() {
            Some(last) if !end => start = last.cookie,
            _ => return Ok(()),
        }
    }
}

/// The cookie from which a read at `offset` continues behind `.` and `..`.
fn cookie(offset: u64) -> u64 {
    if offset < FIRST_COOKIE { 0 } else { offset }
}

/// The entries with their offsets. `start` is the offset in force before the first.
fn with_offsets(entries: &[Listed], start: u64) -> impl Iterator<Item = (&Listed, u64)> {
    let mut group_start = start;
    entries.iter().enumerate().map(move |(at, entry)| {
        if at > 0 && entries[at - 1].cookie != entry.cookie {
            group_start = entries[at - 1].cookie;
        }
        let is_last_of_hash = entries.get(at + 1).is_none_or(|next| next.cookie != entry.cookie);
        let opens_reply = entry.cookie == entries[0].cookie;
        let offset = if is_last_of_hash || opens_reply { entry.cookie } else { group_start };
        (entry, offset)
    })
}

#[cfg(test)]
mod tests {
    use chiton_types::{Kind, Name};

    use super::*;

    fn entry(name: &str, cookie: u64) -> Listed {
        Listed {
            name: Name::try_from(name).expect("a name"),
            ino: Ino(cookie),
            kind: Kind::File,
            cookie,
            entry: None,
        }
    }

    #[test]
    fn names_of_one_hash_share_their_fate() {
        let check = |cookies: &[u64], start: u64, expect: &[u64]| {
            let entries: Vec<Listed> = cookies.iter().map(|&c| entry("n", c)).collect();
            let offsets: Vec<u64> = with_offsets(&entries, start).map(|(_, offset)| offset).collect();
            assert_eq!(offsets, expect, "{cookies:?} from {start}");
        };
        check(&[], 2, &[]);
        check(&[17, 23, 90], 2, &[17, 23, 90]);
        check(&[17, 23, 23, 90], 2, &[17, 17, 23, 90]);
        check(&[17, 23, 23, 23], 2, &[17, 17, 17, 23]);
        // At the beginning of a reply the listing must get ahead.
        check(&[23, 23, 90], 17, &[23, 23, 90]);
    }

    #[test]
    fn a_listing_cut_anywhere_shows_every_name() {
        let all: Vec<Listed> =
            [17, 23, 23, 40, 90, 90, 90, 95].iter().map(|&c| entry(&format!("n{c}"), c)).collect();
        // A reply holds 3 entries or more; hashes have at most 3 names.
        for reply_entries in 3..=all.len() {
            let (mut offset, mut seen) = (AFTER_DOT_DOT, vec![0; all.len()]);
            loop {
                let from = cookie(offset);
                let rest: Vec<Listed> = all.iter().filter(|e| e.cookie > from).cloned().collect();
                if rest.is_empty() {
                    break;
                }
                for (entry, next) in with_offsets(&rest, offset).take(reply_entries) {
                    let at = all.len() - rest.len()
                        + rest.iter().position(|e| std::ptr::eq(e, entry)).expect("in it");
                    seen[at] += 1;
                    offset = next;
                }
            }
            assert!(seen.iter().all(|&times| times >= 1), "{reply_entries}: {seen:?}");
        }
    }
}
