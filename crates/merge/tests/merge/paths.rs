//! Operations by path below `sub`, for cases that are read by people.

use chiton_model::{AttrChange, Body, Extent, Make, Op, RenameHow, XattrHow};
use chiton_types::{BlockId, Cred, Ino, Mode, Name, Time};

use crate::peer::Peer;

/// The decoupled subtree.
pub(crate) const SUB: Ino = Ino(2);

fn name(text: &str) -> Name {
    Name::try_from(text).expect("a name")
}

fn split(peer: &mut Peer, path: &str) -> (Ino, Name) {
    let (dir, last) = path.rsplit_once('/').unwrap_or(("", path));
    (resolve(peer, dir).unwrap_or_else(|| panic!("{dir:?} is not there")), name(last))
}

pub(crate) fn resolve(peer: &mut Peer, path: &str) -> Option<Ino> {
    let mut at = SUB;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = peer.ask(|ns| ns.lookup(&Cred::ROOT, at, &name(part))).expect("a directory")?;
    }
    Some(at)
}

/// Does one thing: `mkdir d`, `put f content`, `symlink l target`, `write f content`, `blocks f`, `rm f`, `rmdir d`, `mv a b`, `swap a b`,
/// `ln a b`, `clone a b`, `chmod a 700`, `tag f value`. The next inode number is `next`.
pub(crate) fn act(peer: &mut Peer, text: &str, next: &mut u64) {
    let words: Vec<&str> = text.split(' ').collect();
    let (verb, path) = (words[0], words[1]);
    let third = words.get(2).copied().unwrap_or("");
    let now = Time(100 + *next as i64);
    let op = match verb {
        "mkdir" | "put" | "symlink" => {
            let (parent, name) = split(peer, path);
            let content = third.as_bytes().to_vec();
            let make = match verb {
                "put" => Make::File { content },
                "symlink" => Make::Symlink { target: content },
                _ => Make::Dir,
            };
            Op::Make { parent, name, make, mode: Mode(0o755) }
        }
        "write" | "blocks" | "chmod" => {
            let ino = resolve(peer, path).expect("it is there");
            match verb {
                "write" => {
                    let body = Body::Inline(third.as_bytes().to_vec());
                    Op::Write {
                        ino,
                        body,
                        size: third.len() as u64,
                        mtime: now,
                        kill_setid: false,
                        hold: Default::default(),
                    }
                }
                "blocks" => {
                    let block = BlockId { writer: 7, number: *next };
                    let e = Extent { offset: 0, len: 100, block, block_offset: 0, shared: false };
                    Op::Write {
                        ino,
                        body: Body::Extents(vec![e]),
                        size: 100,
                        mtime: now,
                        kill_setid: false,
                        hold: Default::default(),
                    }
                }
                _ => {
                    let mode = u16::from_str_radix(third, 8).expect("an octal number");
                    Op::SetAttr { ino, change: AttrChange { mode: Some(Mode(mode)), ..Default::default() } }
                }
            }
        }
        "tag" => {
            let ino = resolve(peer, path).expect("it is there");
            let value = third.as_bytes().to_vec();
            Op::SetXattr { ino, name: b"user.tag".to_vec(), value, how: XattrHow::Set }
        }
        "rm" | "rmdir" => {
            let (parent, name) = split(peer, path);
            if verb == "rm" { Op::Unlink { parent, name } } else { Op::Rmdir { parent, name } }
        }
        "mv" | "swap" => {
            let ((from, from_name), (to, to_name)) = (split(peer, path), split(peer, third));
            let how = if verb == "mv" { RenameHow::Replace } else { RenameHow::Exchange };
            Op::Rename { from, from_name, to, to_name, how }
        }
        "clone" => {
            let from = resolve(peer, path).expect("it is there");
            let to = resolve(peer, third).expect("it is there");
            Op::Clone { from, from_offset: 0, to, to_offset: 0, len: 100 }
        }
        "ln" => {
            let ino = resolve(peer, path).expect("it is there");
            let (parent, name) = split(peer, third);
            Op::Link { ino, parent, name }
        }
        _ => panic!("no verb: {text}"),
    };
    peer.run(&op, Ino(*next), now).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
    *next += 1;
}
