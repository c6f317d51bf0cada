//! Files to which several clients append records: each file is, at each moment, the acknowledged records in their order.
//!
//! ```text
//!   appended, acknowledged ──▶ every later read shows it, whole, once, behind records acknowledged before it began
//!        │ fsync says yes ───▶ … for ever
//!        │ its client dies, or gets EIO, before that ──▶ it may be missing
//! ```
//!
//! Invariants:
//! - A record is one line, and no two records of a run are equal.
//! - A size (stat, lseek to the end) is that of the file at some moment of the call. A client that does not have
//!   the file open may get an older one (S3).

use std::collections::BTreeMap;

use crate::checkers::violation;
use crate::history::{ClientId, Violation};

const CHECKER: &str = "appends";
const SIZES: &str = "sizes";

/// A moment in the order of a history: grows, unique.
pub type Moment = u64;

#[derive(Clone, Debug)]
struct Record {
    client: ClientId,
    file: String,
    begun: Moment,
    acknowledged: Option<Moment>,
    /// It must survive in any case.
    is_safe: bool,
    /// Its client, or later readers, know that it may be missing.
    may_be_lost: bool,
}

#[derive(Clone, Debug)]
struct Read {
    file: String,
    begun: Moment,
    ended: Moment,
    content: Vec<u8>,
}

/// A size in an answer.
#[derive(Clone, Debug)]
struct Size {
    file: String,
    begun: Moment,
    ended: Moment,
    bytes: u64,
    /// The asking client has the file open.
    is_exact: bool,
}

/// The appends of clients, and the observations of readers.
#[derive(Clone, Debug, Default)]
pub struct Appends {
    records: Vec<Record>,
    by_bytes: BTreeMap<(String, Vec<u8>), usize>,
    reads: Vec<Read>,
    sizes: Vec<Size>,
}

impl Appends {
    /// A client begins to append a record; returns its number.
    pub fn begins(&mut self, client: ClientId, file: &str, bytes: &[u8], at: Moment) -> usize {
        let number = self.records.len();
        self.by_bytes.insert((file.to_owned(), bytes.to_vec()), number);
        self.records.push(Record {
            client,
            file: file.to_owned(),
            begun: at,
            acknowledged: None,
            is_safe: false,
            may_be_lost: false,
        });
        number
    }

    /// The append was acknowledged.
    pub fn acknowledged(&mut self, number: usize, at: Moment) {
        self.records[number].acknowledged = Some(at);
    }

    fn of_client(
        &mut self,
        client: ClientId,
        file: Option<&str>,
        before: Moment,
    ) -> impl Iterator<Item = &mut Record> {
        self.records.iter_mut().filter(move |record| {
            record.client == client
                && file.is_none_or(|file| file == record.file)
                && record.acknowledged.is_some_and(|at| at < before)
        })
    }

    /// An fsync that the client called at `begun` succeeded: of one file, or of all.
    pub fn synced(&mut self, client: ClientId, file: Option<&str>, begun: Moment) {
        let fresh = self.of_client(client, file, begun).filter(|record| !record.may_be_lost);
        fresh.for_each(|record| record.is_safe = true);
    }

    /// A call of the client reported a loss: earlier appends that are not durable may be missing.
    pub fn reported_loss(&mut self, client: ClientId, at: Moment) {
        let at_risk = self.of_client(client, None, at).filter(|record| !record.is_safe);
        at_risk.for_each(|record| record.may_be_lost = true);
    }

    /// The client is gone, or it lost its session and did not ask afterwards whether anything is lost.
    pub fn gone(&mut self, client: ClientId) {
        let at_risk = self.records.iter_mut().filter(|record| record.client == client && !record.is_safe);
        at_risk.for_each(|record| record.may_be_lost = true);
    }

    /// A client read a whole file.
    pub fn read(&mut self, file: &str, begun: Moment, ended: Moment, content: &[u8]) {
        let (file, content) = (file.to_owned(), content.to_vec());
        self.reads.push(Read { file, begun, ended, content });
    }

    /// A client got the size of a file. `is_exact`: from a client that has the file open.
    pub fn size(&mut self, file: &str, (begun, ended): (Moment, Moment), bytes: u64, is_exact: bool) {
        self.sizes.push(Size { file: file.to_owned(), begun, ended, bytes, is_exact });
    }

