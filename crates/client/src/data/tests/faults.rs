//! A store that is full, rotten, or changed behind our back.

use std::sync::Arc;
use std::time::Duration;

use chiton_objects::Objects;
use chiton_runtime::sync::Mutex;
use chiton_types::{Plates, Position, Refusal};
use chiton_wire::LeaseMode;

use super::{Rig, caller, tiny};
use crate::data::{FilesOptions, OnLoss};
use crate::{OpenFlags, PlateInodes};

#[test]
fn full_store_is_reported_at_flush_and_data_wait_for_room() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (ino, fh) = member.create();
    let other = member.open(ino, OpenFlags::READ_WRITE);
    rig.objects.set_full(true);
    let data: Vec<u8> = (0..100).collect();
    member.write(fh, 0, &data);
    assert_eq!(member.files.flush(fh), Err(Refusal::NoSpace));
    assert_eq!(member.all(fh), data, "still here");
    assert_eq!(member.files.fsync(fh, true), Err(Refusal::NoSpace));
    rig.objects.set_full(false);
    assert_eq!(member.files.fsync(fh, true), Ok(()));
    // Every handle reports it once, also when it is over.
    assert_eq!(member.files.flush(other), Err(Refusal::NoSpace));
    assert_eq!(member.files.flush(other), Ok(()));
    let second = rig.member(tiny());
    let fh = second.open(ino, OpenFlags::READ);
    assert_eq!(second.all(fh), data);
}

/// S18: "… everything acknowledged before, *on the whole client*, is durable: content, names, attributes."
#[test]
fn fsync_of_one_file_takes_what_was_written_to_others_along() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let ((_, fh), (other_ino, other)) = (member.create(), member.create());
    member.write(other, 0, b"written, not closed");
    member.files.fsync(fh, false).expect("fsync");
    let second = rig.member(tiny());
    assert_eq!(member.files.dirty_bytes(), 0, "nothing waits to be stored");
    let seen = second.open(other_ino, OpenFlags::READ);
    assert_eq!(second.all(seen), b"written, not closed");
    // A block of another file that cannot be stored is reported to the handles of that file, once, in whatever order the threads of
    // its blocks run.
    for _ in 0..1000 {
        rig.objects.set_full(true);
        member.write(other, 0, &[7; 100]);
        assert_eq!(member.files.fsync(fh, false), Ok(()));
        assert_eq!(member.files.flush(other), Err(Refusal::NoSpace));
        rig.objects.set_full(false);
        assert_eq!(member.files.fsync(other, false), Ok(()));
    }
}

#[test]
fn a_writer_without_memory_gets_the_reason() {
    let rig = Rig::new();
    let options = FilesOptions { block_bytes: 64, dirty_bytes_max: 4096, inline_bytes_max: 24, ..tiny() };
    let member = rig.member(options);
    let (_, fh) = member.create();
    rig.objects.set_full(true);
    let mut written = 0;
    let refusal = loop {
        match caller(|c| member.files.write(c, fh, written, &[7; 64])) {
            Ok(n) => written += u64::from(n),
            Err(refusal) => break refusal,
        }
        assert!(written < 1 << 20, "the budget has an end");
    };
    assert_eq!(refusal, Refusal::NoSpace);
    rig.objects.set_full(false);
    member.write(fh, written, &[7; 64]);
    assert_eq!(member.files.flush(fh), Err(Refusal::NoSpace), "what failed meanwhile");
    assert_eq!(member.all(fh), vec![7; written as usize + 64]);
}

#[test]
fn a_refused_operation_keeps_the_data() {
    let rig = Rig::new();
    for len in [10u8, 100] {
        let member = rig.member(tiny());
        let (ino, fh) = member.create();
        let data: Vec<u8> = (0..len).collect();
        member.write(fh, 0, &data);
        rig.server.fail_next(1, Refusal::NoSpace);
        assert_eq!(member.files.flush(fh), Err(Refusal::NoSpace));
        assert_eq!(member.all(fh), data);
        member.write(fh, 3, &[255; 2]);
        assert_eq!(member.files.flush(fh), Ok(()));
        let second = rig.member(tiny());
        let read = second.open(ino, OpenFlags::READ);
        let mut expect = data;
        expect[3..5].fill(255);
        assert_eq!(second.all(read), expect);
    }
}

