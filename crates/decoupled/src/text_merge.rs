//! Compares paths that both sides changed, before a merge: equal changes are no conflict, and texts are merged.
//!
//! ```text
//!   one inode under one name on both sides ─▶ both moved, linked or removed it alike
//!   paths that both changed ─▶ read ours, theirs ─┬─ alike ───────────────────────────────────┐
//!                                                 └─ read the base ─▶ merged, line by line:   │
//!                        written as ours (a new file renamed over the old) ─▶ durable ────────┴▶ Settle ─▶ the merge
//! ```
//!
//! Invariants:
//! - A merged text is written to our own journal, and the server is notified when that is durable, with the version
//!   of theirs that was merged. So the merge is right after a crash between any two of these steps: a text that was
//!   merged once already has the lines of theirs, and merging it again changes nothing.
//! - A version of theirs that is newer than the one that was looked at is a conflict like any other.
//! - The policy decides all other cases: binary content, lines that both sides changed, a missing base.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chiton_client::{Caller, Client, OpenFlags};
use chiton_model::{AttrChange, RenameHow, SetTime, XattrHow};
use chiton_types::{Attr, Ino, Kind, Mode, Position, Refusal};
use chiton_wire::Settled;
use hashbrown::HashSet;

use crate::calls::{ClaimCalls, no_groups, root as as_root};
use crate::conflict_check::is_new_to_ours;
use crate::diff::Compared;
use crate::diff3;
use crate::error::RealmError;
use crate::report::{Change, ChangeKind};
use crate::resolve::path_of;

/// Larger files are not looked at.
const BYTES_MAX: u64 = 16 << 20;
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// How often a file that changes while it is read is read again.
const READS_MAX: u32 = 3;

/// An inode as one side has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    kind: Kind,
    device: u32,
    /// The bytes of a file, or the target of a symbolic link.
    content: Vec<u8>,
    mode: Mode,
    owner: (u32, u32),
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The outcome for a file that both sides changed.
pub(crate) struct Agreed {
    /// The path, from the subtree's root.
    pub(crate) path: Vec<u8>,
    /// The file of theirs, and the position of its last change.
    theirs: (Ino, Position),
    /// Our attributes and the merged version; `None` if both versions are equal.
    merged: Option<(Attr, Version)>,
}

impl Agreed {
    /// The outcome for the server.
    pub(crate) fn settled(&self) -> (Ino, Position, Settled) {
        let how = if self.is_same() { Settled::Same } else { Settled::Merged };
        (self.theirs.0, self.theirs.1, how)
    }

    /// Whether both versions are equal.
    pub(crate) fn is_same(&self) -> bool {
        self.merged.is_none()
    }
}

/// The clients of both sides and of the base.
pub(crate) struct Sides<'a> {
    pub(crate) calls: &'a ClaimCalls,
    pub(crate) root: Ino,
    pub(crate) ours: &'a Client,
    pub(crate) global: &'a Client,
    /// The path under which ours has an inode.
    pub(crate) path_of: &'a dyn Fn(Ino) -> Option<Vec<u8>>,
    /// Opens the base of ours for reading; called at most once, and only if texts are to be merged.
    pub(crate) base: &'a dyn Fn() -> Result<Arc<Client>, RealmError>,
}

