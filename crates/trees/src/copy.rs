//! cp -r within one file system.
//!
//! ```text
//!   directory ─▶ made, closed to others ─▶ read ─▶ its names ─▶ … all done ─▶ mode, owner, times
//!   file ─▶ content and attributes asked for ─▶ made ─┬─ content in the inode: made with it ──────┬─▶ mode, owner, times
//!                                                     └─ in blocks: shared; of another plate: copied ─┘
//! ```
//!
//! Invariants:
//! - Nothing that exists is changed: a name that is taken is refused, with everything below it, but by a copy that is resumed (`resume.rs`).
//! - A copy has its mode only when it is complete. Until then its owner alone has rights.
//! - Names of one inode in the tree are names of one copy.

mod dirs;
mod resume;

use std::collections::{BTreeMap, VecDeque};

use chiton_client::{Client, InFlight, OpenFlags, Performed, Pipeline};
use chiton_model::{AttrChange, Make, Op, SetTime, XattrHow};
use chiton_types::{Attr, Ino, Kind, Mode, Name, Refusal, Time};

use crate::walk::Walk;
use crate::{Place, Refused, Watch};

/// Operations under way before more is read.
const PENDING_MAX: usize = 4_000;
/// Files whose content is asked for at once.
const QUESTIONS_AHEAD: usize = 64;
/// Attributes that say what a directory is for, not what it holds.
const OWN_XATTRS: &[u8] = b"chiton.";

/// Totals of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files, links and other inodes that were made, and further names of them.
    pub files: u64,
    /// Directories that were made.
    pub dirs: u64,
    /// Bytes of content in the copies.
    pub bytes: u64,
    /// Of these, the bytes that share blocks with the originals.
    pub shared_bytes: u64,
    /// Number of files and directories that could not be copied.
    pub refused: u64,
    /// Whether the watch ended it.
    pub stopped: bool,
}

/// Copies a place and everything below it to a new name in the directory `into`. Modes, times and extended attributes are kept, and
/// owners if root copies.
pub fn copy(client: &Client, from: &Place, into: Ino, name: &Name, watch: &mut dyn Watch) -> Copied {
    copy_since(client, from, (into, name), None, watch)
}

/// The same of a copy that was begun at `since` and cut off: files that are whole stay, and others are copied anew. Names that are
/// older stay, and are refused.
pub fn resume_copy(
    client: &Client,
    from: &Place,
    to: (Ino, &Name),
    since: Time,
    watch: &mut dyn Watch,
) -> Copied {
    copy_since(client, from, to, Some(since), watch)
}

fn copy_since(
    client: &Client,
    from: &Place,
    (into, name): (Ino, &Name),
    since: Option<Time>,
    watch: &mut dyn Watch,
) -> Copied {
    let caller = client.caller();
    let mut work = Work {
        client,
        is_root: caller.uid == 0,
        uid: caller.uid,
        since,
        dirs: Vec::new(),
        links: BTreeMap::new(),
        asked: VecDeque::new(),
        walk: Walk::new(client, true),
        pipeline: Pipeline::new(client, &caller),
        done: Copied::default(),
        watch,
    };
    let top = Dir {
        up: None,
        name: name.clone(),
        attr: from.attr.clone(),
        copy: into,
        xattrs: Vec::new(),
        path: from.path.clone(),
        unanswered: 0,
        // It is not copied itself.
        is_read: false,
    };
    work.dirs.push(Some(top));
    if let Err(refusal) = outside(client, from, into) {
        work.done.refused += 1;
        work.watch.refused(Refused { path: from.path.clone(), doing: "copy into itself".into(), refusal });
        return work.done;
    }
    work.meet(0, name.clone(), from.attr.clone());
    work.run();
    work.done
}

fn has_xattrs(attr: &Attr) -> bool {
    attr.flags & Attr::XATTRS != 0
}

