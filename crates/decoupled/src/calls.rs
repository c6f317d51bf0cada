//! The calls about decoupled subtrees, as functions.
//!
//! No call is numbered. Each may be repeated after a lost connection, and the service repeats it automatically.

use std::sync::Arc;

use chiton_client::{Caller, Service, ask};
use chiton_namespace::{Need, Rows};
use chiton_types::{Attr, Ino, Kind, Name, Position, RealmId, Refusal, ShardId};
use chiton_wire::{Answer, Call, DirEntry, NEEDS_MAX, Query, Settled};
use chiton_wire::{
    Claim, Foreign, FoundRows, Granted, MergeBatch, MergeState, Merged, ObjectAnswer, ObjectCall, OnConflict,
    RealmAnswer, RealmCall, RealmInfo,
};

use crate::error::RealmError;

/// Names in one request for a directory's entries.
const LISTED: u32 = 1_024;

/// Calls to the server about decouplings.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) service: Arc<dyn Service>,
}

/// Calls to the server about one decoupling.
#[derive(Clone)]
pub(crate) struct ClaimCalls {
    pub(crate) calls: Calls,
    pub(crate) claim: Claim,
}

/// The part of a merge batch that one call carries.
pub(crate) struct Piece<'a> {
    pub(crate) range: MergeBatch,
    pub(crate) from: u64,
    pub(crate) count: u32,
    pub(crate) events: &'a [u8],
    pub(crate) last: bool,
}

/// Refuses a grant that names no shards.
fn sound(granted: Granted) -> Result<Granted, RealmError> {
    let Granted { first_shard, end_shard, shards, .. } = granted;
    let is_sound = first_shard < end_shard && end_shard <= shards;
    if is_sound { Ok(granted) } else { Err(RealmError::nonsense("a grant without shards")) }
}

impl Calls {
    fn ask_as(&self, caller: &Caller<'_>, doing: &str, call: RealmCall) -> Result<RealmAnswer, RealmError> {
        match ask(&*self.service, caller, Call::Realm(Box::new(call))) {
            Ok(Answer::Realm(answer)) => Ok(answer),
            Ok(_) => Err(RealmError::nonsense(doing)),
            Err(refusal) => Err(RealmError::refused(doing, refusal)),
        }
    }

    fn ask(&self, doing: &str, call: RealmCall) -> Result<RealmAnswer, RealmError> {
        self.ask_as(&root(&no_groups()), doing, call)
    }

    pub(crate) fn decouple(&self, caller: &Caller<'_>, call: RealmCall) -> Result<Granted, RealmError> {
        match self.ask_as(caller, "the subtree cannot be decoupled", call)? {
            RealmAnswer::Granted(granted) => sound(*granted),
            _ => Err(RealmError::nonsense("no grant")),
        }
    }

    pub(crate) fn attach(
        &self,
        realm: RealmId,
        nonce: u64,
        journal_at: String,
    ) -> Result<Granted, RealmError> {
        let doing = format!("decoupling {realm} cannot be resumed");
        match self.ask(&doing, RealmCall::Attach { realm, nonce, journal_at })? {
            RealmAnswer::Granted(granted) => sound(*granted),
            _ => Err(RealmError::nonsense("no grant")),
        }
    }

    /// A decoupling becomes a branch that no client has.
    pub(crate) fn become_branch(&self, realm: RealmId, name: Option<&Name>) -> Result<(), RealmError> {
        let doing = format!("decoupling {realm} cannot become a branch");
        match self.ask(&doing, RealmCall::BecomeBranch { realm, name: name.cloned() })? {
            RealmAnswer::Ended => Ok(()),
            _ => Err(RealmError::nonsense("no end")),
        }
    }

    /// All decouplings of the file system.
    pub(crate) fn list(&self) -> Result<Vec<RealmInfo>, RealmError> {
        match self.ask("the decouplings cannot be listed", RealmCall::List)? {
            RealmAnswer::Realms(all) => Ok(all),
            _ => Err(RealmError::nonsense("no list")),
        }
    }

    /// Where an inode belongs: the root of its policy's realm, and the decoupling that it is in.
    pub(crate) fn of(&self, ino: Ino) -> Result<(Ino, Option<RealmInfo>), RealmError> {
        match self.ask("whether an inode is decoupled is not known", RealmCall::Of { ino })? {
            RealmAnswer::Of { root, decoupled } => Ok((root, decoupled.map(|info| *info))),
            _ => Err(RealmError::nonsense("no place")),
        }
    }
}

