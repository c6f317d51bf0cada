//! Reading files that others have made: the messages that it takes.

use chiton_client::data::Whence;
use chiton_client::{Client, OpenFlags};
use chiton_types::Ino;

use crate::site::Site;

/// As long as what is kept in the inode, as a small file in blocks, and longer than what one answer says of the map.
const LENGTHS: [usize; 3] = [100, 20 << 10, 3 << 20];

/// Opens, reads and closes; and the messages until it was read.
fn read(client: &Client, ino: Ino, len: usize) -> (Vec<u8>, u64) {
    let before = client.messages();
    let fh = client.open(&client.caller(), ino, OpenFlags::READ).expect("opened");
    let content = client.read(fh, 0, len + 1).expect("read");
    let messages = client.messages() - before;
    client.release(fh).expect("closed");
    (content, messages)
}

#[test]
fn opening_brings_the_content_of_a_small_file_with_it() {
    for plates in [1, 2] {
        let site = Site::with_plates(plates);
        let (writer, reader) = (site.connected(), site.connected());
        for len in LENGTHS {
            let path = format!("f{len}");
            let bytes: Vec<u8> = (0..len).map(|n| n as u8 ^ (n >> 8) as u8).collect();
            writer.create_file(&path, &bytes).expect("made");
            let ino = reader.stat(&path).expect("found").ino;
            let (content, messages) = read(&reader, ino, len);
            assert!(content == bytes, "{len} bytes, {plates} plates");
            assert!(messages <= if len < LENGTHS[2] { 1 } else { 2 }, "{messages} messages for {len} bytes");
        }
    }
}

#[test]
fn what_came_with_an_open_ends_with_a_change() {
    let site = Site::with_plates(1);
    let (writer, reader) = (site.connected(), site.connected());
    let ino = writer.create_file("f", b"first").expect("made").ino;
    let mine = writer.open(&writer.caller(), ino, OpenFlags::WRITE).expect("opened");
    for round in 0..50u8 {
        let fh = reader.open(&reader.caller(), ino, OpenFlags::READ).expect("opened");
        writer.write(&writer.caller(), mine, 0, &[round; 5]).expect("written");
        assert_eq!(reader.read(fh, 0, 10).expect("read"), [round; 5], "round {round}");
        reader.release(fh).expect("closed");
    }
}

#[test]
fn names_that_a_listing_lacks_are_absent_without_a_question() {
    let site = Site::with_plates(1);
    let (client, other) = (site.connected(), site.connected());
    let dir = client.mkdir_all("dir").expect("made").ino;
    for n in 0..300 {
        client.create_file(format!("dir/f{n}"), b"").expect("made");
    }
    let list = |client: &Client| {
        let (mut cookie, mut names) = (0, 0);
        loop {
            let (entries, end) = client.readdir(&client.caller(), dir, cookie, 100, true).expect("listed");
            names += entries.len();
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            if end {
                return names;
            }
        }
    };
    assert_eq!(list(&other), 300);
    let mut least = u64::MAX;
    for round in 0..20 {
        chiton_runtime::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(list(&client), 300 + 10 * round);
        let before = client.messages();
        for n in 0..10 {
            let name = format!("new{round}-{n}");
            let found = client.lookup(&client.caller(), dir, name.as_bytes()).expect("answered");
            assert!(matches!(found, chiton_client::Lookup::Absent { .. }));
            client.create_file(format!("dir/{name}"), b"").expect("made");
        }
        least = least.min(client.messages() - before);
    }
    assert!(least <= 11, "{least} messages for 10 files");
}

/// S38: a hole costs as little as its two ends, however large it is.
#[test]
fn seeking_over_a_huge_hole_takes_a_few_messages() {
    let site = Site::with_plates(1);
    let writer = site.connected();
    let root = writer.caller();
    let ino = writer.create_file("sparse", b"").expect("made").ino;
    let fh = writer.open(&root, ino, OpenFlags::READ_WRITE).expect("opened");
    let (near, far) = (1 << 40, 1 << 54);
    for at in [near, far] {
        writer.write(&root, fh, at, b"z").expect("written");
    }
    writer.fsync(fh, false).expect("durable");
    writer.release(fh).expect("closed");
    drop(writer);
    for round in ["first", "after a restart"] {
        let reader = site.connected();
        let fh = reader.open(&reader.caller(), ino, OpenFlags::READ).expect("opened");
        let before = reader.messages();
        assert_eq!(reader.seek(fh, 0, Whence::Data), Ok(near), "{round}");
        assert_eq!(reader.seek(fh, near + 1, Whence::Data), Ok(far), "{round}");
        assert_eq!(reader.seek(fh, 0, Whence::Hole), Ok(0), "{round}");
        assert_eq!(reader.seek(fh, far, Whence::Hole), Ok(far + 1), "{round}");
        assert_eq!(reader.read(fh, 1 << 50, 3).expect("read"), [0; 3], "{round}");
        let messages = reader.messages() - before;
        assert!(messages < 30, "{messages} messages, {round}");
        reader.release(fh).expect("closed");
        drop(reader);
        site.stop();
        site.start();
    }
}
