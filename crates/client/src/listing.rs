//! Listings of directories, and the names that a client caches from them.

use std::time::Duration;

use chiton_types::{Ino, Name, Refusal};
use chiton_wire::{Answer, Call, DirEntry, Query};

use crate::cache::Since;
use crate::client::{Client, Entry, Listed, Lookup};
use crate::complete_dirs::Part;
use crate::service::Caller;

impl Client {
    /// About `entries_max` entries of a directory after `cookie` (0: from the start), without `.` and `..`, and
    /// whether these were the last. With `plus` each comes as a lookup would answer.
    ///
    /// # Errors
    /// [`Refusal::NotDir`], [`Refusal::Access`].
    pub fn readdir(
        &self,
        caller: &Caller<'_>,
        dir: Ino,
        cookie: u64,
        entries_max: u32,
        plus: bool,
    ) -> Result<(Vec<Listed>, bool), Refusal> {
        let since = self.since();
        let query = Query::ReadDir { dir, cookie, entries_max, plus, part_end: None };
        let Answer::Entries { entries, end, parent_leased, parent_open } =
            self.ask(caller, Call::Query(query))?
        else {
            return Err(Refusal::Io);
        };
        let ttl_of_all = self.learn_page(since, (dir, cookie), (&entries, end), (parent_leased, parent_open));
        let listed = |entry: DirEntry| {
            let plus = entry.attr.map(|(attr, lease)| {
                let ttl = match ttl_of_all {
                    Some(ttl) => ttl,
                    None => self.core.name_ttl(&*self.service, since, dir, &entry.name),
                };
                Entry { ttl, ..self.entry(since, None, attr, lease) }
            });
            Listed { name: entry.name, ino: entry.ino, kind: entry.kind, cookie: entry.cookie, entry: plus }
        };
        Ok((entries.into_iter().map(listed).collect(), end))
    }

    /// Whether it remembers names that listings showed: one in the process of its server asks instead.
    pub fn remembers_names(&self) -> bool {
        !self.core.embedded && !self.core.cache.is_nothing()
    }

    /// The inode of a name, as [`Client::lookup`] would answer, if that is known here under leases. Sends no message.
    pub fn remembered(&self, caller: &Caller<'_>, dir: Ino, name: &Name) -> Option<Lookup> {
        self.look_in_cache(caller, self.since(), dir, name)
    }

    /// Keeps what a page of a listing says: how long the kernel may keep each name, if that is the same for all. All names of a page are in one
    /// directory, or in one part of it.
    fn learn_page(
        &self,
        since: Since,
        (dir, cookie): (Ino, u64),
        (entries, end): (&[DirEntry], bool),
        (leased, open): (bool, bool),
    ) -> Option<Duration> {
        let (recalls, cache) = (self.service.recalls(), &self.core.cache);
        match entries.first() {
            Some(first) => cache.learn_parent(recalls, since, (dir, &first.name), leased, open),
            // Which part has no names is not known.
            None if cache.is_whole_since(since, dir) => cache.learn_dir(recalls, since, dir, leased, open),
            None => {}
        }
        if leased {
            let mut names = entries.iter().map(|entry| (&entry.name, entry.cookie));
            cache.listed(recalls, dir, Part { since, cookie, names: &mut names, end });
        }
        cache.learn_page(recalls, since, dir, (entries, leased));
        match entries.first().filter(|_| leased) {
            None => Some(Duration::ZERO),
            Some(_) if self.core.records_names() => None,
            Some(first) => Some(self.core.name_ttl(&*self.service, since, dir, &first.name)),
        }
    }
}