impl ClaimCalls {
    /// Rows at the base, for each need in order: for as many of the first needs as go into one answer.
    pub(crate) fn rows(&self, needs: Vec<Need>) -> Result<Vec<FoundRows>, RealmError> {
        let count = needs.len();
        self.found(RealmCall::Rows { claim: self.claim, needs }, count)
    }

    /// The same as they are now.
    pub(crate) fn present(&self, needs: Vec<Need>) -> Result<Vec<FoundRows>, RealmError> {
        let count = needs.len();
        self.found(RealmCall::Present { claim: self.claim, needs }, count)
    }

    /// The rows that the server keeps for merges: the decoupling, and rows of others as they were before their changes.
    pub(crate) fn remembered(&self) -> Result<Rows, RealmError> {
        let mut rows = Rows::new();
        loop {
            let after = rows.last().map_or(Vec::new(), |(key, _)| key.clone());
            let is_first = after.is_empty();
            let found = self.found(RealmCall::Remembered { claim: self.claim, after }, 1)?;
            let Some(found) = found.into_iter().next() else { return Ok(rows) };
            let is_stuck = found.rows.is_empty() && !is_first;
            rows.extend(found.rows);
            if found.exhausted || is_stuck {
                return Ok(rows);
            }
        }
    }

    fn found(&self, call: RealmCall, count: usize) -> Result<Vec<FoundRows>, RealmError> {
        match self.calls.ask("rows of the decoupled subtree cannot be read", call)? {
            RealmAnswer::Rows(found) if (1..=count).contains(&found.len()) => Ok(found),
            _ => Err(RealmError::nonsense("other rows than were asked for")),
        }
    }

    /// Asks for `count` more inode numbers.
    pub(crate) fn grant(&self, shard: ShardId, count: u64) -> Result<Vec<(Ino, Ino)>, RealmError> {
        match self.calls.ask(
            "more inode numbers cannot be granted",
            RealmCall::Grant { claim: self.claim, shard, count },
        )? {
            RealmAnswer::Ranges(ranges) => Ok(ranges),
            _ => Err(RealmError::nonsense("no ranges")),
        }
    }

    /// Asks what other clients changed since the base: one answer for each inode and for each name.
    pub(crate) fn check(
        &self,
        inodes: Vec<Ino>,
        names: Vec<(Ino, Name)>,
    ) -> Result<(Vec<Foreign>, Vec<Foreign>), RealmError> {
        let counts = (inodes.len(), names.len());
        match self.calls.ask(
            "the changes of others cannot be read",
            RealmCall::Check { claim: self.claim, inodes, names },
        )? {
            RealmAnswer::Foreign { inodes, names } if (inodes.len(), names.len()) == counts => {
                Ok((inodes, names))
            }
            _ => Err(RealmError::nonsense("an answer for other inodes than were asked for")),
        }
    }

    /// The directory at a path below `root` in the global namespace, if there is one.
    pub(crate) fn directory(&self, root: Ino, path: &[u8]) -> Result<Option<Ino>, RealmError> {
        let attr = self.file(root, path)?.filter(|attr| attr.kind == Kind::Dir);
        Ok(attr.map(|attr| attr.ino))
    }

    /// The attributes of the inode at a path below `root` in the global namespace, if there is one.
    pub(crate) fn file(&self, root: Ino, path: &[u8]) -> Result<Option<Attr>, RealmError> {
        let query = Query::Resolve { from: root, path: path.to_vec(), follow: false, sessions: Vec::new() };
        Ok(match self.global(query)? {
            Some(Answer::Resolved(path)) => path.end().map(|(attr, _)| attr.clone()),
            _ => None,
        })
    }

    /// The attributes of an inode in the global namespace; `None` if it is gone, or if this client may not see
    /// it.
    pub(crate) fn attr(&self, ino: Ino) -> Result<Option<Attr>, RealmError> {
        Ok(self.global(Query::GetAttr { ino })?.and_then(attr_of))
    }

    /// Some entries of a directory in the global namespace, after `cookie`; with `true` after the last. `None`
    /// if the directory is gone, or the inode is no directory.
    pub(crate) fn names(&self, dir: Ino, cookie: u64) -> Result<Option<(Vec<DirEntry>, bool)>, RealmError> {
        let query = Query::ReadDir { dir, cookie, entries_max: LISTED, plus: false, part_end: None };
        Ok(match self.global(query)? {
            Some(Answer::Entries { entries, end, .. }) => Some((entries, end)),
            _ => None,
        })
    }

