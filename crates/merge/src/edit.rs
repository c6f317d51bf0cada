//! Files that both sides changed: one side's file wins whole, and no content mixes the bytes of two.
//!
//! ```text
//!   base ─▶ theirs ─▶ [a copy beside it] ─▶ Revert to what ours knows ─▶ what ours did, event by event
//!   a clone of what theirs changed:  Revert to what ours knows ─▶ Clone ─▶ Revert to theirs        (in one step)
//! ```
//!
//! Invariants:
//! - What an event of ours is applied to is what ours knew when it wrote it: a range of bytes means nothing on other content.
//! - Attributes that ours sets under `overwrite` on content that theirs wrote
//!   are applied to it. The content of theirs stands until ours writes.

use chiton_model::merge::{Conflict, ConflictKind, Resolution, Settled};
use chiton_model::{Body, Event, FILE_BYTES_MAX, OldContent, Rows};
use chiton_namespace::{Fault, Inode, KnownFile};
use chiton_types::Kind;

use crate::{Merge, MergeStep, Skipped};

impl<'a> Merge<'a> {
    /// Ours changes something that theirs may have changed. Returns the step that must come before, if any.
    pub(crate) fn meet_edit(&mut self, event: &Event, inode: &Inode) -> Result<Option<MergeStep>, Fault> {
        if !self.is_changed(inode) {
            return Ok(None);
        }
        let known = self.state.file_as_known(inode)?;
        if known == KnownFile::AsItIs {
            // Theirs changed names only. When ours has changed the content, a change of names by theirs is no edit of it.
            self.map.met(inode.ino);
            return Ok(None);
        }
        let kind = match (inode.kind(), event.footprint().alters(Rows::CONTENT)) {
            (Kind::File, true) => ConflictKind::EditEdit,
            (Kind::File, false) => ConflictKind::AttrEdit,
            _ => ConflictKind::AttrAttr,
        };
        if inode.kind() == Kind::File && self.map.settled(inode.ino, inode.position).is_some() {
            let path = self.path_to(inode)?;
            let events = self.reverting(inode, known)?;
            self.note_settled(kind, path, inode);
            self.map.met(inode.ino);
            // From here on its last change is ours.
            return Ok(Some(MergeStep::First(events.unwrap_or_else(|| vec![touch(inode)]))));
        }
        if self.is_so_already(event, inode)? {
            if matches!(known, KnownFile::Was(_)) {
                self.map.note_standing(inode.ino);
            }
            return Ok(None);
        }
        // Attributes of a directory do not change with its entries, which others may have changed meanwhile.
        if inode.kind() != Kind::File && self.map.is_same(inode.ino, inode.attrs_changed()) {
            return Ok(None);
        }
        let resolution = kind.resolution(self.map.on_conflict());
        if resolution == Resolution::Together && !self.map.is_foreign(inode.attrs_changed()) {
            // It was reported before; the content of theirs still stands.
            return Ok(None);
        }
        let path = self.path_to(inode)?;
        let copied = match resolution {
            Resolution::TheirsCopied => Some(self.copy_beside(inode)?),
            _ => None,
        };
        let reverting = match resolution {
            Resolution::TheirsCopied | Resolution::Ours => self.reverting(inode, known.clone())?,
            _ => None,
        };
        let aside = copied.as_ref().map(|(name, _)| name.clone());
        Ok(match (self.conflict(kind, path, inode.ino, aside), copied) {
            (Resolution::Aborted, _) => Some(MergeStep::Stop),
            (Resolution::TheirsCopied, Some((_, mut events))) => {
                self.map.met(inode.ino);
                // From here on its last change is ours, so that it is copied once.
                events.extend(reverting.unwrap_or_else(|| vec![touch(inode)]));
                Some(MergeStep::First(events))
            }
            (Resolution::Together, _) => {
                match known {
                    KnownFile::Was(_) => self.map.note_standing(inode.ino),
                    _ => self.map.met(inode.ino),
                }
                None
            }
            _ => {
                self.map.met(inode.ino);
                reverting.map(MergeStep::First)
            }
        })
    }

    /// The events that make a file as ours knows it, once all that they need is in memory.
    pub(crate) fn reverting(&self, inode: &Inode, known: KnownFile) -> Result<Option<Vec<Event>>, Fault> {
        let KnownFile::Was(to) = known else { return Ok(None) };
        let event = Event::Revert { ino: inode.ino, to };
        let needs = self.state.needs(&event);
        if needs.is_empty() { Ok(Some(vec![event])) } else { Err(Fault::Missing(needs)) }
    }

