//! From lines to a tree.

use std::fmt;
use std::io::BufRead;

use chiton_client::{Client, Lookup, OpenFlags};
use chiton_model::{AttrChange, RenameHow, SetTime, XattrHow};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT};
use chiton_types::{Attr, Ino, Kind, Mode, Refusal};

use crate::dump::HEAD;
use crate::dump::text::{Line, Node};

/// A subtree has this name until it is complete.
const UNFINISHED: &[u8] = b".chiton-load";
/// Longest line: the largest extended attribute in base64, with room.
const LINE_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// Resume an interrupted load: equal files that exist already are skipped.
    pub resume: bool,
    /// A dump without content: make the files, of their sizes, empty of bytes.
    pub no_content: bool,
    /// Everything belongs to the user who loads.
    pub no_owner: bool,
}

/// Counts of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    pub lines: u64,
    pub inodes: u64,
    /// Bytes of content written.
    pub bytes: u64,
    /// Inodes that existed already.
    pub passed_over: u64,
    /// Number of places that the dump marks as unreadable.
    pub unreadable: u64,
}

/// Why a load ended, and at which line. Everything that was loaded before stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The line's number, from 1.
    pub line: u64,
    pub why: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for LoadError {}

/// A directory whose entries are being created. Its times are set when it is complete.
struct Level {
    path: Vec<u8>,
    ino: Ino,
    /// Its final attributes; `None` for a directory that existed.
    node: Option<Node>,
}

/// The owner of the next lines of content and extended attributes.
enum At {
    Nothing,
    /// A directory, which has its name already.
    Made(Ino),
    /// A file (with its handle) or another leaf under [`UNFINISHED`].
    Unfinished {
        dir: Ino,
        name: Vec<u8>,
        ino: Ino,
        fh: Option<u64>,
        node: Node,
    },
    /// An inode that existed.
    PassedOver,
}

struct Load<'a> {
    client: &'a Client,
    options: LoadOptions,
    root: Ino,
    levels: Vec<Level>,
    at: At,
    /// Inodes to be made immutable or append-only when all is loaded: they cannot be changed then.
    flagged: Vec<(Ino, u8)>,
    done: Loaded,
}

/// Makes the tree of a dump in the directory `into`, which must be there. Names that are taken are refused unless
/// [`LoadOptions::resume`]; directories of a dump may be there already if they are resumed.
///
/// # Errors
/// With the number of the line: bad text, a name that is taken, or a refusal of the file system.
pub fn load(
    client: &Client,
    into: &[u8],
    input: &mut dyn BufRead,
    options: LoadOptions,
    progress: &mut dyn FnMut(Loaded),
) -> Result<Loaded, LoadError> {
    let first = |why: String| LoadError { line: 1, why };
    let attr = client.stat(into).map_err(|r| first(format!("{}: {r}", String::from_utf8_lossy(into))))?;
    if attr.kind != Kind::Dir {
        return Err(first(format!("{} is no directory", String::from_utf8_lossy(into))));
    }
    let mut load = Load {
        client,
        options,
        root: attr.ino,
        levels: Vec::new(),
        at: At::Nothing,
        flagged: Vec::new(),
        done: Loaded::default(),
    };
    let result = load.lines(input, progress);
    let line = load.done.lines;
    if result.is_err() {
        load.give_up();
    }
    result.map_err(|why| LoadError { line, why })?;
    client.sync().map_err(|r| LoadError { line, why: format!("not everything became durable: {r}") })?;
    Ok(load.done)
}