impl Sides<'_> {
    /// Looks at each path of a comparison that both sides changed, and leaves out the conflicts about equal changes. `texts`:
    /// texts that differ are merged.
    pub(crate) fn compare(&self, compared: &mut Compared, texts: bool) -> Result<Vec<Agreed>, RealmError> {
        let mut paths: BTreeMap<Vec<u8>, BTreeSet<Ino>> = BTreeMap::new();
        let mut agreed = Vec::new();
        let mut left = Vec::new();
        let conflicts = std::mem::take(&mut compared.conflicts);
        for ((change, theirs), ino) in conflicts.into_iter().zip(std::mem::take(&mut compared.inos)) {
            let (found, is_alike) = self.named_alike(&change, ino)?;
            agreed.extend(found);
            if !is_alike {
                paths.entry(path_of(&change)).or_default().insert(ino);
                left.push(((change, theirs), ino));
            }
        }
        (compared.conflicts, compared.inos) = left.into_iter().unzip();
        let mut base = None;
        for (path, inos) in paths {
            agreed.extend(self.compare_one(path, inos, &compared.timed, texts, &mut base)?);
        }
        compared.leave_out(&agreed);
        Ok(agreed)
    }

    /// Whether both sides moved, linked or removed an inode alike, or put the same directory in its place; then the server is
    /// notified of the directory of theirs.
    fn named_alike(&self, change: &Change, ino: Ino) -> Result<(Option<Agreed>, bool), RealmError> {
        let is_of_names =
            matches!(change.kind, ChangeKind::Renamed | ChangeKind::Linked | ChangeKind::Removed);
        if !is_of_names {
            return Ok((None, false));
        }
        let path = path_of(change);
        let ours = self.ours.lstat([b"/", &path[..]].concat()).ok();
        let theirs = self.calls.file(self.root, &path)?;
        Ok(match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours.ino == theirs.ino => {
                let is_put_there = change.kind == ChangeKind::Removed && theirs.nlink > 1;
                match is_put_there && theirs.kind != Kind::Dir {
                    // Both linked another file there. The server is notified that it is the same.
                    true => {
                        let agreed =
                            self.compare_one(path, BTreeSet::new(), &HashSet::new(), false, &mut None)?;
                        let is_same = agreed.is_some();
                        (agreed, is_same)
                    }
                    false => (None, true),
                }
            }
            (Some(ours), Some(theirs)) if change.kind == ChangeKind::Removed => {
                let is_one = [ours.kind, theirs.kind] == [Kind::Dir; 2]
                    && self.calls.attr(ino)?.is_none_or(|attr| attr.nlink == 0)
                    && is_new_to_ours(self.calls, ours.ino)?
                    && is_new_to_ours(self.calls, theirs.ino)?;
                let at = (theirs.ino, theirs.position);
                (is_one.then_some(Agreed { path, theirs: at, merged: None }), is_one)
            }
            // Both removed this one of its names.
            (None, None) if change.kind == ChangeKind::Removed => {
                let left = self.ours.getattr(ino, None).ok().map(|entry| entry.attr.nlink);
                let theirs = self.calls.attr(ino)?.map(|attr| attr.nlink);
                (None, left.is_some_and(|left| left > 0 && theirs == Some(left)))
            }
            _ => (None, false),
        })
    }

    fn compare_one(
        &self,
        path: Vec<u8>,
        mut inos: BTreeSet<Ino>,
        timed: &HashSet<Ino>,
        texts: bool,
        base: &mut Option<Arc<Client>>,
    ) -> Result<Option<Agreed>, RealmError> {
        let is_small = |attr: &Attr| attr.kind != Kind::File || attr.size <= BYTES_MAX;
        let Ok(attr) = self.ours.lstat([b"/", &path[..]].concat()) else { return Ok(None) };
        let Some(found) = self.calls.file(self.root, &path)?.filter(is_small) else { return Ok(None) };
        if !is_small(&attr) || attr.kind != found.kind {
            return Ok(None);
        }
        // Directories with equal names are one, or conflict for another reason than their attributes.
        let has_other_times =
            timed.contains(&attr.ino) && (attr.mtime, attr.atime) != (found.mtime, found.atime);
        if attr.kind == Kind::Dir && (attr.ino != found.ino || has_other_times) {
            return Ok(None);
        }
        let Some((found, theirs)) = self.read_theirs(found.ino) else { return Ok(None) };
        let Ok(ours) = read(self.ours, &attr) else { return Ok(None) };
        let at = (found.ino, found.position);
        // In the global namespace the changed file has another path, so an equal file here does not settle the
        // conflict there.
        inos.insert(attr.ino);
        inos.remove(&found.ino);
        for ino in inos {
            if self.calls.attr(ino)?.is_some_and(|there| there.nlink > 0) && !self.has_alike(ino)? {
                return Ok(None);
            }
        }
        if ours == theirs {
            return Ok(Some(Agreed { path, theirs: at, merged: None }));
        }
        // A further name would keep the old content.
        if !texts || attr.kind != Kind::File || attr.nlink > 1 || found.nlink > 1 {
            return Ok(None);
        }
        let client = match base {
            Some(client) => client,
            None => base.insert((self.base)()?),
        };
        let from_root = [b"/", &path[..]].concat();
        // If others moved another file here, none of the two is a version of the other.
        let had_the_name =
            found.ino == attr.ino || client.lstat(&from_root).is_ok_and(|was| was.ino == found.ino);
        if !had_the_name && !is_new_to_ours(self.calls, found.ino)? {
            return Ok(None);
        }
        let known = client.getattr(attr.ino, None).map(|entry| entry.attr);
        let known = known.or_else(|_| client.lstat(&from_root));
        let is_text = |attr: &Attr| attr.kind == Kind::File && is_small(attr);
        let Some(was) = known.ok().filter(is_text).and_then(|attr| read(client, &attr).ok()) else {
            return Ok(None);
        };
        let merged = merged(&was, &ours, &theirs);
        Ok(merged.map(|merged| Agreed { path, theirs: at, merged: Some((attr, merged)) }))
    }

    /// Whether both sides have an inode under one name, and under as many names.
    fn has_alike(&self, ino: Ino) -> Result<bool, RealmError> {
        let Some(path) = (self.path_of)(ino) else { return Ok(false) };
        let here = self.ours.lstat(&path).ok();
        let there = self.calls.file(self.root, path.strip_prefix(b"/").unwrap_or(&path))?;
        let names = |attr: Option<Attr>| attr.filter(|attr| attr.ino == ino).map(|attr| attr.nlink);
        let (here, there) = (names(here), names(there));
        Ok(here.is_some() && here == there)
    }

    /// The version of the others, at one position.
    fn read_theirs(&self, ino: Ino) -> Option<(Attr, Version)> {
        for _ in 0..READS_MAX {
            let before = self.calls.attr(ino).ok()??;
            let version = read(self.global, &before).ok()?;
            let after = self.calls.attr(ino).ok()??;
            let is_whole = after.kind != Kind::File || after.size == version.content.len() as u64;
            if before.position == after.position && is_whole {
                return Some((after, version));
            }
        }
        None
    }

    /// Writes the merged versions to our journal, and notifies the server when they are durable.
    pub(crate) fn settle(&self, agreed: &[Agreed]) -> Result<(), RealmError> {
        let failed = |refusal: Refusal| {
            RealmError::refused("a text that both sides changed cannot be merged", refusal)
        };
        for one in agreed {
            if let Some((attr, merged)) = &one.merged {
                self.replace(&one.path, attr, merged).map_err(failed)?;
            }
        }
        self.ours.sync().map_err(failed)?;
        self.calls.settle(agreed.iter().map(Agreed::settled).collect())
    }

    /// As programs save a file: a new one takes its place, so that a crash leaves the one or the other.
    fn replace(&self, path: &[u8], attr: &Attr, merged: &Version) -> Result<(), Refusal> {
        let groups = no_groups();
        let caller = as_root(&groups);
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        let dir = self.ours.lstat([b"/", above].concat())?.ino;
        let temporary = format!(".chiton-merged-{}", attr.ino).into_bytes();
        match self.ours.unlink(&caller, dir, &temporary) {
            Ok(()) | Err(Refusal::NotFound) => {}
            Err(refusal) => return Err(refusal),
        }
        let (entry, fh) = self.ours.create(&caller, dir, &temporary, Mode(0o600), OpenFlags::READ_WRITE)?;
        let ino = entry.attr.ino;
        let written = self.write_all(&caller, fh, &merged.content);
        self.ours.release(fh).and(written)?;
        let (uid, gid) = merged.owner;
        let owner = AttrChange { uid: Some(uid), gid: Some(gid), ..AttrChange::default() };
        self.ours.setattr(&caller, ino, owner, None)?;
        for (name, value) in &merged.xattrs {
            self.ours.setxattr(&caller, ino, name, value, XattrHow::Set)?;
        }
        let mode = AttrChange { mode: Some(merged.mode), mtime: Some(SetTime::Now), ..AttrChange::default() };
        self.ours.setattr(&caller, ino, mode, None)?;
        self.ours.rename(&caller, dir, &temporary, dir, name, RenameHow::Replace)
    }

    fn write_all(&self, caller: &Caller<'_>, fh: u64, content: &[u8]) -> Result<(), Refusal> {
        let mut at = 0;
        for part in content.chunks(READ_BYTES) {
            at += u64::from(self.ours.write(caller, fh, at, part)?);
        }
        self.ours.flush(fh)
    }
}

