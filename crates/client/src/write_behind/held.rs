//! The state of write-behind: directories whose names are leased exclusively, inode numbers that came with them, and the server's
//! clock.

use std::collections::VecDeque;
use std::time::Duration;

use chiton_namespace::{ContentIn, InodeFacts};
use chiton_types::{Attr, Ino, ShardId, Time};
use hashbrown::HashMap;

use crate::generations::Generations;

/// After a refusal or a recall the client asks for the names again after so long.
const REST: Duration = Duration::from_millis(500);
/// Numbers asked for at first; twice as many each time that they were used up.
const NUMBERS_FIRST: u32 = 256;
const NUMBERS_MAX: u32 = 16_384;
/// Directories for which the client counts changes of names.
const DIRS_MAX: usize = 4_096;
/// Files made under a held lease that write-behind may write.
const FILES_MAX: usize = 65_536;

/// A directory whose names are held.
pub(super) struct HeldDir {
    /// The link count is an upper bound: names that the server removed are not counted down.
    pub(super) facts: InodeFacts,
    /// Differs from that of earlier leases on the same directory.
    pub(super) lease: u64,
}

/// A file or symbolic link that was made under a lease on the names of its directory. While that lease is held, no other client
/// has seen it.
#[derive(Clone, Copy)]
pub(super) struct MadeHere {
    pub(super) dir: Ino,
    pub(super) lease: u64,
    /// Its content may be in blocks. Attributes do not say so.
    pub(super) is_mapped: bool,
}

#[derive(Clone, Copy, Default)]
struct Tried {
    /// Names changed one by one, each by a request of its own.
    changed: u32,
    not_before: Duration,
}

/// All that is held, and when the client may ask for more.
pub(super) struct Held {
    after: u32,
    dirs: HashMap<Ino, HeldDir>,
    leases: u64,
    files: Generations<Ino, MadeHere>,
    pub(super) numbers: Numbers,
    tried: Generations<Ino, Tried>,
    pub(super) clock: ServerClock,
    /// Calls under way that may change what decisions rest on: meanwhile nothing is decided here.
    pub(super) pauses: usize,
}

impl Held {
    /// The client asks for the names of a directory after it has changed so many of them one by one.
    pub(super) fn new(after: u32) -> Held {
        Held {
            after,
            dirs: HashMap::new(),
            leases: 0,
            files: Generations::new(FILES_MAX),
            numbers: Numbers { ranges: HashMap::new(), batch: NUMBERS_FIRST },
            tried: Generations::new(DIRS_MAX),
            clock: ServerClock::default(),
            pauses: 0,
        }
    }

    /// A directory, if its names are held and no call is under way that could change that.
    pub(super) fn dir(&self, dir: Ino) -> Option<&HeldDir> {
        self.dirs.get(&dir).filter(|_| self.pauses == 0)
    }

    /// A directory whose names are held. A call that could change that may be under way.
    pub(super) fn any_dir(&mut self, dir: Ino) -> Option<&mut HeldDir> {
        self.dirs.get_mut(&dir)
    }

    /// A file that was made under a lease that is still held.
    pub(super) fn made_here(&mut self, ino: Ino) -> Option<MadeHere> {
        let made = *self.files.get(&ino)?;
        self.dir(made.dir).filter(|dir| dir.lease == made.lease).map(|_| made)
    }

    /// The names of a directory are held from now on.
    pub(super) fn hold(&mut self, attr: &Attr) {
        self.leases += 1;
        let facts = InodeFacts::new(attr, ContentIn::Nothing);
        self.dirs.insert(attr.ino, HeldDir { facts, lease: self.leases });
    }

    /// A file was made in a directory whose names are held.
    pub(super) fn made(&mut self, ino: Ino, dir: Ino) {
        let Some(held) = self.dirs.get(&dir) else { return };
        self.files.insert(ino, MadeHere { dir, lease: held.lease, is_mapped: false });
    }

    /// The content of a file may be in blocks from now on.
    pub(super) fn mapped(&mut self, ino: Ino) {
        if let Some(&made) = self.files.get(&ino) {
            self.files.insert(ino, MadeHere { is_mapped: true, ..made });
        }
    }

    /// Other clients may see the file from now on, or it is gone.
    pub(super) fn forget_file(&mut self, ino: Ino) {
        self.files.remove(&ino);
    }

