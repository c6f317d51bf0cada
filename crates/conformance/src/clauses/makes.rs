//! D10 to D18: new inodes.

use chiton_model::{AttrChange, Make, Op, SetTime};
use chiton_types::{Attr, Cred, Kind, Mode, Refusal, Time};
use chiton_wire::{Answer, Call, Query};

use crate::case::{Case, alice, answered, bob, empty, make, rmdir, unlink};
use crate::finding::{Outcome, failed, holds, same};

/// Most bytes inside an inode.
const INLINE_MAX: usize = 8192;
/// Longest target of a symbolic link.
const TARGET_MAX: usize = 4095;
/// Bytes that an entry adds to the size of its directory.
const ENTRY_BYTES: u64 = 32;

pub(super) fn file(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let content = b"some content".to_vec();
    let attr = case.made(&alice(), &make(dir, "file", Make::File { content: content.clone() }, 0o640))?;
    let Attr { ino, kind, mode, nlink, size, .. } = attr;
    let expected = (Kind::File, Mode(0o640), 1, content.len() as u64);
    same("attributes of a new file", expected, (kind, mode, nlink, size))?;
    same("birth of a new file", (attr.btime, attr.btime), (attr.mtime, attr.ctime))?;
    same("look up the new file", ino, case.found(dir, "file")?.ino)?;
    match case.client.server.ask(ino, &alice(), Call::Query(Query::Map { ino, offset: 0, len: 1 }))? {
        Ok(Answer::Map { content: chiton_wire::Content::Inline(bytes), .. }) => {
            same("content of the new file", content, bytes)
        }
        other => Err(failed("read the new file", "its content", format!("{other:?}"))),
    }
}

pub(super) fn dir(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let before = case.attr(dir)?;
    let attr = case.made(&alice(), &make(dir, "sub", Make::Dir, 0o750))?;
    same("attributes of a new directory", (Kind::Dir, Mode(0o750), 2, 0), {
        let attr = case.attr(attr.ino)?;
        (attr.kind, attr.mode, attr.nlink, attr.size)
    })?;
    same("links of its directory", before.nlink + 1, case.attr(dir)?.nlink)
}

pub(super) fn symlink(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let target = b"../some/where".to_vec();
    let attr = case.made(&alice(), &make(dir, "link", Make::Symlink { target: target.clone() }, 0o777))?;
    let ino = attr.ino;
    same("a new symbolic link", (Kind::Symlink, target.len() as u64), (attr.kind, attr.size))?;
    match case.client.server.ask(ino, &alice(), Call::Query(Query::ReadLink { ino }))? {
        Ok(Answer::Bytes(bytes)) => same("its target", target, bytes),
        other => Err(failed("read the link", "Bytes", format!("{other:?}"))),
    }
}

pub(super) fn nodes(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let kinds = [(Kind::Fifo, 0), (Kind::Socket, 0), (Kind::Char, 259), (Kind::Block, 2049)];
    for (kind, rdev) in kinds {
        let op = make(dir, &format!("{kind:?}"), Make::Node { kind, rdev }, 0o600);
        let attr = case.made(&Cred::ROOT, &op)?;
        same("a new node", (kind, rdev, 1), (attr.kind, attr.rdev, attr.nlink))?;
    }
    Ok(())
}

pub(super) fn directory(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let long_ago = Some(SetTime::At(Time(1_000_000_000)));
    let change = AttrChange { atime: long_ago, mtime: long_ago, ..AttrChange::default() };
    case.done(&Cred::ROOT, &Op::SetAttr { ino: dir, change })?;
    let before = case.attr(dir)?;
    let outcome = case.done(&alice(), &make(dir, "file", empty(), 0o644))?;
    let after = case.attr(dir)?;
    same("size of the directory", before.size + ENTRY_BYTES, after.size)?;
    same("links of the directory", before.nlink, after.nlink)?;
    same("times of the directory", (outcome.time, outcome.time), (after.mtime, after.ctime))?;
    same("its time of access", before.atime, after.atime)?;
    case.done(&alice(), &unlink(dir, "file"))?;
    same("size when the name is gone", before.size, case.attr(dir)?.size)
}

