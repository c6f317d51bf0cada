//! A server as one of a cluster: it registers with the monitor, runs the plates that the map gives it, and ends when it may not.
//!
//! ```text
//!   lease thread:  renew every third of a lease ──▶ gate: answers go out for two thirds of it
//!   map thread:    watch ──▶ map ──▶ plates that are ours run, others do not; links to the other servers
//!                        └─▶ if this server has the lowest number of those that live: owners for plates without
//! ```
//!
//! Invariants:
//! - Nothing is answered when two thirds of the lease have passed since the call that renewed it (its clock may be wrong by a
//!   third). Another server gets the plates only when the whole lease has ended.
//! - A plate runs where the map has its owner, or nowhere. Its stores are opened only while the lease lasts and the monitor's own
//!   map, not a copy, names this server.
//! - The map changes only on condition that those live whom the change relies on, and that those are gone whom it replaces.
//! - Any server may lead: all decide by the same rules, and of two that try at once the monitor lets one succeed.

mod gate;
mod leader;
mod member;
mod plates;
mod refusals;

pub use member::{Ended, Member, MemberError, MemberOptions, OnEnd};
