//! Directories in a decoupled subtree that have a policy of their own: there the subtree ends.
//!
//! ```text
//!   job (batchfs, decoupled) ── a ── scratch (ramdisk) ── …
//!                                    ▲ a border: its name is the decoupled side's, its directory is not
//! ```
//!
//! Invariants:
//! - A decoupled client does nothing to a border or below it, and answers only that it is there: its caller is to ask the main
//!   server.
//! - A border, and any directory above it, is neither moved nor removed there: another client may have decoupled it.
//! - Which directories are borders does not change while there is the decoupling.

use chiton_model::{NameUse, Op};
use chiton_namespace::{Fault, Namespace};
use chiton_types::{Cred, Ino, Name, Refusal};
use chiton_wire::Call;

use crate::decoupled::Decoupled;
use crate::parts::Shards;
use crate::step::Stop;

impl Decoupled {
    /// Refuses a call that is to be asked elsewhere.
    pub(crate) fn stays_within(&self, call: &Call) -> Result<(), Stop> {
        if self.borders.is_empty() {
            return Ok(());
        }
        call.visit_footprint(|ino, _| self.is_within(ino))
    }

    fn is_within(&self, ino: Ino) -> Result<(), Stop> {
        if self.borders.contains(&ino) { Err(Refusal::CrossDevice.into()) } else { Ok(()) }
    }

    /// Refuses an operation on a border, or that moves or removes one or a directory above it.
    pub(crate) fn keep_borders(&self, op: &Op, ns: &Namespace) -> Result<(), Stop> {
        if self.borders.is_empty() {
            return Ok(());
        }
        op.footprint().visit(|ino, _| self.is_within(ino))?;
        let moves = matches!(op, Op::Rename { .. });
        for touch in op.footprint().names() {
            match touch.how {
                NameUse::RemovedDir | NameUse::Left | NameUse::Taken => {
                    self.keep_border(ns, touch.dir, touch.name, moves)?;
                }
                NameUse::Given | NameUse::Removed => {}
            }
        }
        Ok(())
    }

    fn keep_border(&self, ns: &Namespace, parent: Ino, name: &Name, above: bool) -> Result<(), Stop> {
        let ino = match ns.lookup(&Cred::ROOT, parent, name) {
            Ok(Some(ino)) => ino,
            Err(Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
            // The plan says why not.
            Ok(None) | Err(_) => return Ok(()),
        };
        for border in &self.borders {
            // One that others removed meanwhile is nowhere.
            match if above { ns.is_above(ino, *border) } else { Ok(ino == *border) } {
                Ok(true) => return Err(Refusal::Busy.into()),
                Err(Fault::Missing(needs)) => return Err(Stop::Missing(needs)),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(())
    }
}

impl Shards {
    /// Directories at which a decoupled subtree ends.
    pub(crate) fn borders_below(&self, root: Ino) -> Result<Vec<Ino>, Stop> {
        let mut borders = Vec::new();
        let mut needs = Vec::new();
        for policy in self.ns.policies().filter(|policy| policy.ino != root) {
            match self.ns.is_above(root, policy.ino) {
                Ok(true) => borders.push(policy.ino),
                Ok(false) => {}
                Err(Fault::Missing(more)) => needs.extend(more),
                Err(fault) => return Err(fault.into()),
            }
        }
        if needs.is_empty() { Ok(borders) } else { Err(Stop::Missing(needs)) }
    }
}