    /// Reads the global namespace; `None` if the server refuses.
    fn global(&self, query: Query) -> Result<Option<Answer>, RealmError> {
        match ask(&*self.calls.service, &root(&no_groups()), Call::Query(query)) {
            Ok(answer) => Ok(Some(answer)),
            Err(Refusal::NotConnected) => {
                Err(RealmError::refused("the changes of others cannot be read", Refusal::NotConnected))
            }
            Err(_) => Ok(None),
        }
    }

    /// Whether this client still has the decoupling; an error if the server does not answer. A client whose session
    /// has expired still has it until another client takes it: its journal keeps its changes for the next session.
    pub(crate) fn holds(&self) -> Result<bool, RealmError> {
        match self.check(Vec::new(), Vec::new()) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.refusal(), Refusal::Stale | Refusal::Invalid) => {
                Ok(self.calls.list()?.iter().any(|info| info.claim == self.claim))
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a part of a merge batch.
    pub(crate) fn merge(&self, piece: &Piece<'_>) -> Result<Merged, RealmError> {
        let call = RealmCall::Merge {
            claim: self.claim,
            batch: piece.range,
            from: piece.from,
            count: piece.count,
            events: piece.events.to_vec(),
            last: piece.last,
            blind: false,
        };
        match self.calls.ask("the journal cannot be merged", call)? {
            RealmAnswer::Merged(merged) => Ok(merged),
            _ => Err(RealmError::nonsense("no state of a merge")),
        }
    }

    /// Something else is done about conflicts from now on.
    pub(crate) fn resolve(&self, on_conflict: OnConflict) -> Result<(), RealmError> {
        let call = RealmCall::Resolve { claim: self.claim, on_conflict };
        match self.calls.ask("the treatment of conflicts cannot be set", call)? {
            RealmAnswer::Merged(_) => Ok(()),
            _ => Err(RealmError::nonsense("no state of a merge")),
        }
    }

    /// Takes or frees the merge lock.
    pub(crate) fn set_merge_lock(&self, acquire: bool) -> Result<(), RealmError> {
        let call = RealmCall::MergeLock { claim: self.claim, acquire };
        match self.calls.ask("the lock for merges of this directory cannot be taken", call)? {
            RealmAnswer::Merged(_) => Ok(()),
            _ => Err(RealmError::nonsense("no state of a merge")),
        }
    }

    /// Reports that the outcomes for files that both sides changed are durable in our journal.
    pub(crate) fn settle(&self, files: Vec<(Ino, Position, Settled)>) -> Result<(), RealmError> {
        for some in files.chunks(NEEDS_MAX) {
            let call = RealmCall::Settle { claim: self.claim, files: some.to_vec() };
            match self.calls.ask("files that both sides agree on cannot be recorded", call)? {
                RealmAnswer::Merged(_) => {}
                _ => return Err(RealmError::nonsense("no state of a merge")),
            }
        }
        Ok(())
    }

    /// How far the server is with the journal.
    pub(crate) fn state(&self) -> Result<MergeState, RealmError> {
        let all = self.calls.list()?;
        let ours = all.into_iter().find(|info| info.claim == self.claim);
        ours.map(|info| info.state)
            .ok_or_else(|| RealmError::refused("the journal cannot be merged", Refusal::Stale))
    }

    /// An object that is kept with the decoupling.
    pub(crate) fn object(&self, name: &str, action: ObjectCall) -> Result<ObjectAnswer, RealmError> {
        let call = RealmCall::Object { claim: self.claim, name: name.to_owned(), action };
        match self.calls.ask("the journal in the object store cannot be reached", call)? {
            RealmAnswer::Object(answer) => Ok(answer),
            _ => Err(RealmError::nonsense("no object")),
        }
    }

    /// Ends the decoupling, and drops unmerged changes.
    pub(crate) fn end(&self, force: bool) -> Result<(), RealmError> {
        match self.calls.ask("the decoupling cannot be ended", RealmCall::End { claim: self.claim, force }) {
            Ok(RealmAnswer::Ended) => Ok(()),
            // It was already.
            Err(error) if error.refusal() == Refusal::NotFound => Ok(()),
            Ok(_) => Err(RealmError::nonsense("no end")),
            Err(error) => Err(error),
        }
    }
}

fn attr_of(answer: Answer) -> Option<Attr> {
    match answer {
        Answer::Attr { attr, .. } => Some(attr),
        _ => None,
    }
}

pub(crate) fn no_groups() -> Arc<[u32]> {
    Arc::new([])
}

/// A client that shows a claim needs no other right.
pub(crate) fn root(groups: &Arc<[u32]>) -> Caller<'_> {
    Caller { uid: 0, gid: 0, groups: chiton_client::Groups::Known(groups) }
}
