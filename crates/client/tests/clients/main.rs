//! Clients of a real server: over its socket, and over its death.

mod batches;
mod blocked;
mod fold;
mod huge;
mod limited;
mod open_each;
mod part_leases;
mod paths;
mod plates;
mod reads;
mod removed;
mod restarts;
mod rights;
mod servers;
mod site;
mod split;
mod stats;
mod write_behind;
