//! Opening and closing many files: those that are to be made are made by one message with their content, and all are opened by another.
//!
//! ```text
//!   files ─▶ make those with `create` ── there already ─▶ look up ─▶ open all ─▶ handles
//! ```
//!
//! Invariants:
//! - Each file has a handle or a refusal, in the order asked. A file that was made and could not be opened stays.

use chiton_model::{INLINE_BYTES_MAX, Make, Op};
use chiton_types::{Attr, Ino, Kind, Mode, Refusal};
use chiton_wire::{Stat, StatTarget};

use crate::OpenFlags;
use crate::batch::Each;
use crate::client::{Client, Lookup};
use crate::names::new_name;
use crate::pipeline::OnRefusal;
use crate::service::Caller;

/// A name that comes and goes while it is being made or opened is tried so often.
const TRIES: usize = 16;

/// A file to be opened.
#[derive(Clone, Copy, Debug)]
pub struct FileToOpen<'a> {
    /// Directory of its name.
    pub parent: Ino,
    /// The name in that directory: one component without `/`.
    pub name: &'a [u8],
    /// With `exclusive`, a file that is there already is refused if it was to be made.
    pub flags: OpenFlags,
    /// If the name is absent, make a file with these permissions (the umask already applied) and this content.
    pub create: Option<(Mode, &'a [u8])>,
}

/// How far a file is.
#[derive(Clone, Copy)]
enum Found {
    /// It is looked up; why it was not made, if it was to be.
    Sought(Option<Refusal>),
    /// It was made now, or is there.
    At(Ino, IsNew),
    Refused(Refusal),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IsNew {
    No,
    Yes,
}

impl Client {
    /// open(2) of many files, with and without O_CREAT: attributes and a handle of each. Symbolic links are not followed
    /// ([`Refusal::Loop`]).
    pub fn open_each(&self, caller: &Caller<'_>, files: &[FileToOpen<'_>]) -> Each<(Attr, u64)> {
        self.open_some(caller, files, TRIES)
    }

