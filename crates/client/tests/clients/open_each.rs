//! Opening many files at once: handles are as those of single opens.

use chiton_client::{FileToOpen, OnRefusal, OpenFlags};
use chiton_types::{Attr, Ino, Mode, Refusal, access};
use chiton_wire::StatTarget;

use crate::stats::{DIRS, scene};

fn to_open<'a>(parent: Ino, name: &'a [u8], flags: OpenFlags, content: Option<&'a [u8]>) -> FileToOpen<'a> {
    FileToOpen { parent, name, flags, create: content.map(|content| (Mode(0o444), content)) }
}

#[test]
fn many_files_are_made_and_opened_by_few_messages() {
    for plates in [1, 3] {
        let (site, client, dirs) = scene(plates);
        let (caller, exclusive) = (client.caller(), OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE });
        let names: Vec<Vec<u8>> = (0..300).map(|n| format!("new-{n}").into_bytes()).collect();
        let files: Vec<FileToOpen<'_>> = names
            .iter()
            .enumerate()
            .map(|(n, name)| to_open(dirs[n % DIRS], name, exclusive, Some(name)))
            .collect();
        let before = client.messages();
        let opened: Vec<(Attr, u64)> =
            client.open_each(&caller, &files).into_iter().map(|one| one.expect("opened")).collect();
        assert_eq!(client.messages() - before, 2 * u64::from(plates), "to make, and to open");
        for (name, (attr, fh)) in names.iter().zip(&opened) {
            assert_eq!((attr.mode, attr.size), (Mode(0o444), name.len() as u64));
            assert_eq!(client.read(*fh, 0, 100).as_ref(), Ok(name));
        }
        // Handles outlive names and a crash of the server.
        client.sync().expect("durable");
        site.kill();
        site.start();
        let all: Vec<(Ino, &[u8])> = files.iter().map(|file| (file.parent, file.name)).collect();
        let used = client.statfs().expect("counted").inodes_used;
        assert!(client.unlink_each(&caller, &all).iter().all(Result::is_ok));
        assert_eq!(client.read(opened[7].1, 0, 100).as_ref(), Ok(&names[7]));
        client.write(&caller, opened[8].1, 0, b"NEW").expect("a handle for writing, whatever the mode");
        assert_eq!(client.read(opened[8].1, 0, 5), Ok(b"NEW-8".to_vec()));
        let handles: Vec<u64> = opened.iter().map(|(_, fh)| *fh).collect();
        assert!(client.close_each(&handles).iter().all(Result::is_ok));
        client.sync().expect("durable");
        let is_freed = || client.statfs().expect("counted").inodes_used == used - 300;
        // The closes travel with later requests, and the server frees the files afterwards.
        let touch = |_| {
            client.create_file("dir-0/touch", b"").expect("made");
            client.remove("dir-0/touch").expect("removed");
            client.sync().expect("durable");
            is_freed()
        };
        assert!((0..500).any(touch), "what was opened is closed");
    }
}

#[test]
fn each_file_is_opened_or_refused_as_open_does() {
    let (site, client, dirs) = scene(3);
    let caller = client.caller();
    let (read, large) = (OpenFlags::READ, vec![9; 300_000]);
    let exclusive = OpenFlags { exclusive: true, ..read };
    let truncate = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    client.create_file("dir-2/full", b"full").expect("made");
    let files = [
        to_open(dirs[0], b"file", read, None),
        to_open(dirs[1], b"none", read, None),
        to_open(dirs[2], b"sub", read, None),
        to_open(dirs[3], b"file", exclusive, Some(b"new")),
        to_open(dirs[3], b"file", read, Some(b"new")),
        to_open(dirs[4], b"large", read, Some(&large)),
        to_open(dirs[5], b"link", read, None),
        to_open(dirs[2], b"full", truncate, None),
        to_open(dirs[2], b"", read, None),
        to_open(dirs[0], b"small", truncate, Some(b"small")),
        // The second of two that make the same file opens it.
        to_open(dirs[0], b"small", read, Some(b"other")),
    ];
    let opened = client.open_each(&caller, &files);
    let sizes: Vec<Result<u64, Refusal>> =
        opened.iter().map(|one| one.as_ref().map(|(attr, _)| attr.size).map_err(|no| *no)).collect();
    assert_eq!(
        sizes[..7],
        [Ok(1), Err(Refusal::NotFound), Err(Refusal::IsDir), Err(Refusal::Exists), Ok(1), Ok(300_000), Ok(1),]
    );
    assert_eq!(sizes[8..], [Err(Refusal::Invalid), Ok(5), Ok(5)]);
    let handles: Vec<u64> = opened.iter().flatten().map(|(_, fh)| *fh).collect();
    assert!(client.close_each(&handles).iter().all(Result::is_ok));
    let other = site.connected();
    assert_eq!(other.read_file("dir-4/large"), Ok(large));
    assert_eq!(other.read_file("dir-2/full"), Ok(Vec::new()), "emptied");
    assert_eq!(other.read_file("dir-0/small"), Ok(b"small".to_vec()));
    assert_eq!(other.read_file("dir-3/file"), Ok(b"x".to_vec()));
    let target = StatTarget::Open { ino: dirs[0], want: access::WRITE };
    let refused = client.stat_targets(&caller, vec![target], OnRefusal::PerformAll);
    assert_eq!(refused, [Err(Refusal::IsDir)]);
}
