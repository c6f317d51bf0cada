//! Content and attributes: the event is asked for as the operation that it came from, so that nothing enters that an
//! operation could not bring about.

use chiton_model::merge::{ConflictKind, MergeMap};
use chiton_model::{Body, Event, Rows};
use chiton_namespace::permission::{self, ACL_ACCESS, Acl};
use chiton_namespace::{Context, Fault, Inode, plan};
use chiton_types::{Cred, Ino, Kind, Name, Refusal, Time};

use crate::edit::touch;
use crate::locate::{Located, known_name, unnamed};
use crate::{Merge, MergeStep, Skipped};

impl<'a> Merge<'a> {
    /// `ino` is the inode that the event is about, as the server knows it.
    pub(crate) fn merge_content(
        &mut self,
        event: &mut Event,
        ino: Ino,
        time: Time,
    ) -> Result<MergeStep, Fault> {
        let inode = match self.locate(ino)? {
            Located::Live(inode) => inode,
            Located::Removed(inode) => {
                if let Some(step) = self.set_of_replaced(event, inode)? {
                    return Ok(step);
                }
                return self.bring_back(inode, ConflictKind::EditDelete, time, self.ctx.is_open);
            }
            Located::Gone => return Ok(MergeStep::Skip(Skipped::Gone)),
            Located::Outside => return Ok(MergeStep::Skip(Skipped::Outside)),
        };
        if let Some(forged) = forged(event, self.map) {
            return Ok(MergeStep::Skip(Skipped::Invalid(forged)));
        }
        let mut foreign_source = None;
        if let Event::Clone { from, .. } = event {
            *from = self.map.translate(*from);
            match self.locate(*from)? {
                // One that others changed, and perhaps removed or replaced after that.
                Located::Live(source) | Located::Removed(source) if self.is_changed(source) => {
                    foreign_source = Some(source);
                }
                Located::Live(_) | Located::Removed(_) => {}
                Located::Gone => return Ok(MergeStep::Skip(Skipped::Gone)),
                Located::Outside => return Ok(MergeStep::Skip(Skipped::Outside)),
            }
        }
        if event.footprint().alters(Rows::CONTENT)
            && let Some(step) = self.take_back_name(inode, time)?
        {
            return Ok(step);
        }
        if let Some(step) = self.meet_edit(event, inode)? {
            return Ok(step);
        }
        if let Some(source) = foreign_source
            && let Some(step) = self.clone_as_known(event, source, inode)?
        {
            return Ok(step);
        }
        if let Some(step) = self.set_of_replaced(event, inode)? {
            return Ok(step);
        }
        self.planned_content(event, inode)
    }

    /// A change of nothing but the time of the change, which is left of a name that ours gave and took again. It contradicts nothing.
    pub(crate) fn merge_change_time(&mut self, event: &mut Event) -> Result<MergeStep, Fault> {
        let Event::SetAttr { ino, ctime, .. } = event else {
            unreachable!("asked for a change of attributes")
        };
        *ino = self.map.translate(*ino);
        Ok(match self.locate(*ino)? {
            // The change of theirs has a time of its own, and must still be met.
            Located::Live(inode) if self.is_changed(inode) => MergeStep::Skip(Skipped::Needless),
            Located::Live(inode) => {
                *ctime = inode.ctime.max(*ctime);
                MergeStep::Emit
            }
            Located::Removed(_) | Located::Gone => MergeStep::Skip(Skipped::Gone),
            Located::Outside => MergeStep::Skip(Skipped::Outside),
        })
    }

    /// The event as a plan of the operation gives it, or the step that must come before.
    pub(crate) fn planned_content(&self, event: &mut Event, inode: &Inode) -> Result<MergeStep, Fault> {
        if let Event::Xattr { ino, name, value, .. } = event
            && permission::is_list(name)
        {
            return self.merge_list(*ino, name, value.as_deref());
        }
        if let Event::Write { body, size, .. } = event {
            match body {
                Body::Inline(_) if inode.is_mapped() => {
                    // Theirs is in blocks by now; ours is the whole content.
                    self.state.truncatable(inode, 0)?;
                    return Ok(MergeStep::First(vec![truncation(inode)]));
                }
                Body::Inline(_) => {}
                Body::Extents(_) => *size = inode.size().max(*size),
            }
        }
        let op = event.operation().expect("asked for a change of content");
        let now = event.time().unwrap_or_default();
        let ctx = Context { cred: &Cred::ROOT, now, offered: Ino(0), is_open: &|_| false, frees: false };
        let mut events = Vec::new();
        match plan(self.state, &op, &ctx, &mut events) {
            Ok(_) => {}
            Err(Fault::Refused(Refusal::NoXattr)) => return Ok(MergeStep::Skip(Skipped::Needless)),
            Err(fault) => return Err(fault),
        }
        let Some(mut planned) = events.pop() else { return Ok(MergeStep::Skip(Skipped::Needless)) };
        if let (Event::Write { mode: planned, .. }, Event::Write { mode, .. }) = (&mut planned, &*event) {
            *planned = *mode;
        }
        *event = planned;
        Ok(MergeStep::Emit)
    }

