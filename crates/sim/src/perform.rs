//! Carries out a client's action with the real library.

use std::collections::{BTreeMap, BTreeSet};

use chiton_client::{Caller, Client, OpenFlags};
use chiton_model::{AttrChange, RenameHow, SetTime, XattrHow};
use chiton_types::{Attr, Ino, Kind, Mode, Refusal};

use crate::history::{Action, Answer, Handle, Seen};
use crate::plan::{appends_by, is_content_of_mark};
use crate::tree::{Node, Tree};
use crate::users::User;

/// FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE.
const PUNCH: i32 = 0x02 | 0x01;

/// Open files of one life of a client, by the names that the plan gave them.
pub type Handles = BTreeMap<Handle, u64>;

/// Attributes in the form of the history.
pub fn seen(attr: &Attr) -> Seen {
    Seen {
        ino: attr.ino,
        kind: attr.kind,
        mode: attr.mode.0,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        size: attr.size,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
    }
}

fn parent_of<'a>(client: &Client, path: &'a str) -> Result<(Ino, &'a [u8]), Refusal> {
    let (dir, name) = path.rsplit_once('/').ok_or(Refusal::Invalid)?;
    let dir = if dir.is_empty() { "/" } else { dir };
    Ok((client.lstat(dir)?.ino, name.as_bytes()))
}

/// The attributes of a path, which must not be a symbolic link.
fn no_link(client: &Client, path: &str) -> Result<Attr, Refusal> {
    let attr = client.lstat(path)?;
    if attr.kind == Kind::Symlink { Err(Refusal::Loop) } else { Ok(attr) }
}

fn handle(handles: &Handles, handle: Handle) -> Result<u64, Refusal> {
    handles.get(&handle).copied().ok_or(Refusal::BadHandle)
}

/// Carries an action out, for root.
pub fn perform(client: &Client, handles: &mut Handles, action: &Action) -> Answer {
    perform_as(User::Root, client, handles, action)
}

/// The same as another user.
pub fn perform_as(user: User, client: &Client, handles: &mut Handles, action: &Action) -> Answer {
    let caller = user.caller();
    let answered = match user {
        User::Root => try_perform(client, &client.caller(), handles, action),
        _ => try_perform(&client.acting_as(user.id(), user.id(), user.groups()), &caller, handles, action),
    };
    match answered {
        Ok(answer) => answer,
        Err(refusal) => Answer::Refused(refusal),
    }
}

