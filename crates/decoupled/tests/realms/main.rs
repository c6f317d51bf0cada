//! Decoupled subtrees against a whole server: taken, worked in, crashed, recovered, merged, dropped.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

mod deeds;
mod site;
mod tree;
mod work;

mod branches;
mod cells;
mod compositions;
mod contents;
mod crashes;
mod dry_runs;
mod ended;
mod example;
mod files;
mod granting;
mod histories;
mod lists;
mod lives;
mod pairs;
mod rebases;
mod resolved;
mod resolved_directories;
mod subtrees;
mod syncs;
