//! What the numbers of a deed mean where something is there, and how trees are told in a line.

use chiton_types::Kind;

use super::case::Deed;
use super::view::View;
use crate::history::{Action, Answer};
use crate::tree::Tree;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// What is done about conflicts by who says so for this time.
pub(super) fn this_time(seed: u64) -> chiton_policy::OnConflict {
    match seed.is_multiple_of(3) {
        true => chiton_policy::OnConflict::KeepBoth,
        false => chiton_policy::OnConflict::Overwrite,
    }
}

pub(super) fn short(view: &View) -> String {
    let one = |(at, path): (&super::view::Entry, &String)| {
        let node = &view.nodes[&view.names[at]];
        format!("{path}={}:{:o}:{}", node.ino, node.mode, String::from_utf8_lossy(&node.content))
    };
    view.paths.iter().map(one).collect::<Vec<_>>().join(" ")
}

pub(super) fn is_done(answer: &Answer) -> String {
    match answer {
        Answer::Refused(refusal) => refusal.to_string(),
        _ => "done".to_owned(),
    }
}

/// What a deed means where this is there. `mark` is in no content but what this one writes.
pub(super) fn action(tree: &Tree, deed: &Deed, at: &str, mark: &str) -> Option<Action> {
    let pick =
        |from: &[&String], n: u64| from.get((n % from.len().max(1) as u64) as usize).map(|p| (*p).clone());
    let of = |kind: Option<Kind>| -> Vec<&String> {
        let is = |path: &String, found: Kind| path != "/" && kind.is_none_or(|kind| kind == found);
        tree.nodes.iter().filter(|(path, node)| is(path, node.kind)).map(|(path, _)| path).collect()
    };
    let (all, files) = (of(None), of(Some(Kind::File)));
    let mut dirs = of(Some(Kind::Dir));
    let top = String::new();
    dirs.push(&top);
    let name = |n: u64, m: u64| Some(format!("{at}{}/{}", pick(&dirs, n)?, NAMES[(m % 4) as usize]));
    let there = |from: &[&String], n: u64| pick(from, n).map(|path| format!("{at}{path}"));
    let long = deed.c.is_multiple_of(5);
    let content = mark.bytes().cycle().take(if long { 60 } else { 12 }).collect::<Vec<u8>>();
    Some(match deed.kind {
        0 => Action::Create { path: name(deed.a, deed.b)?, content },
        1 => Action::Mkdir { path: name(deed.a, deed.b)? },
        2 => Action::WriteFile { path: there(&files, deed.a)?, bytes: content },
        3 => {
            let path = there(&all, deed.a)?;
            match tree.nodes[&path[at.len()..]].kind {
                Kind::Dir => Action::Rmdir { path },
                _ => Action::Unlink { path },
            }
        }
        4 | 5 => Action::Rename { from: there(&all, deed.a)?, to: name(deed.b, deed.c)? },
        6 => Action::Exchange { from: there(&all, deed.a)?, to: there(&all, deed.b)? },
        7 => Action::Link { from: there(&files, deed.a)?, to: name(deed.b, deed.c)? },
        8 => {
            let number: u64 = mark[1..].parse().unwrap_or(0);
            Action::Chmod { path: there(&all, deed.a)?, mode: (number % 0o1000) as u16 }
        }
        9 => {
            let value = mark.as_bytes().to_vec();
            Action::SetXattr { path: there(&all, deed.a)?, name: "user.x".to_owned(), value }
        }
        10 => Action::Truncate { path: there(&files, deed.a)?, size: 8 + deed.b % 20 },
        _ => Action::Symlink { path: name(deed.a, deed.b)?, target: mark.to_owned() },
    })
}
