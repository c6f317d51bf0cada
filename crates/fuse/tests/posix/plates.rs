//! Two mounts of a file system whose directories are spread over several plates.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::two_mounts::TwoMounts;

const PLATES: u16 = 3;
const DIRS: usize = 24;

/// Names and sizes of all that is below a directory.
fn tree(dir: &Path) -> BTreeSet<(String, u64)> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(dir).expect("listed") {
        let entry = entry.expect("an entry");
        let (name, meta) = (entry.file_name().into_string().expect("text"), entry.metadata().expect("there"));
        if meta.is_dir() {
            all.extend(
                tree(&entry.path()).into_iter().map(|(below, size)| (format!("{name}/{below}"), size)),
            );
        }
        all.insert((name, if meta.is_dir() { 0 } else { meta.len() }));
    }
    all
}

#[test]
fn mounts_show_one_tree_and_each_sees_what_the_other_does() {
    let mounts = TwoMounts::over_plates(PLATES);
    let (a, b) = (&mounts.a.dir, &mounts.b.dir);
    for n in 0..DIRS {
        let (here, there) = if n % 2 == 0 { (a, b) } else { (b, a) };
        let dir = format!("d{n}");
        fs::create_dir_all(here.join(&dir).join("sub")).expect("made");
        fs::write(here.join(&dir).join("small"), b"0123456789").expect("written");
        fs::write(here.join(&dir).join("large"), vec![7; 200_000]).expect("written");
        fs::write(there.join(&dir).join("sub/file"), b"below").expect("written by the other");
        assert_eq!(fs::metadata(here.join(&dir)).expect("there").nlink(), 3);
        assert_eq!(fs::read(there.join(&dir).join("large")).expect("read").len(), 200_000);
        fs::rename(there.join(&dir).join("small"), there.join(&dir).join("moved")).expect("moved");
        assert!(!here.join(&dir).join("small").exists(), "{dir}");
        let moved = fs::File::open(here.join(&dir).join("moved")).expect("open");
        moved.sync_all().expect("durable");
    }
    let seen = tree(a);
    assert_eq!(seen.len(), DIRS * 5);
    assert_eq!(seen, tree(b));
    for n in 1..DIRS {
        let (from, to) = (a.join(format!("d{n}/moved")), a.join("d0").join(format!("from-{n}")));
        fs::hard_link(&from, &to).expect("linked");
        assert_eq!(fs::read(b.join("d0").join(format!("from-{n}"))).expect("read"), b"0123456789");
        assert_eq!(fs::metadata(b.join(format!("d{n}/moved"))).expect("there").nlink(), 2);
    }
    for n in 0..DIRS {
        let (here, there) = if n % 2 == 0 { (b, a) } else { (a, b) };
        fs::remove_dir_all(here.join(format!("d{n}"))).expect("removed");
        assert!(!there.join(format!("d{n}")).exists());
    }
    assert_eq!((tree(a), tree(b)), Default::default());
}

/// S118.
#[test]
fn files_get_names_in_directories_of_all_plates() {
    let mounts = TwoMounts::over_plates(PLATES);
    let (a, b) = (&mounts.a.dir, &mounts.b.dir);
    for n in 0..DIRS {
        fs::create_dir(a.join(format!("d{n}"))).expect("made");
    }
    for n in 0..DIRS {
        let (here, there) = if n % 2 == 0 { (a, b) } else { (b, a) };
        let (dir, next) = (format!("d{n}"), format!("d{}", (n + 1) % DIRS));
        // A file that one mount writes, and the other has open while it moves and loses its names.
        fs::write(here.join(&dir).join("file"), vec![n as u8; 70_000]).expect("written");
        let open = fs::File::open(there.join(&dir).join("file")).expect("open");
        fs::rename(here.join(&dir).join("file"), here.join(&next).join("moved")).expect("moved");
        assert!(!there.join(&dir).join("file").exists());
        assert_eq!(fs::read(there.join(&next).join("moved")).expect("read"), vec![n as u8; 70_000]);
        fs::hard_link(there.join(&next).join("moved"), there.join(&dir).join("again")).expect("linked");
        assert_eq!(fs::metadata(here.join(&next).join("moved")).expect("there").nlink(), 2);
        // Over another file.
        fs::write(here.join(&dir).join("over"), b"short").expect("written");
        fs::rename(here.join(&dir).join("over"), here.join(&next).join("moved")).expect("replaced");
        assert_eq!(fs::read(there.join(&next).join("moved")).expect("read"), b"short");
        assert_eq!(open.metadata().expect("open").nlink(), 1);
        fs::remove_file(there.join(&dir).join("again")).expect("removed");
        assert_eq!(open.metadata().expect("open").nlink(), 0);
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut &open, &mut content).expect("read");
        assert_eq!(content, vec![n as u8; 70_000]);
        fs::remove_file(here.join(&next).join("moved")).expect("removed");
    }
    for n in 0..DIRS {
        fs::remove_dir(b.join(format!("d{n}"))).expect("empty");
    }
}