pub(super) fn refusals(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (file, gone) = (case.file(dir, "there")?, case.subdir(dir, "gone")?);
    case.done(&Cred::ROOT, &rmdir(dir, "gone"))?;
    case.refused(&alice(), &make(gone.ino, "new", empty(), 0o644), Refusal::Stale)?;
    case.refused(&alice(), &make(file.ino, "new", empty(), 0o644), Refusal::NotDir)?;
    // Without the right to search nobody learns that the name is there.
    case.chmod(dir, 0o666)?;
    case.refused(&alice(), &make(dir, "there", empty(), 0o644), Refusal::Access)?;
    // The name is taken even for a caller without the right to change names.
    case.chmod(dir, 0o555)?;
    case.refused(&alice(), &make(dir, "there", empty(), 0o644), Refusal::Exists)?;
    case.refused(&alice(), &make(dir, "new", empty(), 0o644), Refusal::Access)?;
    // The right to change names is checked before the new inode.
    let endless = Make::Symlink { target: vec![b'x'; TARGET_MAX + 1] };
    case.refused(&alice(), &make(dir, "new", endless.clone(), 0o777), Refusal::Access)?;
    case.chmod(dir, 0o777)?;
    case.refused(&alice(), &make(dir, "there", endless, 0o777), Refusal::Exists)
}

pub(super) fn kinds(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let file = |bytes: usize| Make::File { content: vec![1; bytes] };
    let link = |target: &[u8]| Make::Symlink { target: target.to_vec() };
    let node = |kind, rdev| Make::Node { kind, rdev };
    for (what, refusal) in [
        (file(INLINE_MAX + 1), Refusal::TooBig),
        (link(&[b'x'; TARGET_MAX + 1]), Refusal::NameTooLong),
        (link(b""), Refusal::Invalid),
        (link(b"a\0b"), Refusal::Invalid),
        (node(Kind::Fifo, 1), Refusal::Invalid),
        (node(Kind::Socket, 1), Refusal::Invalid),
    ] {
        case.refused(&Cred::ROOT, &make(dir, "new", what, 0o644), refusal)?;
    }
    case.is_absent(dir, "new")?;
    case.done(&Cred::ROOT, &make(dir, "largest", file(INLINE_MAX), 0o644))?;
    case.done(&Cred::ROOT, &make(dir, "longest", link(&[b'x'; TARGET_MAX]), 0o777)).map(drop)
}

pub(super) fn owners(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let of = |attr: &Attr| (attr.uid, attr.gid, attr.mode);
    let attr = case.made(&alice(), &make(dir, "plain", empty(), 0o666))?;
    same("owner, group and mode", (alice().uid, alice().gid, Mode(0o666)), of(&attr))?;
    let masked = Cred { umask: 0o027, ..alice() };
    let attr = case.made(&masked, &make(dir, "masked", empty(), 0o666))?;
    same("mode under an umask", Mode(0o640), attr.mode)?;
    let change = AttrChange { gid: Some(bob().gid), mode: Some(Mode(0o2777)), ..AttrChange::default() };
    case.done(&Cred::ROOT, &Op::SetAttr { ino: dir, change })?;
    let attr = case.made(&alice(), &make(dir, "inherits", empty(), 0o644))?;
    same("group below a set-gid directory", (alice().uid, bob().gid, Mode(0o644)), of(&attr))?;
    let attr = case.made(&alice(), &make(dir, "sub", Make::Dir, 0o755))?;
    let sub = case.attr(attr.ino)?;
    same("a directory below a set-gid directory", (alice().uid, bob().gid, Mode(0o2755)), of(&sub))
}

pub(super) fn open(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let step = "make a file and open it";
    let outcome = answered(step, case.client.operate(&alice(), &make(dir, "file", empty(), 0o600), true))?;
    let Some(attr) = outcome.attr else { return Err(failed(step, "attributes", "none")) };
    let outcome = case.done(&Cred::ROOT, &unlink(dir, "file"))?;
    let orphan = outcome.gone.map(|gone| gone.orphan);
    holds("remove its name", orphan == Some(true), "an orphan, because it is open", &outcome)?;
    same("links of the open file", 0, case.attr(attr.ino)?.nlink)?;
    case.close(attr.ino)
}
