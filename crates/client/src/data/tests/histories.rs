//! Random histories of two clients on two files, one step after the other, against bytes in memory: whatever is
//! cached where, every read shows what was written last.

use chiton_types::{Attr, Ino, Refusal};
use chiton_wire::LeaseMode;
use proptest::prelude::*;

use super::{Member, Rig, caller, tiny};
use crate::data::Whence;
use crate::data::push::Scope;
use crate::{OpenFlags, PlateInodes};

const SIZE_MAX: u64 = 150;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Write { offset: u64, len: usize },
    Append { len: usize },
    Truncate { size: u64 },
    Fallocate { mode: i32, offset: u64, len: u64 },
    Copy { other: bool, from: u64, to: u64, len: u64 },
    Read { offset: u64, len: usize },
    Seek { offset: u64 },
    Stat,
    Flush,
    Fsync,
    PushOld,
    Reopen { truncate: bool },
    Forget,
    Recall { shared: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..SIZE_MAX;
    prop_oneof![
        8 => (at.clone(), 1..60usize).prop_map(|(offset, len)| Step::Write { offset, len }),
        3 => (1..40usize).prop_map(|len| Step::Append { len }),
        2 => at.clone().prop_map(|size| Step::Truncate { size }),
        1 => Just(Step::Truncate { size: 0 }),
        3 => (prop_oneof![Just(0), Just(1), Just(3), Just(16), Just(17)], at.clone(), 1..60u64)
            .prop_map(|(mode, offset, len)| Step::Fallocate { mode, offset, len }),
        3 => (any::<bool>(), at.clone(), at.clone(), 1..80u64)
            .prop_map(|(other, from, to, len)| Step::Copy { other, from, to, len }),
        6 => (at.clone(), 0..100usize).prop_map(|(offset, len)| Step::Read { offset, len }),
        2 => at.prop_map(|offset| Step::Seek { offset }),
        2 => Just(Step::Stat),
        2 => Just(Step::Flush),
        1 => Just(Step::Fsync),
        2 => Just(Step::PushOld),
        1 => any::<bool>().prop_map(|truncate| Step::Reopen { truncate }),
        1 => Just(Step::Forget),
        1 => any::<bool>().prop_map(|shared| Step::Recall { shared }),
    ]
}

/// The expected content of a file: its bytes, and whether each was written since it last became zero.
#[derive(Default)]
struct Expected {
    bytes: Vec<u8>,
    written: Vec<bool>,
}

impl Expected {
    fn resize(&mut self, size: usize) {
        self.bytes.resize(size, 0);
        self.written.resize(size, false);
    }

    fn put(&mut self, offset: u64, bytes: &[u8], written: &[bool]) {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        self.resize(self.bytes.len().max(end));
        self.bytes[start..end].copy_from_slice(bytes);
        self.written[start..end].copy_from_slice(written);
    }
}

pub(super) struct History {
    members: [Member; 2],
    inos: Vec<Ino>,
    /// By member and file.
    fhs: Vec<Vec<u64>>,
    expected: Vec<Expected>,
    next: u8,
}

impl History {
    /// Two new files, made by one each.
    pub(super) fn new(members: [Member; 2]) -> History {
        let (a, b) = (members[0].create(), members[1].create());
        let inos = vec![a.0, b.0];
        let fhs = vec![
            vec![a.1, members[0].open(b.0, OpenFlags::READ_WRITE)],
            vec![members[1].open(a.0, OpenFlags::READ_WRITE), b.1],
        ];
        History { members, inos, fhs, expected: vec![Expected::default(), Expected::default()], next: 0 }
    }

    pub(super) fn into_members(self) -> [Member; 2] {
        self.members
    }

    /// Runs the steps, then reads everything, also as `third` sees it.
    pub(super) fn run_all(&mut self, steps: Vec<(usize, usize, Step)>, third: &Member) {
        for (m, f, step) in steps {
            self.run(m, f, step);
        }
        for f in 0..2 {
            let expect = &self.expected[f].bytes;
            for (m, member) in self.members.iter().enumerate() {
                let fh = self.fhs[m][f];
                assert_eq!(&member.all(fh), expect);
                member.files.fsync(fh, false).expect("fsync");
                assert_eq!(&member.all(fh), expect);
            }
            let fh = third.open(self.inos[f], OpenFlags::READ);
            assert_eq!(&third.all(fh), expect);
            third.files.release(fh).expect("release");
        }
        for (member, fhs) in self.members.iter().zip(&self.fhs) {
            fhs.iter().for_each(|&fh| member.files.release(fh).expect("release"));
            assert_eq!(member.files.sync(), Ok(()));
            // Blocks that a truncation made useless may still be on their way; the memory of all comes back.
            while member.files.dirty_bytes() > 0 {
                std::thread::yield_now();
            }
        }
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        self.next = self.next.wrapping_add(1);
        (0..len).map(|n| self.next.wrapping_mul(7).wrapping_add(n as u8) | 1).collect()
    }