fn read(client: &Client, attr: &Attr) -> Result<Version, Refusal> {
    let groups = no_groups();
    let caller = as_root(&groups);
    let content = match attr.kind {
        Kind::File => read_file(client, attr.ino)?,
        Kind::Symlink => client.readlink(attr.ino)?,
        Kind::Dir | Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block => Vec::new(),
    };
    let names = client.listxattr(&caller, attr.ino)?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let xattrs = names.map(|name| Ok((name.to_vec(), client.getxattr(&caller, attr.ino, name)?)));
    let xattrs = xattrs.collect::<Result<_, Refusal>>()?;
    let (kind, device) = (attr.kind, attr.rdev);
    Ok(Version { kind, device, content, mode: attr.mode, owner: (attr.uid, attr.gid), xattrs })
}

fn read_file(client: &Client, ino: Ino) -> Result<Vec<u8>, Refusal> {
    let groups = no_groups();
    let caller = as_root(&groups);
    let fh = client.open(&caller, ino, OpenFlags::READ)?;
    let whole = || {
        let mut content = Vec::new();
        loop {
            let more = client.read(fh, content.len() as u64, READ_BYTES)?;
            if more.is_empty() {
                return Ok(content);
            }
            content.extend_from_slice(&more);
            if content.len() as u64 > BYTES_MAX {
                return Err(Refusal::TooBig);
            }
        }
    };
    let content = whole();
    client.release(fh)?;
    content
}

