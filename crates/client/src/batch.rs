//! Many operations in one message, in one directory or in any, and calls that are not waited for.

use chiton_model::{AttrChange, INLINE_BYTES_MAX, Make, Op, Outcome};
use chiton_types::{Attr, Ino, Mode, Name, Position, Refusal};
use chiton_wire::{Answer, BATCH_OPS_MAX, Call, Content, DirEntry, Failure, LeaseMode, Query};

use crate::client::{Client, Entry, Listed, Lookup};
use crate::in_flight::{InFlight, refusal};
use crate::names::new_name;
use crate::pipeline::{OnRefusal, Performed, performed};
use crate::service::Caller;

/// Names that are made without a request at once, where that is possible.
const BATCH_OPS: usize = 1_000;
const BATCH_OPS_TOO_MANY: usize = BATCH_OPS_MAX + 1;

/// The result of each name, in the order asked.
pub type Each<T> = Vec<Result<T, Refusal>>;

/// A file to be made with its content.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// Directory of its name.
    pub parent: Ino,
    /// The name in that directory: one component without `/`, at most 255 bytes.
    pub name: &'a [u8],
    /// Permissions, the umask already applied.
    pub mode: Mode,
    /// All of its bytes.
    pub content: &'a [u8],
}

impl Client {
    /// Makes an empty file for each name in the directory.
    pub fn create_in(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        names: &[impl AsRef<[u8]>],
        mode: Mode,
    ) -> Each<Attr> {
        let op = |name: &[u8]| {
            let make = Make::File { content: Vec::new() };
            Ok(Op::Make { parent, name: new_name(name)?, make, mode })
        };
        let (mut each, mut rest) = (Vec::with_capacity(names.len()), names);
        while !rest.is_empty() {
            let some: Vec<&[u8]> = rest.iter().take(BATCH_OPS).map(AsRef::as_ref).collect();
            let made = self.service.create_lazily(&caller.cred(), parent, &some, mode);
            let (_, left) = rest.split_at(made.len());
            // Where none of a message's can be made without a request, the rest goes by requests.
            let (asked, behind) = left.split_at(match made.len() {
                0 => left.len(),
                count => some.len() - count,
            });
            rest = behind;
            each.extend(made.into_iter().map(Ok));
            let answers = self.batch(caller, asked.iter().map(|name| op(name.as_ref())).collect());
            each.extend(answers.into_iter().map(|one| one?.ok_or(Refusal::Io)));
        }
        each
    }

    /// Removes each name (not a directory's) from the directory.
    pub fn unlink_in(&self, caller: &Caller<'_>, parent: Ino, names: &[impl AsRef<[u8]>]) -> Each<()> {
        let names: Vec<(Ino, &[u8])> = names.iter().map(|name| (parent, name.as_ref())).collect();
        self.unlink_each(caller, &names)
    }

    // ---- any directories ----------------------------------------------------------------------------