    fn run(&mut self, m: usize, f: usize, step: Step) {
        let fh = self.fhs[m][f];
        let size = self.expected[f].bytes.len() as u64;
        match step {
            Step::Write { offset, len } => {
                let data = self.data(len);
                self.members[m].write(fh, offset, &data);
                self.expected[f].put(offset, &data, &vec![true; len]);
            }
            Step::Append { len } => {
                let data = self.data(len);
                let member = &self.members[m];
                let appender = member.open(self.inos[f], OpenFlags { append: true, ..OpenFlags::WRITE });
                member.write(appender, 0, &data);
                member.files.release(appender).expect("release");
                self.expected[f].put(size, &data, &vec![true; len]);
            }
            Step::Truncate { size } => {
                let files = &self.members[m].files;
                let attr = caller(|c| files.truncate(c, self.inos[f], Some(fh), size)).expect("truncate");
                assert_eq!(attr.size, size);
                self.expected[f].resize(size as usize);
            }
            Step::Fallocate { mode, offset, len } => {
                caller(|c| self.members[m].files.fallocate(c, fh, mode, offset, len)).expect("fallocate");
                let expected = &mut self.expected[f];
                if mode & !1 != 0 {
                    let (start, end) = (offset.min(size) as usize, (offset + len).min(size) as usize);
                    expected.bytes[start..end].fill(0);
                    expected.written[start..end].fill(false);
                }
                if mode & 1 == 0 {
                    expected.resize(size.max(offset + len) as usize);
                }
            }
            Step::Copy { other, from, to, len } => {
                let g = if other { 1 - f } else { f };
                let source = &self.expected[g];
                let copied = len.min((source.bytes.len() as u64).saturating_sub(from));
                let part = from as usize..(from + copied).max(from) as usize;
                let (bytes, written) = match copied {
                    0 => (Vec::new(), Vec::new()),
                    _ => (source.bytes[part.clone()].to_vec(), source.written[part].to_vec()),
                };
                let fh_in = self.fhs[m][g];
                let result = caller(|c| self.members[m].files.copy_range(c, fh_in, from, fh, to, len));
                if !other && from < to + len && to < from + len {
                    assert_eq!(result, Err(Refusal::Invalid));
                    return;
                }
                assert_eq!(result, Ok(copied));
                if copied > 0 {
                    self.expected[f].put(to, &bytes, &written);
                }
            }
            Step::Read { offset, len } => {
                let bytes = &self.expected[f].bytes;
                let end = (offset as usize + len).min(bytes.len());
                let expect = bytes.get(offset as usize..end).unwrap_or_default();
                assert_eq!(self.members[m].files.read(fh, offset, len).expect("read"), expect);
            }
            Step::Seek { offset } => self.seek(m, f, offset),
            Step::Stat => {
                let mut attr: Attr = self.members[m].calls.stat(self.inos[f]);
                self.members[m].files.overlay(&mut attr);
                assert_eq!(attr.size, size);
            }
            Step::Flush => self.members[m].files.flush(fh).expect("flush"),
            Step::Fsync => self.members[m].files.fsync(fh, false).expect("fsync"),
            Step::PushOld => {
                let until = chiton_runtime::World::monotonic(&chiton_runtime::RealWorld);
                self.members[m].files.push_dirty(Scope::Until(until), || true).expect("push");
            }
            Step::Reopen { truncate } => {
                self.members[m].files.release(fh).expect("release");
                let flags = OpenFlags { truncate, ..OpenFlags::READ_WRITE };
                self.fhs[m][f] = self.members[m].open(self.inos[f], flags);
                if truncate {
                    self.expected[f].resize(0);
                }
            }
            Step::Forget => drop(self.members[m].files.forget(&PlateInodes::all(), None)),
            Step::Recall { shared } => {
                let keep = if shared { LeaseMode::Shared } else { LeaseMode::None };
                self.members[m].files.recall(self.inos[f], keep);
            }
        }
    }

    /// SEEK_DATA never skips a written byte, and SEEK_HOLE never names one; the bytes before the answer are as it says.
    fn seek(&self, m: usize, f: usize, offset: u64) {
        let Expected { bytes, written } = &self.expected[f];
        let (files, fh) = (&self.members[m].files, self.fhs[m][f]);
        let size = bytes.len() as u64;
        match files.seek(fh, offset, Whence::Data) {
            Ok(at) => {
                assert!(at >= offset && at < size);
                assert!(!written[offset as usize..at as usize].contains(&true), "data skipped before {at}");
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::NoData);
                assert!(offset >= size || !written[offset as usize..].contains(&true));
            }
        }
        match files.seek(fh, offset, Whence::Hole) {
            Ok(at) => assert!(at >= offset && at <= size && (at == size || !written[at as usize])),
            Err(refusal) => assert!(refusal == Refusal::NoData && offset >= size),
        }
    }
}

pub(super) fn steps() -> impl Strategy<Value = Vec<(usize, usize, Step)>> {
    prop::collection::vec((0..2usize, 0..2usize, step()), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_read_shows_the_last_write(steps in steps()) {
        let rig = Rig::new();
        History::new([rig.member(tiny()), rig.member(tiny())]).run_all(steps, &rig.member(tiny()));
    }
}
