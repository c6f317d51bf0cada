//! Carries out each step of the vocabulary with the client.

use chiton_client::OpenFlags;
use chiton_model::{AttrChange, RenameHow, XattrHow};
use chiton_types::{Ino, Kind, Mode, Refusal, Time};

use super::machine::{Machine, Outcome, same, same_over};
use crate::checkers::crash::Entry;
use crate::model::{Change, NewInode, unknown};

const PUNCH_HOLE_KEEP_SIZE: i32 = 3;

impl Machine {
    pub(super) fn create(&mut self, path: &str, bytes: usize) -> Outcome {
        let content = vec![self.steps; bytes];
        if bytes <= chiton_model::INLINE_BYTES_MAX {
            let path = path.to_owned();
            return self.make(&path.clone(), NewInode::File(content.clone()), |client, _, _| {
                client.create_file(&path, &content).map(|attr| attr.ino)
            });
        }
        let flags = OpenFlags { exclusive: true, ..OpenFlags::WRITE };
        let mut opened = None;
        self.make(path, NewInode::File(Vec::new()), |client, parent, name| {
            let (entry, fh) = client.create(&client.caller(), parent, name, Mode(0o644), flags)?;
            opened = Some((entry.attr.ino, fh));
            Ok(entry.attr.ino)
        })?;
        let Some((ino, fh)) = opened else { return Ok(()) };
        self.write_to(ino, fh, 0, content)?;
        self.close(ino, fh)
    }

    fn write_to(&mut self, ino: Ino, fh: u64, offset: u64, content: Vec<u8>) -> Outcome {
        self.tick();
        self.buffer(ino, Change::Write { ino, pieces: vec![(offset, content.clone())], size: 0 });
        let written = self.client.write(&self.client.caller(), fh, offset, &content);
        same(written.map(drop), Ok(()))
    }

    /// Open, write (at the end without an offset), close.
    pub(super) fn write(
        &mut self,
        path: &str,
        flags: OpenFlags,
        offset: Option<u64>,
        bytes: usize,
    ) -> Outcome {
        let Some((ino, fh)) = self.open(path, flags)? else { return Ok(()) };
        let offset = offset.unwrap_or_else(|| self.model.size(ino));
        if flags.sync {
            self.tick();
            let content = vec![self.steps; bytes];
            self.buffer(ino, Change::Write { ino, pieces: vec![(offset, content.clone())], size: 0 });
            self.push(Some(ino));
            same(self.client.write(&self.client.caller(), fh, offset, &content).map(drop), Ok(()))?;
            self.begin(Entry::Durable);
        } else {
            self.write_to(ino, fh, offset, vec![self.steps; bytes])?;
        }
        self.close(ino, fh)
    }

    pub(super) fn hold(&mut self, path: &str, offset: u64, bytes: usize) -> Outcome {
        let Some((ino, fh)) = self.open(path, OpenFlags::READ_WRITE)? else { return Ok(()) };
        self.held.push(fh);
        self.write_to(ino, fh, offset, vec![self.steps; bytes])
    }

    pub(super) fn punch(&mut self, path: &str, offset: u64, len: u64) -> Outcome {
        let Some((ino, fh)) = self.open(path, OpenFlags::READ_WRITE)? else { return Ok(()) };
        self.tick();
        self.buffer(ino, Change::Punch { ino, offset, len });
        let client = &self.client;
        same(client.fallocate(&client.caller(), fh, PUNCH_HOLE_KEEP_SIZE, offset, len), Ok(()))?;
        self.close(ino, fh)
    }