    /// Makes files with their content: a small one by one operation, many in a message; a larger one is opened, written and closed.
    pub fn create_each(&self, caller: &Caller<'_>, files: &[NewFile<'_>]) -> Each<Attr> {
        let is_small = |file: &NewFile<'_>| file.content.len() <= INLINE_BYTES_MAX;
        let op = |file: &NewFile<'_>| {
            let NewFile { parent, name, mode, content } = *file;
            let make = Make::File { content: content.to_vec() };
            Ok(Op::Make { parent, name: new_name(name)?, make, mode })
        };
        let small = files.iter().filter(|file| is_small(file)).map(op).collect();
        let mut small = self.batch(caller, small).into_iter().map(|one| one?.ok_or(Refusal::Io));
        let create = |file: &NewFile<'_>| match is_small(file) {
            true => small.next().unwrap_or(Err(Refusal::Io)),
            false => self.create_with(caller, file),
        };
        files.iter().map(create).collect()
    }

    /// Removes names (not a directory's), each from its directory.
    pub fn unlink_each(&self, caller: &Caller<'_>, names: &[(Ino, &[u8])]) -> Each<()> {
        let op = |(parent, name): &(Ino, &[u8])| Ok(Op::Unlink { parent: *parent, name: Name::new(name)? });
        self.batch(caller, names.iter().map(op).collect()).into_iter().map(|one| one.map(drop)).collect()
    }

    /// Removes empty directories, each from the directory that holds it.
    pub fn rmdir_each(&self, caller: &Caller<'_>, names: &[(Ino, &[u8])]) -> Each<()> {
        let op = |(parent, name): &(Ino, &[u8])| Ok(Op::Rmdir { parent: *parent, name: Name::new(name)? });
        self.batch(caller, names.iter().map(op).collect()).into_iter().map(|one| one.map(drop)).collect()
    }

    /// Gives files further names: each file one in a directory.
    pub fn link_each(&self, caller: &Caller<'_>, links: &[(Ino, Ino, &[u8])]) -> Each<()> {
        let op = |(ino, parent, name): &(Ino, Ino, &[u8])| {
            Ok(Op::Link { ino: *ino, parent: *parent, name: new_name(name)? })
        };
        self.batch(caller, links.iter().map(op).collect()).into_iter().map(|one| one.map(drop)).collect()
    }

    /// chmod, chown and utimens of many inodes. Sizes are changed one at a time ([`Client::setattr`]): [`Refusal::Invalid`].
    pub fn setattr_each(&self, caller: &Caller<'_>, changes: &[(Ino, AttrChange)]) -> Each<Attr> {
        let op = |(ino, change): &(Ino, AttrChange)| Ok(Op::SetAttr { ino: *ino, change: *change });
        let each = self.batch(caller, changes.iter().map(op).collect());
        each.into_iter().map(|one| one?.ok_or(Refusal::Io)).collect()
    }

    /// Carries out operations, each with a result of its own. Those that could not be made are refused here, in their place.
    pub(crate) fn batch(&self, caller: &Caller<'_>, ops: Vec<Result<Op, Refusal>>) -> Vec<Performed> {
        let mut places = Vec::with_capacity(ops.len());
        let mut made = Vec::with_capacity(ops.len());
        for op in ops {
            places.push(op.as_ref().err().copied());
            made.extend(op.ok());
        }
        let mut results = self.perform(caller, made, OnRefusal::PerformAll).into_iter();
        let in_place = |place: Option<Refusal>| match place {
            Some(refusal) => Err(refusal),
            None => results.next().unwrap_or(Err(Refusal::Io)),
        };
        places.into_iter().map(in_place).collect()
    }

    // ---- not waited for -----------------------------------------------------------------------------

    /// Makes an empty file; not opened.
    pub fn start_create(&self, caller: &Caller<'_>, parent: Ino, name: &[u8], mode: Mode) -> InFlight<Attr> {
        if let Some(attr) = self.service.create_lazily(&caller.cred(), parent, &[name], mode).pop() {
            return InFlight::ready(Ok(attr));
        }
        let op = new_name(name).map(|name| {
            let make = Make::File { content: Vec::new() };
            Call::Op { op: Op::Make { parent, name, make, mode }, open: false }
        });
        self.started(caller, op, |answer| match answer {
            Answer::Op { outcome, .. } => outcome.attr.ok_or(Refusal::Io),
            _ => Err(Refusal::Io),
        })
    }

    /// Makes an empty file for each name, in one message: at most [`chiton_wire::BATCH_OPS_MAX`] names.
    pub fn start_create_in(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        names: &[impl AsRef<[u8]>],
        mode: Mode,
    ) -> InFlight<Each<Attr>> {
        let (mut ops, mut places) = (Vec::new(), Vec::new());
        for name in names {
            let name = new_name(name.as_ref());
            places.push(name.as_ref().err().copied());
            let make = |name| Op::Make { parent, name, make: Make::File { content: Vec::new() }, mode };
            ops.extend(name.ok().map(make));
        }
        let call = match ops.len() {
            0 | BATCH_OPS_TOO_MANY.. => Err(Refusal::Invalid),
            _ => Ok(Call::Batch { ops, stop_on_failure: false }),
        };
        self.started(caller, call, |answer| match answer {
            Answer::Batch(results) => {
                Ok(in_their_places(places, results).map(|one| one?.ok_or(Refusal::Io)).collect())
            }
            _ => Err(Refusal::Io),
        })
    }

    /// Starts to remove a name: of a file, not of a directory ([`Refusal::IsDir`]).
    pub fn start_unlink(&self, caller: &Caller<'_>, parent: Ino, name: &[u8]) -> InFlight<()> {
        let op = Name::new(name).map(|name| Call::Op { op: Op::Unlink { parent, name }, open: false });
        self.started(caller, op, |_| Ok(()))
    }

    /// As [`Client::lookup`], without `.` and `..`. Past the cache; nothing of it may be kept by a kernel.
    pub fn start_lookup(&self, caller: &Caller<'_>, parent: Ino, name: &[u8]) -> InFlight<Lookup> {
        let query = Name::new(name).map(|name| Call::Query(Query::Lookup { parent, name }));
        let files = self.files.clone();
        self.started(caller, query, move |answer| match answer {
            Answer::Attr { mut attr, .. } => {
                files.overlay(&mut attr);
                Ok(Lookup::Found { attr, ttl: Default::default(), attr_ttl: Default::default() })
            }
            Answer::Absent { .. } => Ok(Lookup::Absent { ttl: Default::default() }),
            _ => Err(Refusal::Io),
        })
    }

    /// As [`Client::readdir`], past the cache. An entry without attributes is of an inode that is gone meanwhile, that an operation over
    /// plates is changing, or that a decoupling keeps from others: [`Client::start_stat`] says which.
    pub fn start_readdir(
        &self,
        caller: &Caller<'_>,
        dir: Ino,
        cookie: u64,
        entries_max: u32,
        plus: bool,
    ) -> InFlight<(Vec<Listed>, bool)> {
        let query = Call::Query(Query::ReadDir { dir, cookie, entries_max, plus, part_end: None });
        let files = self.files.clone();
        let listed = move |entry: DirEntry| {
            let entry_of = |(mut attr, _)| {
                files.overlay(&mut attr);
                Entry { attr, ttl: Default::default(), attr_ttl: Default::default() }
            };
            let DirEntry { name, ino, kind, cookie, attr } = entry;
            Listed { name, ino, kind, cookie, entry: attr.map(entry_of) }
        };
        self.started(caller, Ok(query), move |answer| match answer {
            Answer::Entries { entries, end, .. } => Ok((entries.into_iter().map(listed).collect(), end)),
            _ => Err(Refusal::Io),
        })
    }

    /// Attributes of a file and its content, if that lives in its inode: all that is not zeros. Of a file in blocks, no content.
    /// A client that is writing the file first hands over its writes.
    pub fn start_content(&self, caller: &Caller<'_>, ino: Ino) -> InFlight<(Attr, Option<Vec<u8>>)> {
        let query = self.files.push_inode(ino).map(|()| Call::Query(Query::Map { ino, offset: 0, len: 1 }));
        self.started(caller, query, |answer| match answer {
            Answer::Map { attr, content: Content::Inline(bytes), .. } => Ok((attr, Some(bytes))),
            Answer::Map { attr, content: Content::Extents { .. }, .. } => Ok((attr, None)),
            _ => Err(Refusal::Io),
        })
    }

    /// Starts [`Client::readlink`].
    pub fn start_readlink(&self, caller: &Caller<'_>, ino: Ino) -> InFlight<Vec<u8>> {
        self.started_bytes(caller, Query::ReadLink { ino })
    }

    /// Starts [`Client::listxattr`].
    pub fn start_listxattr(&self, caller: &Caller<'_>, ino: Ino) -> InFlight<Vec<u8>> {
        self.started_bytes(caller, Query::ListXattr { ino })
    }

    fn started_bytes(&self, caller: &Caller<'_>, query: Query) -> InFlight<Vec<u8>> {
        self.started(caller, Ok(Call::Query(query)), |answer| match answer {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => Err(Refusal::Io),
        })
    }

    /// Attributes of an inode.
    pub fn start_stat(&self, ino: Ino) -> InFlight<Attr> {
        let since = self.since();
        let (core, service, files) = (self.core.clone(), self.service.clone(), self.files.clone());
        self.started(&self.caller(), Ok(Call::Query(Query::GetAttr { ino })), move |answer| match answer {
            Answer::Attr { mut attr, lease, .. } => {
                if lease > LeaseMode::None {
                    core.cache.learn_attr(service.recalls(), since, &attr, lease);
                }
                files.overlay(&mut attr);
                Ok(attr)
            }
            _ => Err(Refusal::Io),
        })
    }

    fn started<T>(
        &self,
        caller: &Caller<'_>,
        call: Result<Call, Refusal>,
        convert: impl FnOnce(Answer) -> Result<T, Refusal> + Send + 'static,
    ) -> InFlight<T> {
        match call {
            Ok(call) => {
                let underway = self.service.start(&caller.full_cred(), call);
                InFlight::new(underway, |answer| convert(answer.map_err(refusal)?))
            }
            Err(no) => InFlight::ready(Err(no)),
        }
    }
}

/// The results of a batch, with the refusals of names that were not in it where they belong.
fn in_their_places(
    places: Vec<Option<Refusal>>,
    results: Vec<Result<(Position, Outcome), Failure>>,
) -> impl Iterator<Item = Result<Option<Attr>, Refusal>> {
    let mut results = results.into_iter();
    places.into_iter().map(move |place| match place {
        Some(refusal) => Err(refusal),
        None => results.next().map_or(Err(Refusal::Io), performed),
    })
}
