//! How much is in a tree: du.

use std::collections::BTreeSet;

use chiton_client::Client;
use chiton_types::{Attr, Kind, Refusal};

use crate::paths::{DirId, Paths};
use crate::walk::Walk;
use crate::{Place, Refused, Watch};

/// Totals of a tree. A file with several names in it counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The directory, or the place.
    pub path: Vec<u8>,
    /// 0 for a place.
    pub depth: usize,
    /// Sizes of files and of targets of symbolic links.
    pub bytes: u64,
    /// Bytes of content that are stored; holes are not. A block that several files share counts for each.
    pub allocated: u64,
    /// Inodes that are no directories.
    pub files: u64,
    /// Directories, the place included.
    pub dirs: u64,
}

impl Usage {
    fn add(&mut self, attr: &Attr) {
        if attr.kind == Kind::Dir {
            self.dirs += 1;
            return;
        }
        self.files += 1;
        self.bytes += attr.size;
        self.allocated += attr.allocated;
    }

    fn add_all(&mut self, other: &Usage) {
        self.bytes += other.bytes;
        self.allocated += other.allocated;
        self.files += other.files;
        self.dirs += other.dirs;
    }
}

/// Totals of each place and of the directories down to `depth_max` below it, a directory before those in it.
pub fn usage(client: &Client, places: &[Place], depth_max: usize, watch: &mut dyn Watch) -> Vec<Usage> {
    let mut paths = Paths::default();
    // The directory, and the line that its names count in.
    let mut walk: Walk<'_, (DirId, usize)> = Walk::new(client, true);
    let mut lines: Vec<(Option<usize>, Usage)> = Vec::new();
    let mut counted = BTreeSet::new();
    let mut is_new = |attr: &Attr| attr.kind == Kind::Dir || attr.nlink <= 1 || counted.insert(attr.ino);
    let mut names = 0;
    for place in places {
        let mut line = Usage { path: place.path.clone(), ..Usage::default() };
        if is_new(&place.attr) {
            line.add(&place.attr);
        }
        lines.push((None, line));
        names += 1;
        if place.attr.kind == Kind::Dir {
            walk.enter((paths.root(&place.path), lines.len() - 1), place.attr.ino);
        }
    }
    while !watch.is_stopped()
        && let Some(page) = walk.next()
    {
        let (dir, line) = page.dir;
        let entries = match page.entries {
            Ok(entries) => entries,
            Err(Refusal::NotFound) => continue,
            Err(refusal) => {
                watch.refused(Refused { path: paths.path(dir), doing: "list".into(), refusal });
                continue;
            }
        };
        for entry in entries {
            names += 1;
            let attr = match entry.attr {
                Ok(attr) => attr,
                Err(Refusal::NotFound) => continue,
                Err(refusal) => {
                    let path = paths.path_in(dir, &entry.name);
                    watch.refused(Refused { path, doing: "look at".into(), refusal });
                    continue;
                }
            };
            let depth = lines[line].1.depth;
            let mut counts_in = line;
            if attr.kind == Kind::Dir {
                let id = paths.add(dir, &entry.name);
                if depth < depth_max {
                    let below = Usage { path: paths.path(id), depth: depth + 1, ..Usage::default() };
                    lines.push((Some(line), below));
                    counts_in = lines.len() - 1;
                }
                walk.enter((id, counts_in), attr.ino);
            }
            if is_new(&attr) {
                lines[counts_in].1.add(&attr);
            }
        }
        watch.progress(names);
    }
    // A line stands behind that of its parent.
    for at in (0..lines.len()).rev() {
        if let (Some(up), below) = lines[at].clone() {
            lines[up].1.add_all(&below);
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}
