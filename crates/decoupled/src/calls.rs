//! The calls about decoupled subtrees, as functions.
//!
//! None is numbered: each may be asked again after a lost connection, and the service does that by itself.

use std::sync::Arc;

use chiton_client::{Caller, Service, ask};
use chiton_namespace::Need;
use chiton_types::{Attr, Ino, Kind, Name, Position, RealmId, Refusal, ShardId};
use chiton_wire::{Answer, Call, DirEntry, NEEDS_MAX, Query, Settled};
use chiton_wire::{
    Claim, Foreign, FoundRows, Granted, MergeState, MergeWindow, Merged, ObjectAnswer, ObjectCall,
    OnConflict, RealmAnswer, RealmCall, RealmInfo,
};

use crate::error::RealmError;

/// Names that are asked for at once.
const LISTED: u32 = 1_024;

/// The server, for whoever speaks of decouplings.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) service: Arc<dyn Service>,
}

/// Of one decoupling.
#[derive(Clone)]
pub(crate) struct ClaimCalls {
    pub(crate) calls: Calls,
    pub(crate) claim: Claim,
}

/// A piece of a batch.
pub(crate) struct Piece<'a> {
    pub(crate) range: MergeWindow,
    pub(crate) from: u64,
    pub(crate) count: u32,
    pub(crate) events: &'a [u8],
    pub(crate) last: bool,
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

    /// Takes a directory.
    pub(crate) fn decouple(&self, caller: &Caller<'_>, call: RealmCall) -> Result<Granted, RealmError> {
        match self.ask_as(caller, "the subtree cannot be decoupled", call)? {
            RealmAnswer::Granted(granted) => Ok(*granted),
            _ => Err(RealmError::nonsense("no grant")),
        }
    }

    /// Goes on with a decoupling.
    pub(crate) fn attach(
        &self,
        realm: RealmId,
        nonce: u64,
        journal_at: String,
    ) -> Result<Granted, RealmError> {
        let doing = format!("decoupling {realm} cannot be resumed");
        match self.ask(&doing, RealmCall::Attach { realm, nonce, journal_at })? {
            RealmAnswer::Granted(granted) => Ok(*granted),
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

    /// All decouplings that there are.
    pub(crate) fn list(&self) -> Result<Vec<RealmInfo>, RealmError> {
        match self.ask("the decouplings that there are", RealmCall::List)? {
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
        let call = RealmCall::Rows { claim: self.claim, needs };
        match self.calls.ask("rows of the decoupled subtree", call)? {
            RealmAnswer::Rows(found) if (1..=count).contains(&found.len()) => Ok(found),
            _ => Err(RealmError::nonsense("other rows than were asked for")),
        }
    }

    /// More inode numbers.
    pub(crate) fn grant(&self, shard: ShardId, count: u64) -> Result<Vec<(Ino, Ino)>, RealmError> {
        match self.calls.ask("more inode numbers", RealmCall::Grant { claim: self.claim, shard, count })? {
            RealmAnswer::Ranges(ranges) => Ok(ranges),
            _ => Err(RealmError::nonsense("no ranges")),
        }
    }

    /// What others changed since the base.
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

    /// The directory that has a path below `root` for everybody, if there is one.
    pub(crate) fn directory(&self, root: Ino, path: &[u8]) -> Result<Option<Ino>, RealmError> {
        let query = Query::Resolve { from: root, path: path.to_vec(), follow: false };
        match ask(&*self.calls.service, &self::root(&no_groups()), Call::Query(query)) {
            Ok(Answer::Attr { attr, .. }) if attr.kind == Kind::Dir => Ok(Some(attr.ino)),
            Err(Refusal::NotConnected) => {
                Err(RealmError::refused("the changes of others cannot be read", Refusal::NotConnected))
            }
            _ => Ok(None),
        }
    }

    /// What has a path below `root` for everybody, if there is anything.
    pub(crate) fn file(&self, root: Ino, path: &[u8]) -> Result<Option<Attr>, RealmError> {
        let query = Query::Resolve { from: root, path: path.to_vec(), follow: false };
        match ask(&*self.calls.service, &self::root(&no_groups()), Call::Query(query)) {
            Ok(Answer::Attr { attr, .. }) => Ok(Some(attr)),
            Err(Refusal::NotConnected) => {
                Err(RealmError::refused("the changes of others cannot be read", Refusal::NotConnected))
            }
            _ => Ok(None),
        }
    }

    /// Attributes of an inode as it is for everybody; none if it is gone, or kept from this client.
    pub(crate) fn attr(&self, ino: Ino) -> Result<Option<Attr>, RealmError> {
        match ask(&*self.calls.service, &root(&no_groups()), Call::Query(Query::GetAttr { ino })) {
            Ok(Answer::Attr { attr, .. }) => Ok(Some(attr)),
            Err(Refusal::NotConnected) => {
                Err(RealmError::refused("the changes of others cannot be read", Refusal::NotConnected))
            }
            _ => Ok(None),
        }
    }

    /// A few names of a directory as it is for everybody, after `cookie`; with `true` if there are no more. None if it is
    /// gone, or no directory.
    pub(crate) fn names(&self, dir: Ino, cookie: u64) -> Result<Option<(Vec<DirEntry>, bool)>, RealmError> {
        let query = Query::ReadDir { dir, cookie, entries_max: LISTED, plus: false };
        match ask(&*self.calls.service, &root(&no_groups()), Call::Query(query)) {
            Ok(Answer::Entries { entries, end, .. }) => Ok(Some((entries, end))),
            Err(Refusal::NotConnected) => {
                Err(RealmError::refused("the changes of others cannot be read", Refusal::NotConnected))
            }
            _ => Ok(None),
        }
    }

    /// Whether this client still has the decoupling; an error if the server does not say. A client whose session is over has it
    /// still, as long as no other has taken it: what it does is in its journal for the next one.
    pub(crate) fn holds(&self) -> Result<bool, RealmError> {
        match self.check(Vec::new(), Vec::new()) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.refusal(), Refusal::Stale | Refusal::Invalid) => {
                Ok(self.calls.list()?.iter().any(|info| info.claim == self.claim))
            }
            Err(error) => Err(error),
        }
    }

    /// Events for the global namespace.
    pub(crate) fn merge(&self, piece: &Piece<'_>) -> Result<Merged, RealmError> {
        let call = RealmCall::Merge {
            claim: self.claim,
            window: piece.range,
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

    /// A merge begins, or is over.
    pub(crate) fn set_merging(&self, begins: bool) -> Result<(), RealmError> {
        let call = RealmCall::Turn { claim: self.claim, begins };
        match self.calls.ask("whose turn it is to merge is not known", call)? {
            RealmAnswer::Merged(_) => Ok(()),
            _ => Err(RealmError::nonsense("no state of a merge")),
        }
    }

    /// What came of files of others is in our own, durably.
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
    pub(crate) fn object(&self, name: &str, what: ObjectCall) -> Result<ObjectAnswer, RealmError> {
        let call = RealmCall::Object { claim: self.claim, name: name.to_owned(), what };
        match self.calls.ask("the journal in the object store", call)? {
            RealmAnswer::Object(answer) => Ok(answer),
            _ => Err(RealmError::nonsense("no object")),
        }
    }

    /// The decoupling is over; what is not merged is dropped.
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

pub(crate) fn no_groups() -> Arc<[u32]> {
    Arc::new([])
}

/// Who shows a claim needs no other right.
pub(crate) fn root(groups: &Arc<[u32]>) -> Caller<'_> {
    Caller { uid: 0, gid: 0, groups: chiton_client::Groups::Known(groups) }
}