    /// Reports that ours has in it what theirs did, if that is more than the same.
    pub(crate) fn note_settled(&mut self, kind: ConflictKind, path: Vec<u8>, theirs: &Inode) {
        let conflict = Conflict { kind, resolution: Resolution::Merged, path, ino: theirs.ino, aside: None };
        if self.map.settled(theirs.ino, theirs.position) == Some(Settled::Merged)
            && self.report.last() != Some(&conflict)
        {
            self.report.push(conflict);
        }
    }

    /// Whether theirs is already what an event of ours would make of it.
    fn is_so_already(&self, event: &Event, inode: &Inode) -> Result<bool, Fault> {
        if let Event::SetAttr { mode, uid, gid, size, atime, mtime, .. } = event {
            let is = |wanted: Option<u32>, now: u32| wanted.is_none_or(|wanted| wanted == now);
            let sets = mode.is_some() || uid.is_some() || gid.is_some() || atime.is_some() || mtime.is_some();
            return Ok(sets
                && size.is_none()
                && atime.is_none_or(|atime| atime == inode.atime)
                && mtime.is_none_or(|mtime| mtime == inode.mtime)
                && mode.is_none_or(|mode| mode == inode.mode)
                && is(*uid, inode.uid)
                && is(*gid, inode.gid));
        }
        if let Event::Write { body: Body::Inline(bytes), size, .. } = event {
            return Ok(!inode.is_mapped() && inode.size() == *size && self.state.content(inode)? == bytes);
        }
        if let Event::Xattr { name, value, .. } = event {
            let held = self.state.xattrs_of(inode)?.and_then(|xattrs| xattrs.0.get(name));
            return Ok(held == value.as_ref());
        }
        Ok(false)
    }

    /// Ours shared a range of a file that theirs changed: it is the range that ours knew. `None`: an event like any other.
    pub(crate) fn clone_as_known(
        &mut self,
        event: &Event,
        source: &Inode,
        target: &Inode,
    ) -> Result<Option<MergeStep>, Fault> {
        let Event::Clone { from_offset, to_offset, len, .. } = event else {
            unreachable!("asked for a clone")
        };
        let KnownFile::Was(mut to) = self.state.file_as_known(source)? else { return Ok(None) };
        if to.content == OldContent::Same && to.size == source.size() {
            return Ok(None);
        }
        let ends = (from_offset.checked_add(*len), to_offset.checked_add(*len));
        let (Some(from_end), Some(to_end)) = ends else {
            return Ok(Some(MergeStep::Skip(Skipped::Invalid("a range past the largest file"))));
        };
        let is_inline = matches!(&to.content, OldContent::Inline(bytes) if !bytes.is_empty());
        let fits = *len > 0 && from_end <= to.size && to_end <= FILE_BYTES_MAX;
        if !fits
            || is_inline
            || (target.is_inline() && target.content_bytes() > 0)
            || source.ino == target.ino
        {
            return Ok(Some(MergeStep::Skip(Skipped::Invalid("a range that cannot be shared"))));
        }
        let mut back = self.state.content_as_it_is(source, &to)?;
        (to.mode, to.uid, to.gid) = (back.mode, back.uid, back.gid);
        (to.atime, to.mtime, to.ctime) = (back.atime, back.mtime, back.ctime);
        (to.xattrs, to.temporary, back.temporary) = (None, true, true);
        let ino = source.ino;
        let events =
            vec![Event::Revert { ino, to }, event.clone(), Event::Revert { ino, to: Box::new(back) }];
        let mut needs: Vec<_> =
            [&events[0], &events[2]].iter().flat_map(|event| self.state.needs(event)).collect();
        for question in [
            self.state.chunks_present(source, *from_offset, from_end),
            self.state.range_blocks_present(ino, *from_offset, from_end),
            self.state.range_replaceable(target, *to_offset, to_end),
        ] {
            match question {
                Err(Fault::Missing(more)) => needs.extend(more),
                other => other?,
            }
        }
        if !needs.is_empty() {
            return Err(Fault::Missing(needs));
        }
        self.map.note_standing(ino);
        Ok(Some(MergeStep::Instead(events)))
    }
}

/// A change of nothing.
pub(crate) fn touch(inode: &Inode) -> Event {
    Event::SetAttr {
        ino: inode.ino,
        mode: None,
        uid: None,
        gid: None,
        size: None,
        atime: None,
        mtime: None,
        ctime: inode.ctime,
    }
}
