//! Pushing: dirty bytes become blocks, and the blocks become the file's content by one operation.
//!
//! ```text
//!   small, no blocks:  base + buffer ─────────────────────▶ Op::Write(Inline)
//!   else:  buffer ─▶ blocks ─▶ stored ─▶ pending ─▶ sending ─▶ Op::Write(Extents) ─▶ content
//! ```
//!
//! Invariants:
//! - One push of a file at a time (`busy`); writers continue meanwhile, above what is being sent.
//! - After a failure everything is where it hides what it hid before, and the next push tries again.

use std::sync::Arc;
use std::time::Duration;

use chiton_model::{Body, CHUNK_BYTES, Extent, Hold, Op};
use chiton_objects::block::encoded_bytes;
use chiton_runtime::sync::MutexGuard;
use chiton_types::{Cred, Ino, Position, Refusal, SessionId, Time};
use chiton_wire::{Answer, Call, LeaseMode};

use super::buffer::Piece;
use super::content::{Chunks, Content};
use super::extent_map::ExtentMap;
use super::file::{FileState, Inner};
use super::files::Files;
use super::options::DataMode;
use super::upload::Upload;
use super::write::run_upload;
use crate::Mark;

/// Most extents of one operation.
const EXTENTS_MAX: usize = 4096;
/// How often a push is tried that does not fit the file any more.
const TRIES_MAX: u32 = 3;
/// Most dirty ranges in one block.
const PACKED_MAX: usize = 1024;

/// The data to push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    /// Everything of files in which something was written at or before this time (monotonic).
    Until(Duration),
}

/// The metadata that are sent with the content.
struct Stamp {
    /// Losses of the file before: content whose push fails after another loss is lost with the rest, not dirty again.
    losses: u64,
    mtime: Time,
    kill_setid: bool,
    /// All of it was appended from here on.
    appended: Option<u64>,
    /// Some of it was written back from mappings under a shared lease.
    mapped: bool,
    cred: Cred,
    /// If this session ends it is reported as lost, and not sent in the next.
    session: SessionId,
}

impl Files {
    /// Pushes a file's dirty data to the server.
    pub(super) fn push(&self, file: &Arc<FileState>, scope: Scope) -> Result<(), Refusal> {
        {
            let inner = file.lock();
            if !inner.is_dirty() && !inner.busy {
                return Ok(());
            }
        }
        let busy = file.become_busy();
        let result = self.push_busy(file, scope);
        drop(busy);
        self.note_clean(file);
        result
    }

    /// The same for a thread that is busy with the file already.
    pub(super) fn push_busy(&self, file: &Arc<FileState>, scope: Scope) -> Result<(), Refusal> {
        for _ in 1..TRIES_MAX {
            match self.push_once(file, scope) {
                // A clone into this file that is under way here, or another client where nothing prevents that, has
                // made the file longer, or turned it into blocks: see what it is now.
                Err(Refusal::Invalid) => {
                    let mut inner = file.lock();
                    let cred = inner.cred.clone();
                    inner.content = Content::Unknown;
                    drop(inner);
                    let (mut inner, _) = self.with_content(file, &cred, 0..1, true)?;
                    // Appended bytes are at the new end by now.
                    if inner.appended.is_none() || !self.is_linearizable() {
                        inner.size = inner.size.max(inner.attr.size);
                    }
                }
                result => return result,
            }
        }
        match self.push_once(file, scope) {
            // The written bytes are right; where they belong changes faster than it can be looked at.
            Err(Refusal::Invalid) => Err(Refusal::Io),
            result => result,
        }
    }

