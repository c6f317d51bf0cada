//! Every name of a tree with its attributes, a directory before the names in it.

use chiton_client::Client;
use chiton_types::{Attr, Kind, Refusal};

use crate::paths::{DirId, Paths, push};
use crate::walk::Walk;
use crate::{Place, Refused, Watch};

/// A name of a tree.
pub struct Seen<'a> {
    /// Its path, which begins as the caller's own.
    pub path: &'a [u8],
    /// The last component; of a place, its whole path.
    pub name: &'a [u8],
    /// Its attributes; of a symbolic link, its own.
    pub attr: &'a Attr,
    /// 0 for a place, 1 for the names in it.
    pub depth: usize,
}

/// Shows every name at and below these places to `see`, which says of a directory whether to enter it. Names of one directory come
/// together, in no order.
pub fn scan(
    client: &Client,
    places: &[Place],
    see: &mut dyn FnMut(&Seen<'_>) -> bool,
    watch: &mut dyn Watch,
) {
    scan_for(client, places, &mut |seen, _| see(seen), watch);
}

/// The same where `see` has something to say to the watch.
pub(crate) fn scan_for(
    client: &Client,
    places: &[Place],
    see: &mut dyn FnMut(&Seen<'_>, &mut dyn Watch) -> bool,
    watch: &mut dyn Watch,
) {
    let mut paths = Paths::default();
    let mut walk: Walk<'_, (DirId, usize)> = Walk::new(client, true);
    let mut names = 0;
    for place in places {
        let seen = Seen { path: &place.path, name: &place.path, attr: &place.attr, depth: 0 };
        names += 1;
        if see(&seen, watch) && place.attr.kind == Kind::Dir {
            walk.enter((paths.root(&place.path), 0), place.attr.ino);
        }
    }
    while !watch.is_stopped()
        && let Some(page) = walk.next()
    {
        let (dir, depth) = page.dir;
        let path = paths.path(dir);
        let entries = match page.entries {
            Ok(entries) => entries,
            Err(Refusal::NotFound) if depth > 0 => continue,
            Err(refusal) => {
                watch.refused(Refused { path, doing: "list".into(), refusal });
                continue;
            }
        };
        for entry in entries {
            let mut path = path.clone();
            push(&mut path, entry.name.as_bytes());
            names += 1;
            match entry.attr {
                Ok(attr) => {
                    let seen =
                        Seen { path: &path, name: entry.name.as_bytes(), attr: &attr, depth: depth + 1 };
                    if see(&seen, watch) && attr.kind == Kind::Dir {
                        walk.enter((paths.add(dir, &entry.name), depth + 1), attr.ino);
                    }
                }
                Err(Refusal::NotFound) => {}
                Err(refusal) => watch.refused(Refused { path, doing: "look at".into(), refusal }),
            }
        }
        watch.progress(names);
    }
}
