//! Changes of a file's shape: truncate and fallocate.
//!
//! Invariants:
//! - Space is never reserved: a plain fallocate makes the file longer and nothing else, and a write after it can still
//!   find the store full. (Blocks are immutable, there is nothing to reserve.)
//! - A truncation is done at the server before anything here is dropped.

use std::ops::Range;
use std::sync::Arc;

use chiton_model::{AttrChange, CHUNK_BYTES, FILE_BYTES_MAX, Op};
use chiton_types::{Attr, Cred, Ino, Mode, Refusal};
use chiton_wire::{Answer, Call, LeaseMode};

use super::content::Content;
use super::file::FileState;
use super::files::{Files, OpenFile};
use super::push::Scope;
use super::seek::Whence;
use super::write::kills_setid;
use crate::{Caller, ask};

/// FALLOC_FL_KEEP_SIZE
const KEEP_SIZE: i32 = 1;
/// FALLOC_FL_PUNCH_HOLE
const PUNCH_HOLE: i32 = 2;
/// FALLOC_FL_ZERO_RANGE
const ZERO_RANGE: i32 = 16;

/// Longer ranges are punched only where there is something.
const PUNCH_BYTES_MAX: u64 = 64 * CHUNK_BYTES;

impl Files {
    /// Sets the size of a file, open or not: cuts it or lets it grow by zeros. With a handle the right to write was
    /// checked when it was opened.
    ///
    /// # Errors
    /// [`Refusal::TooBig`], those of the server; if dirty data below `size` cannot be pushed first, why.
    pub fn truncate(
        &self,
        caller: &Caller<'_>,
        ino: Ino,
        fh: Option<u64>,
        size: u64,
    ) -> Result<Attr, Refusal> {
        self.resize(
            ino,
            |file| self.truncate_file(file, caller, fh.is_some(), size),
            || self.set_size(caller, (ino, None), fh.is_some(), size),
        )
    }

    fn set_size(
        &self,
        caller: &Caller<'_>,
        (ino, mode): (Ino, Option<Mode>),
        size_by_handle: bool,
        size: u64,
    ) -> Result<Attr, Refusal> {
        if size > FILE_BYTES_MAX {
            return Err(Refusal::TooBig);
        }
        let change = AttrChange {
            size: Some(size),
            size_by_handle,
            kill_setid: kills_setid(caller, mode),
            ..AttrChange::default()
        };
        let call = Call::Op { op: Op::SetAttr { ino, change }, open: false };
        let Answer::Op { outcome, .. } = ask(&*self.service, caller, call)? else { return Err(Refusal::Io) };
        if size == 0 {
            self.losses.forget(ino);
        }
        outcome.attr.ok_or(Refusal::Io)
    }

    pub(super) fn truncate_file(
        &self,
        file: &Arc<FileState>,
        caller: &Caller<'_>,
        by_handle: bool,
        size: u64,
    ) -> Result<Attr, Refusal> {
        // With the lease in hand the server asks nobody back before it answers: nobody who waits for us can be waited
        // for. (It may be recalled in between; then nothing here is dirty, and a recall waits for nothing.) It is asked for as root:
        // others may need the right to read, and the size alone needs the right to write.
        drop(self.leased(file, &Cred::ROOT, LeaseMode::Exclusive, false)?);
        let busy = file.become_busy();
        if size > 0 {
            self.push_busy(file, Scope::All)?;
        }
        let (recalls, mode, growth) = {
            let inner = file.lock();
            (inner.recalls, inner.attr.mode, inner.growth_to(size, 0))
        };
        let attr = self.set_size(caller, (file.ino, Some(mode)), by_handle, size)?;
        let mark = self.now();
        let mut inner = file.lock();
        self.note_changed(file.ino, &mut inner);
        if attr.position >= inner.attr.position {
            inner.buffer.cut(size..u64::MAX, &self.budget);
            inner.pending.cut(size..u64::MAX);
            inner.drop_failed_uploads(&self.budget);
            if size == 0 {
                inner.content = Content::Inline(Vec::new());
                inner.unsent = false;
            } else {
                inner.content.truncate(size);
            }
            if inner.recalls != recalls {
                inner.content = Content::Unknown;
            }
            inner.size = size;
            inner.attr = attr.clone();
            self.date(mark, &mut inner.attr);
        }
        drop(inner);
        drop(busy);
        self.note_clean(file);
        // The caller may do so, as the size that was set shows.
        self.report_growth(file.ino, &Cred::ROOT, growth);
        Ok(attr)
    }

