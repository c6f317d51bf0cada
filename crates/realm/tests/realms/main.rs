//! Decoupled subtrees against a whole server: taken, worked in, crashed, recovered, merged, dropped.

mod site;
mod tree;
mod work;

mod branches;
mod cells;
mod crashes;
mod files;
mod histories;
mod lives;
mod syncs;
