//! Many names of one directory in one message, and calls that are not waited for.

use std::collections::VecDeque;

use chiton_model::{Make, Op, Outcome};
use chiton_types::{Attr, Ino, Mode, Name, Position, Refusal};
use chiton_wire::{Answer, BATCH_OPS_MAX, Call, Failure, LeaseMode, Query};

use crate::client::{Client, Lookup};
use crate::in_flight::{InFlight, refusal};
use crate::names::new_name;
use crate::service::{Caller, Underway};

/// Operations in one message. Larger batches are sent as several, in order.
const BATCH_OPS: usize = 1_000;
const BATCH_OPS_TOO_MANY: usize = BATCH_OPS_MAX + 1;
/// Messages of a batch under way at once: the server works on one while another is written or read here.
const BATCHES_AHEAD: usize = 4;
/// Questions under way at once.
const QUESTIONS_AHEAD: usize = 64;

/// The result of each name, in the order asked.
pub type Each<T> = Vec<Result<T, Refusal>>;

impl Client {
    /// Makes an empty file for each name in the directory.
    ///
    /// # Errors
    /// If the batch as a whole could not be asked; else the results are each name's.
    pub fn create_in(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        names: &[impl AsRef<[u8]>],
        mode: Mode,
    ) -> Result<Each<Attr>, Refusal> {
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
            let answers = self.batch(caller, asked.iter().map(|name| op(name.as_ref())).collect())?;
            each.extend(answers.into_iter().map(|one| one?.ok_or(Refusal::Io)));
        }
        Ok(each)
    }

    /// Removes each name (not a directory's) from the directory.
    ///
    /// # Errors
    /// As [`Client::create_in`].
    pub fn unlink_in(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        names: &[impl AsRef<[u8]>],
    ) -> Result<Each<()>, Refusal> {
        let op = |name: &[u8]| Ok(Op::Unlink { parent, name: Name::new(name)? });
        let each = self.batch(caller, names.iter().map(|name| op(name.as_ref())).collect())?;
        Ok(each.into_iter().map(|one| one.map(drop)).collect())
    }

    /// Attributes of each name in the directory.
    ///
    /// # Errors
    /// As [`Client::create_in`].
    pub fn stat_in(
        &self,
        caller: &Caller<'_>,
        parent: Ino,
        names: &[impl AsRef<[u8]>],
    ) -> Result<Each<Attr>, Refusal> {
        let mut each = Vec::with_capacity(names.len());
        for names in names.chunks(QUESTIONS_AHEAD) {
            let ahead: Vec<_> =
                names.iter().map(|name| self.start_lookup(caller, parent, name.as_ref())).collect();
            for lookup in ahead {
                each.push(match lookup.wait() {
                    Ok(Lookup::Found { attr, .. }) => Ok(attr),
                    Ok(Lookup::Absent { .. }) => Err(Refusal::NotFound),
                    Err(refusal) => Err(refusal),
                });
            }
        }
        Ok(each)
    }

    /// Carries out operations in order, each with a result of its own. Those that could not be made are refused
    /// here, in their place.
    fn batch(
        &self,
        caller: &Caller<'_>,
        ops: Vec<Result<Op, Refusal>>,
    ) -> Result<Each<Option<Attr>>, Refusal> {
        let mut each: Each<Option<Attr>> = Vec::with_capacity(ops.len());
        let mut ops = ops.into_iter().peekable();
        let cred = caller.full_cred();
        let mut ahead: VecDeque<Part> = VecDeque::new();
        let mut failed = None;
        while ops.peek().is_some() && failed.is_none() {
            let mut some = Vec::new();
            let mut places = Vec::new();
            for op in ops.by_ref().take(BATCH_OPS) {
                places.push(op.as_ref().err().copied());
                some.extend(op.ok());
            }
            if ahead.len() == BATCHES_AHEAD {
                failed = answered(ahead.pop_front(), &mut each).err();
            }
            if failed.is_none() {
                failed = self.service.make_room().err().map(refusal);
            }
            if failed.is_none() {
                let call = Call::Batch { ops: some, stop_on_failure: false };
                let asked = !matches!(&call, Call::Batch { ops, .. } if ops.is_empty());
                let underway = asked.then(|| self.service.start(&cred, call));
                ahead.push_back(Part { places, underway });
            }
        }
        // Also after a failure: what is under way may be carried out, and its answers are to be heard.
        while !ahead.is_empty() {
            failed = failed.or(answered(ahead.pop_front(), &mut each).err());
        }
        failed.map_or(Ok(each), Err)
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

    /// Removes a name.
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

/// A message of a batch.
struct Part {
    /// Of each operation, why it was not asked for.
    places: Vec<Option<Refusal>>,
    /// Nothing, if none was.
    underway: Option<Box<dyn Underway>>,
}

/// Waits for a message's answer and adds its results.
fn answered(part: Option<Part>, each: &mut Each<Option<Attr>>) -> Result<(), Refusal> {
    let Some(Part { places, underway }) = part else { return Ok(()) };
    let results = match underway.map(|underway| underway.wait()) {
        None => Vec::new(),
        Some(Ok(Answer::Batch(results))) => results,
        Some(Ok(_)) => return Err(Refusal::Io),
        Some(Err(error)) => return Err(refusal(error)),
    };
    each.extend(in_their_places(places, results));
    Ok(())
}

/// The results of a batch, with the refusals of names that were not in it where they belong.
fn in_their_places(
    places: Vec<Option<Refusal>>,
    results: Vec<Result<(Position, Outcome), Failure>>,
) -> impl Iterator<Item = Result<Option<Attr>, Refusal>> {
    let mut results = results.into_iter();
    places.into_iter().map(move |place| match place {
        Some(refusal) => Err(refusal),
        None => match results.next() {
            Some(Ok((_, outcome))) => Ok(outcome.attr),
            Some(Err(Failure::Refused(refusal))) => Err(refusal),
            Some(Err(Failure::NeedGroups)) => Err(Refusal::Access),
            Some(Err(_)) | None => Err(Refusal::Io),
        },
    })
}
