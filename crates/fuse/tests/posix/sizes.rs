//! Size, link count and inode of a file in one mount's kernel while another mount changes the file.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::mounted::Mounted;
use super::subject::{FsUnderTest, ROOT, Stat};
use super::two_mounts::TwoMounts;

fn open(fs: &Mounted, name: &str, how: &str) -> File {
    let mut options = File::options();
    let options = match how {
        "r" => options.read(true),
        "w" => options.write(true),
        "a" => options.append(true),
        _ => options.read(true).write(true).create(true),
    };
    options.open(fs.dir.join(name)).expect("open")
}

fn read_on(file: &mut File) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let n = file.read(&mut bytes).expect("read");
    bytes.truncate(n);
    bytes
}

fn last_error() -> String {
    std::io::Error::last_os_error().to_string()
}

/// A byte of a file through a fresh mapping. A page behind the file's end is an error here, where a plain load would be the
/// end of the test's process.
fn mapped(file: &File, at: u64) -> Result<u8, String> {
    const PAGE: u64 = 4096;
    let (page, within) = (at / PAGE * PAGE, (at % PAGE) as usize);
    let (mut pipe_out, pipe_in) = std::io::pipe().expect("a pipe");
    // SAFETY: a fresh mapping of one page, read by the system only, and unmapped once.
    unsafe {
        let protection = libc::PROT_READ;
        let map = libc::mmap(
            std::ptr::null_mut(),
            PAGE as usize,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            page as i64,
        );
        assert_ne!(map, libc::MAP_FAILED, "{}", last_error());
        let wrote = libc::write(pipe_in.as_raw_fd(), map.cast::<u8>().add(within).cast(), 1);
        let result = if wrote == 1 { Ok(()) } else { Err(last_error()) };
        libc::munmap(map, PAGE as usize);
        result?;
    }
    let mut byte = [0];
    pipe_out.read_exact(&mut byte).expect("one byte");
    Ok(byte[0])
}

fn copied(from: &File, to: &File, at: u64, len: usize) -> isize {
    let (mut at, mut into) = (at as i64, 0);
    // SAFETY: live descriptors and numbers.
    unsafe { libc::copy_file_range(from.as_raw_fd(), &mut at, to.as_raw_fd(), &mut into, len, 0) }
}

fn sent(from: &File, to: &File, at: u64, len: usize) -> isize {
    let mut at = at as i64;
    // SAFETY: as above.
    unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), &mut at, len) }
}

fn end(file: &File) -> i64 {
    // SAFETY: as above.
    unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) }
}

/// S2, S3: a reader that stands at the old end reads on, whether the writer has closed the file or not.
#[test]
fn a_reader_at_the_old_end_reads_what_another_mount_appends() {
    for two in TwoMounts::all() {
        for (round, reads_first) in [true, false, true].into_iter().enumerate() {
            let name = format!("log{round}");
            two.a.put(ROOT, &format!("/{name}"), b"hello").expect("put");
            let early = reads_first.then(|| open(&two.b, &name, "r"));
            let mut writer = open(&two.a, &name, "a");
            let mut reader = early.unwrap_or_else(|| open(&two.b, &name, "r"));
            assert_eq!(read_on(&mut reader), b"hello");
            for line in 0..20 {
                let line = format!(" line {line}");
                writer.write_all(line.as_bytes()).expect("append");
                assert_eq!(String::from_utf8(read_on(&mut reader)), Ok(line));
            }
            writer.write_all(b" last").expect("append");
            drop(writer);
            assert_eq!(read_on(&mut reader), b" last");
            assert_eq!(read_on(&mut reader), b"");
        }
    }
}