fn try_perform(
    client: &Client,
    me: &Caller<'_>,
    handles: &mut Handles,
    action: &Action,
) -> Result<Answer, Refusal> {
    let attr = |attr: &Attr| Ok(Answer::Attr(seen(attr)));
    match action {
        Action::Mkdir { path, mode } => {
            let (dir, name) = parent_of(client, path)?;
            attr(&client.mkdir(me, dir, name, Mode(*mode))?.attr)
        }
        Action::Create { path, content } => attr(&client.create_file(path, content)?),
        Action::Symlink { path, target } => {
            let (dir, name) = parent_of(client, path)?;
            attr(&client.symlink(me, dir, name, target.as_bytes())?.attr)
        }
        Action::Link { from, to } => {
            let ino = client.lstat(from)?.ino;
            let (dir, name) = parent_of(client, to)?;
            attr(&client.link(me, ino, dir, name)?.attr)
        }
        Action::Unlink { path } => {
            let (dir, name) = parent_of(client, path)?;
            client.unlink(me, dir, name).map(|()| Answer::Done)
        }
        Action::Rmdir { path } => {
            let (dir, name) = parent_of(client, path)?;
            client.rmdir(me, dir, name).map(|()| Answer::Done)
        }
        Action::Rename { from, to } => rename(client, me, from, to, RenameHow::Replace),
        Action::Whiteout { from, to } => rename(client, me, from, to, RenameHow::Whiteout),
        Action::Exchange { from, to } => rename(client, me, from, to, RenameHow::Exchange),
        Action::SetXattr { path, name, value } => {
            let ino = no_link(client, path)?.ino;
            match value.is_empty() {
                true => client.removexattr(me, ino, name.as_bytes())?,
                false => client.setxattr(me, ino, name.as_bytes(), value, XattrHow::Set)?,
            }
            Ok(Answer::Done)
        }
        Action::Chmod { path, mode } => {
            let change = AttrChange { mode: Some(Mode(*mode)), ..AttrChange::default() };
            attr(&client.setattr(me, no_link(client, path)?.ino, change, None)?.attr)
        }
        Action::Chown { path, uid, gid } => {
            let change = AttrChange { uid: *uid, gid: *gid, ..AttrChange::default() };
            attr(&client.setattr(me, no_link(client, path)?.ino, change, None)?.attr)
        }
        Action::SetList { path, default, list } => {
            let ino = no_link(client, path)?.ino;
            let name = format!("system.posix_acl_{}", if *default { "default" } else { "access" });
            match list {
                Some(list) => {
                    client.setxattr(me, ino, name.as_bytes(), &list.to_bytes(), XattrHow::Set)?;
                }
                None => client.removexattr(me, ino, name.as_bytes())?,
            }
            Ok(Answer::Done)
        }
        Action::SetTimes { path, time } => {
            let change = AttrChange {
                atime: Some(SetTime::At(*time)),
                mtime: Some(SetTime::At(*time)),
                ..AttrChange::default()
            };
            attr(&client.setattr(me, no_link(client, path)?.ino, change, None)?.attr)
        }
        Action::Truncate { path, size } => {
            let change = AttrChange { size: Some(*size), ..AttrChange::default() };
            attr(&client.setattr(me, no_link(client, path)?.ino, change, None)?.attr)
        }
        Action::Open { path, create, truncate, handle } => {
            let flags = OpenFlags { truncate: *truncate, ..OpenFlags::READ_WRITE };
            let (found, fh) = if *create {
                let (dir, name) = parent_of(client, path)?;
                let (entry, fh) = client.create(me, dir, name, Mode(0o644), flags)?;
                (entry.attr, fh)
            } else {
                let found = no_link(client, path)?;
                match found.kind {
                    Kind::Dir => return Err(Refusal::IsDir),
                    // A kernel opens devices itself.
                    Kind::Char => return Err(Refusal::Invalid),
                    _ => {}
                }
                let fh = client.open(me, found.ino, flags)?;
                (found, fh)
            };
            if let Some(old) = handles.insert(*handle, fh) {
                client.release(old)?;
            }
            attr(&found)
        }
        Action::Write { handle: name, offset, bytes } => {
            let fh = handle(handles, *name)?;
            client.write(me, fh, *offset, bytes).map(|n| Answer::Written(n.into()))
        }
        Action::PunchHole { handle: name, offset, len } => {
            let fh = handle(handles, *name)?;
            client.fallocate(me, fh, PUNCH, *offset, *len).map(|()| Answer::Done)
        }
        Action::Read { handle: name, offset, len } => {
            let fh = handle(handles, *name)?;
            client.read(fh, *offset, *len as usize).map(Answer::Bytes)
        }
        Action::Fsync { handle: name } => client.fsync(handle(handles, *name)?, false).map(|()| Answer::Done),
        Action::Close { handle: name } => {
            let fh = handle(handles, *name)?;
            handles.remove(name);
            client.release(fh).map(|()| Answer::Done)
        }
        Action::ReadFile { path } => client.read_file(path).map(Answer::Bytes),
        Action::WriteFile { path, bytes } => {
            let fh = client.open_path(path, OpenFlags::READ_WRITE)?;
            let written = client.write(me, fh, 0, bytes);
            client.release(fh)?;
            written.map(|n| Answer::Written(n.into()))
        }
        Action::Append { path, bytes } => {
            let fh = appender(client, handles, path)?;
            client.write(me, fh, 0, bytes).map(|n| Answer::Written(n.into()))
        }
        Action::FsyncAppended { path } => {
            let fh = appender(client, handles, path)?;
            client.fsync(fh, false).map(|()| Answer::Done)
        }
        Action::CloseAppended { path } => match handles.remove(&appends_by(path)) {
            Some(fh) => client.release(fh).map(|()| Answer::Done),
            None => Ok(Answer::Done),
        },
        Action::Stat { path } => attr(&client.lstat(path)?),
        Action::ReadLink { path } => client.readlink(client.lstat(path)?.ino).map(Answer::Bytes),
        Action::GetXattr { path, name } => {
            let ino = client.lstat(path)?.ino;
            client.getxattr(me, ino, name.as_bytes()).map(Answer::Bytes)
        }
        Action::List { path } => {
            let mut names: Vec<(String, Ino)> =
                client.list(path)?.into_iter().map(|entry| (entry.name.to_string(), entry.ino)).collect();
            names.sort();
            Ok(Answer::Names(names))
        }
        Action::Split { path } => client.split(me, no_link(client, path)?.ino, |_| ()).map(|_| Answer::Done),
        Action::Fold { path } => client.fold(me, no_link(client, path)?.ino, |_| ()).map(|()| Answer::Done),
        Action::FsyncDir => client.fsyncdir().map(|()| Answer::Done),
        Action::Sync => client.sync().map(|()| Answer::Done),
        Action::Follow { marks, .. } => follow(client, marks),
        Action::MergeSoFar | Action::MergeAll | Action::Discard => {
            unreachable!("asked of a subtree, not of its client")
        }
    }
}

