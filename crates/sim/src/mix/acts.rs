//! The meaning of a deed's numbers in a given tree, and trees as one line of text.

use chiton_types::Kind;

use super::case::Deed;
use super::view::View;
use crate::history::{Action, Answer};
use crate::tree::Tree;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The treatment of conflicts for one merge.
pub(super) fn this_time(seed: u64) -> chiton_policy::OnConflict {
    match seed.is_multiple_of(3) {
        true => chiton_policy::OnConflict::KeepBoth,
        false => chiton_policy::OnConflict::Overwrite,
    }
}

pub(super) fn short(view: &View) -> String {
    let one = |(at, path): (&super::view::Entry, &String)| {
        let node = &view.nodes[&view.names[at]];
        let content = String::from_utf8_lossy(&node.content);
        match content.len() {
            0..=60 => format!("{path}={}:{:o}:{content}", node.ino, node.mode),
            len => format!("{path}={}:{:o}:{len} bytes, {}", node.ino, node.mode, marks_of(&node.content)),
        }
    };
    view.paths.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Whose marks are in a long content, in their order.
pub(super) fn marks_of(content: &[u8]) -> String {
    let text = String::from_utf8_lossy(content);
    let mut marks: Vec<String> = Vec::new();
    for piece in text.as_bytes().chunks(6) {
        let piece = String::from_utf8_lossy(piece).into_owned();
        if marks.last() != Some(&piece) {
            marks.push(piece);
        }
    }
    marks.truncate(8);
    marks.join("|")
}

pub(super) fn is_done(answer: &Answer) -> String {
    match answer {
        Answer::Refused(refusal) => refusal.to_string(),
        _ => "done".to_owned(),
    }
}

/// Larger than inline content.
const LARGE: usize = 20_000;

/// The temporary name under which a file is written before it is renamed.
const TEMPORARY: &str = ".t";

/// The actions of a deed in this tree, in groups between which a client may look. `mark` occurs only in content of
/// this deed.
pub(super) fn acts(tree: &Tree, deed: &Deed, at: &str, mark: &str) -> Vec<Vec<Action>> {
    if !super::case::WIDE.contains(&deed.kind) {
        return action(tree, deed, at, mark).into_iter().map(|action| vec![action]).collect();
    }
    let files: Vec<&String> =
        tree.nodes.iter().filter(|(_, node)| node.kind == Kind::File).map(|(path, _)| path).collect();
    let content = |len: usize| mark.bytes().cycle().take(len).collect::<Vec<u8>>();
    let len = if deed.c.is_multiple_of(3) { 900 } else { LARGE };
    let Some(path) = files.get((deed.a % files.len().max(1) as u64) as usize) else {
        // There is nothing to change yet.
        let path = format!("{at}/{}", NAMES[(deed.b % 4) as usize]);
        let is_taken = tree.nodes.contains_key(&path[at.len()..]);
        return if is_taken { vec![] } else { vec![vec![Action::Create { path, content: content(len) }]] };
    };
    let (size, there) = (tree.nodes[*path].size, format!("{at}{path}"));
    let handle = crate::history::Handle(77);
    let in_place = |offset: u64, bytes: Vec<u8>, truncate: bool| {
        let path = there.clone();
        vec![
            Action::Open { path, create: false, truncate, handle },
            Action::Write { handle, offset, bytes },
            Action::Close { handle },
        ]
    };
    match deed.kind {
        // A part of it, which may overlap the part that another writes.
        12 => vec![in_place(deed.b % (size + 1), content(1 + (deed.c % 9_000) as usize), false)],
        // The end of it.
        13 => vec![in_place(size, content(len), false)],
        14 => vec![in_place(0, content(len), true)],
        15 => {
            let (dir, _) = path.rsplit_once('/').expect("a path");
            let temporary = format!("{at}{dir}/{TEMPORARY}");
            if tree.nodes.contains_key(&temporary[at.len()..]) {
                return vec![];
            }
            let create = Action::Create { path: temporary.clone(), content: content(len) };
            vec![vec![create], vec![Action::Rename { from: temporary, to: there }]]
        }
        _ => vec![vec![Action::SetTimes { path: there, time: chiton_types::Time((deed.c % 1_000) as i64) }]],
    }
}

/// The action of a deed in this tree. `mark` occurs only in content of this deed.
fn action(tree: &Tree, deed: &Deed, at: &str, mark: &str) -> Option<Action> {
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
        1 => Action::Mkdir { path: name(deed.a, deed.b)?, mode: 0o755 },
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