/// S90: a descriptor that was open before, and on which nothing was asked since, ends where another mount's write ended.
#[test]
fn calls_without_a_request_see_the_size_from_another_mount() {
    const OLD: u64 = 5;
    for two in TwoMounts::all() {
        let copy = open(&two.b, "copy", "new");
        let mut case = 0;
        for size in [4096u64, 4097, 8192, 500_000] {
            for how in ["write", "append", "ftruncate", "truncate", "fallocate", "copy"] {
                for closed in [false, true] {
                    let name = format!("f{case}");
                    case += 1;
                    let path = format!("/{name}");
                    let old = vec![b'o'; OLD as usize];
                    two.a.put(ROOT, &path, &old).expect("put");
                    let readers: Vec<File> = (0..4).map(|_| open(&two.b, &name, "r")).collect();
                    let writer = open(&two.a, &name, if how == "append" { "a" } else { "rw" });
                    let more = vec![b'n'; (size - OLD) as usize];
                    let mut last = 0;
                    match how {
                        "write" => writer.write_all_at(&more, OLD).expect("write"),
                        "append" => (&writer).write_all(&more).expect("append"),
                        "ftruncate" => writer.set_len(size).expect("ftruncate"),
                        "truncate" => two.a.truncate(ROOT, &path, size).expect("truncate"),
                        "fallocate" => {
                            // SAFETY: a live descriptor and numbers.
                            let done = unsafe { libc::fallocate(writer.as_raw_fd(), 0, 0, size as i64) };
                            assert_eq!(done, 0, "{}", last_error());
                        }
                        _ => {
                            let source = open(&two.a, "source", "new");
                            source.write_all_at(&more, 0).expect("write");
                            let mut into = OLD as i64;
                            // SAFETY: as above.
                            let done = unsafe {
                                libc::copy_file_range(
                                    source.as_raw_fd(),
                                    &mut 0,
                                    writer.as_raw_fd(),
                                    &mut into,
                                    more.len(),
                                    0,
                                )
                            };
                            assert_eq!(done, more.len() as isize, "{}", last_error());
                        }
                    }
                    if matches!(how, "write" | "append" | "copy") {
                        last = b'n';
                    }
                    let kept = if closed { None } else { Some(writer) };
                    let about = format!("{how} to {size}, closed: {closed}");
                    assert_eq!(mapped(&readers[0], size - 1), Ok(last), "mapping, {about}");
                    assert_eq!(copied(&readers[1], &copy, 0, size as usize), size as isize, "copy, {about}");
                    copy.set_len(0).expect("ftruncate");
                    assert_eq!(sent(&readers[2], &copy, size - 1, 10), 1, "sendfile, {about}");
                    assert_eq!(end(&readers[3]), size as i64, "lseek, {about}");
                    let mut all = vec![0; size as usize + 10];
                    let mut n = 0;
                    while let more @ 1.. = readers[3].read_at(&mut all[n..], n as u64).expect("read") {
                        n += more;
                    }
                    assert_eq!(n as u64, size, "read, {about}");
                    assert_eq!((all[0], all[OLD as usize], all[n - 1]), (b'o', last, last), "read, {about}");
                    drop(kept);
                }
            }
        }
    }
}

/// S90: a process that opens a file while another mount writes it, and maps it without reading its attributes, sees
/// all of it.
#[test]
fn a_file_that_is_opened_while_another_mount_writes_it_is_mapped_to_its_end() {
    for two in TwoMounts::all() {
        two.a.put(ROOT, "/f", b"x").expect("put");
        let writer = open(&two.a, "f", "w");
        let mut size = 1;
        for round in 0..10u8 {
            let more = vec![round; 70_000];
            writer.write_all_at(&more, size).expect("write");
            size += more.len() as u64;
            if round % 3 == 1 {
                // The kernel has read the attributes in between, and may cache them until the next write.
                drop(open(&two.b, "f", "r"));
                assert_eq!(two.b.stat(ROOT, "/f").expect("stat").size, size);
                writer.write_all_at(&more, size).expect("write");
                size += more.len() as u64;
            }
            let reader = open(&two.b, "f", "r");
            assert_eq!(mapped(&reader, size - 1), Ok(round), "round {round}");
            drop(reader);
        }
    }
}

/// S90: each growth is visible before it is acknowledged, whatever the kernel caches of the file's last page.
#[test]
fn a_mapping_follows_a_file_that_grows_elsewhere() {
    for two in TwoMounts::all() {
        two.a.put(ROOT, "/f", b"x").expect("put");
        let (writer, reader) = (open(&two.a, "f", "w"), open(&two.b, "f", "r"));
        let mut size = 1u64;
        for (round, step) in
            [1u64, 4094, 1, 1, 4095, 10_000, 1, 300_000].into_iter().cycle().take(40).enumerate()
        {
            let byte = b'a' + (round % 26) as u8;
            writer.write_all_at(&vec![byte; step as usize], size).expect("write");
            let begins = size;
            size += step;
            for at in [size - 1, begins, begins + step / 2] {
                assert_eq!(mapped(&reader, at), Ok(byte), "round {round}, byte {at} of {size}");
            }
            // Readers see an overwrite as well: they do not trust the page from which they learned the end.
            writer.write_all_at(b"!", size - 1).expect("write");
            assert_eq!(mapped(&reader, size - 1), Ok(b'!'), "round {round}");
        }
    }
}

