//! Open flags, and the weaker modes of consistency.

use std::time::Duration;

use chiton_types::Refusal;
use chiton_wire::LeaseMode;

use super::{ALICE, Rig, caller, tiny};
use crate::data::{DataMode, FilesOptions};
use crate::{Caller, Groups, OpenFlags};

#[test]
fn close_to_open_shows_what_was_closed_before_the_open() {
    let rig = Rig::new();
    let options = FilesOptions { data: DataMode::CloseToOpen, ..tiny() };
    let (writer, reader) = (rig.member(options.clone()), rig.member(options));
    let (ino, fh) = writer.create();
    writer.write(fh, 0, b"first");
    writer.files.flush(fh).expect("flush");
    let early = reader.open(ino, OpenFlags::READ);
    assert_eq!(reader.all(early), b"first");
    writer.write(fh, 0, b"again and longer than inline");
    assert_eq!(writer.all(fh), b"again and longer than inline", "its own writes");
    writer.files.release(fh).expect("release");
    assert_eq!(reader.all(early), b"first", "nothing is recalled");
    let late = reader.open(ino, OpenFlags::READ);
    assert_eq!(reader.all(late), b"again and longer than inline");
}

#[test]
fn lazy_readers_see_what_was_pushed() {
    let rig = Rig::new();
    let options =
        |ms| FilesOptions { data: DataMode::Lazy, flush_interval: Duration::from_millis(ms), ..tiny() };
    let (writer, reader) = (rig.member(options(3_600_000)), rig.member(options(0)));
    let (ino, fh) = writer.create();
    let read = reader.open(ino, OpenFlags::READ);
    writer.write(fh, 0, &[1; 30]);
    assert_eq!(reader.all(read), b"");
    writer.files.flush(fh).expect("flush");
    assert_eq!(reader.all(read), [1; 30]);
    writer.write(fh, 30, &[2; 30]);
    assert_eq!(reader.all(read), [1; 30], "a prefix");
    writer.files.sync().expect("sync");
    assert_eq!(reader.all(read).len(), 60);
}

/// S3: "On the writing mount stat is exact", also where attributes were on their way while the server recalled the file.
#[test]
fn attributes_that_a_recall_overtook_are_not_shown() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (ino, fh) = member.create();
    member.write(fh, 0, b"answered, not pushed");
    let mut attr = member.calls.stat(ino);
    member.files.recall(ino, LeaseMode::None);
    member.files.overlay(&mut attr);
    assert_eq!(attr.size, 20);
}

#[test]
fn synchronous_writes_commit_and_others_do_not() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (ino, fh) = member.create();
    let commits = |flags, expect: u32| {
        let before = rig.server.counts().1;
        let fh = member.open(ino, flags);
        member.write(fh, 0, b"x");
        member.write(fh, 0, b"y");
        assert_eq!(rig.server.counts().1 - before, expect, "{flags:?}");
        member.files.release(fh).expect("release");
    };
    commits(OpenFlags::WRITE, 0);
    commits(OpenFlags { sync: true, dsync: true, ..OpenFlags::WRITE }, 2);
    commits(OpenFlags { dsync: true, ..OpenFlags::WRITE }, 2);
    commits(OpenFlags { direct: true, ..OpenFlags::WRITE }, 0);
    member.files.flush(fh).expect("flush");
    let before = rig.server.counts();
    member.files.fsync(fh, true).expect("fsync");
    assert_eq!((rig.server.counts().0, rig.server.counts().1), (before.0, before.1 + 1));
}

#[test]
fn set_id_bits_fall_when_an_ordinary_user_writes() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (_, fh) = member.create();
    let write = |uid, expect: u32| {
        let before = rig.server.counts().2;
        let groups = [].into();
        let caller = Caller { uid, gid: 0, groups: Groups::Known(&groups) };
        member.files.write(&caller, fh, 0, b"x").expect("write");
        member.files.flush(fh).expect("flush");
        assert_eq!(rig.server.counts().2 - before, expect, "uid {uid}");
    };
    write(0, 0);
    write(ALICE, 1);
    write(0, 0);
}

#[test]
fn handles_do_what_they_were_opened_for() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (ino, fh) = member.create();
    let read = member.open(ino, OpenFlags::READ);
    let files = &member.files;
    assert_eq!(caller(|c| files.write(c, read, 0, b"x")), Err(Refusal::BadHandle));
    assert_eq!(caller(|c| files.fallocate(c, read, 0, 0, 1)), Err(Refusal::BadHandle));
    assert_eq!(caller(|c| files.write(c, fh, u64::MAX, b"x")), Err(Refusal::TooBig));
    assert_eq!(caller(|c| files.write(c, fh, 1 << 62, b"x")), Err(Refusal::TooBig));
    files.release(read).expect("release");
    assert_eq!(files.read(read, 0, 1), Err(Refusal::BadHandle));
    assert_eq!(files.flush(99), Err(Refusal::BadHandle));
}

#[test]
fn small_files_are_one_operation_and_no_block() {
    let rig = Rig::new();
    let member = rig.member(tiny());
    let (ino, fh) = member.create();
    for at in 0..20 {
        member.write(fh, at, &[at as u8]);
    }
    let before = rig.server.counts().0;
    member.files.flush(fh).expect("flush");
    assert_eq!(rig.server.counts().0, before + 1);
    assert!(rig.server.is_inline(ino));
    member.write(fh, 20, &[0; 20]);
    member.files.release(fh).expect("release");
    assert!(!rig.server.is_inline(ino));
    assert_eq!(rig.server.counts().0, before + 2);
}

#[test]
fn many_small_writes_share_a_block() {
    let rig = Rig::new();
    let member = rig.member(FilesOptions { block_bytes: 4096, ..tiny() });
    let (ino, fh) = member.create();
    member.write(fh, 0, &[1; 4096]);
    member.files.flush(fh).expect("flush");
    for n in 0..100 {
        member.write(fh, 4000 - n * 40, &[n as u8; 8]);
    }
    let before = rig.server.counts().0;
    member.files.flush(fh).expect("flush");
    assert_eq!(rig.server.counts().0, before + 1);
    assert_eq!(rig.server.blocks(ino).len(), 2);
}