    /// Judges all reads and sizes, when everything is known.
    ///
    /// # Errors
    /// The first violation.
    pub fn judge(&self) -> Result<(), Violation> {
        self.sizes.iter().try_for_each(|size| self.judge_size(size))?;
        let mut before: BTreeMap<&str, (&Read, Vec<usize>)> = BTreeMap::new();
        for read in &self.reads {
            let Some(seen) = self.lines(read)? else { continue };
            self.judge_read(read, &seen)?;
            let stays: Vec<usize> = seen.into_iter().filter(|n| !self.records[*n].may_be_lost).collect();
            if let Some((earlier, first)) = before.get(&*read.file)
                && earlier.ended < read.begun
                && !stays.starts_with(first)
            {
                return Err(wrong(
                    read,
                    format!(
                        "begins with other records than the read before it ({} to {})",
                        earlier.begun, earlier.ended
                    ),
                ));
            }
            before.insert(&read.file, (read, stays));
        }
        Ok(())
    }

    fn judge_size(&self, size: &Size) -> Result<(), Violation> {
        let of_file = || {
            let records = self.by_bytes.iter().filter(|((file, _), _)| *file == size.file);
            records.map(|((_, bytes), number)| (bytes.len() as u64, &self.records[*number]))
        };
        let least: u64 = of_file()
            .filter(|(_, record)| size.is_exact && !record.may_be_lost)
            .filter(|(_, record)| record.acknowledged.is_some_and(|at| at < size.begun))
            .map(|(bytes, _)| bytes)
            .sum();
        let most: u64 =
            of_file().filter(|(_, record)| record.begun < size.ended).map(|(bytes, _)| bytes).sum();
        let wrong = |what: String| {
            let Size { file, begun, ended, bytes, .. } = size;
            Err(violation(SIZES, format!("{file} has {bytes} bytes (asked from {begun} to {ended}), {what}")))
        };
        if size.bytes < least {
            return wrong(format!("{least} were acknowledged before"));
        }
        if size.bytes > most {
            return wrong(format!("{most} were appended at most"));
        }
        // Where nothing is lost, the last read has all records in their order: a size is one between two of them.
        let last = self.reads.iter().rev().find(|read| read.file == size.file);
        match last.filter(|read| read.begun > size.ended && of_file().all(|(_, record)| !record.may_be_lost))
        {
            Some(read) => {
                let is_between = size.bytes == 0
                    || read.content.get(size.bytes as usize - 1).is_some_and(|byte| *byte == b'\n');
                if is_between { Ok(()) } else { wrong("which is in the midst of a record".to_owned()) }
            }
            None => Ok(()),
        }
    }

    /// The records of a read, in their order. `None` if records that it shows were lost while it continued: it reads in several
    /// calls, and between two of them the rest of the file moved towards the beginning.
    fn lines(&self, read: &Read) -> Result<Option<Vec<usize>>, Violation> {
        let mut seen = Vec::new();
        let mut at = 0;
        for line in read.content.split_inclusive(|byte| *byte == b'\n') {
            let Some(&number) = self.by_bytes.get(&(read.file.clone(), line.to_vec())) else {
                let ends = |(file, bytes): &(String, Vec<u8>)| *file == read.file && bytes.ends_with(line);
                if seen.iter().any(|n: &usize| self.records[*n].may_be_lost) && self.by_bytes.keys().any(ends)
                {
                    return Ok(None);
                }
                return Err(wrong(read, format!("at byte {at} is no record: {}", short(line))));
            };
            if seen.contains(&number) {
                return Err(wrong(read, format!("shows {} twice", short(line))));
            }
            seen.push(number);
            at += line.len();
        }
        Ok(Some(seen))
    }

    fn judge_read(&self, read: &Read, seen: &[usize]) -> Result<(), Violation> {
        let name = |number: usize| {
            let found = self.by_bytes.iter().find(|(_, n)| **n == number);
            found.map_or_else(String::new, |((_, bytes), _)| short(bytes))
        };
        if let Some(&early) = seen.iter().find(|n| self.records[**n].begun > read.ended) {
            return Err(wrong(read, format!("shows {}, which was appended later", name(early))));
        }
        let due = (0..self.records.len()).filter(|&n| {
            let record = &self.records[n];
            record.file == read.file
                && !record.may_be_lost
                && record.acknowledged.is_some_and(|at| at < read.begun)
        });
        for number in due {
            if !seen.contains(&number) {
                let why =
                    if self.records[number].is_safe { "acknowledged and fsynced" } else { "acknowledged" };
                return Err(wrong(read, format!("lacks {}, which was {why}", name(number))));
            }
        }
        // A record that was acknowledged before another began comes before it.
        let mut latest_begun = (0, usize::MAX);
        for &number in seen {
            let record = &self.records[number];
            if record.acknowledged.is_some_and(|at| at < latest_begun.0) {
                return Err(wrong(
                    read,
                    format!(
                        "shows {} behind {}, which was appended later",
                        name(number),
                        name(latest_begun.1)
                    ),
                ));
            }
            latest_begun = latest_begun.max((record.begun, number));
        }
        Ok(())
    }
}

