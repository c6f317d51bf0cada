//! Random operations below the decoupled subtree: their names are resolved against the state at that moment.

use chiton_model::{AttrChange, Body, Extent, Make, Op, RenameHow, SetTime, XattrHow};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT, Acl, AclEntry, AclTag};
use chiton_types::{BlockId, Cred, Ino, Kind, Mode, Name, Time};
use proptest::prelude::*;

use crate::paths::SUB;
use crate::peer::Peer;

#[derive(Clone, Debug)]
pub(crate) struct Step {
    what: u8,
    a: u16,
    b: u16,
    names: (u8, u8),
    value: u8,
}

impl Step {
    pub(crate) fn is_reclaim(&self) -> bool {
        self.what == 39
    }
}

pub(crate) fn steps() -> impl Strategy<Value = Step> {
    (0..40u8, any::<u16>(), any::<u16>(), (0..5u8, 0..5u8), any::<u8>())
        .prop_map(|(what, a, b, names, value)| Step { what, a, b, names, value })
}

fn name(n: u8) -> Name {
    Name::new(&[b'a' + n]).expect("a name")
}

/// One who acts: the numbers of its inodes, its blocks, its clock.
pub(crate) struct Actor {
    pub(crate) next: u64,
    writer: u64,
    pub(crate) now: i64,
    pub(crate) made: Vec<Ino>,
}

impl Actor {
    pub(crate) fn new(next: u64, writer: u64) -> Actor {
        Actor { next, writer, now: 1000, made: Vec::new() }
    }

    /// Does it, if it can be done; the inode that lost a name.
    pub(crate) fn act(&mut self, peer: &mut Peer, step: &Step) -> Option<Ino> {
        self.now += 1;
        let op = self.op(peer, step)?;
        let place = match &op {
            Op::Unlink { parent, name } | Op::Rmdir { parent, name } => Some((*parent, name.clone())),
            Op::Rename { to, to_name, how: RenameHow::Replace, .. } => Some((*to, to_name.clone())),
            _ => None,
        };
        let loser = place
            .and_then(|(parent, name)| peer.ask(|ns| ns.lookup(&Cred::ROOT, parent, &name)).ok().flatten());
        let (_, events) = peer.run(&op, Ino(self.next), Time(self.now)).ok()?;
        if let Op::Make { .. } = op {
            self.made.push(Ino(self.next));
            self.next += 1;
        }
        loser.filter(|_| !events.is_empty())
    }

    fn op(&mut self, peer: &mut Peer, step: &Step) -> Option<Op> {
        let tree = peer.tree(SUB);
        let all: Vec<(Ino, Kind)> = tree.values().map(|node| (node.attr.ino, node.attr.kind)).collect();
        let dirs: Vec<Ino> = all.iter().filter(|(_, kind)| *kind == Kind::Dir).map(|(ino, _)| *ino).collect();
        let files: Vec<Ino> =
            all.iter().filter(|(_, kind)| *kind == Kind::File).map(|(ino, _)| *ino).collect();
        let pick = |from: &[Ino], n: u16| from.get(usize::from(n) % from.len().max(1)).copied();
        let dir = pick(&dirs, step.a)?;
        let mut listed = peer.list(dir);
        listed.sort();
        let there = listed.get(usize::from(step.b) % listed.len().max(1)).cloned();
        let any = all[usize::from(step.a) % all.len()].0;
        let mtime = Time(self.now);
        let value = vec![step.value; usize::from(step.value % 9)];
        Some(match step.what {
            0..8 => {
                let make = match step.what {
                    0..4 => Make::Dir,
                    4 => Make::Symlink { target: b"target".to_vec() },
                    _ => Make::File { content: value },
                };
                Op::Make { parent: dir, name: name(step.names.0), make, mode: Mode(0o644) }
            }
            8..13 => {
                let (name, _, kind) = there?;
                let parent = dir;
                if kind == Kind::Dir { Op::Rmdir { parent, name } } else { Op::Unlink { parent, name } }
            }
            13..22 => {
                let how = if step.value.is_multiple_of(4) { RenameHow::Exchange } else { RenameHow::Replace };
                let to = pick(&dirs, step.b)?;
                Op::Rename { from: dir, from_name: there?.0, to, to_name: name(step.names.1), how }
            }
            22..24 => Op::Link { ino: pick(&files, step.b)?, parent: dir, name: name(step.names.0) },
            24..27 => {
                let change = AttrChange {
                    mode: Some(Mode(u16::from(step.value))),
                    uid: step.value.is_multiple_of(3).then_some(5),
                    mtime: step.value.is_multiple_of(2).then_some(SetTime::At(Time(77))),
                    ..AttrChange::default()
                };
                Op::SetAttr { ino: any, change }
            }
            27 => {
                let size = u64::from(step.value);
                let change = AttrChange { size: Some(size), ..AttrChange::default() };
                Op::SetAttr { ino: pick(&files, step.b)?, change }
            }
            28..32 => {
                let size = value.len() as u64 + u64::from(step.b % 3);
                Op::Write {
                    ino: pick(&files, step.a)?,
                    body: Body::Inline(value),
                    size,
                    mtime,
                    kill_setid: false,
                    hold: Default::default(),
                }
            }
            32..35 => {
                let ino = pick(&files, step.a)?;
                self.next += 1;
                let block = BlockId { writer: self.writer, number: self.next };
                let (offset, len) = (u64::from(step.b % 50), 1 + u32::from(step.value % 60));
                let e = Extent { offset, len, block, block_offset: 0, shared: false };
                let size = peer.node(ino).attr.size.max(e.end());
                Op::Write {
                    ino,
                    body: Body::Extents(vec![e]),
                    size,
                    mtime,
                    kill_setid: false,
                    hold: Default::default(),
                }
            }
            35 => {
                let (from, to) = (pick(&files, step.a)?, pick(&files, step.b)?);
                let len = peer.node(from).attr.size;
                Op::Clone { from, from_offset: 0, to, to_offset: u64::from(step.value % 3), len }
            }
            36 if step.value.is_multiple_of(2) => {
                let (rights, id) = (step.value / 2 % 8, u32::from(step.names.0));
                let entry = |tag, rights| AclEntry { tag, rights };
                let entries = vec![
                    entry(AclTag::Owner, 7),
                    entry(AclTag::User(id), rights),
                    entry(AclTag::OwningGroup, 5),
                    entry(AclTag::Mask, 7 - rights),
                    entry(AclTag::Other, 1),
                ];
                let value = Acl::new(entries).expect("a list").encode();
                let is_default = step.value.is_multiple_of(4) && dirs.contains(&any);
                let name = if is_default { ACL_DEFAULT } else { ACL_ACCESS };
                Op::SetXattr { ino: any, name: name.to_vec(), value, how: XattrHow::Set }
            }
            36..38 => Op::SetXattr {
                ino: any,
                name: vec![b'u', b's', b'e', b'r', b'.', b'a' + step.names.0],
                value,
                how: XattrHow::Set,
            },
            38 => {
                let name = vec![b'u', b's', b'e', b'r', b'.', b'a' + step.names.0];
                Op::RemoveXattr { ino: any, name }
            }
            _ => Op::Reclaim { ino: pick(&peer.ns.orphans(), step.a)? },
        })
    }
}