    fn push_once(&self, file: &Arc<FileState>, scope: Scope) -> Result<(), Refusal> {
        let mut inner = file.lock();
        if !inner.is_dirty() || matches!(scope, Scope::Until(until) if inner.dirty_since > until) {
            return Ok(());
        }
        if matches!(inner.content, Content::Unknown) {
            let cred = inner.cred.clone();
            drop(inner);
            (inner, _) = self.with_content(file, &cred, 0..1, true)?;
            if !inner.is_dirty() {
                // Given up meanwhile.
                return Ok(());
            }
        }
        self.place_appended(&mut inner);
        let small = inner.size <= self.options.inline_bytes_max as u64;
        if small
            && !inner.blocks_only
            && inner.pending.is_empty()
            && matches!(inner.content, Content::Inline(_))
        {
            return self.push_inline(file, inner);
        }
        inner.leave_inline(&self.budget);
        for upload in inner.uploads.values() {
            upload.again(&self.budget);
        }
        self.seal(&mut inner);
        // All that is dirty now, and nothing newer: readers elsewhere see a state that existed.
        inner.sending = std::mem::take(&mut inner.pending);
        inner.sending.share_repeated();
        let stamp = inner.take_stamp(self.service.session(file.ino));
        let size = inner.size;
        let uploads: Vec<Arc<Upload>> = inner.uploads.values().cloned().collect();
        drop(inner);
        let result = self.store(file, &uploads).and_then(|()| self.send(file, size, &stamp));
        let mut inner = file.lock();
        inner.in_flight = false;
        if result.is_err() {
            inner.unsend(&stamp);
        }
        inner.drop_failed_uploads(&self.budget);
        if result == Err(Refusal::NotPermitted) {
            // The blocks are those of a session, or a decoupling, that is over: nobody may name them any more.
            inner.note_failure(Refusal::Io);
            self.give_up(file.ino, &mut inner, Refusal::Io, true);
            return Err(Refusal::Io);
        }
        result
    }

    /// Moves bytes that were appended here and are not sent to the present end of the file. To be called whenever attributes
    /// may have come from the server: bytes that another client had appended before may be lost with that client.
    pub(super) fn place_appended(&self, inner: &mut Inner) {
        if self.is_linearizable() {
            inner.move_appended(&self.budget);
        }
    }

    /// Makes blocks of buffered bytes.
    fn seal(&self, inner: &mut Inner) {
        let block_bytes = self.options.block_bytes;
        let mut pack: Vec<Piece> = Vec::new();
        let mut packed_bytes = 0;
        for piece in inner.buffer.take(&self.budget) {
            if packed_bytes + piece.1.len() > block_bytes || pack.len() == PACKED_MAX {
                self.seal_pack(inner, std::mem::take(&mut pack));
                packed_bytes = 0;
            }
            packed_bytes += piece.1.len();
            pack.push(piece);
        }
        self.seal_pack(inner, pack);
    }

    /// Makes one block of some pieces.
    fn seal_pack(&self, inner: &mut Inner, mut pack: Vec<Piece>) {
        if let [(at, bytes)] = &mut pack[..] {
            let range = (*at, bytes.len() as u32, 0);
            let bytes = std::mem::take(bytes);
            self.new_upload(inner, bytes, &[range]);
            return;
        }
        let total: usize = pack.iter().map(|(_, bytes)| bytes.len()).sum();
        if total == 0 {
            return;
        }
        let mut payload = Vec::with_capacity(encoded_bytes(total as u64) as usize);
        self.budget.take(payload.capacity());
        let mut ranges: Vec<(u64, u32, u32)> = Vec::new();
        for (at, bytes) in pack {
            match ranges.last_mut() {
                Some((offset, len, _))
                    if *offset + u64::from(*len) == at && !at.is_multiple_of(CHUNK_BYTES) =>
                {
                    *len += bytes.len() as u32;
                }
                _ => ranges.push((at, bytes.len() as u32, payload.len() as u32)),
            }
            payload.extend_from_slice(&bytes);
            self.budget.give_buffer(bytes);
        }
        self.new_upload(inner, payload, &ranges);
    }

    /// Waits until these blocks are stored, helping.
    fn store(&self, file: &Arc<FileState>, uploads: &[Arc<Upload>]) -> Result<(), Refusal> {
        // One for this thread, the others for the pool. This thread does those that the pool has not begun.
        for upload in uploads.iter().skip(1).filter(|upload| upload.is_waiting()) {
            self.submit(file, upload.clone());
        }
        for upload in uploads {
            run_upload(file, upload, &*self.io, &self.budget);
        }
        let mut inner = file.lock();
        for upload in uploads {
            while inner.uploads.contains_key(&upload.block) && !upload.is_failed() {
                file.wait(&mut inner);
            }
        }
        match uploads.iter().any(|upload| inner.uploads.contains_key(&upload.block)) {
            true => Err(inner.failure.unwrap_or(Refusal::Io)),
            false => Ok(()),
        }
    }

