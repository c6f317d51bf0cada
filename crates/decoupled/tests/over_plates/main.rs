//! Decoupled subtrees of a file system with four plates: each lies on one of
//! them. The tests of one plate, and those of messages from other plates.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

#[path = "../realms/site.rs"]
#[allow(dead_code, reason = "the tests of one plate need more")]
mod site;
#[path = "../realms/tree.rs"]
mod tree;
#[path = "../realms/work.rs"]
mod work;

#[path = "../realms/branches.rs"]
mod branches;
#[path = "../realms/contents.rs"]
mod contents;
#[path = "../realms/crashes.rs"]
mod crashes;
#[path = "../realms/ended.rs"]
mod ended;
#[path = "../realms/files.rs"]
mod files;
#[path = "../realms/granting.rs"]
mod granting;
#[path = "../realms/histories.rs"]
mod histories;
#[path = "../realms/lists.rs"]
mod lists;
#[path = "../realms/lives.rs"]
mod lives;
mod others;
#[path = "../realms/resolved.rs"]
mod resolved;
#[path = "../realms/subtrees.rs"]
mod subtrees;
#[path = "../realms/syncs.rs"]
mod syncs;
