//! One sorted stream of a merge, whose records begin with the number by which is merged.

use std::io;
use std::iter::Peekable;

use crate::fsck::sorter::{Sorted, Sorter, u64_at};

pub(crate) struct Cursor<const N: usize>(Peekable<Sorted<N>>);

impl<const N: usize> Cursor<N> {
    pub(crate) fn new(sorter: Sorter<N>) -> io::Result<Cursor<N>> {
        Ok(Cursor(sorter.finish()?.peekable()))
    }

    /// The number at which the stream stands; `None` at its end. An error counts as number 0, so that it is met at once.
    pub(crate) fn head(&mut self) -> Option<u64> {
        self.0.peek().map(|record| record.as_ref().map_or(0, |record| u64_at(record, 0)))
    }

    /// The first two numbers of the next record.
    pub(crate) fn head_pair(&mut self) -> Option<(u64, u64)> {
        self.0.peek().map(|r| r.as_ref().map_or((0, 0), |r| (u64_at(r, 0), u64_at(r, 8))))
    }

    /// Whether there is a next record, and it is like this.
    pub(crate) fn peek_is(&mut self, like: impl Fn(&[u8; N]) -> bool) -> bool {
        matches!(self.0.peek(), Some(Ok(record)) if like(record))
    }

    /// The next record, if it has this number.
    pub(crate) fn take(&mut self, number: u64) -> io::Result<Option<[u8; N]>> {
        if self.head() == Some(number) || matches!(self.0.peek(), Some(Err(_))) {
            return self.0.next().transpose();
        }
        Ok(None)
    }

    /// The next record, if it begins with this pair of numbers.
    pub(crate) fn take_pair(&mut self, pair: (u64, u64)) -> io::Result<Option<[u8; N]>> {
        if self.head_pair() == Some(pair) || matches!(self.0.peek(), Some(Err(_))) {
            return self.0.next().transpose();
        }
        Ok(None)
    }

    /// Skips records with a smaller number; true if a record has this one.
    pub(crate) fn seek(&mut self, number: u64) -> io::Result<bool> {
        while let Some(head) = self.head() {
            if head >= number && !matches!(self.0.peek(), Some(Err(_))) {
                return Ok(head == number);
            }
            self.0.next().transpose()?;
        }
        Ok(false)
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<[u8; N]>> {
        self.0.next().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsck::sorter::packed;

    #[test]
    fn records_are_taken_by_number() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut sorter = Sorter::<9>::new(64, dir.path());
        for (n, tag) in [(5u64, 1u8), (3, 2), (5, 3), (9, 4)] {
            sorter.push(packed![n, tag]).expect("pushed");
        }
        let mut cursor = Cursor::new(sorter).expect("sorted");
        assert_eq!(cursor.head(), Some(3));
        assert_eq!(cursor.take(5).expect("read"), None);
        assert_eq!(cursor.take(3).expect("read"), Some(packed![3u64, 2u8]));
        assert_eq!(cursor.take(5).expect("read"), Some(packed![5u64, 1u8]));
        assert!(!cursor.seek(6).expect("read"));
        assert!(cursor.seek(9).expect("read"));
        assert_eq!(cursor.next().expect("read"), Some(packed![9u64, 4u8]));
        assert_eq!(cursor.head(), None);
    }
}