/// S118.
#[test]
fn directories_move_between_plates_and_never_below_themselves() {
    let mounts = TwoMounts::over_plates(PLATES);
    let (a, b) = (&mounts.a.dir, &mounts.b.dir);
    for n in 0..DIRS {
        fs::create_dir_all(a.join(format!("d{n}/sub/below"))).expect("made");
        fs::write(a.join(format!("d{n}/sub/below/file")), format!("of {n}")).expect("written");
    }
    for n in 1..DIRS {
        let (here, there) = if n % 2 == 0 { (a, b) } else { (b, a) };
        let (from, to) = (format!("d{n}/sub"), format!("d0/sub-{n}"));
        let below = here.join(&from).join("below/itself");
        let refused = fs::rename(here.join(&from), below).expect_err("below itself");
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        fs::rename(here.join(&from), here.join(&to)).expect("moved");
        assert_eq!(
            fs::read(there.join(&to).join("below/file")).expect("read"),
            format!("of {n}").into_bytes()
        );
        assert!(!there.join(&from).exists());
        assert_eq!(fs::metadata(there.join("d0")).expect("there").nlink(), 3 + n as u64);
    }
    assert_eq!(tree(a), tree(b));
}

/// S118. Two mounts move each other's directories at the same time: each directory stays in the tree.
#[test]
fn moves_of_two_mounts_meet() {
    let mounts = TwoMounts::over_plates(PLATES);
    for n in 0..6 {
        fs::create_dir(mounts.a.dir.join(format!("d{n}"))).expect("made");
    }
    let dirs = [mounts.a.dir.clone(), mounts.b.dir.clone()];
    let move_about = |at: usize| {
        let root = dirs[at].clone();
        move || {
            let mut moved = 0;
            for round in 0..60_usize {
                let (from, to) = ((round * 5 + at) % 6, (round * 7 + at * 3 + 1) % 6);
                let places =
                    [format!("d{from}"), format!("d{to}/d{from}"), format!("d{}/d{from}", (to + 1) % 6)];
                let source = places.iter().find(|place| root.join(place).exists());
                let target = &places[round % 3];
                let is_moved =
                    source.is_some_and(|source| fs::rename(root.join(source), root.join(target)).is_ok());
                moved += usize::from(is_moved);
            }
            moved
        }
    };
    let threads: Vec<_> = (0..2).map(|at| std::thread::spawn(move_about(at))).collect();
    let moved: usize = threads.into_iter().map(|thread| thread.join().expect("moved about")).sum();
    assert!(moved > 10, "{moved} moves");
    let seen = tree(&mounts.a.dir);
    assert_eq!(seen, tree(&mounts.b.dir));
    let names: Vec<&str> = seen.iter().map(|(path, _)| path.rsplit('/').next().expect("a name")).collect();
    assert_eq!(names.len(), 6, "{names:?}");
}

/// Sets an extended attribute, or removes it.
pub(crate) fn set(path: &Path, value: Option<&str>) -> Result<(), i32> {
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
    let name = c"chiton.policy";
    // SAFETY: the strings end with a zero byte, and the value has the length that is said.
    let result = unsafe {
        match value {
            Some(text) => libc::setxattr(path.as_ptr(), name.as_ptr(), text.as_ptr().cast(), text.len(), 0),
            None => libc::removexattr(path.as_ptr(), name.as_ptr()),
        }
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().expect("an errno")) }
}

