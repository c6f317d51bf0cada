//! The third pass checks directories: their link counts, and whether each is below the root.
//!
//! Every directory knows its parent. In each round, every directory that has not found the root asks the one that
//! it points to for that one's target, so that after k rounds it points 2^k levels up (pointer jumping). When 2^k
//! exceeds the number of directories, a directory that has found neither the root nor a directory without an entry
//! is in a loop or below one. The targets that remain then are the loops themselves.

use std::collections::BTreeMap;

use chiton_types::Ino;

use crate::fsck::cursor::Cursor;
use crate::fsck::inodes::{Dirs, dir_record};
use crate::fsck::rows::names_in;
use crate::fsck::sorter::{Sorter, packed, u32_at, u64_at};
use crate::fsck::{CheckError, Problem, Run};

pub(crate) struct Tree {
    /// ino, directory that holds its entry (0: none), link count u32, subdirectories cannot all be known u8.
    dirs: Dirs,
    subdirectories: Sorter<8>,
    /// Directory, where it points: for jumping.
    pointers: Sorter<16>,
    /// Parts that directories list, with the directory.
    listed: BTreeMap<Ino, Ino>,
    /// Parts that there are, with the directory that each belongs to.
    parts: BTreeMap<Ino, Ino>,
    /// The same, by where it points, of those that have not found the root.
    searching: Sorter<16>,
    /// Directory, where its entry is: to name the loops.
    places: Sorter<16>,
}

impl Tree {
    pub(crate) fn new(run: &Run<'_>) -> Tree {
        Tree {
            dirs: run.sorter(),
            subdirectories: run.sorter(),
            pointers: run.sorter(),
            listed: BTreeMap::new(),
            parts: BTreeMap::new(),
            searching: run.sorter(),
            places: run.sorter(),
        }
    }

    /// An entry of `dir` names a directory.
    pub(crate) fn subdirectory(&mut self, dir: Ino) -> Result<(), CheckError> {
        Ok(self.subdirectories.push(packed![dir.0])?)
    }

    /// A directory lists these parts beside itself.
    pub(crate) fn parts_of(&mut self, home: Ino, parts: impl Iterator<Item = Ino>) {
        self.listed.extend(parts.map(|part| (part, home)));
    }

    /// There is a part of a directory.
    pub(crate) fn part(&mut self, part: Ino, home: Ino) {
        self.parts.insert(part, home);
    }

    /// There is a directory, whose entry is in `parent` (0: it has none).
    pub(crate) fn directory(
        &mut self,
        ino: Ino,
        parent: Ino,
        nlink: u32,
        unsure: bool,
    ) -> Result<(), CheckError> {
        self.dirs.push(dir_record(ino, parent, nlink, unsure))?;
        self.place(ino, parent)
    }

    /// Records a directory entry whose inode's row does not decode.
    pub(crate) fn unreadable(&mut self, ino: Ino, parent: Ino) -> Result<(), CheckError> {
        self.place(ino, parent)
    }

    fn place(&mut self, ino: Ino, parent: Ino) -> Result<(), CheckError> {
        point(&mut self.pointers, &mut self.searching, ino.0, parent.0)?;
        Ok(self.places.push(packed![ino.0, parent.0])?)
    }
}

/// Records the target of a directory.
fn point(
    pointers: &mut Sorter<16>,
    searching: &mut Sorter<16>,
    from: u64,
    to: u64,
) -> Result<(), CheckError> {
    pointers.push(packed![from, to])?;
    if to != Ino::ROOT.0 && to != 0 {
        searching.push(packed![to, from])?;
    }
    Ok(())
}

pub(crate) fn check(run: &mut Run<'_>, tree: Tree) -> Result<(), CheckError> {
    let Tree { dirs, subdirectories, mut pointers, mut searching, places, listed, parts } = tree;
    for (&part, &home) in &listed {
        if parts.get(&part) != Some(&home) {
            run.report(Problem::MissingPart { ino: home, part })?;
        }
    }
    for (&part, home) in &parts {
        if listed.get(&part) != Some(home) {
            run.report(Problem::UnreachableDirectory { ino: part })?;
        }
    }
    let count = dirs.len();
    check_counts(run, dirs, subdirectories)?;
    let mut rounds = 64 - pointers.len().leading_zeros() + 1;
    while searching.len() > 0 && rounds > 0 {
        rounds -= 1;
        run.report_progress("tree", count - searching.len().min(count), count);
        (pointers, searching) = jump(run, pointers, searching)?;
    }
    if searching.len() == 0 {
        return Ok(());
    }
    name_loops(run, searching, places)
}

fn check_counts(run: &mut Run<'_>, dirs: Dirs, subdirectories: Sorter<8>) -> Result<(), CheckError> {
    let mut subdirectories = Cursor::new(subdirectories)?;
    for record in dirs.finish()? {
        let record = record?;
        let (ino, says, unsure) = (u64_at(&record, 0), u32_at(&record, 16), record[20] != 0);
        subdirectories.seek(ino)?;
        let mut is = 2u32;
        while subdirectories.take(ino)?.is_some() {
            is = is.saturating_add(1);
        }
        if is != says && !unsure {
            run.report(Problem::WrongSubdirectoryCount { ino: Ino(ino), says, is })?;
        }
    }
    Ok(())
}

/// Moves the target of every searching directory to the target's target.
fn jump(
    run: &Run<'_>,
    pointers: Sorter<16>,
    searching: Sorter<16>,
) -> Result<(Sorter<16>, Sorter<16>), CheckError> {
    let (mut next_pointers, mut next_searching) = (run.sorter(), run.sorter());
    let mut asking = Cursor::new(searching)?;
    for record in pointers.finish()? {
        let record = record?;
        let (from, to) = (u64_at(&record, 0), u64_at(&record, 8));
        // Those that point to a directory that does not exist have found nothing: they point to 0.
        while let Some(head) = asking.head().filter(|head| *head <= from) {
            let Some(asked) = asking.next()? else { break };
            let found = if head == from { to } else { 0 };
            point(&mut next_pointers, &mut next_searching, u64_at(&asked, 8), found)?;
        }
        if to == Ino::ROOT.0 || to == 0 {
            next_pointers.push(record)?;
        }
    }
    while let Some(asked) = asking.next()? {
        point(&mut next_pointers, &mut next_searching, u64_at(&asked, 8), 0)?;
    }
    Ok((next_pointers, next_searching))
}

/// The remaining targets are the loops. They are held in memory: loops are few, or everything is lost anyway.
fn name_loops(run: &mut Run<'_>, searching: Sorter<16>, places: Sorter<16>) -> Result<(), CheckError> {
    let mut members: BTreeMap<u64, u64> = BTreeMap::new();
    let mut pointed = Cursor::new(searching)?;
    for place in places.finish()? {
        let place = place?;
        let (ino, parent) = (u64_at(&place, 0), u64_at(&place, 8));
        if pointed.seek(ino)? {
            members.insert(ino, parent);
        }
    }
    while let Some((&first, _)) = members.first_key_value() {
        let mut at = first;
        let parent = members[&first];
        while let Some(next) = members.remove(&at) {
            at = next;
        }
        let (ino, dir) = (Ino(first), Ino(parent));
        if let Some(name) = names_in(run.rows.joint, dir, None, ino)?.into_iter().next() {
            run.report(Problem::DirectoryLoop { ino, dir, name })?;
        }
    }
    Ok(())
}
