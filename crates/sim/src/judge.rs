//! From the history of a run to the checkers' plain values.
//!
//! | file | judges |
//! |---|---|
//! | [`appends`] | files to which all append: acknowledged and durable records, and the readers' views |
//! | [`leases`] | leases: grants, and changes of names under another client's lease |
//! | [`log`] | files with one maker: exactly once; their inode numbers; fencing |
//! | [`realms`] | other clients' views of decoupled subtrees |
//! | [`own`] | the actions of one client in its own directory: answers, reads, the tree afterwards (crash oracle) |
//! | [`shared`] | names and attributes that all change: linearizability, stale reads |

mod appends;
mod leases;
mod log;
mod own;
mod realms;
mod shared;

pub(crate) use own::{Life, is_of_the_outside, own_part};

use crate::history::{Happened, History, Violation};
use crate::tree::Tree;

/// Everything that is wrong with a run.
pub fn judge(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let tree = last_tree(history);
    found.extend(log::judge(history, tree));
    found.extend(own::judge(history, tree));
    found.extend(appends::judge(history));
    found.extend(leases::judge(history));
    found.extend(shared::judge(history));
    found.extend(realms::judge(history));
    found
}

/// The last tree that was read.
fn last_tree(history: &History) -> Option<&Tree> {
    history.events.iter().rev().find_map(|event| match &event.what {
        Happened::Observed { tree } => Some(tree),
        _ => None,
    })
}
