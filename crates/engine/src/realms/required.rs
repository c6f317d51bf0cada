//! The server asks a client to decouple a subtree before the client's first change in it, if the policy says so.
//!
//! Invariants:
//! - Only changes get that answer, and only from sessions that said that they decouple, of users who may. Other requests are
//!   served as if the policy were strong.
//! - Files that were opened for writing before the policy was set are written to
//!   their end: their client has no other place for the content that it holds.

use chiton_model::{Op, Rows};
use chiton_namespace::Fault;
use chiton_policy::Consistency;
use chiton_types::{Cred, Ino, Refusal, SessionId};

use super::Caller;
use crate::execute::{OpCall, sets_policy};
use crate::parts::{Clients, Shards};
use crate::step::Stop;

impl Shards {
    /// Refuses an operation whose client is to decouple the subtree first.
    #[inline]
    pub(crate) fn require_decoupling(&mut self, call: &OpCall<'_>, clients: &Clients) -> Result<(), Stop> {
        if !self.may_have_to_decouple(call.session, clients) {
            return Ok(());
        }
        let footprint = call.op.footprint();
        let place = footprint.place;
        // Content changes through an open file, except that truncate takes a path.
        let is_by_path = matches!(call.op, Op::SetAttr { change, .. } if !change.size_by_handle);
        let is_by_handle = footprint.alters(Rows::CONTENT.and(Rows::BLOCKS)) && !is_by_path;
        if is_by_handle || sets_policy(call.op) {
            return Ok(());
        }
        // Across a border it is refused as that.
        if let Op::Rename { from: other, .. } | Op::Link { ino: other, .. } = call.op
            && self.ns.realm(*other)? != self.ns.realm(place)?
        {
            return Ok(());
        }
        self.is_decoupled(place, &Caller { session: call.session, cred: call.cred })
    }

    /// The same of a file that is opened for writing.
    #[inline]
    pub(crate) fn opened_decoupled(
        &mut self,
        ino: Ino,
        session: SessionId,
        cred: &Cred,
        clients: &Clients,
    ) -> Result<(), Stop> {
        if self.may_have_to_decouple(session, clients) {
            self.is_decoupled(ino, &Caller { session, cred })
        } else {
            Ok(())
        }
    }

    /// Whether a session would be asked to decouple a directory before it makes something there.
    pub(crate) fn must_decouple(
        &mut self,
        dir: Ino,
        session: SessionId,
        cred: &Cred,
        clients: &Clients,
    ) -> Result<bool, Stop> {
        if !self.may_have_to_decouple(session, clients) {
            return Ok(false);
        }
        match self.is_decoupled(dir, &Caller { session, cred }) {
            Ok(()) => Ok(false),
            Err(Stop::Fail(_)) => Ok(true),
            Err(stop) => Err(stop),
        }
    }

    fn may_have_to_decouple(&self, session: SessionId, clients: &Clients) -> bool {
        self.ns.policy_version() > 0 && clients.sessions.get(session).is_some_and(|session| session.decouples)
    }

    fn is_decoupled(&mut self, ino: Ino, caller: &Caller<'_>) -> Result<(), Stop> {
        let (root, policy) = match self.policy_of(ino) {
            // It is gone: refused as that.
            Err(Fault::Refused(_)) => return Ok(()),
            found => found?,
        };
        if policy.consistency() == Consistency::Strong {
            return Ok(());
        }
        // Somebody has it already. (Branches are nobody's hindrance.)
        if self.root_of(ino)?.is_some_and(|root| self.holder(root).is_some()) {
            return Ok(());
        }
        // The server treats the realm as strong for a client that may not take it, or cannot for now (another policy begins below, or
        // it lies on several plates).
        if !self.ns.owns(root) || self.is_known_spread(root) {
            return Ok(());
        }
        let uid = self.ns.attr(root)?.uid;
        match self.may_manage(caller, uid).and_then(|()| Ok(self.ns.plan_decouple(root, None)?)) {
            Ok(()) => Err(Refusal::Undecoupled.into()),
            Err(Stop::Fail(_)) => Ok(()),
            Err(stop) => Err(stop),
        }
    }
}
