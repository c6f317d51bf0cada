//! Pages of listings that the kernel had no room for: the rest is shown next, without another message.
//!
//! ```text
//!   READDIRPLUS ─▶ a page of 128 entries ─▶ 24 fit the reply
//!   READDIRPLUS ─▶ the rest of the page: each name as the client's cache has it now ─▶ 24 more
//!                      └ a name that the cache does not know any more: the rest is dropped, and the server is asked
//! ```
//!
//! Invariants:
//! - A kept page says which names there were, and nothing else. Attributes, and how long the kernel may keep them, come from the client's
//!   cache at the moment of the reply, which is true under leases.
//! - A name that was removed meanwhile is not shown. A listing that begins anew asks anew.

use chiton_client::{Entry, Listed, Lookup};
use chiton_types::Name;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// Open directories with a kept page; others do without.
const HANDLES_MAX: usize = 1024;

/// Entries of a directory, all of them from a cookie on to the last.
#[derive(Debug)]
pub(crate) struct Page {
    /// Entries behind this cookie.
    pub(crate) from: u64,
    pub(crate) entries: Vec<Listed>,
    /// There are no more behind them.
    pub(crate) end: bool,
}

impl Page {
    /// The entries behind a cookie.
    pub(crate) fn after(&self, cookie: u64) -> &[Listed] {
        &self.entries[self.entries.partition_point(|entry| entry.cookie <= cookie)..]
    }

    /// An entry as it is now; nothing inside if its name is gone. `None` if its state is not known.
    pub(crate) fn renewed(
        entry: &Listed,
        remembered: impl FnOnce(&Name) -> Option<Lookup>,
    ) -> Option<Option<Listed>> {
        // An entry without attributes, as one that another client has decoupled, is asked for again.
        entry.entry.as_ref()?;
        Some(match remembered(&entry.name)? {
            Lookup::Absent { .. } => None,
            Lookup::Found { attr, ttl, attr_ttl } => {
                let (name, ino, kind, cookie) = (entry.name.clone(), attr.ino, attr.kind, entry.cookie);
                Some(Listed { name, ino, kind, cookie, entry: Some(Entry { attr, ttl, attr_ttl }) })
            }
        })
    }
}

/// Entries that were read ahead of the kernel in one open directory.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    page: Option<Page>,
    is_useless: bool,
}

impl Ahead {
    /// The page that has what follows a cookie; others are dropped. A listing that begins anew has none.
    pub(crate) fn take(&mut self, cookie: u64) -> Option<Page> {
        self.page.take().filter(|page| cookie > 0 && page.from <= cookie && !page.after(cookie).is_empty())
    }

    pub(crate) fn keep(&mut self, page: Page) {
        self.page = Some(page);
    }

    /// The client does not know what becomes of names here: nothing is kept from now on.
    pub(crate) fn give_up(&mut self) {
        self.is_useless = true;
    }

    pub(crate) fn is_useless(&self) -> bool {
        self.is_useless
    }
}

/// Of all open directories, by the number of the handle.
#[derive(Debug, Default)]
pub(crate) struct ListingPages(Mutex<HashMap<u64, Ahead>>);

impl ListingPages {
    /// Entries that were read ahead at a handle. The kernel has one request of a handle under way.
    pub(crate) fn take(&self, handle: u64) -> Ahead {
        self.0.lock().remove(&handle).unwrap_or_default()
    }

    pub(crate) fn put(&self, handle: u64, ahead: Ahead) {
        let mut pages = self.0.lock();
        if pages.len() < HANDLES_MAX && (ahead.page.is_some() || ahead.is_useless) {
            pages.insert(handle, ahead);
        }
    }

    /// The handle is closed.
    pub(crate) fn over(&self, handle: u64) {
        self.0.lock().remove(&handle);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chiton_types::{Ino, Kind};

    use super::*;

    fn page(cookies: &[u64]) -> Page {
        let entry = |&cookie: &u64| Listed {
            name: Name::try_from("n").expect("a name"),
            ino: Ino(cookie),
            kind: Kind::File,
            cookie,
            entry: None,
        };
        Page { from: 10, entries: cookies.iter().map(entry).collect(), end: false }
    }

    #[test]
    fn a_page_serves_what_follows_it_and_nothing_else() {
        let check = |cookie: u64, expect: Option<&[u64]>| {
            let mut ahead = Ahead::default();
            ahead.keep(page(&[17, 23, 23, 90]));
            let taken = ahead.take(cookie);
            let cookies: Option<Vec<u64>> =
                taken.map(|page| page.after(cookie).iter().map(|entry| entry.cookie).collect());
            assert_eq!(cookies.as_deref(), expect, "{cookie}");
            assert!(ahead.take(17).is_none(), "it was taken");
        };
        check(17, Some(&[23, 23, 90]));
        check(23, Some(&[90]));
        check(10, Some(&[17, 23, 23, 90]));
        // Before it, behind it, and from the start.
        check(9, None);
        check(90, None);
        check(0, None);
    }

    #[test]
    fn entries_are_shown_as_they_are_now() {
        let mut listed = page(&[17]).entries.remove(0);
        assert_eq!(Page::renewed(&listed, |_| panic!("it had no attributes")), None);
        let attr = chiton_types::Attr {
            ino: Ino(5),
            kind: Kind::Dir,
            mode: chiton_types::Mode(0o755),
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            allocated: 0,
            atime: chiton_types::Time(0),
            mtime: chiton_types::Time(0),
            ctime: chiton_types::Time(0),
            btime: chiton_types::Time(0),
            parent: Ino(1),
            flags: 0,
            position: chiton_types::Position(1),
        };
        let ttl = Duration::from_secs(1);
        listed.entry = Some(Entry { attr: attr.clone(), ttl, attr_ttl: ttl });
        assert_eq!(Page::renewed(&listed, |_| None), None);
        assert_eq!(Page::renewed(&listed, |_| Some(Lookup::Absent { ttl })), Some(None));
        // Another inode has the name by now.
        let found = Lookup::Found { attr, ttl: Duration::ZERO, attr_ttl: ttl };
        let now = Page::renewed(&listed, |_| Some(found)).flatten().expect("it is there");
        assert_eq!((now.ino, now.kind, now.cookie), (Ino(5), Kind::Dir, 17));
        assert_eq!(now.entry.map(|entry| entry.ttl), Some(Duration::ZERO));
    }
}
