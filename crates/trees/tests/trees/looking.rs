//! du, ls and find.

use std::collections::BTreeSet;

use chiton_trees::{Usage, scan, usage};
use chiton_types::{Kind, Refusal};

use crate::site::{Kept, PLATES, Site, chmod, fill, grow, look, place};

#[test]
fn every_name_is_seen_once_with_its_attributes() {
    for plates in PLATES {
        let site = Site::new(plates);
        let client = site.client();
        grow(&client, "/tree");
        fill(&client, "/tree", 1_000);
        let (mut seen, mut kept, mut dirs) = (BTreeSet::new(), Kept::default(), BTreeSet::new());
        let mut see = |it: &chiton_trees::Seen<'_>| {
            let path = String::from_utf8_lossy(it.path).into_owned();
            assert_eq!(client.lstat(&path).expect("there"), *it.attr, "{path}");
            assert_eq!(it.depth, path.matches('/').count() - 1);
            let parent = path.rsplit_once('/').expect("a parent").0.to_owned();
            assert!(it.depth == 0 || dirs.contains(&parent), "{path} comes after its directory");
            if it.attr.kind == Kind::Dir {
                dirs.insert(path.clone());
            }
            assert!(seen.insert(path.strip_prefix("/tree").expect("below").to_owned()));
            true
        };
        scan(&client, &[place(&client, "/tree")], &mut see, &mut kept);
        assert_eq!((seen, kept.refused), (look(&client, "/tree").into_keys().collect(), vec![]));
    }
}

#[test]
fn usage_counts_each_inode_once() {
    for plates in PLATES {
        let site = Site::new(plates);
        let client = site.client();
        grow(&client, "/tree");
        let lines = usage(&client, &[place(&client, "/tree")], 1, &mut Kept::default());
        let all = look(&client, "/tree");
        let files = all.iter().filter(|(path, look)| !look.is_dir() && look.is_first(path));
        let (count, bytes) =
            files.fold((0, 0), |(count, bytes), (_, look)| (count + 1, bytes + look.bytes()));
        let total: &Usage = &lines[0];
        assert_eq!((total.files, total.bytes, total.dirs), (count, bytes, 73), "{plates} plates");
        assert!(total.allocated > 0 && total.path == b"/tree" && lines.len() == 14);
        let below = |line: &&Usage| line.depth == 1;
        let sums =
            lines.iter().filter(below).fold((0, 0), |(files, dirs), l| (files + l.files, dirs + l.dirs));
        assert_eq!(sums, (total.files, total.dirs - 1));
        let one = lines.iter().find(|line| line.path == b"/tree/deep-0").expect("a line");
        assert_eq!((one.files, one.dirs, one.bytes), (1, 60, 3));
    }
}

#[test]
fn closed_directories_are_reported() {
    let site = Site::new(3);
    let root = site.client();
    root.mkdir_all("/tree/open/below").expect("made");
    root.mkdir_all("/tree/closed/below").expect("made");
    chmod(&root, "/tree/closed", 0o700);
    let user = root.acting_as(1000, 1000, &[]);
    let mut kept = Kept::default();
    let lines = usage(&user, &[place(&user, "/tree")], 0, &mut kept);
    assert_eq!(kept.refused, [("/tree/closed".to_owned(), "list", Refusal::Access)]);
    assert_eq!(lines[0].dirs, 4);
}
