//! The tools on file systems that a real server made.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

mod crash;
mod damage;
mod dump;
mod fsck;
mod growth;
mod offline;
mod plates;
mod plates_online;
mod plates_repair;
mod rig;
mod rows;
mod salvage;
mod servers;
mod servers_online;
mod trimmed;
mod unreadable;
