//! The second pass merges everything that belongs to one inode.

use chiton_namespace::{Share, inode_row, tag};
use chiton_types::{Ino, Kind};

use crate::fsck::census::{
    ACCESS_LIST, BAD_LIST, ByInode, DEFAULT_LIST, HOME, INLINE, KIND_BAD, MAPPED, PART, XATTRS, XATTRS_BAD,
};
use crate::fsck::cursor::Cursor;
use crate::fsck::problem::Lists;
use crate::fsck::rows::{inode, names_in, parts_in};
use crate::fsck::sorter::{Sorter, packed, u32_at, u64_at};
use crate::fsck::tree::Tree;
use crate::fsck::{CheckError, Problem, Run};

/// An inode's row, or that there is none.
#[derive(Clone, Copy)]
struct Record {
    ino: Ino,
    /// [`KIND_BAD`]: the row does not decode.
    kind: u8,
    flags: u8,
    nlink: u32,
    size: u64,
    /// Bytes of content; of a directory its entries.
    counted: u64,
    parent: Ino,
}

impl Record {
    fn read(r: &[u8; 38]) -> Record {
        Record {
            ino: Ino(u64_at(r, 0)),
            kind: r[8],
            flags: r[9],
            nlink: u32_at(r, 10),
            size: u64_at(r, 14),
            counted: u64_at(r, 22),
            parent: Ino(u64_at(r, 30)),
        }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn is(&self, kind: Kind) -> bool {
        self.kind == kind as u8
    }
}

/// The records of an inode beside its row.
#[derive(Default)]
struct Found {
    content: Option<u64>,
    chunks: Option<Chunks>,
    /// Flags of the access list and of the default list.
    xattrs: Option<(u8, u8)>,
    orphan: bool,
    /// Entries in it, bad ones among them.
    entries: (u64, u64),
    names: u32,
    /// Directories: the directory of the entry that counts.
    placed_in: Option<Ino>,
    /// For others: the directories of all names, and those of its own list.
    dirs: Vec<u64>,
    listed: Vec<u64>,
}

/// The sums of a map.
struct Chunks {
    allocated: u64,
    end: u64,
    first: u32,
}

struct Cursors {
    inodes: Cursor<38>,
    names: Cursor<25>,
    entries: Cursor<24>,
    contents: Cursor<16>,
    chunks: Cursor<28>,
    xattrs: Cursor<10>,
    orphans: Cursor<8>,
    linked: Cursor<16>,
}

/// Checks every inode, and every record that refers to one.
pub(crate) fn check(run: &mut Run<'_>, sorted: ByInode) -> Result<Tree, CheckError> {
    let mut tree = Tree::new(run);
    let total = sorted.inodes.len();
    let mut c = Cursors {
        inodes: Cursor::new(sorted.inodes)?,
        names: Cursor::new(sorted.names)?,
        entries: Cursor::new(sorted.entries)?,
        contents: Cursor::new(sorted.contents)?,
        chunks: Cursor::new(sorted.chunks)?,
        xattrs: Cursor::new(sorted.xattrs)?,
        orphans: Cursor::new(sorted.orphans)?,
        linked: Cursor::new(sorted.linked)?,
    };
    let (mut done, mut root) = (0, false);
    while let Some(ino) = c.lowest() {
        let record = c.inodes.take(ino)?.map(|r| Record::read(&r));
        let found = c.found(ino)?;
        match record {
            None => check_nothing(run, Ino(ino), &found, &mut c)?,
            Some(record) => {
                done += 1;
                root |= record.ino == Ino::ROOT && record.is(Kind::Dir);
                run.report_progress("inodes", done, total);
                check_one(run, &record, found, &mut c, &mut tree)?;
            }
        }
    }
    if !root {
        run.report(Problem::MissingRoot)?;
    }
    Ok(tree)
}

impl Cursors {
    fn lowest(&mut self) -> Option<u64> {
        let heads = [
            self.inodes.head(),
            self.names.head(),
            self.entries.head(),
            self.contents.head(),
            self.chunks.head(),
            self.xattrs.head(),
            self.orphans.head(),
            self.linked.head(),
        ];
        heads.into_iter().flatten().min()
    }

