//! Content: reading, writing, holes, and their shapes.

use super::fixture::over_both;
use super::subject::ROOT;

const RDWR: i32 = libc::O_CREAT | libc::O_RDWR;

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ salt).collect()
}

/// S2: reads return what was written, small and large, through new and old descriptors.
#[test]
fn reads_return_written_bytes() {
    over_both(|fs| {
        for len in [0, 1, 4095, 8192, 8193, 70_000, 5 << 20] {
            let bytes = pattern(len, 7);
            let fd = fs.open(ROOT, "/f", RDWR, 0o644).expect("open");
            fs.write_at(ROOT, fd, 0, &bytes).expect("write");
            assert_eq!(fs.fstat(fd).expect("fstat").size, len as u64);
            assert!(fs.read_at(fd, 0, len + 10).expect("read") == bytes, "{len}, open");
            fs.close(fd).expect("close");
            assert!(fs.get(ROOT, "/f").expect("get") == bytes, "{len}, closed");
            let middle = fs.open(ROOT, "/f", libc::O_RDWR, 0).expect("open");
            if len > 100 {
                fs.write_at(ROOT, middle, len as u64 / 2, b"inserted").expect("write");
                let mut expect = bytes.clone();
                expect[len / 2..len / 2 + 8].copy_from_slice(b"inserted");
                assert!(fs.get(ROOT, "/f").expect("get") == expect, "{len}, overwritten");
            }
            fs.close(middle).expect("close");
            fs.unlink(ROOT, "/f").expect("unlink");
        }
    });
}

/// S38: unwritten ranges read as zeros and take no space.
#[test]
fn holes_read_as_zeros() {
    over_both(|fs| {
        let fd = fs.open(ROOT, "/f", RDWR, 0o644).expect("open");
        fs.write_at(ROOT, fd, 10 << 20, b"end").expect("write");
        fs.write_at(ROOT, fd, 1 << 20, &pattern(100_000, 1)).expect("write");
        fs.fsync(fd).expect("fsync");
        let stat = fs.fstat(fd).expect("fstat");
        assert_eq!(stat.size, (10 << 20) + 3);
        assert!(stat.blocks * 512 < 1 << 20, "{} blocks", stat.blocks);
        assert!(fs.read_at(fd, 0, 1 << 20).expect("read").iter().all(|&b| b == 0));
        let data = fs.seek(fd, 0, libc::SEEK_DATA).expect("data");
        assert!(data <= 1 << 20 && data > 0, "{data}");
        let hole = fs.seek(fd, 1 << 20, libc::SEEK_HOLE).expect("hole");
        assert!(((1 << 20) + 100_000..10 << 20).contains(&hole), "{hole}");
        assert_eq!(fs.seek(fd, 11 << 20, libc::SEEK_DATA), Err(libc::ENXIO));
        fs.close(fd).expect("close");
    });
}

/// S38: cutting and extending.
#[test]
fn truncation_cuts_and_extends_by_zeros() {
    over_both(|fs| {
        for len in [5_000, 300_000] {
            let bytes = pattern(len, 3);
            fs.put(ROOT, "/f", &bytes).expect("put");
            fs.truncate(ROOT, "/f", 1_000).expect("cut");
            assert!(fs.get(ROOT, "/f").expect("get") == bytes[..1_000]);
            fs.truncate(ROOT, "/f", 4_000).expect("extend");
            let got = fs.get(ROOT, "/f").expect("get");
            assert!(got[..1_000] == bytes[..1_000] && got[1_000..] == [0; 3_000], "{len}");
            let fd = fs.open(ROOT, "/f", libc::O_RDWR | libc::O_TRUNC, 0).expect("open");
            assert_eq!(fs.fstat(fd).expect("fstat").size, 0);
            fs.close(fd).expect("close");
        }
        assert_eq!(fs.truncate(ROOT, "/f", 1 << 60), Err(libc::EFBIG));
        fs.mkdir(ROOT, "/d", 0o755).expect("mkdir");
        assert_eq!(fs.truncate(ROOT, "/d", 0), Err(libc::EISDIR));
    });
}

/// S16: appends go to the end.
#[test]
fn appends_go_to_the_end() {
    over_both(|fs| {
        fs.put(ROOT, "/f", b"0").expect("put");
        let one = fs.open(ROOT, "/f", libc::O_WRONLY | libc::O_APPEND, 0).expect("open");
        let two = fs.open(ROOT, "/f", libc::O_WRONLY | libc::O_APPEND, 0).expect("open");
        for round in 1..10u8 {
            let fd = if round % 2 == 0 { one } else { two };
            fs.write_at(ROOT, fd, 0, &[b'0' + round]).expect("append");
        }
        fs.close(one).expect("close");
        fs.close(two).expect("close");
        assert_eq!(fs.get(ROOT, "/f"), Ok(b"0123456789".to_vec()));
    });
}

/// S39: fallocate.
#[test]
fn fallocate_shapes_a_file() {
    over_both(|fs| {
        let (keep, punch, zero, collapse) = (
            libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_PUNCH_HOLE,
            libc::FALLOC_FL_ZERO_RANGE,
            libc::FALLOC_FL_COLLAPSE_RANGE,
        );
        let bytes = pattern(200_000, 9);
        let fd = fs.open(ROOT, "/f", RDWR, 0o644).expect("open");
        fs.write_at(ROOT, fd, 0, &bytes).expect("write");
        fs.fallocate(fd, punch | keep, 10_000, 50_000).expect("punch");
        fs.fallocate(fd, zero, 150_000, 100_000).expect("zero");
        let mut expect = bytes;
        expect[10_000..60_000].fill(0);
        expect.truncate(150_000);
        expect.resize(250_000, 0);
        assert!(fs.read_at(fd, 0, 300_000).expect("read") == expect);
        fs.fallocate(fd, 0, 0, 260_000).expect("extend");
        fs.fallocate(fd, keep, 0, 900_000).expect("keep");
        assert_eq!(fs.fstat(fd).expect("fstat").size, 260_000);
        assert_eq!(fs.fallocate(fd, collapse, 0, 4096), Err(libc::EOPNOTSUPP));
        fs.close(fd).expect("close");
    });
}

/// S40: copy_file_range.
#[test]
fn ranges_are_copied_between_files() {
    over_both(|fs| {
        for len in [3_000u64, 900_000] {
            let bytes = pattern(len as usize, 5);
            fs.put(ROOT, "/from", &bytes).expect("put");
            let from = fs.open(ROOT, "/from", libc::O_RDONLY, 0).expect("open");
            let to = fs.open(ROOT, "/to", RDWR | libc::O_TRUNC, 0o644).expect("open");
            let mut done = 0;
            while done < len - 100 {
                let n = fs.copy_range(from, 100 + done, to, 50 + done, len - 100 - done).expect("copy");
                assert!(n > 0, "{done} of {len}");
                done += n;
            }
            let got = fs.read_at(to, 0, len as usize + 99).expect("read");
            assert!(got[..50] == [0; 50] && got[50..] == bytes[100..], "{len}");
            assert_eq!(fs.copy_range(to, 0, to, 10, 100), Err(libc::EINVAL));
            fs.close(from).expect("close");
            fs.close(to).expect("close");
        }
    });
}