impl Load<'_> {
    fn lines(&mut self, input: &mut dyn BufRead, progress: &mut dyn FnMut(Loaded)) -> Result<(), String> {
        let mut crc = 0;
        let mut text = Vec::new();
        loop {
            text.clear();
            let mut limited = std::io::Read::take(&mut *input, LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut text).map_err(|e| format!("cannot be read: {e}"))?;
            self.done.lines += 1;
            if read == 0 {
                return Err("the dump ends without its last line: it is cut off".to_owned());
            }
            if text.pop_if(|last| *last == b'\n').is_none() {
                return Err("the line has no end: the dump is cut off, or it is none".to_owned());
            }
            let line = std::str::from_utf8(&text).map_err(|_| "it is no text".to_owned())?;
            if self.done.lines == 1 && line != HEAD {
                return Err(format!("a dump begins with {HEAD:?}"));
            }
            let parsed = if self.done.lines == 1 { Line::Comment } else { Line::parse(line)? };
            if line == "# content: no" && !self.options.no_content {
                return Err("this dump has no content: --no-content makes its files without".to_owned());
            }
            if let Line::End { inodes, crc: stated } = parsed {
                self.finish()?;
                self.leave(None)?;
                self.set_flags()?;
                return if stated == crc {
                    match inodes == self.done.inodes + self.done.passed_over {
                        true => Ok(()),
                        false => Err(format!("the dump says that it has {inodes} inodes, and has others")),
                    }
                } else {
                    Err("the checksum does not fit: something in the dump was changed".to_owned())
                };
            }
            crc = crc32c::crc32c_append(crc, &text);
            crc = crc32c::crc32c_append(crc, b"\n");
            self.line(parsed)?;
            progress(self.done);
        }
    }

    fn line(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Comment => Ok(()),
            Line::Node { path, node } => {
                self.finish()?;
                self.node(path, node)
            }
            Line::Link { path, first } => {
                self.finish()?;
                self.link(&path, &first)
            }
            Line::Xattr { name, value } => {
                let ino = match &self.at {
                    At::Made(ino) | At::Unfinished { ino, .. } => *ino,
                    At::PassedOver => return Ok(()),
                    At::Nothing => return Err("no inode stands before it".to_owned()),
                };
                let set = self.client.setxattr(&self.client.caller(), ino, &name, &value, XattrHow::Set);
                set.map_err(|r| format!("extended attribute {}: {r}", String::from_utf8_lossy(&name)))
            }
            Line::Data { offset, bytes } => self.data(offset, &bytes),
            Line::Unreadable { .. } => {
                self.done.unreadable += 1;
                Ok(())
            }
            Line::End { .. } => unreachable!("the end is not handed on"),
        }
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        match &self.at {
            At::Unfinished { fh: Some(fh), node, .. } => {
                if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > node.size) {
                    return Err("the content goes past the file's size".to_owned());
                }
                let written = self.client.write(&self.client.caller(), *fh, offset, bytes);
                written.map_err(|r| format!("the content cannot be written: {r}"))?;
                self.done.bytes += bytes.len() as u64;
                Ok(())
            }
            At::PassedOver => Ok(()),
            _ => Err("no file stands before it".to_owned()),
        }
    }

    /// Leaves directories that are not above `path`; the last level left holds it. Returns that and the name in it.
    fn place<'p>(&mut self, path: &'p [u8]) -> Result<(Ino, &'p [u8]), String> {
        self.leave(Some(path))?;
        let level = self.levels.last().ok_or("the first inode of a dump is its root, '.'")?;
        let rest = if level.path == b"." {
            Some(path)
        } else {
            path.strip_prefix(level.path.as_slice()).and_then(|rest| rest.strip_prefix(b"/"))
        };
        match rest {
            Some(name) if !name.contains(&b'/') => Ok((level.ino, name)),
            _ => Err(format!("the directory of {} does not stand before it", String::from_utf8_lossy(path))),
        }
    }

    fn leave(&mut self, path: Option<&[u8]>) -> Result<(), String> {
        let above = |level: &Level| {
            path.is_some_and(|path| {
                level.path == b"."
                    || path.strip_prefix(level.path.as_slice()).is_some_and(|rest| rest.starts_with(b"/"))
            })
        };
        while let Some(level) = self.levels.pop_if(|level| !above(level)) {
            if let Some(node) = &level.node {
                self.attributes(level.ino, node)?;
            }
        }
        Ok(())
    }

    fn node(&mut self, path: Vec<u8>, node: Node) -> Result<(), String> {
        if path == b"." {
            if node.kind != Kind::Dir || !self.levels.is_empty() {
                return Err("the root of a dump is a directory, and comes first".to_owned());
            }
            self.done.inodes += 1;
            self.at = At::Made(self.root);
            self.levels.push(Level { path, ino: self.root, node: Some(node) });
            return Ok(());
        }
        let (dir, name) = self.place(&path)?;
        let name = name.to_vec();
        let shown = String::from_utf8_lossy(&path).into_owned();
        let caller = self.client.caller();
        let there = match self.client.lookup(&caller, dir, &name).map_err(|r| format!("{shown}: {r}"))? {
            Lookup::Found { attr, .. } => Some(attr),
            Lookup::Absent { .. } => None,
        };
        if let Some(attr) = there {
            return self.pass_over(path, &node, &attr, &shown);
        }
        let failed = |r: Refusal| format!("{shown}: {r}");
        self.done.inodes += 1;
        if node.kind == Kind::Dir {
            // Open to its owner until all is in it.
            let made = self.client.mkdir(&caller, dir, &name, Mode(0o700)).map_err(failed)?;
            self.disinherit(&made.attr).map_err(failed)?;
            self.at = At::Made(made.attr.ino);
            self.levels.push(Level { path, ino: made.attr.ino, node: Some(node) });
            return Ok(());
        }
        match self.client.unlink(&caller, dir, UNFINISHED) {
            Ok(()) | Err(Refusal::NotFound) => {}
            Err(refusal) => return Err(failed(refusal)),
        }
        let (ino, fh) = match node.kind {
            Kind::File => {
                let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
                let (entry, fh) =
                    self.client.create(&caller, dir, UNFINISHED, Mode(0o600), flags).map_err(failed)?;
                self.disinherit(&entry.attr).map_err(failed)?;
                (entry.attr.ino, Some(fh))
            }
            Kind::Symlink => {
                let made = self.client.symlink(&caller, dir, UNFINISHED, &node.target).map_err(failed)?;
                (made.attr.ino, None)
            }
            kind => {
                let made = self.client.mknod(&caller, dir, UNFINISHED, kind, Mode(0o600), node.rdev);
                let attr = made.map_err(failed)?.attr;
                self.disinherit(&attr).map_err(failed)?;
                (attr.ino, None)
            }
        };
        self.at = At::Unfinished { dir, name, ino, fh, node };
        Ok(())
    }

    /// Access control lists that came with the directory's default list were not in the dump, or come later.
    fn disinherit(&self, attr: &Attr) -> Result<(), Refusal> {
        for (flag, name) in [(Attr::ACCESS_LIST, ACL_ACCESS), (Attr::DEFAULT_LIST, ACL_DEFAULT)] {
            if attr.flags & flag != 0 {
                self.client.removexattr(&self.client.caller(), attr.ino, name)?;
            }
        }
        Ok(())
    }

    /// The name is taken: either by an earlier part of the same load, or by another file.
    fn pass_over(&mut self, path: Vec<u8>, node: &Node, attr: &Attr, shown: &str) -> Result<(), String> {
        if !self.options.resume {
            return Err(format!(
                "{shown} is there already: load into an empty directory, or continue a load that was cut off with --resume"
            ));
        }
        self.done.passed_over += 1;
        let same = attr.kind == node.kind
            && (node.kind == Kind::Dir || attr.mtime == node.mtime)
            && (node.kind != Kind::File || attr.size == node.size);
        if !same {
            return Err(format!("{shown} is there already and is something else: move it away first"));
        }
        self.at = At::PassedOver;
        if node.kind == Kind::Dir {
            // One with flags was complete before, and lets nothing be set.
            let is_complete = attr.flags & Attr::SETTABLE != 0;
            if !is_complete {
                self.at = At::Made(attr.ino);
            }
            self.levels.push(Level {
                path,
                ino: attr.ino,
                node: Some(node.clone()).filter(|_| !is_complete),
            });
        }
        Ok(())
    }

    fn link(&mut self, path: &[u8], first: &[u8]) -> Result<(), String> {
        self.at = At::Nothing;
        let shown = String::from_utf8_lossy(path).into_owned();
        let caller = self.client.caller();
        let mut ino = self.root;
        for part in first.split(|b| *b == b'/') {
            match self.client.lookup(&caller, ino, part) {
                Ok(Lookup::Found { attr, .. }) => ino = attr.ino,
                Ok(Lookup::Absent { .. }) => {
                    return Err(format!("{} is not there", String::from_utf8_lossy(first)));
                }
                Err(refusal) => return Err(format!("{}: {refusal}", String::from_utf8_lossy(first))),
            }
        }
        let (dir, name) = self.place(path)?;
        match self.client.link(&caller, ino, dir, name) {
            Ok(_) => Ok(()),
            Err(Refusal::Exists) if self.options.resume => match self.client.lookup(&caller, dir, name) {
                Ok(Lookup::Found { attr, .. }) if attr.ino == ino => Ok(()),
                _ => Err(format!("{shown} is there already and is something else: move it away first")),
            },
            Err(refusal) => Err(format!("{shown}: {refusal}")),
        }
    }

    /// All lines of an inode are read: sets its attributes, then its name.
    fn finish(&mut self) -> Result<(), String> {
        let At::Unfinished { dir, name, ino, fh, node } = std::mem::replace(&mut self.at, At::Nothing) else {
            return Ok(());
        };
        let shown = String::from_utf8_lossy(&name).into_owned();
        let failed = |r: Refusal| format!("{shown}: {r}");
        let caller = self.client.caller();
        if let Some(fh) = fh {
            let change = AttrChange { size: Some(node.size), ..AttrChange::default() };
            let sized = self.client.setattr(&caller, ino, change, Some(fh)).map(drop);
            let flushed = self.client.flush(fh);
            let released = self.client.release(fh);
            sized.and(flushed).and(released).map_err(failed)?;
        }
        self.attributes(ino, &node)?;
        self.client.rename(&caller, dir, UNFINISHED, dir, &name, RenameHow::NoReplace).map_err(failed)
    }

    fn set_flags(&self) -> Result<(), String> {
        for (ino, flags) in &self.flagged {
            let set = self.client.set_flags(&self.client.caller(), *ino, *flags);
            set.map_err(|r| format!("flags (load with CAP_LINUX_IMMUTABLE) cannot be set: {r}"))?;
        }
        Ok(())
    }

    fn attributes(&mut self, ino: Ino, node: &Node) -> Result<(), String> {
        self.flagged.extend(Some((ino, node.flags)).filter(|(_, flags)| *flags != 0));
        let caller = self.client.caller();
        let set = |change, what: &str| {
            let done = self.client.setattr(&caller, ino, change, None);
            done.map(drop).map_err(|r| format!("{what} cannot be set: {r}"))
        };
        if !self.options.no_owner {
            let change = AttrChange { uid: Some(node.uid), gid: Some(node.gid), ..AttrChange::default() };
            set(change, "the owner (load as root, or with --no-owner)")?;
        }
        // After the owner, whose change takes set-id bits away.
        let mode = (node.kind != Kind::Symlink).then_some(node.mode);
        let (atime, mtime) = (Some(SetTime::At(node.atime)), Some(SetTime::At(node.mtime)));
        set(AttrChange { mode, atime, mtime, ..AttrChange::default() }, "mode and times")
    }

    /// Removes the unfinished inode.
    fn give_up(&mut self) {
        if let At::Unfinished { dir, fh, .. } = std::mem::replace(&mut self.at, At::Nothing) {
            // The load has failed already; a resumed load removes the rest.
            if let Some(fh) = fh {
                let _ = self.client.release(fh);
            }
            let _ = self.client.unlink(&self.client.caller(), dir, UNFINISHED);
        }
    }
}