/// S3: stat(2) of a file that this mount has open is exact; of any other file it shows the pushed size.
#[test]
fn stat_of_an_open_file_is_exact() {
    for two in TwoMounts::all() {
        two.a.put(ROOT, "/f", b"x").expect("put");
        let writer = open(&two.a, "f", "w");
        let reader = open(&two.b, "f", "r");
        for size in [10u64, 5000, 70_000] {
            writer.write_all_at(&vec![1; size as usize], 0).expect("write");
            assert_eq!(two.b.stat(ROOT, "/f").expect("stat").size, size);
            assert_eq!(reader.metadata().expect("fstat").len(), size);
            let times = |stat: Stat| (stat.mtime, stat.ctime);
            let (near, far) = (two.a.stat(ROOT, "/f").expect("stat"), two.b.stat(ROOT, "/f").expect("stat"));
            assert_eq!(times(near), times(far), "{size}");
        }
    }
}

/// S91: a rename over one of several names of a file, or an exchange, is seen at its other names: links and ctime.
#[test]
fn other_names_of_a_file_show_the_effect_of_a_rename() {
    for two in TwoMounts::all() {
        let (mut near, mut far) = (&two.a, &two.b);
        near.mkdir(ROOT, "/d", 0o755).expect("mkdir");
        for round in 0..6 {
            let name = |of: &str| format!("/d/{of}{round}");
            near.put(ROOT, &name("new"), b"new").expect("put");
            near.put(ROOT, &name("one"), b"old").expect("put");
            near.link(ROOT, &name("one"), &name("two")).expect("link");
            let seen = |of: &str| [near, far].map(|fs| fs.stat(ROOT, &name(of)).expect("stat"));
            let before = seen("two");
            assert_eq!(before.map(|stat| stat.nlink), [2, 2]);
            std::thread::sleep(Duration::from_millis(2));
            near.rename(ROOT, &name("new"), &name("one"), 0).expect("rename");
            let after = seen("two");
            assert_eq!(after.map(|stat| stat.nlink), [1, 1], "round {round}");
            assert!(after[0].ctime > before[0].ctime && after[0].ctime == after[1].ctime, "round {round}");
            near.link(ROOT, &name("two"), &name("three")).expect("link");
            let before = seen("three");
            std::thread::sleep(Duration::from_millis(2));
            near.rename(ROOT, &name("one"), &name("two"), libc::RENAME_EXCHANGE).expect("exchange");
            let after = seen("three");
            assert!(after[0].ctime > before[0].ctime && after[0].ctime == after[1].ctime, "round {round}");
            std::mem::swap(&mut near, &mut far);
        }
    }
}

/// S92: a path that always exists is always found while other clients rename over it.
#[test]
fn a_path_that_always_exists_is_answered_while_others_replace_it() {
    for two in TwoMounts::all() {
        let text = |n: usize| vec![b'0' + (n % 10) as u8; 2000];
        two.a.put(ROOT, "/v", &text(0)).expect("put");
        two.a.mkdir(ROOT, "/dir", 0o755).expect("mkdir");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut n = 0;
                while !over.load(Ordering::Relaxed) {
                    n += 1;
                    two.a.put(ROOT, "/tmp", &text(n)).expect("put");
                    two.a.rename(ROOT, "/tmp", "/v", 0).expect("rename");
                    two.a.mkdir(ROOT, "/tmpdir", 0o755).expect("mkdir");
                    two.a.rename(ROOT, "/tmpdir", "/dir", 0).expect("rename");
                }
                n
            });
            let readers: Vec<_> = [&two.a, &two.b]
                .map(|fs| {
                    scope.spawn(move || {
                        for _ in 0..1500 {
                            let bytes =
                                std::fs::read(fs.dir.join("v")).map_err(|e| e.raw_os_error().unwrap_or(0))?;
                            assert!(
                                bytes.len() == 2000 && bytes.iter().all(|byte| *byte == bytes[0]),
                                "torn"
                            );
                            fs.stat(ROOT, "/v")?;
                            fs.access(ROOT, "/v", libc::R_OK)?;
                            fs.chmod(ROOT, "/v", 0o644)?;
                            fs.stat(ROOT, "/dir")?;
                            fs.list(ROOT, "/dir")?;
                        }
                        Ok::<(), i32>(())
                    })
                })
                .into_iter()
                .collect();
            let results: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            over.store(true, Ordering::Relaxed);
            let replaced = writer.join().expect("no panic");
            for result in results {
                assert_eq!(result.expect("no panic"), Ok(()), "after {replaced} replacements");
            }
            assert!(replaced > 10);
        });
    }
}
