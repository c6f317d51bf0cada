//! A decoupling that an administrator ends becomes a branch: the directory is everybody's
//! at once, and the client's unmerged changes can still be read, merged or dropped.
//!
//! ```text
//!   decoupling 7 of /job ─ BecomeBranch ─▶ branch "ended-7" of /job, which no client has ─ Attach ─▶ its next client
//! ```
//!
//! Invariants:
//! - The generation grows: the server refuses all further calls of the earlier client.
//! - Base, images, inode numbers and blocks stay, so the journal means what it meant.

use chiton_model::{Attached, Event};
use chiton_types::{Name, RealmId, Refusal, SessionId};
use chiton_wire::RealmAnswer;
use smallvec::smallvec;

use super::{Caller, Found, RealmHandler};
use crate::moment::Moment;
use crate::parts::Shards;
use crate::step::Stop;
use crate::wait_queue::Wait;

/// No session has this number.
const NOBODY: SessionId = SessionId(0);

impl RealmHandler<'_> {
    pub(crate) fn become_branch(
        &mut self,
        caller: &Caller<'_>,
        id: RealmId,
        name: Option<&Name>,
        m: &Moment,
    ) -> Found {
        let Some(d) = self.shards.ns.decoupling(id) else {
            let was_there = id <= self.shards.ns.decoupling_last() && id != RealmId::GLOBAL;
            return Err(if was_there { Refusal::Stale } else { Refusal::Invalid }.into());
        };
        self.shards.may_manage(caller, d.uid)?;
        let is_so =
            d.owner == NOBODY && d.branch.is_some() && name.is_none_or(|n| d.branch.as_ref() == Some(n));
        if is_so {
            return Ok((RealmAnswer::Ended, self.output.journalled()));
        }
        let is_fleeting = d.is_fleeting;
        let branch = self.shards.branch_name(id, name)?;
        self.shards.may_change(m)?;
        if let Some(root) = self.recall_blocked(id, m) {
            return Err(Stop::Wait(Wait::Leases(smallvec![root])));
        }
        if is_fleeting {
            self.drop_decoupling(id);
            return Ok((RealmAnswer::Ended, self.output.journalled()));
        }
        let d = self.shards.ns.decoupling(id).expect("it was there");
        let attached = Attached {
            id,
            nonce: d.nonce,
            generation: d.generation.saturating_add(1),
            owner: NOBODY,
            identity: d.identity.clone(),
            journal_at: d.journal_at.clone(),
            branch: Some(branch),
        };
        self.end_claim(&Event::Attached(Box::new(attached)));
        Ok((RealmAnswer::Ended, self.output.journalled()))
    }
}

impl Shards {
    /// The name that the branch gets: no other branch of the directory has it.
    fn branch_name(&self, id: RealmId, wanted: Option<&Name>) -> Result<Name, Stop> {
        let root = self.ns.decoupling(id).expect("asked for what is there").root();
        let is_taken =
            |name: &Name| self.ns.decouplings_of(root).any(|d| d.id != id && d.branch.as_ref() == Some(name));
        match wanted {
            Some(name) if is_taken(name) => Err(Refusal::Exists.into()),
            Some(name) => Ok(name.clone()),
            None => {
                let mut text = format!("ended-{id}");
                while is_taken(&Name::new(text.as_bytes())?) {
                    text.push('+');
                }
                Ok(Name::new(text.as_bytes())?)
            }
        }
    }
}
