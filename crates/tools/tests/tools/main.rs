//! The tools on file systems that a real server made.

mod crash;
mod damage;
mod dump;
mod fsck;
mod offline;
mod rig;
mod rows;
mod salvage;
mod unreadable;
