//! Sorting more than memory holds: runs in temporary files, merged.
//!
//! ```text
//!   push ──▶ buffer ──full──▶ sorted run in a file ──▶ merge ──▶ records in order
//! ```
//!
//! Records have a fixed length and are compared bytewise, so numbers in them are big-endian.
//!
//! Invariants:
//! - Memory stays below the limit given, up to the read buffers of at most [`RUNS_MAX`] runs.
//! - The files have no names: they go with the process, however it ends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Runs that are merged at once.
const RUNS_MAX: usize = 64;
/// Bytes of a run's read buffer.
const RUN_BUFFER_BYTES: usize = 64 << 10;

pub(crate) struct Sorter<const N: usize> {
    buffer: Vec<[u8; N]>,
    records_max: usize,
    dir: PathBuf,
    runs: Vec<File>,
    len: u64,
}

impl<const N: usize> Sorter<N> {
    pub(crate) fn new(memory_bytes: usize, dir: &Path) -> Sorter<N> {
        let records_max = (memory_bytes / N).max(16);
        Sorter { buffer: Vec::new(), records_max, dir: dir.to_owned(), runs: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn push(&mut self, record: [u8; N]) -> io::Result<()> {
        self.buffer.push(record);
        self.len += 1;
        if self.buffer.len() >= self.records_max {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        self.buffer.sort_unstable();
        let mut out = BufWriter::new(tempfile::tempfile_in(&self.dir)?);
        for record in self.buffer.drain(..) {
            out.write_all(&record)?;
        }
        self.runs.push(out.into_inner().map_err(io::IntoInnerError::into_error)?);
        if self.runs.len() == RUNS_MAX {
            let mut out = BufWriter::new(tempfile::tempfile_in(&self.dir)?);
            for record in Sorted::<N>::merge(std::mem::take(&mut self.runs), Vec::new())? {
                out.write_all(&record?)?;
            }
            self.runs.push(out.into_inner().map_err(io::IntoInnerError::into_error)?);
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<Sorted<N>> {
        self.buffer.sort_unstable();
        Sorted::merge(self.runs, self.buffer)
    }
}

pub(crate) struct Sorted<const N: usize> {
    runs: Vec<BufReader<File>>,
    memory: std::vec::IntoIter<[u8; N]>,
    /// The next record of each source; the number past the last run stands for the records in memory.
    heads: BinaryHeap<Reverse<([u8; N], usize)>>,
    failed: Option<io::Error>,
}

impl<const N: usize> Sorted<N> {
    fn merge(runs: Vec<File>, memory: Vec<[u8; N]>) -> io::Result<Sorted<N>> {
        let mut readers = Vec::with_capacity(runs.len());
        for mut run in runs {
            run.seek(SeekFrom::Start(0))?;
            readers.push(BufReader::with_capacity(RUN_BUFFER_BYTES, run));
        }
        let heads = BinaryHeap::with_capacity(readers.len() + 1);
        let mut sorted = Sorted { runs: readers, memory: memory.into_iter(), heads, failed: None };
        for source in 0..=sorted.runs.len() {
            sorted.refill(source)?;
        }
        Ok(sorted)
    }

    fn refill(&mut self, source: usize) -> io::Result<()> {
        let next = match self.runs.get_mut(source) {
            None => self.memory.next(),
            Some(run) => {
                let mut record = [0; N];
                match run.read_exact(&mut record) {
                    Ok(()) => Some(record),
                    Err(e) if e.kind() == ErrorKind::UnexpectedEof => None,
                    Err(e) => return Err(e),
                }
            }
        };
        self.heads.extend(next.map(|record| Reverse((record, source))));
        Ok(())
    }
}

impl<const N: usize> Iterator for Sorted<N> {
    type Item = io::Result<[u8; N]>;

    fn next(&mut self) -> Option<io::Result<[u8; N]>> {
        if let Some(error) = self.failed.take() {
            self.heads.clear();
            return Some(Err(error));
        }
        let Reverse((record, source)) = self.heads.pop()?;
        if let Err(error) = self.refill(source) {
            self.failed = Some(error);
        }
        Some(Ok(record))
    }
}

/// A record of these parts.
///
/// # Panics
/// If their lengths do not add up to its own.
pub(crate) fn pack<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut record = [0; N];
    let mut at = 0;
    for part in parts {
        record[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    assert_eq!(at, N, "the parts of a record fill it");
    record
}

/// Numbers as a record, big-endian, in order.
macro_rules! packed {
    ($($number:expr),+ $(,)?) => {
        $crate::fsck::sorter::pack(&[$(&$number.to_be_bytes()[..]),+])
    };
}
pub(crate) use packed;

/// The `u64` at byte `at` of a record.
pub(crate) fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(record[at..at + 8].try_into().expect("8 bytes"))
}

/// The `u32` at byte `at` of a record.
pub(crate) fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(record[at..at + 4].try_into().expect("4 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_memory_comes_out_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        for (records, memory) in [(0, 128), (5, 1 << 20), (10_000, 128), (10_000, 1 << 20)] {
            let mut sorter = Sorter::<8>::new(memory, dir.path());
            let mut expect = Vec::new();
            let mut x = 7u64;
            for _ in 0..records {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                expect.push((x >> 50).to_be_bytes());
                sorter.push((x >> 50).to_be_bytes()).expect("pushed");
            }
            expect.sort_unstable();
            assert_eq!(sorter.len(), records);
            let got: Vec<_> = sorter.finish().expect("merges").map(|r| r.expect("reads")).collect();
            assert_eq!(got, expect, "{records} records in {memory} bytes");
        }
    }
}
