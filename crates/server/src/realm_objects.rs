//! Objects that decoupled clients keep in the server's store: their journals at `durability: global`.
//!
//! ```text
//!   decoupled/<realm>/<name>
//! ```
//!
//! Invariants:
//! - Only the client that holds the claim reads and writes there, and only objects of that decoupling.
//! - A put is durable when it is answered.
//! - When the end of a decoupling is durable, the server deletes its objects: the client may have died before.

use chiton_objects::{ObjectError, Objects};
use chiton_types::{Position, RealmId, Refusal, SessionId};
use chiton_wire::{Answer, Claim, Failure, NAMES_MAX, ObjectAnswer, ObjectCall, RealmAnswer};

use crate::plate::Plate;

/// The prefix of the names of a decoupling's objects in the store.
pub fn realm_prefix(realm: RealmId) -> String {
    format!("decoupled/{realm}/")
}

impl Plate {
    pub(crate) fn realm_object(
        &self,
        session: SessionId,
        claim: Claim,
        name: &str,
        action: ObjectCall,
    ) -> Result<Answer, Failure> {
        let held = self.engine.lock().holds_claim(session, claim);
        if let Err((refusal, ended)) = held {
            self.wait_durable(ended)?;
            return Err(Failure::Refused(refusal));
        }
        let prefix = realm_prefix(claim.realm);
        let key = format!("{prefix}{name}");
        let is_put = matches!(action, ObjectCall::PutIfAbsent { .. });
        let answer = self.carry_out(&prefix, &key, action).map_err(|error| self.object_failure(&error))?;
        if is_put && !self.engine.lock().decoupled_realms().0.contains(&claim.realm) {
            // It ended meanwhile, and its objects may have been deleted before this one was there.
            self.blocks.objects.delete(&key).map_err(|error| self.object_failure(&error))?;
            return Err(Failure::Refused(Refusal::Stale));
        }
        Ok(Answer::Realm(RealmAnswer::Object(answer)))
    }

    fn carry_out(&self, prefix: &str, key: &str, action: ObjectCall) -> Result<ObjectAnswer, ObjectError> {
        let objects = self.user_objects();
        Ok(match action {
            ObjectCall::PutIfAbsent { bytes } => ObjectAnswer::Put(objects.put_if_absent(key, &bytes)?),
            ObjectCall::Get { bytes_max } => ObjectAnswer::Bytes(self.first_bytes(key, bytes_max)?),
            ObjectCall::Delete => {
                objects.delete(key)?;
                // A journal is trimmed from its oldest segment on: one that reappeared before others would leave a gap.
                objects.sync()?;
                ObjectAnswer::Deleted
            }
            ObjectCall::List { after } => {
                let after = (!after.is_empty()).then(|| format!("{prefix}{after}"));
                let listed = objects.list(key, after.as_deref(), NAMES_MAX)?;
                let name = |key: &str| Some(key.strip_prefix(prefix)?.to_owned());
                ObjectAnswer::Names(listed.iter().filter_map(|o| Some((name(&o.key)?, o.bytes))).collect())
            }
        })
    }

    fn first_bytes(&self, key: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        let read = || {
            let objects = self.user_objects();
            let bytes = objects.size(key)?;
            objects.get(key, (bytes > bytes_max).then_some(0..bytes_max))
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the objects of decouplings that are over, once their end is durable. `seen` is what it saw last: when
    /// nothing has begun or ended since, there is nothing to do.
    pub(crate) fn sweep_realm_objects(&self, seen: &mut Seen) {
        // Those that begin from here on have higher numbers.
        let ((live, last), position) = {
            let engine = self.engine.lock();
            (engine.decoupled_realms(), engine.position())
        };
        if seen.of.as_ref() != Some(&(live.clone(), last)) {
            *seen = Seen { of: Some((live.clone(), last)), due: Some(position) };
        }
        if seen.due.is_none_or(|due| due > self.journal.durable()) {
            return;
        }
        let is_own = |realm: RealmId| self.info.plates().of_realm(realm) == self.plate;
        let is_over = |realm: RealmId| realm <= last && is_own(realm) && !live.contains(&realm);
        match self.delete_realm_objects(is_over) {
            Ok(()) => seen.due = None,
            // Tried again by and by.
            Err(error) => self.note_error(&format!("an object of a decoupling that is over stays: {error}")),
        }
    }

    fn delete_realm_objects(&self, is_over: impl Fn(RealmId) -> bool) -> Result<(), ObjectError> {
        let mut after: Option<String> = None;
        while !self.is_stopping() {
            let page = self.blocks.objects.list("decoupled/", after.as_deref(), NAMES_MAX)?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for object in &page {
                let mut parts = object.key.split('/').skip(1);
                let realm = parts.next().and_then(|part| part.parse().ok()).map(RealmId);
                if realm.is_some_and(&is_over) {
                    self.blocks.objects.delete(&object.key)?;
                }
            }
        }
        Ok(())
    }
}

/// Decouplings as they were when their objects were looked at.
#[derive(Default)]
pub(crate) struct Seen {
    of: Option<(Vec<RealmId>, RealmId)>,
    /// Objects may be there of those that were over at this position.
    due: Option<Position>,
}
