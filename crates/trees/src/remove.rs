//! rm -r.
//!
//! ```text
//!   page of a directory ─┬─ files ───────▶ unlink, in the pipeline
//!                        └─ directories ─▶ read ─▶ their names ─▶ … ─▶ rmdir
//! ```
//!
//! A tree leaves as a whole where the server allows that ([`Client::remove_tree`]), and else name by name.
//!
//! Invariants:
//! - A directory is removed when all its names are gone: after their results, or behind them in the same message.
//! - A directory below which something was refused is not tried, and not reported itself.
//! - A name that is gone meanwhile counts as removed by others, and is no refusal.

use chiton_client::{Client, MessageNumber, Performed, Pipeline};
use chiton_model::Op;
use chiton_types::{Ino, Kind, Name, Refusal};

use crate::paths::push;
use crate::walk::{Page, Walk};
use crate::{Place, Refused, Watch};

/// Operations under way before more is read.
const PENDING_MAX: usize = 8_000;

/// Totals of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Names that were removed, of anything but directories.
    pub files: u64,
    /// Directories that were removed.
    pub dirs: u64,
    /// Trees that left as a whole. The server frees their files and directories afterwards; they are not counted here.
    pub trees: u64,
    /// Names that could not be removed or listed.
    pub refused: u64,
    /// Whether the watch ended it.
    pub stopped: bool,
}

/// Removes everything at and below these places: whole trees where that is possible. Symbolic links are removed, never followed.
pub fn remove(client: &Client, places: &[Place], watch: &mut dyn Watch) -> Removed {
    let (trees, rest) = remove_whole(client, places, watch);
    Removed { trees, ..remove_each(client, &rest, watch) }
}

/// Removes the trees that leave as a whole, and returns their number and the other places.
pub fn remove_whole(client: &Client, places: &[Place], watch: &dyn Watch) -> (u64, Vec<Place>) {
    let caller = client.caller();
    let (mut trees, mut rest) = (0, Vec::new());
    for place in places {
        match &place.name {
            Some((parent, name)) if place.attr.kind == Kind::Dir && !watch.is_stopped() => {
                match client.remove_tree(&caller, *parent, name.as_bytes(), place.attr.ino) {
                    Ok(()) => trees += 1,
                    Err(Refusal::NotFound | Refusal::Stale) => {}
                    Err(_) => rest.push(place.clone()),
                }
            }
            _ => rest.push(place.clone()),
        }
    }
    (trees, rest)
}

/// The same name by name: everything that was removed is freed at the end, and counted.
pub fn remove_each(client: &Client, places: &[Place], watch: &mut dyn Watch) -> Removed {
    let caller = client.caller();
    let mut work = Work {
        dirs: Vec::new(),
        free: Vec::new(),
        walk: Walk::new(client, false),
        pipeline: Pipeline::new(client, &caller),
        is_over_plates: client.service().plates() > 1,
        done: Removed::default(),
        watch,
    };
    for place in places {
        work.begin(place);
    }
    work.run();
    work.done
}

/// A directory that is being emptied.
struct Dir {
    /// The one that holds it; of a place, none.
    up: Option<usize>,
    /// Where it is: directory and name. The root has none, and stays.
    at: Option<(Ino, Name)>,
    /// Path of the place.
    path: Vec<u8>,
    /// Names that have no result yet.
    unanswered: usize,
    /// The message into which the last operation on a name in it went, and how many did.
    message: Option<(MessageNumber, usize)>,
    is_read: bool,
    /// Its own removal is under way.
    is_going: bool,
    /// Something in it stays.
    keeps: bool,
    /// Why its names could not be listed.
    unlisted: Option<Refusal>,
}

/// An operation under way.
enum Tag {
    Name(usize, Name),
    Dir(usize),
    Place(Vec<u8>),
}

struct Work<'a> {
    dirs: Vec<Option<Dir>>,
    free: Vec<usize>,
    walk: Walk<'a, usize>,
    pipeline: Pipeline<'a, Tag>,
    /// The removal of a directory may wait for its plate: many wait at the same time.
    is_over_plates: bool,
    done: Removed,
    watch: &'a mut dyn Watch,
}