    /// Other clients may see any file from now on.
    pub(super) fn forget_files(&mut self) {
        self.files.clear();
    }

    /// The lease on the names of a directory ends, if there is one. True if there was.
    pub(super) fn release(&mut self, dir: Ino) -> bool {
        self.dirs.remove(&dir).is_some()
    }

    /// All leases are void, and the numbers with them.
    pub(super) fn clear(&mut self) {
        self.dirs.clear();
        self.files.clear();
        self.numbers.ranges.clear();
    }

    /// The server carried out a change of a name that this client asked for.
    pub(super) fn count_change(&mut self, dir: Ino) {
        if self.dirs.contains_key(&dir) {
            return;
        }
        let tried = self.tried.get(&dir).copied().unwrap_or_default();
        self.tried.insert(dir, Tried { changed: tried.changed.saturating_add(1), ..tried });
    }

    /// The server recalled the names of a directory: the client waits before it asks for them again.
    pub(super) fn rest(&mut self, dir: Ino, now: Duration) {
        self.tried.insert(dir, Tried { changed: 0, not_before: now + REST });
    }

    /// How many numbers to ask for with the names of a directory, if it is time to ask.
    pub(super) fn numbers_to_ask_for(&mut self, dir: Ino, now: Duration) -> Option<u32> {
        let tried = self.tried.get(&dir).copied().unwrap_or_default();
        if self.dirs.contains_key(&dir) || tried.changed < self.after || tried.not_before > now {
            return None;
        }
        // Other threads wait for the answer to this question.
        self.tried.insert(dir, Tried { not_before: now + REST, ..tried });
        Some(self.numbers.to_ask_for(dir.shard()))
    }

    /// No numbers are left: the client asks for the names of this directory again, and for more numbers.
    pub(super) fn numbers_used_up(&mut self, dir: Ino) {
        self.dirs.remove(&dir);
        self.numbers.batch = (self.numbers.batch * 2).min(NUMBERS_MAX);
        self.tried.insert(dir, Tried { changed: u32::MAX, not_before: Duration::ZERO });
    }
}

/// Numbers for new inodes, by shard.
pub(super) struct Numbers {
    ranges: HashMap<ShardId, VecDeque<(Ino, Ino)>>,
    batch: u32,
}

impl Numbers {
    fn to_ask_for(&self, shard: ShardId) -> u32 {
        let ranges = self.ranges.get(&shard).into_iter().flatten();
        let left: u64 = ranges.map(|(next, end)| end.0 - next.0).sum();
        if left < u64::from(NUMBERS_FIRST) { self.batch } else { 0 }
    }

    /// The server granted the numbers from `first` up to `end`.
    pub(super) fn grant(&mut self, first: Ino, end: Ino) {
        if first < end {
            self.ranges.entry(first.shard()).or_default().push_back((first, end));
        }
    }

    /// The next number of a shard, if there is one.
    pub(super) fn next(&self, shard: ShardId) -> Option<Ino> {
        self.ranges.get(&shard).and_then(VecDeque::front).map(|(next, _)| *next)
    }

    /// That number is used.
    pub(super) fn take(&mut self, ino: Ino) {
        let Some(ranges) = self.ranges.get_mut(&ino.shard()) else { return };
        let Some((next, end)) = ranges.front_mut() else { return };
        *next = Ino(ino.0 + 1);
        if next >= end {
            ranges.pop_front();
        }
    }
}

/// The server's clock, as far as it is known. It does not go back.
#[derive(Default)]
pub(super) struct ServerClock {
    /// The server's time at a moment of the client's clock.
    shown: Time,
    at: Duration,
    /// The latest time of any change that is known.
    last: Time,
}

impl ServerClock {
    /// The server says what its clock shows. Nothing is made before the names were given, nor before the last change.
    pub(super) fn set(&mut self, shown: Time, at: Duration) {
        (self.shown, self.at) = (shown, at);
        self.seen(shown);
    }

    /// Something was changed at this time.
    pub(super) fn seen(&mut self, time: Time) {
        self.last = self.last.max(time);
    }

    pub(super) fn now(&self, now: Duration) -> Time {
        let passed = i64::try_from(now.saturating_sub(self.at).as_nanos()).unwrap_or(i64::MAX);
        Time(self.shown.0.saturating_add(passed)).max(self.last)
    }
}
