//! Reading many directories, page by page, several questions under way.
//!
//! Invariants:
//! - A page of subdirectories is read before the next page of their parent, so what waits to be read grows with depth, not with width.

use std::collections::VecDeque;

use chiton_client::{Client, InFlight, Listed};
use chiton_types::{Attr, Ino, Kind, Name, Refusal};

/// Entries asked for at once.
const PAGE_ENTRIES: u32 = 2_000;
/// Questions under way at once.
const READS_AHEAD: usize = 32;

/// `D` names a directory.
pub(crate) struct Walk<'a, D> {
    client: &'a Client,
    with_attributes: bool,
    /// Last in, first out.
    todo: Vec<Part<D>>,
    ahead: VecDeque<(Part<D>, InFlight<Entries>)>,
    is_stopped: bool,
}

/// Entries, and whether they are the last.
type Entries = (Vec<Listed>, bool);

/// The entries of a directory after a cookie.
struct Part<D> {
    dir: D,
    ino: Ino,
    cookie: u64,
}

/// Some entries of a directory.
pub(crate) struct Page<D> {
    pub(crate) dir: D,
    pub(crate) ino: Ino,
    /// [`Refusal::NotFound`] if the directory is gone meanwhile.
    pub(crate) entries: Result<Vec<Entry>, Refusal>,
    /// Whether no more follow.
    pub(crate) is_last: bool,
}

pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) ino: Ino,
    pub(crate) kind: Kind,
    /// [`Refusal::NotFound`] if it is gone meanwhile, and where attributes are not asked for.
    pub(crate) attr: Result<Attr, Refusal>,
}

impl<'a, D: Copy> Walk<'a, D> {
    pub(crate) fn new(client: &'a Client, with_attributes: bool) -> Walk<'a, D> {
        Walk { client, with_attributes, todo: Vec::new(), ahead: VecDeque::new(), is_stopped: false }
    }

    /// Reads this directory next.
    pub(crate) fn enter(&mut self, dir: D, ino: Ino) {
        if !self.is_stopped {
            self.todo.push(Part { dir, ino, cookie: 0 });
        }
    }

    /// Begins to read nothing more.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        self.todo.clear();
    }

    /// Waits for the oldest question. Nothing if no directory waits to be read.
    pub(crate) fn next(&mut self) -> Option<Page<D>> {
        let caller = self.client.caller();
        while self.ahead.len() < READS_AHEAD
            && let Some(part) = self.todo.pop()
        {
            let (ino, cookie) = (part.ino, part.cookie);
            let read = self.client.start_readdir(&caller, ino, cookie, PAGE_ENTRIES, self.with_attributes);
            self.ahead.push_back((part, read));
        }
        let (Part { dir, ino, cookie }, read) = self.ahead.pop_front()?;
        let (listed, end) = match read.wait() {
            Ok(page) => page,
            Err(refusal) => {
                let refusal = if refusal == Refusal::Stale { Refusal::NotFound } else { refusal };
                return Some(Page { dir, ino, entries: Err(refusal), is_last: true });
            }
        };
        let last = listed.last().map(|entry| entry.cookie).filter(|_| !end && !self.is_stopped);
        if let Some(next) = last.filter(|next| *next != cookie) {
            self.todo.push(Part { dir, ino, cookie: next });
        }
        let entries = self.completed(listed);
        Some(Page { dir, ino, entries: Ok(entries), is_last: last.is_none_or(|next| next == cookie) })
    }

    /// Entries with the attributes that a listing lacks.
    fn completed(&self, listed: Vec<Listed>) -> Vec<Entry> {
        let lacks = |entry: &&Listed| self.with_attributes && entry.entry.is_none();
        let missing: Vec<Ino> = listed.iter().filter(lacks).map(|entry| entry.ino).collect();
        let mut found = self.client.stat_each(&missing).into_iter();
        let complete = |entry: Listed| {
            let attr = match entry.entry {
                Some(known) => Ok(known.attr),
                None if self.with_attributes => match found.next() {
                    Some(Err(Refusal::Stale)) | None => Err(Refusal::NotFound),
                    Some(found) => found,
                },
                None => Err(Refusal::NotFound),
            };
            Entry { name: entry.name, ino: entry.ino, kind: entry.kind, attr }
        };
        listed.into_iter().map(complete).collect()
    }
}
