//! The least client that a directory object needs: it sends each name to the part that has it, lists all parts, and adds them up.
//!
//! ```text
//!   a name ─▶ the directory, or the part in its list ── OtherPart ─▶ ask for the list ─▶ once more
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use chiton_model::{Op, Outcome as OpOutcome, PartRange, decode_parts, part_of, range_of};
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread;
use chiton_types::{Attr, Cred, Ino, Kind, Name, Refusal};
use chiton_wire::{Answer, Call, DirEntry, Failure, Query};

use crate::finding::{Outcome, failed};
use crate::server::Server;

/// How often a request is sent on because the directory has other parts by now.
const TRIES: usize = 200;
/// Between two of them.
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

pub(crate) struct Client {
    pub(crate) server: Server,
    /// Of directories with parts, those that have names.
    lists: Mutex<BTreeMap<Ino, Vec<PartRange>>>,
}

/// The answer to a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Inode(Attr),
    Absent,
}

/// A server's answer, or its failure to give one.
pub(crate) type Asked<T> = Outcome<Result<T, Failure>>;

impl Client {
    pub(crate) fn new(server: Server) -> Client {
        Client { server, lists: Mutex::new(BTreeMap::new()) }
    }

    fn unexpected<T>(step: impl Into<String>, expected: &str, answer: Answer) -> Outcome<T> {
        Err(failed(step, expected, format!("{answer:?}")))
    }

    // ---- parts --------------------------------------------------------------------------------------