/// The descriptor through which this client appends to a file, opened on first use.
fn appender(client: &Client, handles: &mut Handles, path: &str) -> Result<u64, Refusal> {
    let name = appends_by(path);
    if let Some(fh) = handles.get(&name) {
        return Ok(*fh);
    }
    let fh = client.open_path(path, OpenFlags { append: true, ..OpenFlags::READ_WRITE })?;
    handles.insert(name, fh);
    Ok(fh)
}

fn follow(client: &Client, marks: &[String]) -> Result<Answer, Refusal> {
    let mut found = Vec::new();
    for path in marks.iter().rev() {
        match client.read_file(path) {
            Ok(bytes) => found.push((path.clone(), Ino(u64::from(is_content_of_mark(path, &bytes))))),
            Err(Refusal::NotFound) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(Answer::Names(found))
}

fn rename(client: &Client, me: &Caller<'_>, from: &str, to: &str, how: RenameHow) -> Result<Answer, Refusal> {
    let (from, from_name) = parent_of(client, from)?;
    let (to, to_name) = parent_of(client, to)?;
    client.rename(me, from, from_name, to, to_name, how).map(|()| Answer::Done)
}

/// Reads the whole tree.
///
/// # Errors
/// The unreadable path, and the reason.
pub fn read_tree(client: &Client) -> Result<Tree, String> {
    let mut tree = Tree::default();
    let mut todo = vec!["/".to_owned()];
    while let Some(path) = todo.pop() {
        let why = |what: &str, refusal: Refusal| format!("{path}: {what}: {refusal}");
        let attr = client.lstat(&path).map_err(|e| why("stat", e))?;
        let content = match attr.kind {
            Kind::File => client.read_file(&path).map_err(|e| why("read", e))?,
            Kind::Symlink => client.readlink(attr.ino).map_err(|e| why("readlink", e))?,
            _ => Vec::new(),
        };
        let me = &client.caller();
        let mut xattrs = BTreeMap::new();
        let names = client.listxattr(me, attr.ino).map_err(|e| why("listxattr", e))?;
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let value = client.getxattr(me, attr.ino, name).map_err(|e| why("getxattr", e))?;
            xattrs.insert(String::from_utf8_lossy(name).into_owned(), value);
        }
        if attr.kind == Kind::Dir {
            let mut names = BTreeSet::new();
            for entry in client.list(&path).map_err(|e| why("list", e))? {
                if !names.insert(entry.name.clone()) {
                    return Err(format!("{path}: the listing has {} twice", entry.name));
                }
                let slash = if path == "/" { "" } else { "/" };
                todo.push(format!("{path}{slash}{}", entry.name));
            }
        }
        let node = Node::new(&attr, content, xattrs);
        tree.nodes.insert(path, node);
    }
    Ok(tree)
}
