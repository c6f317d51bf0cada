//! Many names of one directory in one message, and calls that are not waited for.

use chiton_namespace::{Make, Op};
use chiton_proto::{Answer, Call, Failure, LeaseMode, Query};
use chiton_types::{Attr, Ino, Mode, Name, Refusal};

use crate::client::{Client, Lookup};
use crate::names::new_name;
use crate::pending::{Pending, refusal};
use crate::service::Caller;

/// Operations in one message. Larger batches are sent as several, in order.
const BATCH_OPS: usize = 1_000;
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
        let each = self.batch(caller, names.iter().map(|name| op(name.as_ref())).collect())?;
        Ok(each.into_iter().map(|one| one?.ok_or(Refusal::Io)).collect())
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
        while ops.peek().is_some() {
            let mut some = Vec::new();
            let mut places = Vec::new();
            for op in ops.by_ref().take(BATCH_OPS) {
                places.push(op.as_ref().err().copied());
                some.extend(op.ok());
            }
            let mut results = Vec::new();
            if !some.is_empty() {
                let call = Call::Batch { ops: some, stop_on_failure: false };
                let Answer::Batch(answered) = self.ask(caller, call)? else { return Err(Refusal::Io) };
                results = answered;
            }
            let mut results = results.into_iter();
            for place in places {
                each.push(match place {
                    Some(refusal) => Err(refusal),
                    None => match results.next() {
                        Some(Ok((_, outcome))) => Ok(outcome.attr),
                        Some(Err(Failure::Refused(refusal))) => Err(refusal),
                        Some(Err(Failure::NeedGroups)) => Err(Refusal::Access),
                        Some(Err(_)) | None => Err(Refusal::Io),
                    },
                });
            }
        }
        Ok(each)
    }

    // ---- not waited for -----------------------------------------------------------------------------

    /// Makes an empty file; not opened.
    pub fn start_create(&self, caller: &Caller<'_>, parent: Ino, name: &[u8], mode: Mode) -> Pending<Attr> {
        let op = new_name(name).map(|name| {
            let make = Make::File { content: Vec::new() };
            Call::Op { op: Op::Make { parent, name, make, mode }, open: false }
        });
        self.started(caller, op, |answer| match answer {
            Answer::Op { outcome, .. } => outcome.attr.ok_or(Refusal::Io),
            _ => Err(Refusal::Io),
        })
    }

    /// Removes a name.
    pub fn start_unlink(&self, caller: &Caller<'_>, parent: Ino, name: &[u8]) -> Pending<()> {
        let op = Name::new(name).map(|name| Call::Op { op: Op::Unlink { parent, name }, open: false });
        self.started(caller, op, |_| Ok(()))
    }

    /// As [`Client::lookup`], without `.` and `..`. Past the cache; nothing of it may be kept by a kernel.
    pub fn start_lookup(&self, caller: &Caller<'_>, parent: Ino, name: &[u8]) -> Pending<Lookup> {
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
    pub fn start_stat(&self, ino: Ino) -> Pending<Attr> {
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
    ) -> Pending<T> {
        match call {
            Ok(call) => {
                let underway = self.service.start(&caller.full_cred(), call);
                Pending::new(underway, |answer| convert(answer.map_err(refusal)?))
            }
            Err(no) => Pending::new(Box::new(crate::connected::Ready(Some(Err(no.into())))), |answer| {
                convert(answer.map_err(refusal)?)
            }),
        }
    }
}