    fn open_some(&self, caller: &Caller<'_>, files: &[FileToOpen<'_>], tries: usize) -> Each<(Attr, u64)> {
        let mut found = self.make_those_to_create(caller, files);
        self.look_up_sought(caller, files, &mut found);
        self.open_found(caller, files, &found, tries)
    }

    /// The last descriptors of handles are closed. A handle with unsent content sends it first, one handle after the other.
    pub fn close_each(&self, handles: &[u64]) -> Each<()> {
        handles.iter().map(|fh| self.release(*fh)).collect()
    }

    fn make_those_to_create(&self, caller: &Caller<'_>, files: &[FileToOpen<'_>]) -> Vec<Found> {
        let op = |file: &FileToOpen<'_>| {
            let (mode, content) = file.create?;
            let content = if is_inline(content) { content.to_vec() } else { Vec::new() };
            let make = Make::File { content };
            Some(new_name(file.name).map(|name| Op::Make { parent: file.parent, name, make, mode }))
        };
        let mut made = self.batch(caller, files.iter().filter_map(op).collect()).into_iter();
        let found =
            |file: &FileToOpen<'_>| {
                if file.create.is_none() {
                    return Found::Sought(None);
                }
                match made.next().unwrap_or(Err(Refusal::Io)) {
                    Ok(Some(attr)) => Found::At(attr.ino, IsNew::Yes),
                    Ok(None) => Found::Refused(Refusal::Io),
                    // A caller who may not create, or has no room for that, may still open.
                    Err(
                        refusal @ (Refusal::Exists | Refusal::Access | Refusal::ReadOnly | Refusal::NoSpace),
                    ) if !file.flags.exclusive => Found::Sought(Some(refusal)),
                    Err(refusal) => Found::Refused(refusal),
                }
            };
        files.iter().map(found).collect()
    }

    fn look_up_sought(&self, caller: &Caller<'_>, files: &[FileToOpen<'_>], found: &mut [Found]) {
        let both = files.iter().zip(&*found);
        let sought = both.filter(|(_, found)| matches!(found, Found::Sought(_)));
        let names: Vec<(Ino, &[u8])> = sought.map(|(file, _)| (file.parent, file.name)).collect();
        let mut looked_up = self.lookup_each(caller, &names).into_iter();
        for found in found {
            if let Found::Sought(why_not_made) = *found {
                *found = match looked_up.next().unwrap_or(Err(Refusal::Io)) {
                    Ok(Lookup::Found { attr, .. }) => match attr.kind {
                        Kind::File => Found::At(attr.ino, IsNew::No),
                        Kind::Dir => Found::Refused(Refusal::IsDir),
                        Kind::Symlink => Found::Refused(Refusal::Loop),
                        Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block => {
                            Found::Refused(why_not_made.unwrap_or(Refusal::Invalid))
                        }
                    },
                    Ok(Lookup::Absent { .. }) => match why_not_made {
                        // Another client has removed it since: it is made or opened alone.
                        Some(Refusal::Exists) => Found::Sought(why_not_made),
                        _ => Found::Refused(why_not_made.unwrap_or(Refusal::NotFound)),
                    },
                    Err(refusal) => Found::Refused(refusal),
                };
            }
        }
    }

    fn open_found(
        &self,
        caller: &Caller<'_>,
        files: &[FileToOpen<'_>],
        found: &[Found],
        tries: usize,
    ) -> Each<(Attr, u64)> {
        let (since, changes) = (self.since(), self.files.changes());
        let target = |(file, found): (&FileToOpen<'_>, &Found)| match *found {
            // The one who makes a file may open it, whatever its mode says.
            Found::At(ino, IsNew::Yes) => Some(StatTarget::Open { ino, want: 0 }),
            Found::At(ino, IsNew::No) => Some(StatTarget::Open { ino, want: file.flags.want() }),
            Found::Sought(_) | Found::Refused(_) => None,
        };
        let targets = files.iter().zip(found).filter_map(target).collect();
        let mut opened = self.stat_targets(caller, targets, OnRefusal::PerformAll).into_iter();
        let handle = |(file, found): (&FileToOpen<'_>, &Found)| {
            let is_new = match *found {
                Found::Refused(refusal) => return Err(refusal),
                Found::Sought(_) => return self.open_alone(caller, file, tries),
                Found::At(_, is_new) => is_new == IsNew::Yes,
            };
            let (attr, lease) = match opened.next().unwrap_or(Err(Refusal::Io)) {
                Ok(Stat::Attr { attr, lease }) => (attr, lease),
                Ok(Stat::Absent | Stat::Elsewhere(_)) => return Err(Refusal::Io),
                // Another client has removed it since.
                Err(Refusal::Stale | Refusal::NotFound) => return self.open_alone(caller, file, tries),
                Err(refusal) => return Err(refusal),
            };
            self.core.cache.learn_attr(self.service.recalls(), since, &attr, lease);
            let flags = OpenFlags { truncate: file.flags.truncate && !is_new, ..file.flags };
            let fh = self.opened(caller, attr.clone(), lease, (since.recalls, changes), flags)?;
            let attr = if is_new { self.write_rest(caller, file, fh, attr)? } else { attr };
            Ok((attr, fh))
        };
        files.iter().zip(found).map(handle).collect()
    }

    /// Writes the content of a file that was made without it.
    fn write_rest(
        &self,
        caller: &Caller<'_>,
        file: &FileToOpen<'_>,
        fh: u64,
        attr: Attr,
    ) -> Result<Attr, Refusal> {
        let content = file.create.map_or(&[][..], |(_, content)| content);
        if is_inline(content) {
            return Ok(attr);
        }
        // The handle may be for reading only.
        let writer = self.opened_again(caller, &attr)?;
        let write = || {
            let mut written = 0;
            while written < content.len() {
                written += self.write(caller, writer, written as u64, &content[written..])? as usize;
            }
            Ok(())
        };
        let written = write();
        let written = self.release(writer).and(written);
        if let Err(refusal) = written {
            // The failure of the content is the one to report.
            let _ = self.release(fh);
            return Err(refusal);
        }
        self.getattr(attr.ino, None).map(|entry| entry.attr)
    }

    /// A second handle, for writing.
    fn opened_again(&self, caller: &Caller<'_>, attr: &Attr) -> Result<u64, Refusal> {
        let (since, changes) = (self.since(), self.files.changes());
        let target = vec![StatTarget::Open { ino: attr.ino, want: 0 }];
        match self.stat_targets(caller, target, OnRefusal::PerformAll).pop().unwrap_or(Err(Refusal::Io))? {
            Stat::Attr { attr, lease } => {
                self.opened(caller, attr, lease, (since.recalls, changes), OpenFlags::WRITE)
            }
            Stat::Absent | Stat::Elsewhere(_) => Err(Refusal::Io),
        }
    }

    /// One whose name changed hands while it was to be opened with the others.
    fn open_alone(
        &self,
        caller: &Caller<'_>,
        file: &FileToOpen<'_>,
        tries: usize,
    ) -> Result<(Attr, u64), Refusal> {
        match tries {
            0 => Err(Refusal::Busy),
            _ => self.open_some(caller, std::slice::from_ref(file), tries - 1).remove(0),
        }
    }
}

/// Whether content goes with the operation that makes its file.
fn is_inline(content: &[u8]) -> bool {
    content.len() <= INLINE_BYTES_MAX
}
