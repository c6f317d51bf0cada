//! A client that decouples subtrees is told when it is time: before its first change in one whose policy says so.
//!
//! Invariants:
//! - Only what changes something is told so, and only to sessions that said that they decouple, of users who may: others are
//!   served as if it were strong.
//! - Files that were opened for writing before the policy was set are written to their end: what their client holds of them
//!   has no other place to go.

use chiton_model::Op;
use chiton_namespace::Fault;
use chiton_policy::Consistency;
use chiton_types::{Cred, Ino, Refusal, SessionId};
use chiton_wire::is_policy_attribute;

use super::Asker;
use crate::engine::Engine;
use crate::execute::Asked;
use crate::policies::place_of;
use crate::step::Stop;

impl Engine {
    /// Refuses an operation whose client is to decouple the subtree first.
    #[inline]
    pub(crate) fn decoupled_first(&mut self, asked: &Asked<'_>) -> Result<(), Stop> {
        if !self.may_have_to_decouple(asked.session) {
            return Ok(());
        }
        let place = place_of(asked.op);
        match asked.op {
            // By handles.
            Op::Write { .. } | Op::Remap { .. } | Op::Clone { .. } | Op::Reclaim { .. } => return Ok(()),
            Op::SetAttr { change, .. } if change.size_by_handle && change.size.is_some() => return Ok(()),
            Op::SetXattr { name, .. } | Op::RemoveXattr { name, .. } if is_policy_attribute(name) => {
                return Ok(());
            }
            // Across a border it is refused as that.
            Op::Rename { from: other, .. } | Op::Link { ino: other, .. }
                if self.ns.realm(*other)? != self.ns.realm(place)? =>
            {
                return Ok(());
            }
            _ => {}
        }
        self.is_decoupled(place, &Asker { session: asked.session, cred: asked.cred })
    }

    /// The same of a file that is opened for writing.
    #[inline]
    pub(crate) fn opened_decoupled(&mut self, ino: Ino, session: SessionId, cred: &Cred) -> Result<(), Stop> {
        if self.may_have_to_decouple(session) {
            self.is_decoupled(ino, &Asker { session, cred })
        } else {
            Ok(())
        }
    }

    /// Whether a session would be told to decouple a directory before it makes something there.
    pub(crate) fn must_decouple(&mut self, dir: Ino, session: SessionId, cred: &Cred) -> Result<bool, Stop> {
        if !self.may_have_to_decouple(session) {
            return Ok(false);
        }
        match self.is_decoupled(dir, &Asker { session, cred }) {
            Ok(()) => Ok(false),
            Err(Stop::Fail(_)) => Ok(true),
            Err(stop) => Err(stop),
        }
    }

    fn may_have_to_decouple(&self, session: SessionId) -> bool {
        self.ns.policy_version() > 0
            && !self.is_realm()
            && self.sessions.get(session).is_some_and(|session| session.decouples)
    }

    fn is_decoupled(&mut self, ino: Ino, asker: &Asker<'_>) -> Result<(), Stop> {
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
        // Who may not take it, or cannot for now (another policy begins below), is served as if it were strong.
        let uid = self.ns.attr(root)?.uid;
        match self.may_manage(asker, uid).and_then(|()| Ok(self.ns.plan_decouple(root, None)?)) {
            Ok(()) => Err(Refusal::Undecoupled.into()),
            Err(Stop::Fail(_)) => Ok(()),
            Err(stop) => Err(stop),
        }
    }
}
