//! Whole servers, on stores in memory or on temporary directories.

mod recovery;
mod rig;

mod blocks;
mod corruption;
mod exactly_once;
mod leases;
mod policies;
mod restart;
mod space;