impl Work<'_> {
    fn begin(&mut self, place: &Place) {
        if place.attr.kind == Kind::Dir {
            let at = place.name.clone();
            let dir = self.add(Dir::new(None, at, place.path.clone()));
            self.walk.enter(dir, place.attr.ino);
        } else if let Some((parent, name)) = place.name.clone() {
            self.pipeline.push(Tag::Place(place.path.clone()), Op::Unlink { parent, name });
        }
    }

    fn run(&mut self) {
        loop {
            if self.watch.is_stopped() && !self.done.stopped {
                self.done.stopped = true;
                self.walk.stop();
            }
            if let Some((tag, result)) = self.pipeline.ready() {
                self.answered(tag, result);
                self.watch.progress(self.done.files + self.done.dirs);
                continue;
            }
            if self.pipeline.pending() < PENDING_MAX
                && let Some(page) = self.walk.next()
            {
                if !self.done.stopped {
                    self.empty(page);
                }
                continue;
            }
            match self.pipeline.next() {
                Some((tag, result)) => {
                    self.answered(tag, result);
                    self.watch.progress(self.done.files + self.done.dirs);
                }
                None if self.pipeline.pending() == 0 => return,
                None => self.pipeline.flush(),
            }
        }
    }

    fn add(&mut self, dir: Dir) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.dirs[at] = Some(dir);
                at
            }
            None => {
                self.dirs.push(Some(dir));
                self.dirs.len() - 1
            }
        }
    }

    fn dir(&mut self, id: usize) -> &mut Dir {
        self.dirs[id].as_mut().expect("a directory stays until it has its result")
    }

    fn empty(&mut self, page: Page<usize>) {
        let id = page.dir;
        match page.entries {
            Ok(entries) => {
                for entry in entries {
                    self.dir(id).unanswered += 1;
                    if entry.kind == Kind::Dir {
                        let at = Some((page.ino, entry.name));
                        let below = self.add(Dir::new(Some(id), at, Vec::new()));
                        self.walk.enter(below, entry.ino);
                    } else {
                        let op = Op::Unlink { parent: page.ino, name: entry.name.clone() };
                        let message = self.pipeline.push(Tag::Name(id, entry.name), op);
                        self.dir(id).goes_in(message);
                    }
                }
            }
            // Gone: its removal finds that out.
            Err(Refusal::NotFound) => {}
            Err(refusal) => self.dir(id).unlisted = Some(refusal),
        }
        if page.is_last {
            self.dir(id).is_read = true;
            self.try_remove(id);
        }
    }

    /// Removes a directory if its names are gone, or go before it in the same message.
    fn try_remove(&mut self, id: usize) {
        let (stopped, is_over_plates) = (self.done.stopped, self.is_over_plates);
        let dir = self.dir(id);
        if !dir.is_read || dir.is_going {
            return;
        }
        let Some((parent, name)) = dir.at.clone().filter(|_| !dir.keeps && !stopped) else {
            if dir.unanswered == 0 {
                self.over(id, false);
            }
            return;
        };
        let op = Op::Rmdir { parent, name };
        if is_over_plates {
            if dir.unanswered == 0 {
                dir.is_going = true;
                self.pipeline.push_alone(Tag::Dir(id), op);
            }
            return;
        }
        let (unanswered, message) = (dir.unanswered, dir.message);
        let is_last = |(message, count)| count == unanswered && self.pipeline.goes_in(&op, message);
        if unanswered > 0 && !message.is_some_and(is_last) {
            return;
        }
        self.dir(id).is_going = true;
        let message = self.pipeline.push(Tag::Dir(id), op);
        if let Some(up) = self.dir(id).up {
            self.dir(up).goes_in(message);
            self.try_remove(up);
        }
    }

    fn answered(&mut self, tag: Tag, result: Performed) {
        match tag {
            Tag::Place(path) => match result {
                Ok(_) => self.done.files += 1,
                Err(Refusal::NotFound | Refusal::Stale) => {}
                Err(refusal) => self.refuse(path, "remove", refusal),
            },
            Tag::Name(id, name) => {
                match result {
                    Ok(_) => self.done.files += 1,
                    Err(Refusal::NotFound | Refusal::Stale) => {}
                    Err(refusal) => {
                        self.dir(id).keeps = true;
                        let mut path = self.path(id);
                        push(&mut path, name.as_bytes());
                        self.refuse(path, "remove", refusal);
                    }
                }
                self.dir(id).unanswered -= 1;
                self.try_remove(id);
            }
            Tag::Dir(id) => {
                let is_gone = match result {
                    Ok(_) => {
                        self.done.dirs += 1;
                        true
                    }
                    Err(Refusal::NotFound | Refusal::Stale) => true,
                    Err(refusal) => {
                        let path = self.path(id);
                        let (keeps, unlisted) = (self.dir(id).keeps, self.dir(id).unlisted);
                        match unlisted {
                            _ if keeps => {}
                            Some(why) if refusal == Refusal::NotEmpty => self.refuse(path, "list", why),
                            _ => self.refuse(path, "remove", refusal),
                        }
                        false
                    }
                };
                self.over(id, is_gone);
            }
        }
    }

    /// Nothing more happens to a directory.
    fn over(&mut self, id: usize, is_gone: bool) {
        if let Some(why) = self.dir(id).unlisted.filter(|_| !is_gone && self.dir(id).at.is_none()) {
            let path = self.path(id);
            self.refuse(path, "list", why);
        }
        let Some(Dir { up, .. }) = self.dirs[id].take() else { return };
        self.free.push(id);
        if let Some(up) = up {
            let dir = self.dir(up);
            dir.unanswered -= 1;
            dir.keeps |= !is_gone;
            self.try_remove(up);
        }
    }

    fn refuse(&mut self, path: Vec<u8>, doing: &'static str, refusal: Refusal) {
        self.done.refused += 1;
        self.watch.refused(Refused { path, doing: doing.into(), refusal });
    }

    fn path(&mut self, id: usize) -> Vec<u8> {
        let (mut names, mut at) = (Vec::new(), id);
        while let Dir { up: Some(up), at: Some((_, name)), .. } = self.dir(at) {
            names.push(name.clone());
            at = *up;
        }
        let mut path = self.dir(at).path.clone();
        names.iter().rev().for_each(|name| push(&mut path, name.as_bytes()));
        path
    }
}

impl Dir {
    fn new(up: Option<usize>, at: Option<(Ino, Name)>, path: Vec<u8>) -> Dir {
        Dir {
            up,
            at,
            path,
            unanswered: 0,
            message: None,
            is_read: false,
            is_going: false,
            keeps: false,
            unlisted: None,
        }
    }

    /// An operation on a name in it went into this message.
    fn goes_in(&mut self, message: MessageNumber) {
        self.message = match self.message {
            Some((last, count)) if last == message => Some((message, count + 1)),
            _ => Some((message, 1)),
        };
    }
}
