//! Writing: bytes into the buffer, full blocks on their way.
//!
//! Invariants:
//! - A byte is copied once: from the caller into the memory of the block that will hold it.
//! - A write that makes a file longer which others have open is answered when they know the new size.
//! - An append takes its place under the exclusive lease, so appends of all clients follow one another.

use std::ops::Range;
use std::sync::Arc;

use chiton_model::{Extent, FILE_BYTES_MAX};
use chiton_types::{Attr, Cred, Ino, Kind, Mode, Refusal};
use chiton_wire::{Call, Grown, LeaseMode};

use chiton_runtime::sync::MutexGuard;

use super::block_io::BlockIo;
use super::budget::Budget;
use super::file::{FileState, Inner};
use super::files::{Files, OpenFile};
use super::push::Scope;
use super::upload::Upload;
use crate::Caller;

impl Files {
    /// Writes `data` at `offset` (O_APPEND: at the end) and says how much: all. Under O_SYNC and O_DSYNC it is durable
    /// then, else it may wait here for [`super::FilesOptions::flush_interval`], or until flush.
    ///
    /// # Errors
    /// [`Refusal::TooBig`]; why there is no memory for it (what could not be stored before); under O_SYNC those of
    /// [`Files::fsync`].
    pub fn write(&self, caller: &Caller<'_>, fh: u64, offset: u64, data: &[u8]) -> Result<u32, Refusal> {
        let open = self.handle(fh)?;
        if !open.flags.write {
            return Err(Refusal::BadHandle);
        }
        self.write_open(caller, &open, open.flags.append, offset, data, false)?;
        if open.flags.sync || open.flags.dsync {
            let result = self.push(&open.file, Scope::All);
            let result = result.and_then(|()| self.service.commit_with(open.file.ino));
            self.report(&open, result)?;
        }
        Ok(data.len() as u32)
    }

    /// Takes what the kernel writes back from its own page cache, through any handle of the file. Does not
    /// wait for a recall of the file: the recall waits for it. Under a shared lease the server has it when this returns: it might
    /// grant an exclusive one only to the client that waits for that recall.
    ///
    /// # Errors
    /// As [`Files::write`].
    pub fn write_back(&self, caller: &Caller<'_>, fh: u64, offset: u64, data: &[u8]) -> Result<u32, Refusal> {
        let open = self.handle(fh)?;
        let file = &open.file;
        let inner = file.lock();
        if !self.is_linearizable() || !self.shares(&inner) {
            drop(inner);
            self.write_open(caller, &open, false, offset, data, true)?;
            return Ok(data.len() as u32);
        }
        drop(inner);
        self.budget.gate()?;
        let mut inner = file.lock();
        let end = offset.saturating_add(data.len() as u64);
        let was_clean = !inner.is_dirty();
        self.note_written(&mut inner, caller);
        inner.mapped = true;
        self.take_in(file, inner, offset..end, data, was_clean);
        self.push(file, Scope::All)?;
        Ok(data.len() as u32)
    }

    /// Whether the server counts this client among those that hold the file shared.
    fn shares(&self, inner: &Inner) -> bool {
        let is_shared = inner.lease == LeaseMode::Shared || inner.yielding > 0;
        is_shared
            && inner.lease < LeaseMode::Exclusive
            && self.world.monotonic() < self.service.valid_until(inner.attr.ino)
    }

    /// Keeps what was written to this range, and sends blocks off that it fills.
    fn take_in(
        &self,
        file: &Arc<FileState>,
        mut inner: MutexGuard<'_, Inner>,
        range: Range<u64>,
        data: &[u8],
        was_clean: bool,
    ) {
        inner.buffer.write(range.start, data, &self.budget);
        inner.size = inner.size.max(range.end);
        let uploads = self.seal_full(&mut inner, range.start, range.end);
        drop(inner);
        for upload in uploads {
            self.submit(file, upload);
        }
        if was_clean {
            self.note_dirty(file);
        }
    }