/// The value that one side changed; `None` if both sides changed it differently.
fn either<T: PartialEq>(base: T, ours: T, theirs: T) -> Option<T> {
    match () {
        () if ours == theirs || theirs == base => Some(ours),
        () if ours == base => Some(theirs),
        () => None,
    }
}

/// Both changes of a text, if no line, and no attribute, was changed by both.
fn merged(base: &Version, ours: &Version, theirs: &Version) -> Option<Version> {
    let content = match either(&base.content, &ours.content, &theirs.content) {
        Some(content) => content.clone(),
        None => {
            let [base, ours, theirs] = [base, ours, theirs].map(|version| text(&version.content));
            diff3::merge(base?.as_bytes(), ours?.as_bytes(), theirs?.as_bytes())?
        }
    };
    let mut xattrs = BTreeMap::new();
    let names: BTreeSet<&Vec<u8>> = ours.xattrs.keys().chain(theirs.xattrs.keys()).collect();
    for name in names {
        let of = |version: &Version| version.xattrs.get(name).cloned();
        if let Some(value) = either(of(base), of(ours), of(theirs))? {
            xattrs.insert(name.clone(), value);
        }
    }
    Some(Version {
        kind: Kind::File,
        device: 0,
        content,
        mode: either(base.mode, ours.mode, theirs.mode)?,
        owner: either(base.owner, ours.owner, theirs.owner)?,
        xattrs,
    })
}

/// Content as a text: UTF-8 without NUL.
fn text(content: &[u8]) -> Option<&str> {
    std::str::from_utf8(content).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(content: &str, mode: u16, xattrs: &[(&str, &str)]) -> Version {
        let pair = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        Version {
            kind: Kind::File,
            device: 0,
            content: content.as_bytes().to_vec(),
            mode: Mode(mode),
            owner: (0, 0),
            xattrs: xattrs.iter().map(pair).collect(),
        }
    }

    #[test]
    fn a_merged_text_has_the_lines_of_both_sides() {
        let file = |content: &str| version(content, 0o644, &[]);
        let base = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n".to_owned();
        let with = |from: &str, to: &str| file(&base.replace(from, to));
        for (ours, theirs, expect) in [
            (with("one", "ONE"), with("six", "SIX"), Some(base.replace("one", "ONE").replace("six", "SIX"))),
            (with("one", "ONE"), file(&base), Some(base.replace("one", "ONE"))),
            (with("one", "uno"), with("one", "eins"), None),
            // Both append something else.
            (file(&format!("{base}ours\n")), file(&format!("{base}theirs\n")), None),
            // One removes lines to which the other adds.
            (with("two\nthree\n", ""), with("three\n", "three\nand a half\n"), None),
            (file("\0binary"), with("one", "ONE"), None),
        ] {
            let found = merged(&file(&base), &ours, &theirs).map(|merged| merged.content);
            assert_eq!(found, expect.map(String::into_bytes), "{ours:?} {theirs:?}");
        }
        // Merged again it stays the same.
        let (ours, theirs) = (with("one", "ONE"), with("six", "SIX"));
        let once = merged(&file(&base), &ours, &theirs).expect("merged");
        assert_eq!(merged(&file(&base), &once, &theirs), Some(once));
    }

    #[test]
    fn attributes_are_merged_one_by_one() {
        let base = version("x", 0o644, &[("user.a", "1"), ("user.b", "1")]);
        let ours = version("y", 0o644, &[("user.a", "2"), ("user.b", "1")]);
        let theirs = version("x", 0o755, &[("user.a", "1"), ("user.c", "3")]);
        let expect = version("y", 0o755, &[("user.a", "2"), ("user.c", "3")]);
        assert_eq!(merged(&base, &ours, &theirs), Some(expect));
        let other = version("x", 0o700, &[("user.a", "1")]);
        assert_eq!(merged(&base, &version("y", 0o600, &[]), &other), None, "both changed the mode");
    }
}