/// Refuses to copy a directory into itself or below.
fn outside(client: &Client, from: &Place, into: Ino) -> Result<(), Refusal> {
    let mut at = into;
    while at != from.attr.ino {
        let up = client.start_stat(at).wait()?.parent;
        if up == at {
            return Ok(());
        }
        at = up;
    }
    Err(Refusal::Invalid)
}

/// A directory whose copy exists, or that holds the copy.
struct Dir {
    up: Option<usize>,
    name: Name,
    attr: Attr,
    copy: Ino,
    /// Extended attributes that the copy lacks: a list for new files in it would hold for those that are copied.
    xattrs: Vec<Vec<u8>>,
    /// Of the first, the path of the place.
    path: Vec<u8>,
    /// Names without a result, and attributes of its own.
    unanswered: usize,
    is_read: bool,
}

/// An inode that is being copied.
struct Job {
    dir: usize,
    name: Name,
    attr: Attr,
    xattrs: Vec<Vec<u8>>,
    content: Body,
    /// A file that the copy which was cut off had left under the name is removed.
    is_anew: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    /// It is made with all that it holds.
    Whole,
    /// The blocks are copied after the file is created.
    Blocks,
    /// It is longer than the content that it is made with.
    Longer,
}

/// Answers that a job waits for.
enum Asked {
    File(InFlight<(Attr, Option<Vec<u8>>)>),
    Link(InFlight<Vec<u8>>),
    Node,
}

/// An operation under way.
enum Tag {
    Made(Job),
    Shared(Job, Ino),
    Attribute(usize, Option<Name>),
    Finished(Job, Ino),
    FinishedDir(usize),
    /// With the copy, if the name may be taken by a copy that was cut off.
    Link(usize, Name, Option<Ino>),
}

/// The copy of an inode with several names.
enum Linked {
    /// It is not made yet: names that wait for it.
    Waiting(Vec<(usize, Name)>),
    Made(Ino),
    Failed(Refusal),
}

/// The last: the names of extended attributes, if the inode has any.
type Question = (Job, Asked, Option<InFlight<Vec<u8>>>);