    /// Reports the stored blocks and the size to the server.
    fn send(&self, file: &FileState, size: u64, stamp: &Stamp) -> Result<(), Refusal> {
        let (extents, mut size_sent) = {
            let inner = file.lock();
            (inner.sending.iter().copied().collect::<Vec<Extent>>(), inner.attr.size)
        };
        // Another client may have made the file longer, where nothing prevents that.
        let size = if self.options.data == DataMode::Linearizable { size } else { size.max(size_sent) };
        let parts = in_operations(extents);
        // The second would find another end than the first.
        let hold = self.hold(stamp.appended.filter(|_| parts.len() == 1), stamp.mapped);
        let mut parts = parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            let data_end = part.iter().rev().find(|e| !e.block.is_hole()).map_or(0, Extent::end);
            size_sent = if parts.peek().is_none() { size } else { size_sent.max(data_end) };
            let op = Op::Write {
                ino: file.ino,
                body: Body::Extents(part.clone()),
                size: size_sent,
                mtime: stamp.mtime,
                kill_setid: stamp.kill_setid,
                hold,
            };
            let answer = self.call_in(stamp.session, &stamp.cred, Call::Op { op, open: false });
            let mark = self.now();
            let mut inner = file.lock();
            self.sent(file.ino, &mut inner, mark, answer)?;
            if hold != Hold::None && parts.peek().is_none() && inner.attr.size != size_sent {
                inner.was_moved();
                return Ok(());
            }
            for e in &part {
                inner.sending.cut(e.offset..e.end());
                match &mut inner.content {
                    Content::Blocks(chunks) => chunks.apply(e),
                    // Asked for by a reader meanwhile, when the server did not have this yet.
                    older => *older = Content::Unknown,
                }
            }
        }
        Ok(())
    }

    /// Sends the whole of a small file.
    fn push_inline(&self, file: &FileState, mut inner: MutexGuard<'_, Inner>) -> Result<(), Refusal> {
        let size = inner.size;
        let mut body = vec![0; size as usize];
        if let Content::Inline(base) = &inner.content {
            let n = base.len().min(body.len());
            body[..n].copy_from_slice(&base[..n]);
        }
        for (at, bytes) in inner.buffer.over(0..size) {
            body[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        }
        inner.buffer.cut(0..u64::MAX, &self.budget);
        let stamp = inner.take_stamp(self.service.session(file.ino));
        let op = Op::Write {
            ino: file.ino,
            body: Body::Inline(body.clone()),
            size,
            mtime: stamp.mtime,
            kill_setid: stamp.kill_setid,
            hold: self.hold(stamp.appended, stamp.mapped),
        };
        // Under the lock: a recall waits for it, and then for pending operations.
        if self.owns(&inner)
            && let Some(attr) = self.service.write_locally(&stamp.cred, &op, &inner.attr)
        {
            self.note_changed(file.ino, &mut inner);
            inner.blocks_only = false;
            inner.attr = attr;
            inner.content = Content::Inline(body);
            inner.in_flight = false;
            return Ok(());
        }
        inner.sending_inline = Some(body);
        drop(inner);
        let answer = self.call_in(stamp.session, &stamp.cred, Call::Op { op, open: false });
        let mark = self.now();
        let mut inner = file.lock();
        let result = self.sent(file.ino, &mut inner, mark, answer);
        let body = inner.sending_inline.take().unwrap_or_default();
        match result {
            Ok(()) if self.is_linearizable() && inner.attr.size != size => inner.was_moved(),
            Ok(()) => inner.content = Content::Inline(body),
            Err(_) if inner.losses != stamp.losses => {}
            Err(_) => {
                let newer = inner.buffer.take(&self.budget);
                inner.buffer.write(0, &body, &self.budget);
                for (at, bytes) in newer {
                    inner.buffer.write(at, &bytes, &self.budget);
                    self.budget.give_buffer(bytes);
                }
                inner.unsend(&stamp);
            }
        }
        inner.in_flight = false;
        if result == Err(Refusal::NotPermitted) {
            // Others have the file by now: writes to it rested on its former state.
            inner.note_failure(Refusal::Io);
            self.give_up(file.ino, &mut inner, Refusal::Io, true);
            return Err(Refusal::Io);
        }
        result
    }

    /// The hold that a push declares.
    fn hold(&self, appended: Option<u64>, mapped: bool) -> Hold {
        match appended {
            _ if !self.is_linearizable() => Hold::None,
            _ if mapped => Hold::Shared,
            Some(end) => Hold::Appended(end),
            None => Hold::Exclusive,
        }
    }

    /// Takes over the server's answer to an operation that changed the content.
    fn sent(
        &self,
        ino: Ino,
        inner: &mut Inner,
        mark: Mark,
        answer: Result<Answer, Refusal>,
    ) -> Result<(), Refusal> {
        let Answer::Op { outcome, .. } = answer? else { return Err(Refusal::Io) };
        self.note_changed(ino, inner);
        inner.blocks_only = false;
        let Some(mut attr) = outcome.attr else { return Ok(()) };
        self.date(mark, &mut attr);
        if attr.position == Position(0) {
            // Of a start of the server that is over: nothing is believed before it was asked for again.
            inner.lease = LeaseMode::None;
            inner.recalls += 1;
            inner.attr.position = Position(0);
        }
        if attr.position >= inner.attr.position {
            inner.attr = attr;
        }
        Ok(())
    }
}

