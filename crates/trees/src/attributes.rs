//! chmod -R and chown -R.
//!
//! Invariants:
//! - A directory that gains rights is changed before it is read, so that the new rights let its names be changed.
//! - A directory whose owner loses the right to read or search it is changed when everything is read.

use chiton_client::{Client, Performed, Pipeline};
use chiton_model::{AttrChange, Op};
use chiton_types::{Attr, Ino, Kind, Name, Refusal};

use crate::paths::{DirId, Paths};
use crate::walk::Walk;
use crate::{Place, Refused, Watch};

/// Operations under way before more is read.
const PENDING_MAX: usize = 8_000;
/// The mode bits that an owner needs to read a directory and to reach its names.
const READABLE: u16 = 0o500;

/// Totals of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Names that were looked at.
    pub names: u64,
    /// Inodes that were changed.
    pub changed: u64,
    /// Number of inodes whose change the server refused.
    pub refused: u64,
    /// Whether the watch ended it.
    pub stopped: bool,
}

/// Changes these places, and with `recursive` everything below them, as `wanted` says of the present attributes. `doing` stands in
/// reports.
pub fn change(
    client: &Client,
    places: &[Place],
    recursive: bool,
    doing: &'static str,
    wanted: &dyn Fn(&Attr) -> Option<AttrChange>,
    watch: &mut dyn Watch,
) -> Changed {
    let caller = client.caller();
    let mut work = Work {
        recursive,
        doing,
        wanted,
        paths: Paths::default(),
        walk: Walk::new(client, true),
        pipeline: Pipeline::new(client, &caller),
        last: Vec::new(),
        done: Changed::default(),
        watch,
    };
    for place in places {
        work.meet(At::Place(&place.path), &place.attr);
    }
    work.run();
    work.done
}

/// The place of a name.
#[derive(Clone, Copy)]
enum At<'a> {
    Place(&'a [u8]),
    In(DirId, &'a Name),
}

/// A change under way.
enum Tag {
    /// To be entered afterwards, if it is to be read.
    Dir(DirId, Option<Ino>),
    Name(DirId, Name),
    Place(Vec<u8>),
}

struct Work<'a> {
    recursive: bool,
    doing: &'static str,
    wanted: &'a dyn Fn(&Attr) -> Option<AttrChange>,
    paths: Paths,
    walk: Walk<'a, DirId>,
    pipeline: Pipeline<'a, Tag>,
    /// Directories that are changed when everything is read.
    last: Vec<(DirId, Op)>,
    done: Changed,
    watch: &'a mut dyn Watch,
}

impl Work<'_> {
    fn run(&mut self) {
        loop {
            if self.watch.is_stopped() && !self.done.stopped {
                self.done.stopped = true;
                self.walk.stop();
            }
            if let Some((tag, result)) = self.pipeline.ready() {
                self.answered(tag, result);
                continue;
            }
            if self.pipeline.pending() < PENDING_MAX && self.read() {
                continue;
            }
            if let Some((tag, result)) = self.pipeline.next() {
                self.answered(tag, result);
            } else if self.pipeline.pending() > 0 {
                self.pipeline.flush();
            } else if self.last.is_empty() || self.done.stopped {
                return;
            } else {
                // Those below before those above: an owner who can read a directory again finds in it what is left to do.
                for (dir, op) in std::mem::take(&mut self.last).into_iter().rev() {
                    self.pipeline.push(Tag::Dir(dir, None), op);
                }
            }
        }
    }

    /// Takes a page of a directory. False if none waits to be read.
    fn read(&mut self) -> bool {
        let Some(page) = self.walk.next() else { return false };
        match page.entries {
            Ok(_) if self.done.stopped => {}
            Ok(entries) => {
                for entry in entries {
                    match entry.attr {
                        Ok(attr) => self.meet(At::In(page.dir, &entry.name), &attr),
                        Err(refusal) => {
                            self.refuse(self.paths.path_in(page.dir, &entry.name), refusal, "look at")
                        }
                    }
                }
            }
            Err(refusal) => self.refuse(self.paths.path(page.dir), refusal, "list"),
        }
        self.watch.progress(self.done.names);
        true
    }

    /// An inode that is gone meanwhile needs no change.
    fn refuse(&mut self, path: Vec<u8>, refusal: Refusal, doing: &'static str) {
        if refusal != Refusal::NotFound && refusal != Refusal::Stale {
            self.done.refused += 1;
            self.watch.refused(Refused { path, doing: doing.into(), refusal });
        }
    }

    fn meet(&mut self, at: At<'_>, attr: &Attr) {
        self.done.names += 1;
        let change = (self.wanted)(attr);
        let op = change.map(|change| Op::SetAttr { ino: attr.ino, change });
        if attr.kind == Kind::Dir && self.recursive {
            let dir = match at {
                At::Place(path) => self.paths.root(path),
                At::In(up, name) => self.paths.add(up, name),
            };
            let closes = change
                .and_then(|change| change.mode)
                .is_some_and(|mode| attr.mode.0 & READABLE & !mode.0 != 0);
            match op {
                Some(op) if closes => {
                    self.last.push((dir, op));
                    self.walk.enter(dir, attr.ino);
                }
                Some(op) => {
                    self.pipeline.push(Tag::Dir(dir, Some(attr.ino)), op);
                }
                None => self.walk.enter(dir, attr.ino),
            }
        } else if let Some(op) = op {
            let tag = match at {
                At::Place(path) => Tag::Place(path.to_vec()),
                At::In(dir, name) => Tag::Name(dir, name.clone()),
            };
            self.pipeline.push(tag, op);
        }
    }

    fn answered(&mut self, tag: Tag, result: Performed) {
        if let Tag::Dir(dir, Some(ino)) = &tag
            && !self.done.stopped
        {
            // Also after a refusal: the names in it may be others'.
            self.walk.enter(*dir, *ino);
        }
        match result {
            Ok(_) => self.done.changed += 1,
            Err(refusal) => {
                let path = match tag {
                    Tag::Dir(dir, _) => self.paths.path(dir),
                    Tag::Name(dir, name) => self.paths.path_in(dir, &name),
                    Tag::Place(path) => path,
                };
                self.refuse(path, refusal, self.doing);
            }
        }
    }
}