    /// The parts of a directory, folded ones too.
    pub(crate) fn parts(&self, dir: Ino) -> Asked<Vec<PartRange>> {
        let step = || format!("ask for the parts of {dir}");
        match self.server.ask(dir, &Cred::ROOT, Call::Query(Query::Parts { dir }))? {
            Ok(Answer::Bytes(bytes)) if bytes.is_empty() => Ok(Ok(Vec::new())),
            Ok(Answer::Bytes(bytes)) => match decode_parts(&bytes) {
                Ok(parts) => Ok(Ok(parts)),
                Err(e) => Err(failed(step(), "a list of parts", e.to_string())),
            },
            Ok(answer) => Client::unexpected(step(), "Bytes", answer),
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Asks for the parts of a directory. False if they are as they were known.
    pub(crate) fn learn(&self, dir: Ino) -> Outcome<bool> {
        let mut list = self.parts(dir)?.unwrap_or_default();
        list.retain(|part| !part.is_folded());
        let mut lists = self.lists.lock();
        let before = if list.is_empty() { lists.remove(&dir) } else { lists.insert(dir, list.clone()) };
        Ok(before.unwrap_or_default() != list)
    }

    pub(crate) fn list_of(&self, dir: Ino) -> Vec<PartRange> {
        self.lists.lock().get(&dir).cloned().unwrap_or_default()
    }

    /// The inode that has a name, as far as is known.
    pub(crate) fn place(&self, dir: Ino, name: &Name) -> Ino {
        self.lists.lock().get(&dir).and_then(|list| part_of(list, name.hash64())).unwrap_or(dir)
    }

    /// Sends something until no directory has other parts than were known. `send` gets where it goes, and says whether a part was asked.
    fn placed<T>(&self, dirs: &[Ino], send: impl Fn() -> Outcome<(bool, Result<T, Failure>)>) -> Asked<T> {
        for attempt in 0..TRIES {
            let (is_at_part, answer) = send()?;
            let Err(Failure::Refused(refusal)) = &answer else { return Ok(answer) };
            let may_be_known_anew = *refusal == Refusal::OtherPart
                || *refusal == Refusal::Stale && is_at_part
                || *refusal == Refusal::Busy;
            if !may_be_known_anew {
                return Ok(answer);
            }
            let mut is_new = false;
            for dir in dirs {
                is_new |= self.learn(*dir)?;
            }
            if !is_new && *refusal != Refusal::OtherPart && (*refusal != Refusal::Busy || attempt > 20) {
                return Ok(answer);
            }
            if !is_new {
                thread::sleep(BETWEEN_TRIES);
            }
        }
        let step = format!("send a request to the parts of {dirs:?}");
        Err(failed(step, "an answer of the part that the list names", "OtherPart again and again"))
    }

    // ---- operations ---------------------------------------------------------------------------------

    pub(crate) fn operate(&self, cred: &Cred, op: &Op, open: bool) -> Asked<OpOutcome> {
        let dirs: Vec<Ino> = op.footprint().names().map(|touch| touch.dir).collect();
        self.placed(&dirs, || {
            let mut placed = op.clone();
            placed.place_names(|dir, name| self.place(dir, name));
            Ok((placed != *op, self.operate_at(cred, placed, open)?))
        })
    }

    /// Sends an operation as it is.
    pub(crate) fn operate_at(&self, cred: &Cred, op: Op, open: bool) -> Asked<OpOutcome> {
        let at = op.footprint().place;
        let (seq, _) = self.server.numbers(at, 1)?;
        let step = op.describe();
        match self.server.ask_numbered(at, (seq, None), cred, Call::Op { op, open })? {
            Ok(Answer::Op { outcome, .. }) => Ok(Ok(outcome)),
            Ok(answer) => Client::unexpected(step, "Op", answer),
            Err(failure) => Ok(Err(failure)),
        }
    }

    // ---- questions ----------------------------------------------------------------------------------

    pub(crate) fn lookup(&self, cred: &Cred, dir: Ino, name: &Name) -> Asked<Found> {
        let answer = self.placed(&[dir], || {
            let parent = self.place(dir, name);
            let query = Query::Lookup { parent, name: name.clone() };
            Ok((parent != dir, self.server.ask(parent, cred, Call::Query(query))?))
        })?;
        let step = || format!("look up {name} in {dir}");
        let ino = match answer {
            Ok(Answer::Attr { attr, .. }) if attr.kind != Kind::Dir => return Ok(Ok(Found::Inode(attr))),
            Ok(Answer::Attr { attr, .. }) => attr.ino,
            Ok(Answer::Elsewhere { ino, .. }) => ino,
            Ok(Answer::Absent { .. }) => return Ok(Ok(Found::Absent)),
            Ok(answer) => return Client::unexpected(step(), "Attr, Absent or Elsewhere", answer),
            Err(failure) => return Ok(Err(failure)),
        };
        Ok(self.attr(ino)?.map(Found::Inode))
    }

    /// The attributes of one inode, as its plate has them.
    pub(crate) fn attr_at(&self, ino: Ino) -> Asked<Attr> {
        match self.server.ask(ino, &Cred::ROOT, Call::Query(Query::GetAttr { ino }))? {
            Ok(Answer::Attr { attr, .. }) => Ok(Ok(attr)),
            Ok(answer) => Client::unexpected(format!("ask for the attributes of {ino}"), "Attr", answer),
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// The attributes of an inode, of a directory with parts the sums.
    pub(crate) fn attr(&self, ino: Ino) -> Asked<Attr> {
        for _ in 0..TRIES {
            let mut sum = match self.attr_at(ino)? {
                Ok(attr) if attr.flags & Attr::HAS_PARTS != 0 => attr,
                other => return Ok(other),
            };
            self.learn(ino)?;
            for part in self.list_of(ino).into_iter().filter(|part| part.ino != ino) {
                let Ok(attr) = self.attr_at(part.ino)? else { continue };
                sum.size += attr.size;
                sum.nlink += attr.nlink.saturating_sub(2);
                sum.mtime = sum.mtime.max(attr.mtime);
                sum.ctime = sum.ctime.max(attr.ctime);
            }
            // It may have got parts meanwhile: their names were counted twice, or not at all.
            if !self.learn(ino)? {
                return Ok(Ok(sum));
            }
        }
        Err(failed(format!("add up the parts of {ino}"), "parts that stay", "others again and again"))
    }

    /// About `entries_max` entries after a cookie, and whether they are the last.
    pub(crate) fn page(
        &self,
        cred: &Cred,
        (dir, cookie): (Ino, u64),
        entries_max: u32,
        plus: bool,
    ) -> Asked<(Vec<DirEntry>, bool)> {
        let mut cookie = cookie;
        loop {
            let asked = self.placed(&[dir], || {
                let list = self.list_of(dir);
                let at = list.iter().rposition(|part| part.first <= cookie.saturating_add(1)).unwrap_or(0);
                let part = list.get(at).map_or(dir, |part| part.ino);
                let part_end = range_of(&list, part).map(|(_, last)| last);
                let first = list.get(at).map_or(0, |part| part.first.saturating_sub(1));
                let query =
                    Query::ReadDir { dir: part, cookie: cookie.max(first), entries_max, plus, part_end };
                let answer = self.server.ask(part, cred, Call::Query(query))?;
                let next = list.get(at + 1).map(|next| next.first);
                Ok((part != dir, answer.map(|answer| (answer, next))))
            })?;
            let (entries, end, next) = match asked {
                Ok((Answer::Entries { entries, end, .. }, next)) => (entries, end, next),
                Ok((answer, _)) => return Client::unexpected(format!("list {dir}"), "Entries", answer),
                Err(failure) => return Ok(Err(failure)),
            };
            match next.filter(|_| end) {
                Some(next) if entries.is_empty() => cookie = next - 1,
                Some(_) => return Ok(Ok((entries, false))),
                None => return Ok(Ok((entries, end))),
            }
        }
    }

    /// All entries, page by page.
    pub(crate) fn entries(
        &self,
        cred: &Cred,
        dir: Ino,
        entries_max: u32,
        plus: bool,
    ) -> Asked<Vec<DirEntry>> {
        let mut all: Vec<DirEntry> = Vec::new();
        loop {
            let cookie = all.last().map_or(0, |entry| entry.cookie);
            let (entries, end) = match self.page(cred, (dir, cookie), entries_max, plus)? {
                Ok(page) => page,
                Err(failure) => return Ok(Err(failure)),
            };
            if entries.is_empty() && !end {
                return Err(failed(
                    format!("list {dir} after {cookie}"),
                    "entries, or the end",
                    "neither entries nor the end",
                ));
            }
            if entries.first().is_some_and(|first| first.cookie <= cookie && cookie > 0) {
                let seen = format!("{:?}", entries.first());
                return Err(failed(
                    format!("list {dir} after {cookie}"),
                    "entries with higher cookies",
                    seen,
                ));
            }
            all.extend(entries);
            if end {
                return Ok(Ok(all));
            }
        }
    }
}
