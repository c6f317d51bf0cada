//! Holes, borders of chunks, large files.

use chiton_model::CHUNK_BYTES;
use chiton_types::Refusal;

use super::{Rig, caller, tiny};
use crate::OpenFlags;
use crate::data::budget::Budget;
use crate::data::buffer::DirtyBuffer;
use crate::data::{FilesOptions, Whence};

#[test]
fn seeks_are_exact_before_and_after_a_push() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (ino, fh) = member.create();
    let far = 3 * CHUNK_BYTES;
    member.write(fh, 10, &[1; 30]);
    member.write(fh, far, &[1; 10]);
    caller(|c| member.files.fallocate(c, fh, 3, 20, 5)).expect("punch");
    caller(|c| member.files.truncate(c, ino, Some(fh), far + 100)).expect("truncate");
    let second = rig.member(tiny());
    for pushed in [false, true] {
        let (files, fh) = match pushed {
            false => (&member.files, fh),
            true => (&second.files, second.open(ino, OpenFlags::READ)),
        };
        let check = |offset, whence, expect| {
            assert_eq!(files.seek(fh, offset, whence), expect, "{offset} {whence:?}, pushed {pushed}");
        };
        check(0, Whence::Data, Ok(10));
        check(0, Whence::Hole, Ok(0));
        check(12, Whence::Data, Ok(12));
        check(12, Whence::Hole, Ok(20));
        check(22, Whence::Data, Ok(25));
        check(25, Whence::Hole, Ok(40));
        check(40, Whence::Data, Ok(far));
        check(far, Whence::Hole, Ok(far + 10));
        check(far + 10, Whence::Data, Err(Refusal::NoData));
        check(far + 10, Whence::Hole, Ok(far + 10));
        check(far + 100, Whence::Hole, Err(Refusal::NoData));
    }
}

#[test]
fn content_over_the_border_of_a_chunk() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (ino, fh) = member.create();
    let data: Vec<u8> = (0..200).collect();
    member.write(fh, CHUNK_BYTES - 100, &data);
    caller(|c| member.files.fallocate(c, fh, 3, CHUNK_BYTES - 3, 6)).expect("punch");
    member.files.release(fh).expect("release");
    let mut expect = data;
    expect[97..103].fill(0);
    let second = rig.member(tiny());
    let fh = second.open(ino, OpenFlags::READ_WRITE);
    assert_eq!(second.files.read(fh, CHUNK_BYTES - 100, 300), Ok(expect.clone()));
    assert_eq!(second.files.read(fh, 5, 3), Ok(vec![0; 3]));
    let mut into = [9; 50];
    assert_eq!(second.files.read_into(fh, CHUNK_BYTES + 90, &mut into), Ok(10));
    assert_eq!((&into[..10], into[10]), (&expect[190..], 9));
    // A punch far larger than the file.
    caller(|c| second.files.fallocate(c, fh, 3, 0, 1 << 50)).expect("punch");
    assert_eq!(second.files.seek(fh, 0, Whence::Data), Err(Refusal::NoData));
    second.files.fsync(fh, false).expect("fsync");
    assert!(rig.server.blocks(ino).is_empty());
}

#[test]
fn files_larger_than_memory_for_them() {
    let rig = Rig::new();
    let options = FilesOptions {
        block_bytes: 4096,
        dirty_bytes_max: 16 << 10,
        cache_bytes_max: 8 << 10,
        read_ahead_bytes_max: 64 << 10,
        ..tiny()
    };
    let (writer, reader) = (rig.member(options.clone()), rig.member(options));
    let (ino, fh) = writer.create();
    let data: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    for (n, part) in data.chunks(5000).enumerate() {
        writer.write(fh, n as u64 * 5000, part);
        assert!(writer.files.dirty_bytes() <= (16 << 10) + 3 * 5000);
    }
    let read = reader.open(ino, OpenFlags::READ);
    for (n, part) in data.chunks(3000).enumerate() {
        assert_eq!(reader.files.read(read, n as u64 * 3000, 3000).as_deref(), Ok(part), "part {n}");
    }
    writer.files.fsync(fh, false).expect("fsync");
    assert_eq!(writer.files.read(fh, 0, data.len()), Ok(data));
}

#[test]
fn copies_share_blocks() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let ((a, from), (b, to)) = (member.create(), member.create());
    let data: Vec<u8> = (0..100).collect();
    member.write(from, 0, &data);
    let n = caller(|c| member.files.copy_range(c, from, 10, to, 5, 1000));
    assert_eq!(n, Ok(90));
    assert!(rig.server.blocks(b).is_subset(&rig.server.blocks(a)) && !rig.server.blocks(b).is_empty());
    assert_eq!(member.files.read(to, 5, 1000).as_deref(), Ok(&data[10..]));
    assert_eq!(caller(|c| member.files.copy_range(c, from, 0, from, 99, 100)), Err(Refusal::Invalid));
    assert_eq!(caller(|c| member.files.copy_range(c, from, 100, to, 0, 10)), Ok(0));
    // A large copy onto a small inline file turns that into blocks first.
    let (c_ino, small) = member.create();
    member.write(small, 0, b"head");
    assert_eq!(caller(|c| member.files.copy_range(c, from, 0, small, 4, 100)), Ok(100));
    assert!(!rig.server.is_inline(c_ino));
    assert_eq!(member.files.read(small, 0, 200), Ok([&b"head"[..], &data].concat()));
}

#[test]
fn writing_from_back_to_front_copies_little() {
    let budget = Budget::new(usize::MAX, 1 << 20);
    let mut buffer = DirtyBuffer::new(1 << 20);
    for n in (0..64u64).rev() {
        buffer.write(n * 8192, &[n as u8; 8192], &budget);
    }
    let pieces = buffer.take(&budget);
    let mut at = 0;
    for (offset, bytes) in &pieces {
        assert_eq!(*offset, at);
        assert!(bytes.iter().enumerate().all(|(n, &b)| u64::from(b) == (at + n as u64) / 8192));
        at += bytes.len() as u64;
    }
    assert_eq!(at, 64 * 8192);
    for (_, bytes) in pieces {
        budget.give_buffer(bytes);
    }
    assert_eq!(budget.used_bytes(), 0);
}
