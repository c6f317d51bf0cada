//! Whole servers, on stores in memory or on temporary directories.

mod recovery;
mod rig;

mod ahead;
mod away;
mod blocks;
mod burst;
mod corruption;
mod decoupled;
mod exactly_once;
mod first;
mod leases;
mod merges;
mod metering;
mod policies;
mod realms;
mod reservations;
mod restart;
mod sizes;
mod space;
