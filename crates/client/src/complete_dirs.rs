//! Directories of which all names are known: a name that is not among them is absent, without a question.
//!
//! ```text
//!   made here ──────────────────────────▶ no names ─┐
//!   listed here, from the start to the end ▶ names ─┴─▶ complete ── what is added here is noted before it is asked for
//! ```
//!
//! Invariants:
//! - No name of a complete directory is missing from its notes: names are noted before the operation that may
//!   add them is sent, and stay noted when they go. So "not noted" means absent, and "noted" means: look elsewhere.
//! - A directory does not become complete while an operation of this client that may add a name is under way in it.
//! - Names are noted by their hashes: two names with one hash cost a question, nothing else.

use chiton_model::{NameUse, Op};
use chiton_types::{Ino, Name};
use hashbrown::{HashMap, HashSet};

use crate::cache::Since;
use crate::plate_inodes::PlateInodes;

/// Listings that are followed at once; beyond, those begun are not.
const LISTINGS_MAX: usize = 64;

pub(crate) struct CompleteDirs {
    dirs: HashMap<Ino, HashSet<u64>>,
    listings: HashMap<Ino, Listing>,
    /// How many operations that may add a name are under way, by directory.
    adding: HashMap<Ino, u32>,
    /// Names noted, of directories and listings.
    noted: usize,
    noted_max: usize,
}

/// A directory that is being listed.
struct Listing {
    /// Before the first part.
    since: Since,
    /// All names up to here are noted: the part that follows begins here or before, where a kernel took less than it was given.
    cookie: u64,
    names: HashSet<u64>,
}

/// A part of a listing, as it was answered.
pub(crate) struct Part<'a> {
    /// Before it was asked for.
    pub(crate) since: Since,
    /// Where it begins; 0: at the start.
    pub(crate) cookie: u64,
    /// Names, and where what follows each begins.
    pub(crate) names: &'a mut dyn Iterator<Item = (&'a Name, u64)>,
    /// The listing ends with this part.
    pub(crate) end: bool,
}

impl CompleteDirs {
    /// Notes at most about so many names.
    pub(crate) fn new(noted_max: usize) -> CompleteDirs {
        CompleteDirs {
            dirs: HashMap::new(),
            listings: HashMap::new(),
            adding: HashMap::new(),
            noted: 0,
            noted_max,
        }
    }

    /// Whether a name is known to be absent.
    pub(crate) fn lacks(&self, dir: Ino, name: &Name) -> bool {
        self.dirs.get(&dir).is_some_and(|names| !names.contains(&name.hash64()))
    }

    /// Whether all names of a directory are known.
    pub(crate) fn knows(&self, dir: Ino) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// Whether no operation that may add a name to a directory is under way.
    pub(crate) fn is_still(&self, dir: Ino) -> bool {
        !self.adding.contains_key(&dir)
    }

    /// An operation is about to be asked for: call [`CompleteDirs::ended`] with the same when it is over.
    pub(crate) fn begins(&mut self, op: &Op) {
        let Some((dir, name)) = added(op) else { return };
        *self.adding.entry(dir).or_default() += 1;
        if let Some(names) = self.dirs.get_mut(&dir) {
            self.noted += usize::from(names.insert(name.hash64()));
            self.limit();
        }
    }

    /// It is answered, or nobody waits for its answer any more.
    pub(crate) fn ended(&mut self, op: &Op) {
        let Some((dir, _)) = added(op) else { return };
        if let Some(count) = self.adding.get_mut(&dir) {
            *count -= 1;
            if *count == 0 {
                self.adding.remove(&dir);
            }
        }
    }

    /// A directory was made here, and nothing in it: there is a lease on it.
    pub(crate) fn made(&mut self, dir: Ino) {
        self.learn(dir, HashSet::new());
    }

    /// A part of a directory was listed. `holds`: the lease on it was not given back since then, and nothing in it
    /// was changed here.
    pub(crate) fn listed(&mut self, dir: Ino, part: Part<'_>, holds: impl Fn(Since) -> bool) {
        let before = self.listings.remove(&dir);
        self.noted -= before.as_ref().map_or(0, |listing| listing.names.len());
        let follows = |listing: &Listing| part.cookie <= listing.cookie;
        let mut listing = match before {
            _ if part.cookie == 0 => Listing { since: part.since, cookie: 0, names: HashSet::new() },
            Some(listing) if follows(&listing) => listing,
            _ => return,
        };
        if self.listings.len() >= LISTINGS_MAX || !holds(listing.since) {
            return;
        }
        for (name, cookie) in part.names {
            listing.names.insert(name.hash64());
            listing.cookie = listing.cookie.max(cookie);
        }
        if part.end {
            return self.learn(dir, listing.names);
        }
        self.noted += listing.names.len();
        self.listings.insert(dir, listing);
        self.limit();
    }

    fn learn(&mut self, dir: Ino, names: HashSet<u64>) {
        if self.noted_max == 0 || self.adding.contains_key(&dir) {
            return;
        }
        self.forget(dir);
        self.noted += names.len();
        self.dirs.insert(dir, names);
        self.limit();
    }

    /// Each directory counts as a name, too.
    fn limit(&mut self) {
        if self.noted + self.dirs.len() > self.noted_max {
            self.clear();
        }
    }

    /// The lease on a directory goes, or the directory.
    pub(crate) fn forget(&mut self, dir: Ino) {
        let names = self.dirs.remove(&dir).map_or(0, |names| names.len());
        let listed = self.listings.remove(&dir).map_or(0, |listing| listing.names.len());
        self.noted -= names + listed;
    }

    /// All leases on the inodes of a plate are void.
    pub(crate) fn void(&mut self, inodes: &PlateInodes) {
        let known = self.dirs.keys().chain(self.listings.keys());
        let dirs: Vec<Ino> = known.copied().filter(|dir| inodes.has(*dir)).collect();
        dirs.into_iter().for_each(|dir| self.forget(dir));
    }

    /// There is too much.
    fn clear(&mut self) {
        self.dirs.clear();
        self.listings.clear();
        self.noted = 0;
    }
}

/// The name that an operation may add to a directory. (An exchange puts others behind names that are there.)
fn added(op: &Op) -> Option<(Ino, &Name)> {
    let footprint = op.footprint();
    let added = footprint.names().find(|touch| matches!(touch.how, NameUse::Given | NameUse::Taken));
    added.map(|touch| (touch.dir, touch.name))
}