#[test]
fn a_lost_session_loses_what_was_not_answered_and_says_so() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (_, fh) = member.create();
    member.write(fh, 0, b"answered");
    member.files.flush(fh).expect("flush");
    member.write(fh, 0, b"not answered");
    member.files.forget(&PlateInodes::all(), Some(&std::collections::BTreeSet::new()));
    assert_eq!(member.files.fsync(fh, false), Err(Refusal::Io));
    assert_eq!(member.files.fsync(fh, false), Ok(()));
    assert_eq!(member.all(fh), b"answered");
}

#[test]
fn session_that_is_over_with_another_plate_loses_nothing_here() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (ino, fh) = member.create();
    member.write(fh, 0, b"dirty");
    let two = Plates::new(2, 2).expect("two plates");
    let plate = two.of(ino).expect("a shard of the two");
    for other in two.all().filter(|other| *other != plate) {
        let of_other = PlateInodes::of(two, other);
        assert_eq!(member.files.forget(&of_other, Some(&std::collections::BTreeSet::new())), []);
        assert_eq!(member.files.known(&of_other), []);
    }
    assert_eq!(member.files.known(&PlateInodes::of(two, plate)), [ino]);
    assert_eq!(member.files.fsync(fh, false), Ok(()));
    assert_eq!(rig.server.counts().0, 1, "it was pushed under the lease that it was written under");
    assert_eq!(member.all(fh), b"dirty");
}

/// A server that was restarted gives positions again that the one before had given to events that it lost.
#[test]
fn after_a_restart_older_positions_are_news() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (ino, fh) = member.create();
    for byte in 1..=5 {
        member.write(fh, 0, &[byte; 10]);
        member.files.flush(fh).expect("flush");
    }
    rig.server.restart_at(ino, Position(1));
    member.files.forget(&PlateInodes::all(), Some(&std::collections::BTreeSet::new()));
    assert_eq!(member.all(fh), [5; 10]);
}

/// S81: data that another client had appended before are lost with that client. Data appended here follow the rest, also where blocks
/// were made of them already; readers here see no zeros between them.
#[test]
fn what_was_appended_follows_the_end_that_a_restart_left() {
    let append = OpenFlags { append: true, read: true, ..OpenFlags::WRITE };
    for len in [3, 40, 200] {
        let rig = Rig::new();
        let (here, other) = (rig.member(tiny()), rig.member(tiny()));
        let (ino, fh) = here.create();
        here.write(fh, 0, &[1; 70]);
        let (fh, of_other) = (here.open(ino, append), other.open(ino, append));
        other.write(of_other, 0, &[2; 50]);
        here.write(fh, 0, &vec![3; len]);
        rig.server.wait_until(ino, |attr| attr.size == 120);
        rig.server.restart_shorter(ino, 70, Position(1));
        here.files.forget(&PlateInodes::all(), None);
        let mut expected = [vec![1; 70], vec![3; len]].concat();
        assert_eq!(here.all(fh), expected, "{len} bytes, not pushed");
        here.write(fh, 0, &[4; 9]);
        expected.extend([4; 9]);
        assert_eq!(here.files.fsync(fh, false), Ok(()));
        assert_eq!(here.all(fh), expected, "{len} bytes, pushed");
        let reader = rig.member(tiny());
        let fh = reader.open(ino, OpenFlags::READ);
        assert_eq!(reader.all(fh), expected, "{len} bytes, elsewhere");
    }
}

#[test]
fn a_rotten_block_is_an_error_and_a_moved_one_is_found() {
    let rig = Rig::new();
    let writer = rig.member(tiny());
    let (ino, fh) = writer.create();
    let data: Vec<u8> = (0..48).collect();
    writer.write(fh, 0, &data);
    writer.files.flush(fh).expect("flush");
    let reader = rig.member(tiny());
    let fh = reader.open(ino, OpenFlags::READ);
    assert_eq!(reader.all(fh), data);
    // The reader's map is cached and names blocks that are gone.
    rig.server.compact(ino);
    assert_eq!(reader.all(fh), data);
    let key = rig.server.blocks(ino).first().expect("a block").key();
    rig.objects.corrupt(&key, |bytes| bytes[3] ^= 1);
    assert_eq!(reader.files.read(fh, 0, 48), Err(Refusal::Io));
    assert_eq!(reader.files.read(fh, 16, 32), Ok(data[16..].to_vec()), "the other blocks are fine");
    rig.objects.delete(&key).expect("delete");
    assert_eq!(reader.files.read(fh, 0, 48), Err(Refusal::Io));
}

