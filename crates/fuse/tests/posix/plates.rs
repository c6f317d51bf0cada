//! Two mounts of a file system whose directories are spread over several plates.

use std::collections::BTreeSet;
use std::fs;
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
    // Files do not leave their plate. Programs copy where they cannot rename or link.
    let (mut stayed, mut refused) = (0, 0);
    for n in 1..DIRS {
        let (from, to) = (a.join(format!("d{n}/moved")), a.join("d0").join(format!("from-{n}")));
        match fs::hard_link(&from, &to) {
            Ok(()) => stayed += 1,
            Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {
                fs::copy(&from, &to).expect("copied");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(fs::read(b.join("d0").join(format!("from-{n}"))).expect("read"), b"0123456789");
    }
    assert!(stayed > 0 && refused > 0, "{stayed} links on one plate, {refused} to another");
    for n in 0..DIRS {
        let (here, there) = if n % 2 == 0 { (b, a) } else { (a, b) };
        fs::remove_dir_all(here.join(format!("d{n}"))).expect("removed");
        assert!(!there.join(format!("d{n}")).exists());
    }
    assert_eq!((tree(a), tree(b)), Default::default());
}
