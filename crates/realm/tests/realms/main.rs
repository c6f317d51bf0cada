//! Decoupled subtrees against a whole server: taken, worked in, crashed, recovered, merged, dropped.

mod site;
mod tree;
mod work;

mod branches;
mod cells;
mod compositions;
mod contents;
mod crashes;
mod ended;
mod example;
mod files;
mod granting;
mod histories;
mod lists;
mod lives;
mod resolved;
mod subtrees;
mod syncs;
