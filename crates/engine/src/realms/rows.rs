//! Rows of a decoupled subtree, for the client that has it.
//!
//! Invariants:
//! - They are as they were at the base, with the changes that the client itself merged since. For the rehearsal of a merge they
//!   are as they are now.
//! - Nothing outside of the subtree is shown, but the inodes of the directories above its root, which walks
//!   upwards pass, and of those at which it ends, as they are now.

use chiton_namespace::{Fault, Need};
use chiton_types::{Ino, RealmId, Refusal};
use chiton_wire::{Claim, FoundRows, NEEDS_MAX, RealmAnswer};

use super::{Caller, Found, NOW};
use crate::parts::Shards;
use crate::step::Stop;

/// About the most bytes of rows in one answer.
const ANSWER_BYTES: usize = 4 << 20;
/// Rows looked for in the metadata store at a time.
const NEEDS_AT_ONCE: usize = 256;

/// The moment of the rows that are served.
#[derive(Clone, Copy)]
pub(crate) enum AsOf {
    Base,
    Now,
}

impl Shards {
    pub(crate) fn serve_rows(
        &mut self,
        caller: &Caller<'_>,
        claim: Claim,
        needs: &[Need],
        as_of: AsOf,
    ) -> Found {
        let root = self.claimed(caller, claim)?.root();
        let id = claim.realm;
        if needs.is_empty() || needs.len() > NEEDS_MAX {
            return Err(Refusal::Invalid.into());
        }
        let mut answer = Vec::with_capacity(needs.len());
        let (mut missing, mut bytes) = (Vec::new(), 0);
        for need in needs {
            if bytes >= ANSWER_BYTES || missing.len() >= NEEDS_AT_ONCE {
                break;
            }
            match self.serve_need(id, root, need, as_of) {
                Ok(found) => {
                    bytes += found.rows.iter().map(|(key, value)| key.len() + value.len() + 8).sum::<usize>();
                    answer.push(found);
                }
                Err(Stop::Missing(more)) => missing.extend(more),
                Err(stop) => return Err(stop),
            }
        }
        if missing.is_empty() { Ok((RealmAnswer::Rows(answer), NOW)) } else { Err(Stop::Missing(missing)) }
    }

    /// The server's memory of a decoupling for its merges.
    pub(crate) fn remembered_rows(&mut self, caller: &Caller<'_>, claim: Claim, after: &[u8]) -> Found {
        let root = self.claimed(caller, claim)?.root();
        let mut borders = if after.is_empty() { self.borders_below(root)? } else { Vec::new() };
        borders.push(root);
        let (rows, exhausted) = self.ns.remembered(claim.realm, &borders, after, ANSWER_BYTES);
        Ok((RealmAnswer::Rows(vec![FoundRows { rows, exhausted }]), NOW))
    }

    fn serve_need(&self, id: RealmId, root: Ino, need: &Need, as_of: AsOf) -> Result<FoundRows, Stop> {
        let is_in = match need {
            Need::Inode(ino)
            | Need::Entry(ino, _)
            | Need::Dir(ino)
            | Need::Slice { dir: ino, .. }
            | Need::Content(ino)
            | Need::Chunk(ino, _)
            | Need::Chunks(ino)
            | Need::Xattrs(ino) => self.is_in(root, *ino)?,
            Need::Block(_) => true,
        };
        let found = match need {
            _ if is_in => match as_of {
                AsOf::Base => self.ns.serve_at_base(need, id)?,
                AsOf::Now => self.ns.serve(need)?,
            },
            Need::Inode(ino) if self.is_border(root, *ino)? || self.is_above(root, *ino)? => {
                self.ns.serve(need)?
            }
            _ => return Err(Refusal::CrossDevice.into()),
        };
        Ok(FoundRows { rows: found.rows, exhausted: found.exhausted })
    }

    /// Whether an inode is in the subtree. One that does not exist counts as inside: the answer may say that it is gone.
    fn is_in(&self, root: Ino, ino: Ino) -> Result<bool, Stop> {
        match self.ns.decoupled_root(ino) {
            Ok(found) => Ok(found == Some(root)),
            Err(Fault::Refused(_)) => Ok(true),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Whether the subtree ends at a directory in it. An answer may say that there is such a directory.
    fn is_border(&self, root: Ino, ino: Ino) -> Result<bool, Stop> {
        Ok(self.ns.policy(ino).is_some() && self.is_in(root, self.ns.attr(ino)?.parent)?)
    }

    fn is_above(&self, root: Ino, ino: Ino) -> Result<bool, Stop> {
        let mut at = root;
        while at != Ino::ROOT {
            at = self.ns.attr(at)?.parent;
            if at == ino {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