#[test]
fn dirty_data_reach_the_server_by_themselves() {
    let rig = Rig::new();
    let member = rig.member(FilesOptions { flush_interval: Duration::from_millis(4), ..tiny() });
    let (ino, fh) = member.create();
    for size in [10u64, 100] {
        member.write(fh, size - 10, &[1; 10]);
        rig.server.wait_until(ino, |attr| attr.size == size);
    }
    let (writes, ..) = rig.server.counts();
    member.files.release(fh).expect("release");
    assert_eq!(rig.server.counts().0, writes, "nothing is sent when nothing is dirty");
}

/// S23: "The next fsync of the file through the same mount reports the loss once more …": also by a handle that was opened afterwards.
#[test]
fn loss_at_close_is_reported_by_next_fsync_of_any_handle() {
    let rig = Rig::new();
    for (len, reported_at_close) in [(10, true), (100, true), (100, false)] {
        let member = rig.member(tiny());
        let (ino, fh) = member.create();
        member.write(fh, 0, &vec![7; len]);
        let fail = || match len {
            // Small ones need no store.
            10 => rig.server.fail_next(1, Refusal::NoSpace),
            _ => rig.objects.set_full(true),
        };
        if reported_at_close {
            fail();
            assert_eq!(member.files.flush(fh), Err(Refusal::NoSpace));
        }
        fail();
        assert_eq!(member.files.release(fh), Err(Refusal::NoSpace));
        rig.objects.set_full(false);
        // Some who have nothing to do with it, and one who only looks.
        let (_, other) = member.create();
        assert_eq!(member.files.fsync(other, false), Ok(()));
        let reader = member.open(ino, OpenFlags::READ);
        assert_eq!(member.files.flush(reader), Ok(()), "close(2) of who wrote nothing");
        let sync = if reported_at_close { Ok(()) } else { Err(Refusal::NoSpace) };
        assert_eq!((member.files.sync(), member.files.sync()), (sync, Ok(())));
        assert_eq!(member.files.fsync(reader, false), Err(Refusal::NoSpace));
        assert_eq!(member.files.fsync(reader, false), Ok(()), "once");
        let later = member.open(ino, OpenFlags::READ_WRITE);
        assert_eq!(member.files.fsync(later, false), Ok(()), "once, for all");
    }
}

#[test]
fn what_was_lost_of_a_file_that_is_written_anew_is_no_error_of_the_new() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (ino, fh) = member.create();
    rig.objects.set_full(true);
    member.write(fh, 0, &[7; 100]);
    assert_eq!(member.files.release(fh), Err(Refusal::NoSpace));
    rig.objects.set_full(false);
    let anew = OpenFlags { truncate: true, ..OpenFlags::READ_WRITE };
    let fh = member.open(ino, anew);
    member.write(fh, 0, &[8; 100]);
    assert_eq!(member.files.fsync(fh, false), Ok(()));
    assert_eq!(member.all(fh), [8; 100]);
}

/// S23, of a push that nobody waits for: a recall that cannot store.
#[test]
fn loss_at_recall_is_reported_to_every_handle_and_to_sync() {
    let rig = Rig::new();
    let losses = Arc::new(Mutex::new(Vec::new()));
    let noted = losses.clone();
    let on_loss = OnLoss::new(move |ino, why| noted.lock().push((ino, why)));
    let member = rig.member(FilesOptions { on_loss, ..tiny() });
    let (ino, fh) = member.create();
    let [flushed, synced, spared] = [(); 3].map(|()| member.open(ino, OpenFlags::READ_WRITE));
    rig.objects.set_full(true);
    member.write(fh, 0, &[7; 100]);
    member.files.recall(ino, LeaseMode::None);
    rig.objects.set_full(false);
    assert_eq!(*losses.lock(), [(ino, Refusal::NoSpace)]);
    let later = member.open(ino, OpenFlags::READ_WRITE);
    assert!(member.all(fh).is_empty(), "another client goes on without it");
    assert_eq!(member.files.push_all(), Ok(()), "nothing waits");
    assert_eq!(member.files.sync(), Err(Refusal::NoSpace));
    assert_eq!(member.files.sync(), Ok(()), "once");
    assert_eq!(member.files.flush(flushed), Err(Refusal::NoSpace));
    assert_eq!(member.files.release(flushed), Ok(()), "once");
    assert_eq!(member.files.fsync(synced, false), Err(Refusal::NoSpace));
    assert_eq!(member.files.fsync(synced, false), Ok(()), "once");
    assert_eq!(member.files.release(fh), Err(Refusal::NoSpace), "without a flush before");
    assert_eq!(member.files.release(spared), Err(Refusal::NoSpace));
    assert_eq!(member.files.release(later), Ok(()), "opened afterwards");
}
