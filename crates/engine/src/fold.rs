//! Directories that lose their parts while they have names, on a client's request.
//!
//! ```text
//!   a ─ 0 ── x ── y ── max    a' has x … y, a'' has y … max
//!   a ─ 0 ─────── y ── max    step 1: the names of a' come home; a' stays in the list without names
//!   a ─ 0 ─────────── max     step 2: the names of a''
//!   a                         step 3: a' and a'' end
//! ```
//!
//! Invariants:
//! - A step is one decision at the home, which holds guards on all parts: nothing changes in the directory meanwhile.
//! - Until a step is durable all that is done in the directory waits: after a crash that took the step back, it must not be done again
//!   at the part.
//! - A part ends when every inode that was named in it knows the directory, durably: the way up from it led over the part.

use chiton_model::PartRange;
use chiton_namespace::{Planned, end_folded, fold};
use chiton_types::{Ino, Refusal};

use crate::engine::Engine;
use crate::execute::OpCall;
use crate::moment::Moment;
use crate::step::Stop;

/// Most names that a step brings home: it holds up the directory, and they are in one frame.
pub(crate) const FOLDED_MAX: usize = 16 << 10;

impl Engine {
    /// Plans the next step of folding a directory. One without parts stays as it is, and one whose folded parts cannot end yet.
    pub(crate) fn plan_fold(
        &mut self,
        call: &OpCall<'_>,
        dir: Ino,
        is_settled: bool,
        m: &Moment,
    ) -> Result<Planned, Stop> {
        let key = call.key();
        let planned = Planned { subject: Some(dir), ..Planned::default() };
        let Some(peers) = self.peers.as_ref().filter(|_| !self.is_realm()) else {
            return Err(Refusal::Unsupported.into());
        };
        if !peers.is_crossing(key) {
            self.await_rows(call.op)?;
            self.shards.may_administer_parts(dir, call.cred)?;
            if self.shards.ns.parts(dir)?.is_empty() {
                return Ok(planned);
            }
        }
        if let Some(peers) = self.peers.as_mut().filter(|peers| !peers.is_crossing(key)) {
            peers.begin_crossing(&self.shards.ns, call.op, key)?;
        }
        loop {
            self.acquire((call.op, key), call.slot, is_settled, m)?;
            self.shards.may_administer_parts(dir, call.cred)?;
            let parts = self.shards.ns.parts(dir)?;
            let Some(peers) = &mut self.peers else { return Ok(planned) };
            let Some(part) = next_folded(&parts) else {
                if !parts.is_empty() && peers.knows_home(dir) {
                    end_folded(dir, parts, &mut self.events);
                }
                return Ok(planned);
            };
            match peers.crossing(key).part(part)? {
                (attr, Some(entries)) => {
                    fold(&self.shards.ns, dir, parts, (attr, entries.clone()), &mut self.events)?;
                    return Ok(planned);
                }
                // The directory got another first part before this operation held it.
                (_, None) => peers.begin_again(key, &mut self.queue),
            }
            self.wake_unguarded();
        }
    }
}

/// The part of a directory that the next step folds: the one behind the home's range.
pub(crate) fn next_folded(parts: &[PartRange]) -> Option<Ino> {
    parts.get(1).filter(|part| !part.is_folded()).map(|part| part.ino)
}
