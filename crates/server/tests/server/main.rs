//! Whole servers, on stores in memory or on temporary directories.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

mod recovery;
mod rig;
mod row_fetches;
mod socket_rig;

mod away;
mod blocks;
mod burst;
mod corruption;
mod decoupled;
mod exactly_once;
mod leases;
mod merge_calls;
mod merges;
mod metering;
mod plates;
mod policies;
mod realm_ends;
mod realms;
mod removed_trees;
mod required;
mod reservations;
mod restart;
mod sizes;
mod space;
mod write_behind;
