//! The tools on file systems that a real server made.

mod dump;
mod fsck;
mod offline;
mod rig;