/// Parts the extents into operations: each in order of offsets, and no block in two of them, because the server decides
/// from one operation alone whether a block is shared.
fn in_operations(mut extents: Vec<Extent>) -> Vec<Vec<Extent>> {
    if extents.len() <= EXTENTS_MAX {
        return vec![extents];
    }
    extents.sort_by_key(|e| e.block);
    let mut parts: Vec<Vec<Extent>> = vec![Vec::new()];
    for of_block in extents.chunk_by(|a, b| a.block == b.block && !a.block.is_hole()) {
        let last = parts.last_mut().expect("one at least");
        match last.len() + of_block.len() <= EXTENTS_MAX {
            true => last.extend(of_block),
            false => parts.push(of_block.to_vec()),
        }
    }
    parts.retain(|part| !part.is_empty());
    for part in &mut parts {
        part.sort_unstable_by_key(|e| e.offset);
    }
    parts
}

impl Inner {
    /// The metadata for the content that is sent now.
    fn take_stamp(&mut self, session: SessionId) -> Stamp {
        self.unsent = false;
        self.in_flight = true;
        let kill_setid = std::mem::take(&mut self.kill_setid);
        // Bytes that are appended from here on go behind those that are sent.
        let appended = self.appended.replace(self.size);
        let (mtime, cred) = (self.mtime, self.cred.clone());
        let mapped = std::mem::take(&mut self.mapped);
        Stamp { losses: self.losses, mtime, kill_setid, appended, mapped, cred, session }
    }

    /// Bytes that were being sent are dirty again, unless they were given up meanwhile.
    fn unsend(&mut self, stamp: &Stamp) {
        if self.losses != stamp.losses {
            self.sending = ExtentMap::default();
            return;
        }
        for e in std::mem::take::<ExtentMap>(&mut self.sending).iter() {
            self.pending.insert_below(*e);
        }
        self.unsent = true;
        self.kill_setid |= stamp.kill_setid;
        self.appended = stamp.appended.filter(|_| self.appended.is_some());
        self.mapped |= stamp.mapped;
    }

    /// See [`Files::place_appended`]. While some of it is being sent, the end is known when that is answered.
    fn move_appended(&mut self, budget: &super::budget::Budget) {
        let now = self.attr.size;
        let Some(end) = self.appended.filter(|end| *end != now && self.is_dirty() && !self.in_flight) else {
            return;
        };
        for (at, bytes) in self.buffer.take(budget) {
            self.buffer.write(at - end + now, &bytes, budget);
            budget.give_buffer(bytes);
        }
        let mut pieces = Vec::new();
        for e in self.pending.iter() {
            Extent { offset: e.offset - end + now, ..*e }.split_at_chunks(&mut pieces);
        }
        self.pending = ExtentMap::default();
        for piece in pieces {
            self.pending.insert(piece);
        }
        self.size = self.size - end + now;
        self.appended = Some(now);
    }

    /// The server has put what was sent elsewhere than it is here.
    fn was_moved(&mut self) {
        self.sending = ExtentMap::default();
        self.content = Content::Unknown;
        if !self.is_dirty() {
            self.size = self.attr.size;
        }
    }

    /// A file that gets blocks loses its inline content: the bytes that are not overwritten become dirty.
    fn leave_inline(&mut self, budget: &super::budget::Budget) {
        let Content::Inline(base) = &mut self.content else { return };
        let base = std::mem::take(base);
        if !base.is_empty() {
            self.appended = None;
        }
        let mut hidden = vec![false; base.len()];
        let len = base.len() as u64;
        let hides = self.buffer.over(0..len).map(|(at, bytes)| (at, bytes.len()));
        let hides = hides.chain(self.pending.over(0..len).map(|e| (e.offset, e.len as usize)));
        for (at, n) in hides {
            hidden[at as usize..at as usize + n].fill(true);
        }
        let mut at = 0;
        while at < base.len() {
            let run = hidden[at..].iter().take_while(|&&h| h == hidden[at]).count();
            if !hidden[at] {
                self.buffer.write(at as u64, &base[at..at + run], budget);
            }
            at += run;
        }
        self.content = Content::Blocks(Chunks::empty());
    }
}
