//! copy_file_range: blocks are shared, inline bytes copied.
//!
//! Invariants:
//! - Earlier writes to either file are with the server before it shares anything.
//! - The files are not held busy while the server clones: two copies in opposite directions by two clients would wait
//!   for each other.

use chiton_model::Op;
use chiton_types::Refusal;
use chiton_wire::{Answer, Call, Grown, LeaseMode};

use super::content::Content;
use super::files::{Files, OpenFile};
use super::push::Scope;
use crate::{Caller, ask};

/// Shorter ranges are copied when sharing them would first turn an inline file into blocks.
const COPY_BYTES_MIN: u64 = 1 << 20;
/// Bytes copied at a time, and at most by one call.
const STEP_BYTES: usize = 1 << 20;
const COPY_BYTES_MAX: u64 = 64 << 20;

impl Files {
    /// Copies up to `len` bytes and says how many: fewer at the end of the source, or when they had to be copied one by
    /// one (then continue).
    ///
    /// # Errors
    /// [`Refusal::Invalid`] if the ranges are in one file and overlap; those of reads and writes.
    pub fn copy_range(
        &self,
        caller: &Caller<'_>,
        fh_in: u64,
        offset_in: u64,
        fh_out: u64,
        offset_out: u64,
        len: u64,
    ) -> Result<u64, Refusal> {
        let (from, to) = (self.handle(fh_in)?, self.handle(fh_out)?);
        if !to.flags.write || to.flags.append {
            return Err(Refusal::BadHandle);
        }
        let ends = offset_in.checked_add(len).zip(offset_out.checked_add(len));
        let (end_in, end_out) = ends.ok_or(Refusal::TooBig)?;
        let one = from.file.ino == to.file.ino;
        if one && offset_in < end_out && offset_out < end_in {
            return Err(Refusal::Invalid);
        }
        self.push(&from.file, Scope::All)?;
        let (size, is_inline) = self.form(&from, offset_in)?;
        let len = len.min(size.saturating_sub(offset_in));
        if len == 0 {
            return Ok(0);
        }
        if !is_inline
            && self.get_ready(caller, &to, len)?
            && self.share(caller, &from, offset_in, &to, offset_out, len)?
        {
            return Ok(len);
        }
        self.copy_bytes(caller, &from, offset_in, &to, offset_out, len.min(COPY_BYTES_MAX))
    }

    /// Size of a file, and whether it is inline.
    fn form(&self, open: &OpenFile, at: u64) -> Result<(u64, bool), Refusal> {
        let (mut inner, keep) = self.with_content(&open.file, &open.cred, at..at.saturating_add(1), false)?;
        let is_inline = matches!(inner.content, Content::Inline(_));
        if !keep {
            inner.content = Content::Unknown;
        }
        Ok((inner.size, is_inline))
    }

    /// Pushes the destination and sees to it that it can share blocks. `false`: copying is cheaper.
    fn get_ready(&self, caller: &Caller<'_>, to: &OpenFile, len: u64) -> Result<bool, Refusal> {
        let (size, is_inline) = self.form(to, 0)?;
        if is_inline && size > 0 {
            if len < COPY_BYTES_MIN.min(4 * self.options.block_bytes as u64) {
                return Ok(false);
            }
            let mut inner = self.leased(&to.file, &to.cred, LeaseMode::Exclusive, false)?;
            inner.blocks_only = true;
            self.note_written(&mut inner, caller);
        }
        drop(self.leased(&to.file, &to.cred, LeaseMode::Exclusive, false)?);
        self.push(&to.file, Scope::All)?;
        Ok(true)
    }

    /// Lets the server share the blocks. `false`: it cannot.
    fn share(
        &self,
        caller: &Caller<'_>,
        from: &OpenFile,
        from_offset: u64,
        to: &OpenFile,
        to_offset: u64,
        len: u64,
    ) -> Result<bool, Refusal> {
        let op = Op::Clone { from: from.file.ino, from_offset, to: to.file.ino, to_offset, len };
        to.file.lock().cloning += 1;
        let answer = ask(&*self.service, caller, Call::Op { op, open: false });
        let mark = self.now();
        let mut inner = to.file.lock();
        let grows = inner.growth_to(to_offset + len, 0).is_some();
        inner.cloning -= 1;
        let outcome = match answer {
            Ok(Answer::Op { outcome, .. }) => outcome,
            Ok(_) => return Err(Refusal::Io),
            Err(Refusal::Invalid | Refusal::Unsupported | Refusal::CrossDevice) => return Ok(false),
            Err(refusal) => return Err(refusal),
        };
        self.note_changed(to.file.ino, &mut inner);
        inner.content = Content::Unknown;
        if let Some(mut attr) = outcome.attr.filter(|attr| attr.ino == to.file.ino) {
            self.date(mark, &mut attr);
            inner.adopt(attr);
        }
        inner.size = inner.size.max(to_offset + len);
        drop(inner);
        if grows {
            let mut last = [0];
            let size = to_offset + len;
            self.read_open(to, size - 1, &mut last)?;
            self.report_growth(to.file.ino, &to.cred, Some(Grown { size, last: last[0] }));
        }
        Ok(true)
    }

    fn copy_bytes(
        &self,
        caller: &Caller<'_>,
        from: &OpenFile,
        from_offset: u64,
        to: &OpenFile,
        to_offset: u64,
        len: u64,
    ) -> Result<u64, Refusal> {
        let mut bytes = vec![0; STEP_BYTES.min(len as usize)];
        let mut done = 0;
        while done < len {
            let step = bytes.len().min((len - done) as usize);
            let n = self.read_open(from, from_offset + done, &mut bytes[..step])?;
            if n == 0 {
                break;
            }
            self.write_open(caller, to, false, to_offset + done, &bytes[..n], false)?;
            done += n as u64;
        }
        Ok(done)
    }
}