    /// fallocate(2) with the modes 0 (grows the file), KEEP_SIZE (nothing), PUNCH_HOLE with KEEP_SIZE, ZERO_RANGE with
    /// or without KEEP_SIZE.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] for other modes, [`Refusal::Invalid`] for an empty range, [`Refusal::TooBig`].
    pub fn fallocate(
        &self,
        caller: &Caller<'_>,
        fh: u64,
        mode: i32,
        offset: u64,
        len: u64,
    ) -> Result<(), Refusal> {
        let open = self.handle(fh)?;
        if !open.flags.write {
            return Err(Refusal::BadHandle);
        }
        if len == 0 {
            return Err(Refusal::Invalid);
        }
        let end = offset.checked_add(len).filter(|&end| end <= FILE_BYTES_MAX).ok_or(Refusal::TooBig)?;
        const PUNCH: i32 = PUNCH_HOLE | KEEP_SIZE;
        const ZERO: i32 = ZERO_RANGE | KEEP_SIZE;
        match mode {
            0 => self.grow(caller, &open, end),
            KEEP_SIZE => Ok(()),
            PUNCH | ZERO => self.punch(caller, &open, offset..end),
            ZERO_RANGE => {
                self.punch(caller, &open, offset..end)?;
                self.grow(caller, &open, end)
            }
            _ => Err(Refusal::Unsupported),
        }
    }

    /// Makes the file at least `size` long.
    fn grow(&self, caller: &Caller<'_>, open: &OpenFile, size: u64) -> Result<(), Refusal> {
        let mut inner = self.leased(&open.file, &open.cred, LeaseMode::Exclusive, false)?;
        if size > inner.size {
            let growth = inner.growth_to(size, 0);
            self.note_written(&mut inner, caller);
            inner.size = size;
            drop(inner);
            self.note_dirty(&open.file);
            self.report_growth(open.file.ino, &open.cred, growth);
        }
        Ok(())
    }

    /// Makes a range read as zeros, as far as the file goes.
    fn punch(&self, caller: &Caller<'_>, open: &OpenFile, range: Range<u64>) -> Result<(), Refusal> {
        if range.end - range.start <= PUNCH_BYTES_MAX {
            return self.punch_short(caller, open, range);
        }
        let mut at = range.start;
        loop {
            let start = match self.seek_open(open, at, Whence::Data) {
                Ok(start) if start < range.end => start,
                Ok(_) | Err(Refusal::NoData) => return Ok(()),
                Err(refusal) => return Err(refusal),
            };
            at = self.seek_open(open, start, Whence::Hole)?.min(range.end);
            let mut from = start;
            while from < at {
                let to = at.min(from + PUNCH_BYTES_MAX);
                self.punch_short(caller, open, from..to)?;
                from = to;
            }
        }
    }

    fn punch_short(&self, caller: &Caller<'_>, open: &OpenFile, range: Range<u64>) -> Result<(), Refusal> {
        let file = &open.file;
        let mut inner = loop {
            let inner = self.leased(file, &open.cred, LeaseMode::Exclusive, false)?;
            if inner.size <= range.start {
                return Ok(());
            }
            if !matches!(inner.content, Content::Unknown) {
                break inner;
            }
            drop(inner);
            let (inner, keep) = self.with_content(file, &open.cred, 0..1, false)?;
            if keep && inner.lease == LeaseMode::Exclusive {
                break inner;
            }
        };
        let range = range.start..range.end.min(inner.size);
        self.note_written(&mut inner, caller);
        inner.buffer.cut(range.clone(), &self.budget);
        inner.pending.cut(range.clone());
        // Bytes that are being sent as blocks no longer belong to the old content: the hole goes after them, as one in blocks does.
        let inline_bytes = match &inner.content {
            Content::Inline(bytes) if inner.sending.is_empty() => {
                Some(bytes.len().max(inner.sending_inline.as_ref().map_or(0, Vec::len)) as u64)
            }
            _ => None,
        };
        match inline_bytes {
            Some(bytes) if range.start < bytes => {
                let zeros = vec![0; (range.end.min(bytes) - range.start) as usize];
                inner.buffer.write(range.start, &zeros, &self.budget);
            }
            Some(_) => {}
            None => inner.pending.insert_hole(range),
        }
        drop(inner);
        self.note_dirty(file);
        Ok(())
    }
}
