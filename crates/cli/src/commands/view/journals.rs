//! Which journals are merged into the view of a directory, and where they are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiton_decoupled::{
    JournalAt, Unmerged, decoupling_at, durable_in_store, durable_upto, journal_at, journal_on_disk, quoted,
};
use chiton_journal::{ObjectPlace, Place};
use chiton_server::realm_prefix;
use chiton_wire::RealmInfo;

use super::mounted::JournalOfMount;
use super::source::Source;
use super::{View, failure};
use crate::failure::{Failure, Outcome};

/// A chosen journal.
pub(super) struct Choice<'a> {
    info: &'a RealmInfo,
    name: String,
    /// The directory of the decoupling, if that was named.
    dir: Option<PathBuf>,
}

/// Whether a decoupling is of a directory at, below or around `top`.
pub(super) fn is_about(info: &RealmInfo, top: &[u8]) -> bool {
    let (root, top) = (Path::new(OsStr::from_bytes(&info.path)), Path::new(OsStr::from_bytes(top)));
    root.starts_with(top) || top.starts_with(root)
}

fn branch_of(info: &RealmInfo) -> Option<String> {
    info.branch.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
}

impl<'a> Choice<'a> {
    /// Those that were named, in that order; or all that are about the directory, in the order of their numbers.
    pub(super) fn all(
        args: &View,
        source: &Source,
        all: &'a [RealmInfo],
        top: &[u8],
    ) -> Outcome<Vec<Choice<'a>>> {
        let near: Vec<&RealmInfo> = all.iter().filter(|info| is_about(info, top)).collect();
        if args.journal.is_empty() {
            return Ok(near.iter().map(|info| Choice::new(info, all, None)).collect());
        }
        let mut chosen: Vec<Choice<'_>> = Vec::new();
        for word in &args.journal {
            let (info, dir) = find(word, source, all, &near)?;
            if !is_about(info, top) {
                return Err(Failure::failed(format!(
                    "journal {word} is of {}, which is neither in nor around {}; name another journal",
                    quoted(&info.path),
                    source.said
                )));
            }
            if chosen.iter().any(|other| other.info.claim.realm == info.claim.realm) {
                return Err(Failure::failed(format!("journal {word} is named twice: name it once")));
            }
            chosen.push(Choice::new(info, all, dir));
        }
        Ok(chosen)
    }

    fn new(info: &'a RealmInfo, all: &[RealmInfo], dir: Option<PathBuf>) -> Choice<'a> {
        let number = info.claim.realm.to_string();
        let name = match branch_of(info) {
            Some(name) if all.iter().filter(|other| other.branch == info.branch).count() == 1 => name,
            Some(name) => format!("{name} ({number})"),
            None => number,
        };
        Choice { info, name, dir }
    }

    /// Its journal, ready to be read.
    pub(super) fn journal(&self, args: &View, source: &Source) -> Outcome<Unmerged> {
        let realm = self.info.claim.realm;
        let at = match &self.dir {
            Some(dir) => JournalAt::Disk(dir.clone()),
            None => journal_at(self.info, source.info.filesystem, args.state_dir.as_deref())
                .map_err(|e| failure(&e))?,
        };
        let mut durable = None;
        let (place, at): (Arc<dyn Place>, String) = match at {
            JournalAt::Disk(dir) => {
                durable = durable_upto(&dir).filter(|_| !args.accept_truncated);
                let place = journal_on_disk(&dir).map_err(|e| failure(&e))?;
                (place, dir.join("journal").display().to_string())
            }
            JournalAt::Store => {
                if !args.accept_truncated {
                    durable = durable_in_store(&*source.objects, realm).map_err(Failure::failed)?;
                }
                let prefix = format!("{}journal", realm_prefix(realm));
                (
                    Arc::new(ObjectPlace::new(source.objects.clone(), &prefix)),
                    format!("object store, {prefix}"),
                )
            }
            JournalAt::Memory => match source.mount.as_ref().filter(|mount| mount.has(realm.0)) {
                Some(mount) => {
                    let place = JournalOfMount::new(mount.socket().to_owned(), self.info.root.0);
                    (Arc::new(place), "in the memory of the mount".to_owned())
                }
                None => {
                    return Err(Failure::failed(format!(
                        "the journal of decoupling {realm} is in the memory of {} (durability: none): name the directory by a \
                         path of that mount, or other journals with --journal",
                        self.info.owner
                    )));
                }
            },
        };
        Ok(Unmerged { realm, name: self.name.clone(), at, place, durable })
    }
}

/// The journal that a word names: a number, a directory, or a branch.
fn find<'a>(
    word: &str,
    source: &Source,
    all: &'a [RealmInfo],
    near: &[&'a RealmInfo],
) -> Outcome<(&'a RealmInfo, Option<PathBuf>)> {
    let numbered = |number: u32| {
        let found = all.iter().find(|info| info.claim.realm.0 == number);
        found.ok_or_else(|| {
            Failure::absent(format!(
                "there is no decoupling {number}: it was merged or dropped, or never existed; chiton decoupled lists those that \
                 there are"
            ))
        })
    };
    if let Ok(number) = word.parse() {
        return Ok((numbered(number)?, None));
    }
    if word.contains('/') {
        let dir = PathBuf::from(word);
        let (filesystem, realm) = decoupling_at(&dir).map_err(|e| failure(&e))?;
        if filesystem != source.info.filesystem {
            return Err(Failure::failed(format!(
                "the journal {word} belongs to another file system ({filesystem:016x}): name one of this file system"
            )));
        }
        return Ok((numbered(realm.0)?, Some(dir)));
    }
    let named: Vec<&RealmInfo> =
        near.iter().copied().filter(|info| branch_of(info).as_deref() == Some(word)).collect();
    match named[..] {
        [one] => Ok((one, None)),
        [] => Err(Failure::absent(format!(
            "no branch {word} exists at, below or around {}; chiton decoupled lists all",
            source.said
        ))),
        _ => {
            let numbers: Vec<String> = named.iter().map(|info| info.claim.realm.to_string()).collect();
            Err(Failure::failed(format!(
                "several branches are named {word}: choose one by its number, {}",
                numbers.join(" or ")
            )))
        }
    }
}
