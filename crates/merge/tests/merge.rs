//! Merge as a plan: small cases of every conflict, random histories, hostile journals.

#[path = "merge/case_table.rs"]
mod case_table;
#[path = "merge/cases.rs"]
mod cases;
#[path = "merge/histories.rs"]
mod histories;
#[path = "merge/hostile.rs"]
mod hostile;
#[path = "merge/paths.rs"]
mod paths;
#[path = "merge/peer.rs"]
mod peer;
#[path = "merge/random.rs"]
mod random;
#[path = "merge/table.rs"]
mod table;