    pub(super) fn copy(&mut self, from: &str, to: &str) -> Outcome {
        let Some((source, source_fh)) = self.open(from, OpenFlags::READ)? else { return Ok(()) };
        let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
        let mut opened = None;
        self.make(to, NewInode::File(Vec::new()), |client, parent, name| {
            let (entry, fh) = client.create(&client.caller(), parent, name, Mode(0o644), flags)?;
            opened = Some((entry.attr.ino, fh));
            Ok(entry.attr.ino)
        })?;
        if let Some((ino, fh)) = opened {
            self.tick();
            let len = self.model.size(source);
            // Writes to the source are pushed first.
            self.push(Some(source));
            // Shared or copied byte by byte: then it is buffered.
            let copy = Change::Copy { from: source, from_offset: 0, to: ino, to_offset: 0, len };
            let copied = match self.plates.of(source) == self.plates.of(ino) {
                true => copy,
                // A copy of nothing changes nothing, which a write of no pieces would.
                false if len == 0 => copy,
                // Blocks are not shared over plates: these are the bytes that the client reads, whatever becomes of the source.
                false => {
                    let bytes = self.model.node(source).expect("opened").content.to_vec();
                    Change::Write { ino, pieces: vec![(0, bytes)], size: 0 }
                }
            };
            self.buffer(ino, copied);
            let client = &self.client;
            let copied = client.copy_range(&client.caller(), source_fh, 0, fh, 0, len);
            if copied != Ok(len) {
                return Err(format!("copied {copied:?} of {len} bytes"));
            }
            self.close(ino, fh)?;
        }
        self.close(source, source_fh)
    }