    /// An access control list as it is stored, without the entries that the mode carries.
    fn merge_list(&self, ino: Ino, name: &[u8], value: Option<&[u8]>) -> Result<MergeStep, Fault> {
        let inode = self.state.inode(ino)?;
        let is_held = self.state.xattrs_of(inode)?.is_some_and(|xattrs| xattrs.0.contains_key(name));
        let Some(value) = value else {
            return Ok(if is_held { MergeStep::Emit } else { MergeStep::Skip(Skipped::Needless) });
        };
        let fits = match (Acl::decode(value), name == ACL_ACCESS) {
            (Ok(Some(list)), true) => list == list.stored() && inode.kind() != Kind::Symlink,
            (Ok(Some(_)), false) => inode.kind() == Kind::Dir,
            _ => false,
        };
        Ok(match fits {
            true => MergeStep::Emit,
            false => MergeStep::Skip(Skipped::Invalid("an access control list that is none")),
        })
    }

    /// The events that make a copy of a file beside it (at the root, if no name of it is known), and its name.
    pub(crate) fn copy_beside(&self, inode: &Inode) -> Result<(Name, Vec<Event>), Fault> {
        let known = known_name(self.state, inode)?;
        let dir = self.state.dir_inode(if known.is_some() { inode.parent } else { self.map.root() })?;
        let aside = self.free_name(dir, &known.unwrap_or(unnamed(inode.ino)), b".theirs")?;
        let content = if inode.is_inline() { self.state.content(inode)?.to_vec() } else { Vec::new() };
        let mut events = vec![Event::Make {
            parent: dir.ino,
            name: aside.clone(),
            ino: self.ctx.fresh,
            kind: Kind::File,
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            rdev: 0,
            time: self.ctx.now,
            content,
        }];
        if inode.is_mapped() && inode.size() > 0 {
            // The copy has no rows yet: only the source's must be in memory.
            self.state.clonable(inode, (0, inode.size()), inode, (0, 0))?;
            events.push(Event::Clone {
                from: inode.ino,
                from_offset: 0,
                to: self.ctx.fresh,
                to_offset: 0,
                len: inode.size(),
                time: self.ctx.now,
            });
        }
        let xattrs = self.state.xattrs_of(inode)?.into_iter().flat_map(|xattrs| xattrs.0.iter());
        events.extend(xattrs.map(|(name, value)| Event::Xattr {
            ino: self.ctx.fresh,
            name: name.clone(),
            value: Some(value.clone()),
            ctime: self.ctx.now,
        }));
        // Sizes past the content (sparse ends), and theirs' times.
        events.push(Event::SetAttr {
            ino: self.ctx.fresh,
            mode: None,
            uid: None,
            gid: None,
            size: Some(inode.size()),
            atime: Some(inode.atime),
            mtime: Some(inode.mtime),
            ctime: self.ctx.now,
        });
        Ok((aside, events))
    }
}

/// The part of an event that no client of the decoupling may write.
fn forged(event: &Event, map: &MergeMap) -> Option<&'static str> {
    let Event::Write { body, mode, .. } = event else { return None };
    if let Body::Extents(extents) = body
        && extents.iter().any(|e| !e.block.is_hole() && e.block.writer != map.writer())
    {
        return Some("blocks of another writer");
    }
    mode.is_some_and(|mode| mode.0 & !0o7777 != 0).then_some("a mode of more than 12 bits")
}

fn truncation(inode: &Inode) -> Event {
    let mut event = touch(inode);
    let Event::SetAttr { size, .. } = &mut event else { unreachable!("a touch is a change of attributes") };
    *size = Some(0);
    event
}
