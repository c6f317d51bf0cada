//! From a tree to lines.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use chiton_client::data::Whence;
use chiton_client::{Client, Listed, OpenFlags};
use chiton_types::{Attr, Ino, Kind, Refusal};

use crate::dump::text::{Line, Node};
use crate::dump::{HEAD, LINE_BYTES, PAGE_BYTES};

const LIST_ENTRIES: u32 = 256;

#[derive(Clone, Copy, Debug)]
pub struct DumpOptions {
    /// Include the content of files.
    pub content: bool,
}

/// Counts of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    pub inodes: u64,
    /// Bytes of content, holes not counted.
    pub bytes: u64,
    /// Places that could not be read; the dump names each.
    pub unreadable: u64,
}

/// Why a dump ended early.
#[derive(Debug)]
pub enum DumpError {
    /// The tree cannot be read at all.
    Tree(String),
    /// The text cannot be written.
    Output(io::Error),
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DumpError::Tree(what) => f.write_str(what),
            DumpError::Output(e) => write!(f, "the dump cannot be written: {e}"),
        }
    }
}

impl std::error::Error for DumpError {}

impl From<io::Error> for DumpError {
    fn from(e: io::Error) -> DumpError {
        DumpError::Output(e)
    }
}

struct Dump<'a> {
    client: &'a Client,
    out: &'a mut dyn Write,
    crc: u32,
    options: DumpOptions,
    /// First path of the files with several names.
    linked: BTreeMap<Ino, Vec<u8>>,
    done: Dumped,
}

/// A directory that is being walked.
struct Level {
    ino: Ino,
    path_len: usize,
    page: std::vec::IntoIter<Listed>,
    cookie: u64,
    end: bool,
}

/// Dumps the tree below `root` (a directory). Each inode is read at another moment; a caller that needs one moment
/// must prevent changes.
///
/// # Errors
/// See [`DumpError`]. Unreadable parts within the tree are marked in the dump and counted.
pub fn dump(
    client: &Client,
    root: &[u8],
    out: &mut dyn Write,
    options: DumpOptions,
    progress: &mut dyn FnMut(Dumped),
) -> Result<Dumped, DumpError> {
    let shown = String::from_utf8_lossy(root).into_owned();
    let attr = client.stat(root).map_err(|r| DumpError::Tree(format!("{shown}: {r}")))?;
    if attr.kind != Kind::Dir {
        return Err(DumpError::Tree(format!("{shown} is no directory")));
    }
    let linked = BTreeMap::new();
    let mut dump = Dump { client, out, crc: 0, options, linked, done: Dumped::default() };
    dump.put(HEAD)?;
    if !options.content {
        dump.put("# content: no")?;
    }
    let mut path = Vec::new();
    let mut levels = vec![dump.enter(b".", &attr, 0)?];
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path_len);
        let Some(listed) = dump.next(level, &path)? else {
            levels.pop();
            continue;
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(listed.name.as_bytes());
        let attr = match client.getattr(listed.ino, None) {
            Ok(entry) => entry.attr,
            // Removed since it was listed.
            Err(Refusal::Stale | Refusal::NotFound) => continue,
            Err(refusal) => {
                dump.unreadable(&path, 0, 0, refusal)?;
                continue;
            }
        };
        if attr.kind == Kind::Dir {
            let level = dump.enter(&path, &attr, path.len())?;
            levels.push(level);
        } else {
            dump.leaf(&path, &attr)?;
        }
        progress(dump.done);
    }
    let Dump { crc, done, .. } = dump;
    writeln!(out, "{}", Line::End { inodes: done.inodes, crc }.to_text())?;
    out.flush()?;
    Ok(done)
}