fn wrong(read: &Read, what: String) -> Violation {
    violation(CHECKER, format!("a read of {} (from {} to {}) {what}", read.file, read.begun, read.ended))
}

fn short(line: &[u8]) -> String {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()).min(20);
    format!("{:?} ({} bytes)", String::from_utf8_lossy(&line[..end]), line.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(0);
    const B: ClientId = ClientId(1);

    /// A appends `a` (1 to 2), B appends `b` (3 to 4) and `c` (5, not acknowledged).
    fn appended() -> Appends {
        let mut appends = Appends::default();
        let a = appends.begins(A, "f", b"a\n", 1);
        appends.acknowledged(a, 2);
        let b = appends.begins(B, "f", b"b\n", 3);
        appends.acknowledged(b, 4);
        appends.begins(B, "f", b"c\n", 5);
        appends
    }

    fn check(appends: &Appends, reads: &[&str], expect: Option<&str>) {
        let mut appends = appends.clone();
        for (at, content) in (0..).zip(reads) {
            appends.read("f", 10 + 2 * at, 11 + 2 * at, content.as_bytes());
        }
        match (appends.judge(), expect) {
            (Ok(()), None) => {}
            (Err(found), Some(what)) => assert!(found.what.contains(what), "{reads:?}: {}", found.what),
            (result, expect) => panic!("{reads:?}: {result:?}, should be {expect:?}"),
        }
    }

    #[test]
    fn a_reader_sees_every_acknowledged_record_once_and_in_order() {
        let appends = appended();
        check(&appends, &["a\nb\n", "a\nb\nc\n"], None);
        check(&appends, &["a\nc\nb\n"], Some("behind"));
        check(&appends, &["a\n"], Some("lacks"));
        check(&appends, &["b\na\n"], Some("behind"));
        check(&appends, &["a\nb\na\n"], Some("twice"));
        check(&appends, &["a\n\0\0b\n"], Some("no record"));
        check(&appends, &["a\nb"], Some("no record"));
        check(&appends, &["a\nb\nc\n", "a\nb\n"], Some("other records"));
    }

    #[test]
    fn unsynced_changes_of_a_dead_client_may_be_missing() {
        let mut appends = appended();
        appends.gone(B);
        check(&appends, &["a\n"], None);
        check(&appends, &["b\n"], Some("lacks"));
        let mut synced = appended();
        synced.synced(B, None, 5);
        synced.gone(B);
        check(&synced, &["a\n"], Some("fsynced"));
    }

    #[test]
    fn a_read_in_two_calls_may_miss_what_moved_between_them() {
        let mut appends = Appends::default();
        for (client, record, at) in [(A, "lost\n", 1), (B, "a longer one\n", 3)] {
            let number = appends.begins(client, "f", record.as_bytes(), at);
            appends.acknowledged(number, at + 1);
        }
        check(&appends, &["lost\nger one\n"], Some("no record"));
        appends.gone(A);
        check(&appends, &["lost\nger one\n"], None);
        check(&appends, &["ger one\n"], Some("no record"));
        check(&appends, &["lost\nlong\n"], Some("no record"));
    }

    #[test]
    fn only_reported_losses_may_be_missing() {
        let mut appends = appended();
        appends.reported_loss(A, 3);
        appends.synced(A, None, 6);
        check(&appends, &["b\n"], None);
        check(&appends, &["a\n"], Some("lacks"));
    }

    #[test]
    fn a_size_covers_acknowledged_records_and_ends_with_one() {
        let check = |bytes, is_exact, expect: Option<&str>| {
            let mut appends = appended();
            appends.size("f", (6, 7), bytes, is_exact);
            appends.read("f", 10, 11, b"a\nb\nc\n");
            match (appends.judge(), expect) {
                (Ok(()), None) => {}
                (Err(found), Some(what)) => assert!(found.what.contains(what), "{bytes}: {}", found.what),
                (result, expect) => panic!("{bytes}: {result:?}, should be {expect:?}"),
            }
        };
        check(4, true, None);
        check(6, true, None);
        check(2, true, Some("acknowledged before"));
        // Not open there: the size of the last push.
        check(2, false, None);
        check(3, false, Some("midst"));
        check(8, false, Some("at most"));
        let mut lossy = appended();
        lossy.gone(B);
        lossy.size("f", (6, 7), 2, true);
        assert!(lossy.judge().is_ok());
    }

    #[test]
    fn no_reader_sees_a_record_before_its_append() {
        let mut appends = appended();
        appends.read("f", 6, 7, b"a\nb\n");
        appends.begins(A, "f", b"d\n", 9);
        check(&appends, &[], None);
        appends.read("f", 7, 8, b"a\nb\nd\n");
        check(&appends, &[], Some("appended later"));
    }
}