/// The policy that holds there, as JSON.
fn effective(path: &Path) -> String {
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
    let mut value = vec![0; 65536];
    // SAFETY: as above.
    let bytes = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"chiton.policy.effective".as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(usize::try_from(bytes).expect("a policy holds everywhere"));
    String::from_utf8(value).expect("text")
}

fn assert_policy(path: &Path, parts: &[&str]) {
    let held = effective(path);
    for part in parts {
        assert!(held.contains(part), "{}: no {part} in {held}", path.display());
    }
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// S128.
#[test]
fn a_policy_holds_for_its_subtree_on_all_plates() {
    let mounts = TwoMounts::over_plates(PLATES);
    let (a, b) = (&mounts.a.dir, &mounts.b.dir);
    for n in 0..8 {
        fs::create_dir_all(a.join(format!("proj/d{n}/sub/below"))).expect("made");
        fs::create_dir_all(a.join(format!("else/d{n}"))).expect("made");
        fs::write(b.join(format!("proj/d{n}/sub/file")), b"content").expect("written");
    }
    set(&b.join("proj"), Some("data: lazy")).expect("set");
    set(&a.join("proj/d3"), Some("acknowledge: durable")).expect("set");
    set(&b.join("proj/d3/sub/below"), Some("placement: near")).expect("set");
    for n in [0, 1, 2, 4, 5, 6, 7] {
        assert_policy(&a.join(format!("proj/d{n}/sub/below")), &[r#""root":"/proj""#, "lazy"]);
        assert_policy(&b.join(format!("else/d{n}")), &[r#""root":"/""#, "linearizable"]);
    }
    assert_policy(&b.join("proj/d3/sub/file"), &[r#""root":"/proj/d3""#, "lazy", "durable"]);
    assert_policy(
        &a.join("proj/d3/sub/below"),
        &[r#""root":"/proj/d3/sub/below""#, "lazy", "durable", "near"],
    );
    // A policy set between two others counts for the lower one at once.
    set(&a.join("proj/d3/sub"), Some("owner_decouples: never")).expect("set");
    assert_policy(&b.join("proj/d3/sub/below"), &[r#""root":"/proj/d3/sub/below""#, "near", "never"]);

    // Names stay within a policy's subtree.
    let (from, to) = (a.join("proj/d0/sub"), a.join("else/d1/sub"));
    assert_eq!(errno(fs::rename(&from, &to)), Some(libc::EXDEV));
    assert_eq!(errno(fs::rename(from.join("file"), &to)), Some(libc::EXDEV));
    assert_eq!(errno(fs::hard_link(from.join("file"), &to)), Some(libc::EXDEV));
    fs::rename(&from, a.join("proj/d1/moved")).expect("within the subtree");
    assert_policy(&b.join("proj/d1/moved/below"), &[r#""root":"/proj""#]);

    // Directories are born beside their parent where the policy says so.
    let near = a.join("proj/d3/sub/below");
    for n in 0..16 {
        fs::create_dir_all(near.join(format!("n{n}/deep"))).expect("made");
    }
    let shard = |path: &Path| fs::metadata(path).expect("there").ino() >> 48;
    let shards: BTreeSet<u64> = (0..16).map(|n| shard(&near.join(format!("n{n}/deep")))).collect();
    assert_eq!(shards, BTreeSet::from([shard(&near)]));
    let spread: BTreeSet<u64> = (0..8).map(|n| shard(&a.join(format!("else/d{n}")))).collect();
    assert!(spread.len() > 1, "{spread:?}");

    // The level that the plates do not carry out is refused.
    assert_eq!(set(&a.join("else"), Some("durability: none")), Err(libc::EOPNOTSUPP));
    assert_eq!(set(&a.join("else"), None), Err(libc::ENODATA));

    set(&b.join("proj"), None).expect("removed");
    assert_policy(&a.join("proj/d0"), &[r#""root":"/""#, "linearizable"]);
    fs::rename(a.join("proj/d0"), a.join("else/d0/moved")).expect("there is no border any more");
    fs::remove_dir_all(b.join("proj")).expect("removed, with the policies in it");
    assert!(!a.join("proj").exists());
}