struct Work<'a> {
    client: &'a Client,
    is_root: bool,
    uid: u32,
    /// When the copy was begun, if it was cut off and is resumed.
    since: Option<Time>,
    dirs: Vec<Option<Dir>>,
    links: BTreeMap<Ino, Linked>,
    asked: VecDeque<Question>,
    walk: Walk<'a, usize>,
    pipeline: Pipeline<'a, Tag>,
    done: Copied,
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
                self.watch.progress(self.done.files + self.done.dirs);
                continue;
            }
            if self.pipeline.pending() < PENDING_MAX && (self.ask_less(QUESTIONS_AHEAD) || self.read()) {
                continue;
            }
            if self.pipeline.pending() < PENDING_MAX && self.ask_less(0) {
                continue;
            }
            match self.pipeline.next() {
                Some((tag, result)) => self.answered(tag, result),
                None if self.pipeline.pending() > 0 => self.pipeline.flush(),
                None if self.asked.is_empty() => return,
                None => drop(self.ask_less(0)),
            }
            self.watch.progress(self.done.files + self.done.dirs);
        }
    }

    // ---- the original -------------------------------------------------------------------------------

    /// Takes a page of a directory. False if none waits to be read.
    fn read(&mut self) -> bool {
        let Some(page) = self.walk.next() else { return false };
        let dir = page.dir;
        match page.entries {
            Ok(_) if self.done.stopped => {}
            Ok(entries) => {
                for entry in entries {
                    match entry.attr {
                        Ok(attr) => self.meet(dir, entry.name, attr),
                        Err(Refusal::NotFound) => {}
                        Err(refusal) => self.refuse(dir, Some(&entry.name), "look at", refusal),
                    }
                    while self.ask_less(QUESTIONS_AHEAD) {}
                }
            }
            Err(Refusal::NotFound) => {}
            Err(refusal) => self.refuse(dir, None, "list", refusal),
        }
        if page.is_last {
            self.dir(dir).is_read = true;
            self.try_finish(dir);
        }
        true
    }

    fn meet(&mut self, dir: usize, name: Name, attr: Attr) {
        self.dir(dir).unanswered += 1;
        if attr.kind != Kind::Dir && attr.nlink > 1 {
            match self.links.get_mut(&attr.ino) {
                Some(Linked::Waiting(names)) => return names.push((dir, name)),
                Some(Linked::Made(copy)) => {
                    let copy = *copy;
                    return self.link(dir, name, copy);
                }
                Some(Linked::Failed(refusal)) => {
                    let refusal = *refusal;
                    self.refuse(dir, Some(&name), "copy", refusal);
                    return self.over(dir);
                }
                None => drop(self.links.insert(attr.ino, Linked::Waiting(Vec::new()))),
            }
        }
        self.ask(dir, name, attr, false);
    }

    fn ask(&mut self, dir: usize, name: Name, attr: Attr, is_anew: bool) {
        let caller = self.client.caller();
        let asked = match attr.kind {
            Kind::File => Asked::File(self.client.start_content(&caller, attr.ino)),
            Kind::Symlink => Asked::Link(self.client.start_readlink(&caller, attr.ino)),
            _ => Asked::Node,
        };
        // Most inodes have none, and their attributes say so.
        let xattrs = has_xattrs(&attr).then(|| self.client.start_listxattr(&caller, attr.ino));
        self.asked.push_back((
            Job { dir, name, attr, xattrs: Vec::new(), content: Body::Whole, is_anew },
            asked,
            xattrs,
        ));
    }

    /// Waits for the oldest question if more than `most` are under way. False if not.
    fn ask_less(&mut self, most: usize) -> bool {
        if self.asked.len() <= most {
            return false;
        }
        let Some((mut job, asked, xattrs)) = self.asked.pop_front() else { return false };
        let made = self.made_of(&mut job, asked);
        let xattrs = match xattrs {
            Some(xattrs) => xattrs.wait(),
            // It got some after it was listed.
            None if has_xattrs(&job.attr) => {
                self.client.start_listxattr(&self.client.caller(), job.attr.ino).wait()
            }
            None => Ok(Vec::new()),
        };
        match (made, xattrs) {
            _ if self.done.stopped => self.left_out(job, Refusal::Interrupted),
            (Ok(make), Ok(xattrs)) => {
                let names = xattrs
                    .split(|&b| b == 0)
                    .filter(|name| !name.is_empty() && !name.starts_with(OWN_XATTRS));
                job.xattrs = names.map(<[u8]>::to_vec).collect();
                let parent = self.dir(job.dir).copy;
                let own = if job.attr.kind == Kind::Dir { Mode(0o700) } else { Mode(0o600) };
                let op = Op::Make { parent, name: job.name.clone(), make, mode: own };
                self.pipeline.push(Tag::Made(job), op);
            }
            (Err(refusal @ (Refusal::NotFound | Refusal::Stale)), _) => self.left_out(job, refusal),
            (Err(refusal), _) | (_, Err(refusal)) => self.failed(job, refusal),
        }
        true
    }

    /// The inode to make for a job, whose attributes are those of that moment then.
    fn made_of(&mut self, job: &mut Job, asked: Asked) -> Result<Make, Refusal> {
        Ok(match asked {
            Asked::File(content) => {
                let (attr, content) = content.wait()?;
                job.attr = attr;
                job.content = match &content {
                    Some(bytes) if bytes.len() as u64 == job.attr.size => Body::Whole,
                    Some(_) => Body::Longer,
                    None if job.attr.size == 0 => Body::Whole,
                    None => Body::Blocks,
                };
                Make::File { content: content.unwrap_or_default() }
            }
            Asked::Link(target) => Make::Symlink { target: target.wait()? },
            Asked::Node if job.attr.kind == Kind::Dir => Make::Dir,
            Asked::Node => Make::Node { kind: job.attr.kind, rdev: job.attr.rdev },
        })
    }

    // ---- the copy -----------------------------------------------------------------------------------

    fn answered(&mut self, tag: Tag, result: Performed) {
        match tag {
            Tag::Made(job) => match result.and_then(|attr| attr.ok_or(Refusal::Io)) {
                Ok(copy) => self.made(job, copy.ino),
                Err(Refusal::Exists) if self.since.is_some() => self.is_taken(job),
                Err(refusal) => self.failed(job, refusal),
            },
            Tag::Shared(job, copy) => {
                let size = job.attr.size;
                let content = match result {
                    Ok(_) => {
                        self.done.shared_bytes += size;
                        Ok(())
                    }
                    // Blocks are not shared over plates, nor where durability differs.
                    Err(Refusal::CrossDevice | Refusal::Invalid | Refusal::Unsupported) => {
                        self.copy_bytes(job.attr.ino, copy)
                    }
                    Err(refusal) => Err(refusal),
                };
                match content {
                    Ok(()) => self.finish(job, copy),
                    Err(refusal) => self.failed(job, refusal),
                }
            }
            Tag::Attribute(dir, name) => {
                if let Err(refusal) = result {
                    self.refuse(dir, name.as_ref(), "copy an attribute of", refusal);
                }
                self.over(dir);
            }
            Tag::Finished(job, copy) => {
                if let Err(refusal) = result {
                    self.refuse(job.dir, Some(&job.name), "set the attributes of the copy of", refusal);
                }
                self.is_copied(&job, copy);
            }
            Tag::FinishedDir(dir) => {
                if let Err(refusal) = result {
                    self.refuse(dir, None, "set the attributes of the copy of", refusal);
                }
                self.gone(dir);
            }
            Tag::Link(dir, name, Some(copy)) if result == Err(Refusal::Exists) && self.since.is_some() => {
                self.link_is_taken(dir, name, copy);
            }
            Tag::Link(dir, name, _) => {
                match result {
                    Ok(_) => self.done.files += 1,
                    Err(refusal) => self.refuse(dir, Some(&name), "link the copy of", refusal),
                }
                self.over(dir);
            }
        }
    }

    /// Gives a copy the extended attributes of its original. `name`: of a name in the directory, not of the directory itself.
    fn copy_xattrs(
        &mut self,
        (from, copy): (Ino, Ino),
        xattrs: Vec<Vec<u8>>,
        dir: usize,
        name: Option<&Name>,
    ) {
        let caller = self.client.caller();
        for xattr in xattrs {
            match self.client.getxattr(&caller, from, &xattr) {
                Ok(value) => {
                    self.dir(dir).unanswered += 1;
                    let op = Op::SetXattr { ino: copy, how: XattrHow::Set, name: xattr, value };
                    self.pipeline.push(Tag::Attribute(dir, name.cloned()), op);
                }
                Err(Refusal::NoXattr) => {}
                Err(refusal) => self.refuse(dir, name, "read an attribute of", refusal),
            }
        }
    }

    /// Continues with the content, now that the copy exists.
    fn made(&mut self, mut job: Job, copy: Ino) {
        let caller = self.client.caller();
        let xattrs = std::mem::take(&mut job.xattrs);
        if job.attr.kind == Kind::Dir {
            self.done.dirs += 1;
            let ino = job.attr.ino;
            let Job { dir: up, name, attr, .. } = job;
            self.dirs.push(Some(Dir {
                up: Some(up),
                name,
                attr,
                copy,
                xattrs,
                path: Vec::new(),
                unanswered: 0,
                is_read: false,
            }));
            let dir = self.dirs.len() - 1;
            if self.done.stopped {
                self.dir(dir).is_read = true;
                return self.try_finish(dir);
            }
            return self.walk.enter(dir, ino);
        }
        self.copy_xattrs((job.attr.ino, copy), xattrs, job.dir, Some(&job.name));
        match job.content {
            Body::Whole => self.finish(job, copy),
            Body::Longer => {
                let change = AttrChange { size: Some(job.attr.size), ..AttrChange::default() };
                match self.client.setattr(&caller, copy, change, None) {
                    Ok(_) => self.finish(job, copy),
                    Err(refusal) => self.failed(job, refusal),
                }
            }
            Body::Blocks => {
                let (from, len) = (job.attr.ino, job.attr.size);
                let op = Op::Clone { from, from_offset: 0, to: copy, to_offset: 0, len };
                self.pipeline.push(Tag::Shared(job, copy), op);
            }
        }
    }

    fn is_copied(&mut self, job: &Job, copy: Ino) {
        self.done.files += 1;
        self.done.bytes += if job.attr.kind == Kind::File { job.attr.size } else { 0 };
        self.known(job.attr.ino, Ok(copy));
        self.over(job.dir);
    }

    /// The content is there.
    fn finish(&mut self, job: Job, copy: Ino) {
        let op = Op::SetAttr { ino: copy, change: self.attributes(&job.attr) };
        self.pipeline.push(Tag::Finished(job, copy), op);
    }

    fn attributes(&self, attr: &Attr) -> AttrChange {
        // Set-id bits are for the owner of the original.
        let keeps_setid = self.is_root || self.uid == attr.uid;
        let mode = Mode(if keeps_setid { attr.mode.0 } else { attr.mode.0 & 0o1777 });
        AttrChange {
            mode: (attr.kind != Kind::Symlink).then_some(mode),
            uid: self.is_root.then_some(attr.uid),
            gid: self.is_root.then_some(attr.gid),
            atime: Some(SetTime::At(attr.atime)),
            mtime: Some(SetTime::At(attr.mtime)),
            ..AttrChange::default()
        }
    }

    fn copy_bytes(&self, from: Ino, to: Ino) -> Result<(), Refusal> {
        let (client, caller) = (self.client, self.client.caller());
        let source = client.open(&caller, from, OpenFlags::READ)?;
        let target = match client.open(&caller, to, OpenFlags::WRITE) {
            Ok(target) => target,
            Err(refusal) => return client.release(source).and(Err(refusal)),
        };
        let copy = || {
            let mut at = 0;
            loop {
                match client.copy_range(&caller, source, at, target, at, u64::MAX >> 8)? {
                    0 => return client.flush(target),
                    more => at += more,
                }
            }
        };
        let copied = copy();
        let released = client.release(source).and(client.release(target));
        copied.and(released)
    }

    fn link(&mut self, dir: usize, name: Name, copy: Ino) {
        let op = Op::Link { ino: copy, parent: self.dir(dir).copy, name: name.clone() };
        self.pipeline.push(Tag::Link(dir, name, Some(copy)), op);
    }

    fn failed(&mut self, job: Job, refusal: Refusal) {
        self.refuse(job.dir, Some(&job.name), "copy", refusal);
        self.left_out(job, refusal);
    }

    /// It is not copied, and that is no failure: it is gone meanwhile.
    fn left_out(&mut self, job: Job, refusal: Refusal) {
        self.known(job.attr.ino, Err(refusal));
        self.over(job.dir);
    }

    /// Notes the copy of an inode: names that wait for it get it.
    fn known(&mut self, ino: Ino, copy: Result<Ino, Refusal>) {
        let Some(linked) = self.links.get_mut(&ino) else { return };
        let known = match copy {
            Ok(copy) => Linked::Made(copy),
            Err(refusal) => Linked::Failed(refusal),
        };
        let Linked::Waiting(names) = std::mem::replace(linked, known) else { return };
        for (dir, name) in names {
            match copy {
                Ok(copy) => self.link(dir, name, copy),
                // The name whose copy failed is reported.
                Err(_) => self.over(dir),
            }
        }
    }
}