impl Dump<'_> {
    fn put(&mut self, line: &str) -> io::Result<()> {
        self.crc = crc32c::crc32c_append(self.crc, line.as_bytes());
        self.crc = crc32c::crc32c_append(self.crc, b"\n");
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")
    }

    fn unreadable(&mut self, path: &[u8], offset: u64, len: u64, why: Refusal) -> io::Result<()> {
        self.done.unreadable += 1;
        let line = Line::Unreadable { offset, len, why: why.to_string().into_bytes() };
        match len {
            // Not about the current file.
            0 => self.put(&format!("# {} could not be read: {why}", super::text::escape(path))),
            _ => self.put(&line.to_text()),
        }
    }

    fn node(&mut self, path: &[u8], attr: &Attr, target: Vec<u8>) -> io::Result<()> {
        let node = Node {
            kind: attr.kind,
            mode: attr.mode,
            flags: attr.flags & Attr::SETTABLE,
            uid: attr.uid,
            gid: attr.gid,
            atime: attr.atime,
            mtime: attr.mtime,
            rdev: attr.rdev,
            size: attr.size,
            target,
        };
        self.done.inodes += 1;
        self.put(&Line::Node { path: path.to_vec(), node }.to_text())?;
        self.xattrs(path, attr.ino)
    }

    fn xattrs(&mut self, path: &[u8], ino: Ino) -> io::Result<()> {
        let caller = self.client.caller();
        let names = match self.client.listxattr(&caller, ino) {
            Ok(names) => names,
            Err(refusal) => return self.unreadable(path, 0, 0, refusal),
        };
        let mut names: Vec<&[u8]> = names.split(|b| *b == 0).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        for name in names {
            match self.client.getxattr(&caller, ino, name) {
                Ok(value) => self.put(&Line::Xattr { name: name.to_vec(), value }.to_text())?,
                Err(Refusal::NoXattr) => {}
                Err(refusal) => self.unreadable(path, 0, 0, refusal)?,
            }
        }
        Ok(())
    }

    fn enter(&mut self, path: &[u8], attr: &Attr, path_len: usize) -> io::Result<Level> {
        self.node(path, attr, Vec::new())?;
        Ok(Level { ino: attr.ino, path_len, page: Vec::new().into_iter(), cookie: 0, end: false })
    }

    /// The next entry of a directory.
    fn next(&mut self, level: &mut Level, path: &[u8]) -> io::Result<Option<Listed>> {
        loop {
            if let Some(listed) = level.page.next() {
                level.cookie = listed.cookie;
                return Ok(Some(listed));
            }
            if level.end {
                return Ok(None);
            }
            let caller = self.client.caller();
            match self.client.readdir(&caller, level.ino, level.cookie, LIST_ENTRIES, false) {
                Ok((page, end)) => {
                    level.end = end || page.is_empty();
                    level.page = page.into_iter();
                }
                Err(Refusal::Stale | Refusal::NotFound) => return Ok(None),
                Err(refusal) => {
                    level.end = true;
                    self.unreadable(path, 0, 0, refusal)?;
                }
            }
        }
    }

    fn leaf(&mut self, path: &[u8], attr: &Attr) -> io::Result<()> {
        if attr.nlink > 1 {
            if let Some(first) = self.linked.get(&attr.ino) {
                let line = Line::Link { path: path.to_vec(), first: first.clone() };
                return self.put(&line.to_text());
            }
            self.linked.insert(attr.ino, path.to_vec());
        }
        let target = match attr.kind {
            Kind::Symlink => match self.client.readlink(attr.ino) {
                Ok(target) => target,
                Err(refusal) => return self.unreadable(path, 0, 0, refusal),
            },
            _ => Vec::new(),
        };
        self.node(path, attr, target)?;
        if attr.kind == Kind::File && self.options.content && attr.size > 0 {
            let fh = match self.client.open(&self.client.caller(), attr.ino, OpenFlags::READ) {
                Ok(fh) => fh,
                Err(refusal) => return self.unreadable(path, 0, attr.size, refusal),
            };
            let result = self.content(path, fh, attr.size);
            // Nothing was written through it.
            let _ = self.client.release(fh);
            return result;
        }
        Ok(())
    }

    /// Pages that are not all zero, so that the text depends on the content alone.
    fn content(&mut self, path: &[u8], fh: u64, size: u64) -> io::Result<()> {
        let mut at = 0;
        while at < size {
            match self.client.seek(fh, at, Whence::Data) {
                Ok(data) => at = at.max(data / PAGE_BYTES as u64 * PAGE_BYTES as u64),
                Err(Refusal::NoData) => return Ok(()),
                Err(refusal) => return self.unreadable(path, at, size - at, refusal),
            }
            let len = (size.saturating_sub(at)).min(LINE_BYTES as u64) as usize;
            match self.client.read(fh, at, len) {
                // Shorter since.
                Ok(bytes) if bytes.is_empty() => return Ok(()),
                Ok(bytes) => {
                    self.runs(at, &bytes)?;
                    at += bytes.len() as u64;
                }
                Err(refusal) => {
                    self.unreadable(path, at, len as u64, refusal)?;
                    at += len as u64;
                }
            }
        }
        Ok(())
    }

    /// Runs of pages that are not all zero. Lines are cut at fixed offsets, whatever the holes.
    fn runs(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (n, page) in bytes.chunks(PAGE_BYTES).enumerate() {
            let Some(last) = page.iter().rposition(|b| *b != 0) else { continue };
            self.done.bytes += last as u64 + 1;
            let offset = offset + (n * PAGE_BYTES) as u64;
            self.put(&Line::Data { offset, bytes: page[..=last].to_vec() }.to_text())?;
        }
        Ok(())
    }
}