    /// Everything but the row and the names.
    fn found(&mut self, ino: u64) -> Result<Found, CheckError> {
        let mut found = Found::default();
        while let Some(record) = self.contents.take(ino)? {
            found.content = Some(u64_at(&record, 8));
        }
        while let Some(r) = self.chunks.take(ino)? {
            let (allocated, end, n) = (u64_at(&r, 8), u64_at(&r, 16), u32_at(&r, 24));
            let chunks = found.chunks.get_or_insert(Chunks { allocated: 0, end: 0, first: n });
            chunks.allocated = chunks.allocated.saturating_add(allocated);
            chunks.end = chunks.end.max(end);
            chunks.first = chunks.first.min(n);
        }
        found.xattrs = self.xattrs.take(ino)?.map(|r| (r[8], r[9]));
        found.orphan = self.orphans.take(ino)?.is_some();
        while let Some(r) = self.entries.take(ino)? {
            found.entries = (found.entries.0 + u64_at(&r, 8), found.entries.1 + u64_at(&r, 16));
        }
        while let Some(r) = self.linked.take(ino)? {
            found.listed.push(u64_at(&r, 8));
        }
        Ok(found)
    }
}

/// Rows that belong to an inode that does not exist.
fn check_nothing(run: &mut Run<'_>, ino: Ino, found: &Found, c: &mut Cursors) -> Result<(), CheckError> {
    // Extended attributes alone do not show the type.
    let remains =
        ino != Ino::ROOT && (found.content.is_some() || found.chunks.is_some() || found.entries.0 > 0);
    let mut kind = None;
    while let Some(r) = c.names.take(ino.0)? {
        let (dir, hash) = (Ino(u64_at(&r, 8)), u64_at(&r, 16));
        kind = kind.or(Kind::from_u8(r[24]));
        if remains || ino == Ino::ROOT {
            continue;
        }
        for name in names_in(run.rows.joint, dir, Some(hash), ino)? {
            run.report(Problem::DanglingEntry { dir, name, ino })?;
        }
        skip_same(c, &r)?;
    }
    if found.orphan {
        run.report(Problem::WrongOrphanRow { ino, named: false })?;
    }
    if !found.listed.is_empty() && !remains {
        run.report(Problem::WrongHardLinks { ino, is: Vec::new() })?;
    }
    if remains {
        let holds = matches!(kind, Some(Kind::File | Kind::Symlink));
        let kind = match kind {
            _ if found.entries.0 > 0 => Kind::Dir,
            Some(kind) if holds => kind,
            _ => Kind::File,
        };
        return run.report(Problem::LostInode { ino, kind });
    }
    strays(run, ino, found, (true, true, true))
}

/// Skips names of one inode with equal hashes in one directory: they were reported together.
fn skip_same(c: &mut Cursors, record: &[u8; 25]) -> Result<(), CheckError> {
    while c.names.peek_is(|next| next[..24] == record[..24]) {
        c.names.next()?;
    }
    Ok(())
}

/// Reports content, map and extended attributes that should not be there.
fn strays(
    run: &mut Run<'_>,
    ino: Ino,
    found: &Found,
    (content, chunks, xattrs): (bool, bool, bool),
) -> Result<(), CheckError> {
    if found.content.is_some() && content {
        run.report(Problem::StrayRow { key: inode_row(tag::CONTENT, ino), ino, adoptable: false })?;
    }
    if let Some(map) = found.chunks.as_ref().filter(|_| chunks) {
        let key = [&inode_row(tag::CHUNK, ino)[..], &map.first.to_be_bytes()].concat();
        run.report(Problem::StrayRow { key, ino, adoptable: false })?;
    }
    if found.xattrs.is_some() && xattrs {
        // If the rest is missing as well, they cannot be adopted.
        let adoptable = !(content && chunks);
        run.report(Problem::StrayRow { key: inode_row(tag::XATTRS, ino), ino, adoptable })?;
    }
    Ok(())
}

fn check_one(
    run: &mut Run<'_>,
    i: &Record,
    mut found: Found,
    c: &mut Cursors,
    tree: &mut Tree,
) -> Result<(), CheckError> {
    check_names(run, i, &mut found, c, tree)?;
    if i.kind == KIND_BAD {
        return Ok(());
    }
    if i.is(Kind::Dir) {
        check_dir(run, i, &found, tree)?;
        if !found.listed.is_empty() {
            run.report(Problem::WrongHardLinks { ino: i.ino, is: Vec::new() })?;
        }
    } else {
        check_links(run, i, &mut found)?;
        if found.entries.0 > 0 {
            run.report(Problem::EntriesOutsideDirectory { dir: i.ino, entries: found.entries.0 })?;
        }
    }
    check_content(run, i, &found)
}

fn check_names(
    run: &mut Run<'_>,
    i: &Record,
    found: &mut Found,
    c: &mut Cursors,
    tree: &mut Tree,
) -> Result<(), CheckError> {
    let ino = i.ino;
    // Directory and hash of the entry that a directory keeps, and of those too many.
    let mut kept: Option<(Ino, u64)> = None;
    let mut extra: Vec<(Ino, u64)> = Vec::new();
    while let Some(r) = c.names.take(ino.0)? {
        let (dir, hash, kind) = (Ino(u64_at(&r, 8)), u64_at(&r, 16), r[24]);
        found.names = found.names.saturating_add(1);
        let directory = i.is(Kind::Dir) || (i.kind == KIND_BAD && kind == Kind::Dir as u8);
        if let Some(is) = Kind::from_u8(i.kind).filter(|is| *is as u8 != kind) {
            for name in names_in(run.rows.joint, dir, Some(hash), ino)? {
                run.report(Problem::WrongEntryType { dir, name, ino, is })?;
            }
        }
        if !directory {
            found.dirs.push(dir.0);
            continue;
        }
        tree.subdirectory(dir)?;
        match kept {
            _ if ino == Ino::ROOT => extra.push((dir, hash)),
            None => kept = Some((dir, hash)),
            Some(other) if dir == i.parent && other.0 != i.parent => {
                extra.push(other);
                kept = Some((dir, hash));
            }
            Some(_) => extra.push((dir, hash)),
        }
    }
    found.placed_in = kept.map(|(dir, _)| dir);
    for (dir, hash) in extra {
        let names = names_in(run.rows.joint, dir, Some(hash), ino)?;
        // Two names of one hash in one directory: the first stays.
        let keeps = usize::from(kept == Some((dir, hash)));
        for name in names.into_iter().skip(keeps) {
            run.report(Problem::ExtraDirectoryEntry { dir, name, ino })?;
        }
    }
    if i.kind == KIND_BAD
        && let Some(parent) = found.placed_in
    {
        tree.unreadable(ino, parent)?;
    }
    Ok(())
}

fn check_dir(run: &mut Run<'_>, i: &Record, found: &Found, tree: &mut Tree) -> Result<(), CheckError> {
    let ino = i.ino;
    if i.has(PART) && found.names == 0 {
        // No entry names it: its directory lists it.
        if found.entries.0 != i.counted {
            run.report(Problem::WrongEntryCount { ino, says: i.counted, is: found.entries.0 })?;
        }
        if found.orphan {
            // Its directory was removed with names in it, and it is being emptied.
            run.summary.removed_but_open += 1;
            if i.nlink != 0 {
                run.report(Problem::WrongLinkCount { ino, says: i.nlink, is: 0 })?;
            }
            return Ok(());
        }
        tree.part(ino, i.parent);
        return tree.directory(ino, i.parent, i.nlink, found.entries.1 > 0);
    }
    if i.has(HOME) && !found.orphan {
        let parts = parts_in(run.rows.joint, ino)?;
        tree.parts_of(ino, parts.iter().map(|part| part.ino).filter(|part| *part != ino));
    }
    if found.entries.0 != i.counted {
        run.report(Problem::WrongEntryCount { ino, says: i.counted, is: found.entries.0 })?;
    }
    let removed = ino != Ino::ROOT && found.names == 0 && found.orphan;
    match found.placed_in {
        _ if ino == Ino::ROOT => {
            if i.parent != Ino::ROOT {
                run.report(Problem::WrongParent { ino, says: i.parent, is: Ino::ROOT })?;
            }
        }
        Some(parent) if parent != i.parent => {
            run.report(Problem::WrongParent { ino, says: i.parent, is: parent })?;
        }
        Some(_) => {}
        None if removed => {
            run.summary.removed_but_open += 1;
            if i.nlink != 0 {
                run.report(Problem::WrongLinkCount { ino, says: i.nlink, is: 0 })?;
            }
            return Ok(());
        }
        None => run.report(Problem::UnreachableDirectory { ino })?,
    }
    if found.orphan {
        run.report(Problem::WrongOrphanRow { ino, named: true })?;
    }
    let parent = if ino == Ino::ROOT { Ino::ROOT } else { found.placed_in.unwrap_or(Ino(0)) };
    tree.directory(ino, parent, i.nlink, found.entries.1 > 0)
}

fn check_links(run: &mut Run<'_>, i: &Record, found: &mut Found) -> Result<(), CheckError> {
    let ino = i.ino;
    let list = if found.names > 1 { &found.dirs[..] } else { &[] };
    found.listed.sort_unstable();
    if found.listed != list && !lists_homes(run, &found.listed, list)? {
        // Sorted like the names.
        let is = list.iter().copied().map(Ino).collect();
        run.report(Problem::WrongHardLinks { ino, is })?;
    }
    if found.names == 0 && !found.orphan {
        return run.report(Problem::Orphan { ino });
    }
    if found.orphan && found.names > 0 {
        run.report(Problem::WrongOrphanRow { ino, named: true })?;
    }
    run.summary.removed_but_open += u64::from(found.names == 0);
    if i.nlink != found.names {
        run.report(Problem::WrongLinkCount { ino, says: i.nlink, is: found.names })?;
    }
    match found.dirs.first() {
        Some(&lowest)
            if !found.dirs.contains(&i.parent.0) && !has_part_among(run, i.parent, &found.dirs)? =>
        {
            run.report(Problem::WrongParent { ino, says: i.parent, is: Ino(lowest) })
        }
        _ => Ok(()),
    }
}

/// Whether one of these is a part of a directory. A file stays with the home when its name moves to a part. The part says so itself: of a
/// directory that was removed the home may be freed before the names in its parts.
fn has_part_among(run: &Run<'_>, home: Ino, dirs: &[u64]) -> Result<bool, CheckError> {
    for dir in dirs {
        if is_part_of(run, Ino(*dir), home)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_part_of(run: &Run<'_>, dir: Ino, home: Ino) -> Result<bool, CheckError> {
    let dir = inode(run.rows.joint, dir)?;
    Ok(dir.is_some_and(|dir| dir.node.share() == Share::Part && dir.parent == home))
}

/// Whether these are the directories of a file's names, some of them homes in place of their parts.
fn lists_homes(run: &Run<'_>, listed: &[u64], dirs: &[u64]) -> Result<bool, CheckError> {
    let mut left = dirs.to_vec();
    let mut homes = Vec::new();
    // A home must not stand for a part that is listed itself.
    for dir in listed {
        match left.iter().position(|other| other == dir) {
            Some(at) => drop(left.swap_remove(at)),
            None => homes.push(*dir),
        }
    }
    for home in homes {
        let mut at = None;
        for (n, dir) in left.iter().enumerate() {
            if is_part_of(run, Ino(*dir), Ino(home))? {
                at = Some(n);
                break;
            }
        }
        let Some(at) = at else { return Ok(false) };
        left.swap_remove(at);
    }
    Ok(left.is_empty())
}

/// Checks access control lists against the inode's flags.
fn check_lists(run: &mut Run<'_>, i: &Record, (access, default): (u8, u8)) -> Result<(), CheckError> {
    if (access, default) == (XATTRS_BAD, XATTRS_BAD) {
        // The undecodable row is reported already.
        return Ok(());
    }
    let says = Lists { access: i.has(ACCESS_LIST), default: i.has(DEFAULT_LIST) };
    let is = Lists { access: access & ACCESS_LIST != 0, default: default & DEFAULT_LIST != 0 };
    if says != is {
        run.report(Problem::WrongLists { ino: i.ino, says, is })?;
    }
    if access & BAD_LIST != 0 {
        run.report(Problem::BadList { ino: i.ino, default: false })?;
    }
    if default & BAD_LIST != 0 || (is.default && !i.is(Kind::Dir)) {
        run.report(Problem::BadList { ino: i.ino, default: true })?;
    }
    Ok(())
}

fn check_content(run: &mut Run<'_>, i: &Record, found: &Found) -> Result<(), CheckError> {
    let ino = i.ino;
    let holds = i.is(Kind::File) || i.is(Kind::Symlink);
    let lists_parts = i.has(HOME) || i.has(PART);
    strays(run, ino, found, (!(i.has(INLINE) && (holds || lists_parts)), !i.has(MAPPED), false))?;
    match (found.xattrs, i.has(XATTRS)) {
        (Some(_), false) => {
            let key = inode_row(tag::XATTRS, ino);
            run.report(Problem::StrayRow { key, ino, adoptable: true })?;
        }
        (None, true) => run.report(Problem::MissingContent { ino, xattrs: true })?,
        (lists, _) => check_lists(run, i, lists.unwrap_or((0, 0)))?,
    }
    if !holds {
        return Ok(());
    }
    if found.chunks.as_ref().is_some_and(|map| map.allocated == u64::MAX) {
        // One of them does not decode, which is reported already.
        return Ok(());
    }
    let (is, end) = if i.has(MAPPED) {
        found.chunks.as_ref().map_or((0, 0), |map| (map.allocated, map.end))
    } else if i.has(INLINE) {
        match found.content {
            // The row exists, and is reported as bad already.
            Some(u64::MAX) => return Ok(()),
            Some(bytes) => (bytes, bytes),
            None => return run.report(Problem::MissingContent { ino, xattrs: false }),
        }
    } else if i.is(Kind::Symlink) {
        return run.report(Problem::MissingContent { ino, xattrs: false });
    } else {
        (0, 0)
    };
    if is < i.counted {
        run.report(Problem::SizeWithoutBlocks { ino, says: i.counted, is })?;
    } else if is > i.counted {
        run.report(Problem::WrongAllocation { ino, says: i.counted, is })?;
    }
    if end > i.size {
        run.report(Problem::ContentPastEnd { ino, says: i.size, is: end })?;
    }
    Ok(())
}

/// The sorter of directories, for the tree.
pub(crate) type Dirs = Sorter<21>;

/// A directory's record.
pub(crate) fn dir_record(ino: Ino, parent: Ino, nlink: u32, unsure: bool) -> [u8; 21] {
    packed![ino.0, parent.0, nlink, u8::from(unsure)]
}