    pub(super) fn truncate(&mut self, path: &str, size: u64) -> Outcome {
        let Some(ino) = self.file(path) else { return self.absent(path) };
        self.push(Some(ino));
        let set = AttrChange { size: Some(size), ..AttrChange::default() };
        self.change(Change::Truncate { ino, size }, |client| {
            client.setattr(&client.caller(), ino, set, None).map(drop)
        })
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, how: RenameHow) -> Outcome {
        let Some((from_dir, from_name)) = self.at(from) else { return self.absent(from) };
        let Some((to_dir, to_name)) = self.at(to) else { return self.absent(to) };
        self.tick();
        let now = self.now();
        self.made += 1;
        let rename = |whiteout| {
            let (from_name, to_name) = (from_name.clone(), to_name.clone());
            Change::Rename { from: from_dir, from_name, to: to_dir, to_name, how, whiteout, owner: (0, 0) }
        };
        let expected = self.model.clone().apply(&rename(unknown(self.made)), now);
        let crosses = self.crosses(&rename(unknown(self.made)));
        if expected.is_ok() && !crosses {
            self.begin(Entry::Act(rename(unknown(self.made)), now));
        }
        let client = &self.client;
        let (from_bytes, to_bytes) = (from_name.as_bytes(), to_name.as_bytes());
        let answer = client.rename(&client.caller(), from_dir, from_bytes, to_dir, to_bytes, how);
        if let (Ok(()), Ok(()), false) = (&answer, &expected, crosses) {
            // The answer lacks the number of the whiteout.
            let left = client.lstat(from).map(|attr| attr.ino);
            let whiteout = match how.leaves_whiteout() {
                true => left.map_err(|refusal| format!("no whiteout at {from}: {refusal:?}"))?,
                false => unknown(self.made),
            };
            self.model.apply(&rename(whiteout), now).expect("just tried");
            self.history.replace_last(Entry::Act(rename(whiteout), now));
        }
        same_over(answer, expected, crosses)?;
        self.await_splits()
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> Outcome {
        let Some(ino) = self.file(from) else { return self.absent(from) };
        let Some((parent, name)) = self.at(to) else { return self.absent(to) };
        self.change(Change::Link { ino, parent, name: name.clone() }, |client| {
            client.link(&client.caller(), ino, parent, name.as_bytes()).map(drop)
        })
    }

    pub(super) fn unlink(&mut self, path: &str) -> Outcome {
        let Some((parent, name)) = self.at(path) else { return self.absent(path) };
        self.change(Change::Unlink { parent, name: name.clone() }, |client| {
            client.unlink(&client.caller(), parent, name.as_bytes())
        })
    }

    pub(super) fn mkdir(&mut self, path: &str) -> Outcome {
        self.make(path, NewInode::Dir, |client, parent, name| {
            client.mkdir(&client.caller(), parent, name, Mode(0o755)).map(|entry| entry.attr.ino)
        })
    }

    /// Makes a small tree, and removes it as a whole.
    pub(super) fn remove_tree(&mut self, path: &str) -> Outcome {
        self.mkdir(path)?;
        self.mkdir(&format!("{path}/d"))?;
        self.create(&format!("{path}/d/f"), 100)?;
        self.create(&format!("{path}/f"), 30_000)?;
        let (Some((parent, name)), Some(ino)) = (self.at(path), self.model.find(path)) else {
            return self.absent(path);
        };
        self.change(Change::RemoveTree { parent, name: name.clone() }, |client| {
            client.remove_tree(&client.caller(), parent, name.as_bytes(), ino)
        })
    }

    pub(super) fn unlink_open(&mut self, path: &str) -> Outcome {
        let Some((ino, fh)) = self.open(path, OpenFlags::READ_WRITE)? else { return Ok(()) };
        self.held.push(fh);
        self.unlink(path)?;
        self.write_to(ino, fh, 5_000, vec![self.steps; 9_000])
    }

    /// A file without a name, which stays open and has content.
    pub(super) fn make_unnamed(&mut self, path: &str, bytes: usize) -> Result<Option<(Ino, u64)>, String> {
        let Some((ino, fh)) = self.open_unnamed(path)? else { return Ok(None) };
        self.held.push(fh);
        self.write_to(ino, fh, 0, vec![self.steps; bytes])?;
        Ok(Some((ino, fh)))
    }

    /// Names an unnamed file, and closes it.
    pub(super) fn link_unnamed(&mut self, path: &str, bytes: usize) -> Outcome {
        let Some((ino, fh)) = self.make_unnamed(path, bytes)? else { return Ok(()) };
        let Some((parent, name)) = self.at(path) else { return self.absent(path) };
        self.change(Change::LinkUnnamed { ino, parent, name: name.clone() }, |client| {
            client.link_unnamed(&client.caller(), ino, parent, name.as_bytes()).map(drop)
        })?;
        self.held.retain(|held| *held != fh);
        self.close(ino, fh)
    }

    pub(super) fn xattr(&mut self, path: &str, value: Option<Vec<u8>>) -> Outcome {
        let Some(ino) = self.file(path) else { return self.absent(path) };
        let change = Change::Xattr { ino, name: "trusted.ace".to_owned(), value: value.clone() };
        self.change(change, |client| match &value {
            Some(value) => client.setxattr(&client.caller(), ino, b"trusted.ace", value, XattrHow::Set),
            None => client.removexattr(&client.caller(), ino, b"trusted.ace"),
        })
    }

    /// Gives the root a policy.
    pub(super) fn change_policy(&mut self, policy: String) -> Outcome {
        let (client, name) = (&self.client, b"chiton.policy");
        same(client.setxattr(&client.caller(), Ino::ROOT, name, policy.as_bytes(), XattrHow::Set), Ok(()))
    }

    pub(super) fn set(
        &mut self,
        path: &str,
        mode: Option<u16>,
        time: Option<Time>,
        set: AttrChange,
    ) -> Outcome {
        let Some(ino) = self.file(path) else { return self.absent(path) };
        self.push(Some(ino));
        self.change(Change::Set { ino, mode, uid: None, gid: None, atime: time, mtime: time }, |client| {
            client.setattr(&client.caller(), ino, set, None).map(drop)
        })
    }

    /// Brings all names of a directory back to its own plate. Callers do not notice.
    pub(super) fn fold(&mut self, path: &str) -> Outcome {
        let Some(dir) = self.model.find(path) else { return self.absent(path) };
        let is_dir = self.model.node(dir).is_some_and(|node| node.kind == Kind::Dir);
        let expected = if is_dir { Ok(()) } else { Err(Refusal::NotDir) };
        same(self.client.fold(&self.client.caller(), dir, |_| ()), expected)?;
        if let Some(parts) = self.splits.as_mut().and_then(|splits| splits.get_mut(&dir)) {
            parts.clear();
            self.history.set_parts(dir, Vec::new());
        }
        Ok(())
    }

    pub(super) fn fsync(&mut self, path: &str) -> Outcome {
        let Some((ino, fh)) = self.open(path, OpenFlags::READ_WRITE)? else { return Ok(()) };
        self.durable(|client| client.fsync(fh, false))?;
        self.close(ino, fh)
    }
}