    pub(super) fn write_open(
        &self,
        caller: &Caller<'_>,
        open: &OpenFile,
        append: bool,
        offset: u64,
        data: &[u8],
        during_recall: bool,
    ) -> Result<(), Refusal> {
        if data.is_empty() {
            return Ok(());
        }
        let file = &open.file;
        self.budget.gate()?;
        // Where the caller takes it to be.
        let _under_way = file.begin_write(offset..offset.saturating_add(data.len() as u64));
        let mut inner = self.leased(file, &open.cred, LeaseMode::Exclusive, during_recall)?;
        let offset = if append { inner.size } else { offset };
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|&end| end <= FILE_BYTES_MAX)
            .ok_or(Refusal::TooBig)?;
        // The kernel does not know these flags, and a descriptor may be older than they are.
        let is_append_only = inner.attr.flags & Attr::APPEND_ONLY != 0;
        if inner.attr.flags & Attr::IMMUTABLE != 0 || (is_append_only && offset < inner.size) {
            return Err(Refusal::NotPermitted);
        }
        let was_clean = !inner.is_dirty();
        let last = data[data.len() - 1];
        let growth = inner.growth_to(end, last);
        let appended = match append {
            true if was_clean && !inner.in_flight => Some(offset),
            true => inner.appended,
            false => None,
        };
        self.note_written(&mut inner, caller);
        inner.appended = appended;
        self.take_in(file, inner, offset..end, data, was_clean);
        self.report_growth(file.ino, &open.cred, growth);
        Ok(())
    }

    /// Others that have a file open know that it grew, when this returns. No lock is held and nobody is busy with the file: they
    /// may ask this client for the content first.
    pub(super) fn report_growth(&self, ino: Ino, cred: &Cred, growth: Option<Grown>) {
        if let Some(Grown { size, last }) = growth {
            // The content is safe in this buffer. If the session is over, there is no server to report it to.
            let _ = self.call(cred, Call::Grown { ino, size, last });
        }
    }

    /// The content was changed by `caller` just now.
    pub(super) fn note_written(&self, inner: &mut Inner, caller: &Caller<'_>) {
        inner.mtime = self.world.now();
        if !inner.is_dirty() || inner.in_flight {
            inner.dirty_since = self.world.monotonic();
        }
        inner.unsent = true;
        inner.appended = None;
        inner.kill_setid |= kills_setid(caller, Some(inner.attr.mode));
        inner.cred = caller.cred();
    }

    /// Sends blocks off that a write to this range has filled.
    fn seal_full(&self, inner: &mut Inner, offset: u64, end: u64) -> Vec<Arc<Upload>> {
        let mut uploads = Vec::new();
        // A file that may still be inline stays here until it is pushed.
        if inner.size <= self.options.inline_bytes_max as u64 {
            return uploads;
        }
        let slot = self.options.block_bytes as u64;
        let mut slot_end = (offset / slot + 1) * slot;
        while slot_end - slot < end {
            if let Some((at, bytes)) = inner.buffer.take_full(slot_end, &self.budget) {
                let range = (at, bytes.len() as u32, 0);
                uploads.push(self.new_upload(inner, bytes, &[range]));
            }
            slot_end += slot;
        }
        uploads
    }

    /// A new block, and its ranges: offset in the file, bytes, offset in the block.
    pub(super) fn new_upload(
        &self,
        inner: &mut Inner,
        bytes: Vec<u8>,
        ranges: &[(u64, u32, u32)],
    ) -> Arc<Upload> {
        let block = self.new_block(inner.attr.ino);
        for &(offset, len, block_offset) in ranges {
            inner.pending.insert(Extent { offset, len, block, block_offset, shared: ranges.len() > 1 });
        }
        let upload = Arc::new(Upload::new(block, bytes, &self.budget));
        inner.uploads.insert(block, upload.clone());
        upload
    }

    /// Lets the pool store a block.
    pub(super) fn submit(&self, file: &Arc<FileState>, upload: Arc<Upload>) {
        let (of, io, budget) = (file.clone(), self.io.clone(), self.budget.clone());
        let job = upload.clone();
        if !self.upload_pool.submit(move || run_upload(&of, &job, &*io, &budget)) {
            run_upload(file, &upload, &*self.io, &self.budget);
        }
    }
}

/// Stores a block, unless another thread does, and records it in the file.
pub(super) fn run_upload(file: &FileState, upload: &Upload, io: &dyn BlockIo, budget: &Budget) {
    let Some(result) = upload.run(io, budget) else { return };
    let mut inner = file.lock();
    match result {
        Ok(()) => {
            inner.uploads.remove(&upload.block);
            upload.finish(budget);
        }
        Err(refusal) if inner.uploads.contains_key(&upload.block) => {
            upload.fail();
            inner.note_failure(refusal);
        }
        Err(_) => upload.finish(budget),
    }
    drop(inner);
    file.notify();
}

/// Whether a change of content by `caller` clears set-id bits. `mode`: of the file, if it is known.
pub(super) fn kills_setid(caller: &Caller<'_>, mode: Option<Mode>) -> bool {
    let has_bits = mode.is_none_or(|mode| mode.without_setid(Kind::File) != mode);
    match has_bits && (caller.uid == 0 || mode.is_some()) {
        // Only then is it worth a look at the caller's capabilities.
        true => !caller.keeps_setid(),
        false => caller.uid != 0,
    }
}
