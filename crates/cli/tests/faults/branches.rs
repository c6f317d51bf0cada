//! Branches as users and agents use them: each mounted on a directory, merged or dropped separately.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::rig::{Mounted, Scratch, is_root, until};
use crate::seen::{assert_same, look, plant};
use crate::two::{Two, done, mount_branch, mount_branch_at, refused, text, tree_at};

struct Branched {
    two: Two,
    tree: PathBuf,
    state: String,
}

impl Branched {
    /// A tree with one of everything.
    fn new() -> Option<Branched> {
        let two = Two::new()?;
        let tree = two.near.path("tree");
        tree_at(&tree);
        plant(&tree);
        let state = text(&two.scratch.path("branch-state")).to_owned();
        Some(Branched { two, tree, state })
    }

    fn create(&self, name: &str) {
        done(&["branch", "create", text(&self.tree), name, "--state-dir", &self.state]);
    }

    fn mount(&self, name: &str) -> Mounted {
        mount_branch(&self.two.scratch, &self.tree, name)
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&done(&[&["branch"], words, &["--json"]].concat())).expect("JSON")
    }

    fn names(&self) -> Vec<String> {
        let all = self.json(&["list", text(&self.two.near.dir)]);
        all.as_array()
            .expect("a list")
            .iter()
            .map(|one| one["branch"].as_str().expect("a name").into())
            .collect()
    }
}

/// A little of everything that can be done.
fn work(at: &Path, who: &str) {
    fs::write(at.join("dir/file1"), format!("by {who}")).expect("a write");
    fs::write(at.join(format!("made by {who}")), vec![who.as_bytes()[0]; 100_000]).expect("a write");
    fs::create_dir_all(at.join(who).join("deep")).expect("folders");
    fs::rename(at.join("dir/deep/small7"), at.join(who).join("deep/moved")).expect("a rename");
    fs::remove_file(at.join("dir/file4")).expect("a removal");
    fs::remove_dir(at.join("dir/deep/deeper")).expect("a removal");
    fs::hard_link(at.join("dir/file3"), at.join(who).join("another name")).expect("a link");
    let file = fs::File::options().append(true).open(at.join("dir/deep/small9")).expect("an open");
    std::io::Write::write_all(&mut &file, who.as_bytes()).expect("a write");
}

/// S69: "… also in a directory of the file system itself, whatever others change."
#[test]
fn a_branch_stays_where_it_is_mounted_inside_the_file_system_itself() {
    let Some(b) = Branched::new() else { return };
    b.create("inside");
    let at = b.tree.join("dir/mounted here");
    fs::create_dir(&at).expect("a directory");
    let branch = mount_branch_at(&b.two.scratch, &b.tree, "inside", &at);
    let dev = |path: &Path| fs::metadata(path).expect("there").dev();
    assert_ne!(dev(&at), dev(&b.tree));
    for n in 0..20 {
        // Others change every directory above it, which recalls the leases on them.
        for dir in ["", "tree", "tree/dir"] {
            fs::write(b.two.far.path(dir).join(format!("theirs {n}")), "x").expect("a write");
            fs::read_dir(b.two.near.path(dir)).expect("a listing").for_each(drop);
        }
        // A decoupled subtree that begins and ends beside it, too.
        let job = b.two.near.path(&format!("job{n}"));
        fs::create_dir(&job).expect("a directory");
        done(&["decouple", text(&job), "--policy", "batchfs"]);
        done(&["merge", text(&job)]);
        fs::write(at.join(format!("mine {n}")), "x").expect("a write");
        assert_ne!(dev(&at), dev(&b.tree), "it was taken away");
    }
    assert!(!b.two.far.path("tree/dir/mounted here/mine 0").exists());
    done(&["umount", text(&at)]);
    drop(branch);
    assert_eq!(fs::read_dir(&at).expect("a listing").count(), 0);
}

/// S69, S70, S71.
#[test]
fn branches_are_worked_in_side_by_side_and_merged_or_deleted_by_themselves() {
    let Some(b) = Branched::new() else { return };
    let was = look(&b.tree);
    b.create("one");
    b.create("two");
    assert_eq!(b.names(), ["one", "two"]);
    let (mut one, mut two) = (b.mount("one"), b.mount("two"));
    assert_same(&was, &look(&one.dir));
    assert_same(&was, &look(&two.dir));
    // File systems of their own, with the inodes of the original.
    let dev = |path: &Path| fs::metadata(path).expect("there").dev();
    assert!(dev(&one.dir) != dev(&two.dir) && dev(&one.dir) != dev(&b.tree));
    let ino = |path: &Path| fs::metadata(path).expect("there").ino();
    assert_eq!(ino(&one.dir), ino(&b.tree));
    assert_eq!(ino(&one.path("dir/file1")), ino(&b.tree.join("dir/file1")));

    work(&one.dir, "one");
    work(&two.dir, "two");
    // Other clients use the original meanwhile.
    work(&b.two.far.path("tree"), "base");
    let (in_one, in_two, in_base) = (look(&one.dir), look(&two.dir), look(&b.tree));
    assert!(in_one.contains_key(Path::new("made by one")) && !in_one.contains_key(Path::new("made by two")));
    assert!(!in_one.contains_key(Path::new("made by base")) && !in_two.contains_key(Path::new("base")));
    assert!(!in_base.contains_key(Path::new("made by one")) && !in_base.contains_key(Path::new("two")));
    assert_eq!(fs::read(one.path("dir/file1")).expect("a read"), b"by one");
    assert_eq!(fs::read(two.path("dir/file1")).expect("a read"), b"by two");

    // Deleted while it is mounted: only by force, and the mount goes.
    refused(&["branch", "delete", text(&b.tree), "two"], 3, "in use");
    done(&["branch", "delete", "--force", text(&b.tree), "two"]);
    assert!(two.process.ended().success(), "{}", two.process.said());
    assert_eq!(b.names(), ["one"]);
    assert_same(&in_base, &look(&b.tree));
    assert_same(&in_one, &look(&one.dir));

    let diff = b.json(&["diff", text(&b.tree), "one"]);
    let paths: Vec<&str> =
        diff["conflicts"].as_array().expect("a list").iter().filter_map(|c| c["path"].as_str()).collect();
    assert!(paths.contains(&"dir/file1"), "{diff}");
    let report = b.json(&["merge", text(&b.tree), "one", "--on-conflict", "keep_both"]);
    assert_eq!((&report["ended"], &report["lost_count"]), (&true.into(), &0.into()), "{report}");
    assert!(one.process.ended().success(), "{}", one.process.said());
    let after = look(&b.tree);
    assert_same(&after, &look(&b.two.far.path("tree")));
    assert_eq!(after[Path::new("dir/file1")].content, b"by one");
    assert_eq!(after[Path::new("made by one")].content, vec![b'o'; 100_000]);
    assert_eq!(after[Path::new("made by base")].content, vec![b'b'; 100_000]);
    let aside: Vec<_> = after
        .iter()
        .filter(|(path, seen)| path.starts_with("dir") && seen.content == b"by base")
        .map(|(path, _)| path.clone())
        .collect();
    assert_eq!(aside.len(), 1, "what others wrote is kept beside it");
    assert!(b.names().is_empty() && b.two.decouplings().is_empty());
    assert_eq!(fs::read_dir(&b.state).expect("a listing").count(), 0, "nothing stays");
}

/// S70: a merge without conflicts makes the tree equal to the branch, byte for byte.
#[test]
fn a_branch_without_conflicts_becomes_the_tree() {
    let Some(b) = Branched::new() else { return };
    b.create("one");
    let one = b.mount("one");
    work(&one.dir, "one");
    let expected = look(&one.dir);
    one.unmount();
    // It waits, and is the same in the next mount.
    assert_eq!(b.names(), ["one"]);
    let again = b.mount("one");
    assert_same(&expected, &look(&again.dir));
    // Commands within the mount mean the branch.
    assert!(done(&["diff", text(&again.path("dir"))]).contains("made by one"));
    refused(&["branch", "create", text(&again.path("dir")), "sub"], 1, "which has no branches itself");
    refused(&["decouple", text(&again.path("dir")), "--policy", "batchfs"], 1, "mount of a branch");
    again.unmount();
    let report = b.json(&["merge", text(&b.tree), "one"]);
    assert_eq!((&report["ended"], &report["conflict_count"]), (&true.into(), &0.into()), "{report}");
    assert_same(&expected, &look(&b.tree));
    refused(&["branch", "merge", text(&b.tree), "one"], 4, "no branch one");
}

/// S72: it survives the death of its mount.
#[test]
fn synced_data_of_a_branch_survive_a_killed_mount() {
    let Some(b) = Branched::new() else { return };
    b.create("one");
    let one = b.mount("one");
    work(&one.dir, "one");
    let file = one.path("made by one");
    fs::File::open(&file).and_then(|file| file.sync_all()).expect("an fsync");
    let expected = look(&one.dir);
    one.kill();
    // Another process can mount a branch that no process has.
    until("it can be mounted again", || {
        let list = b.json(&["list", text(&b.tree)]);
        list[0]["in_use"] == false
    });
    let again = b.mount("one");
    assert_same(&expected, &look(&again.dir));
    // Open for writing: it is not taken from under the writer, but by force.
    let mut writer = fs::File::create(again.path("late")).expect("a file");
    std::io::Write::write_all(&mut writer, b"late").expect("a write");
    refused(&["branch", "merge", text(&b.tree), "one"], 3, "open for writing");
    done(&["branch", "merge", "--force", text(&b.tree), "one"]);
    let lost = std::io::Write::write_all(&mut writer, b"lost").and_then(|()| writer.sync_all());
    assert!(lost.is_err());
    drop(writer);
    assert_eq!(fs::read(b.tree.join("late")).expect("merged"), b"late");
    assert_eq!(fs::read(b.tree.join("dir/file1")).expect("merged"), b"by one");
    let gone = fs::metadata(again.path("dir")).expect_err("the mount is gone");
    assert!(matches!(gone.kind(), ErrorKind::NotFound | ErrorKind::NotConnected), "{gone}");
}

/// A mount with the server inside, which holds everything as long as it is alone.
#[test]
fn a_mount_with_the_server_inside_has_branches_too() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let state = text(&scratch.path("state")).to_owned();
    let base = Mounted::embedded(&scratch, &["--state-dir", &state]);
    let tree = base.path("tree");
    tree_at(&tree);
    plant(&tree);
    // Written, and not handed over yet.
    let mut writer = fs::File::create(tree.join("late")).expect("a file");
    std::io::Write::write_all(&mut writer, b"before").expect("a write");
    let was = look(&tree);
    for name in ["one", "two"] {
        done(&["branch", "create", text(&tree), name, "--state-dir", &state]);
    }
    std::io::Write::write_all(&mut writer, b" and after").expect("it goes on");
    drop(writer);
    let (one, two) = (mount_branch(&scratch, &tree, "one"), mount_branch(&scratch, &tree, "two"));
    assert_same(&was, &look(&one.dir));
    work(&one.dir, "one");
    work(&tree, "base");
    let mut expected = was.clone();
    assert_same(&expected, &look(&two.dir));
    two.unmount();
    expected = look(&one.dir);
    one.unmount();
    done(&["branch", "delete", text(&tree), "two"]);
    let report = done(&["branch", "merge", "--json", text(&tree), "one"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["ended"], true, "{report}");
    let after = look(&tree);
    assert_eq!(after[Path::new("late")].content, b"before and after");
    assert_eq!(after[Path::new("dir/file1")].content, b"by one");
    assert_eq!(after[Path::new("made by one")].content, expected[Path::new("made by one")].content);
    assert!(after.contains_key(Path::new("made by base")));
    base.unmount();
    // Nothing of a branch stays, in the metadata store either.
    done(&["fsck", "--content", text(&scratch.data())]);
    assert_eq!(fs::read_dir(&state).map_or(0, Iterator::count), 0);
}

/// Several agents at once, each with a branch, from its creation to its merge.
#[test]
fn many_branches_live_their_lives_at_once() {
    let Some(b) = Branched::new() else { return };
    let names: Vec<String> = (0..5).map(|n| format!("agent{n}")).collect();
    std::thread::scope(|scope| {
        for name in &names {
            let b = &b;
            scope.spawn(move || {
                b.create(name);
                let mounted = b.mount(name);
                for round in 0..20 {
                    let dir = mounted.path(&format!("{name}/{round}"));
                    fs::create_dir_all(&dir).expect("directories");
                    fs::write(dir.join("result"), format!("{name} {round}")).expect("a write");
                    fs::write(mounted.path("dir/file0"), format!("{name} {round}")).expect("a write");
                }
                assert!(done(&["branch", "diff", text(&b.tree), name]).contains("result"));
                if name != "agent0" {
                    mounted.unmount();
                }
                let report = b.json(&["merge", text(&b.tree), name]);
                assert_eq!((&report["ended"], &report["lost_count"]), (&true.into(), &0.into()), "{report}");
            });
        }
    });
    for name in &names {
        for round in 0..20 {
            let result = b.tree.join(format!("{name}/{round}/result"));
            assert_eq!(fs::read_to_string(result).expect("merged"), format!("{name} {round}"));
        }
    }
    let last = fs::read_to_string(b.tree.join("dir/file0")).expect("one of them");
    assert!(last.ends_with(" 19"), "{last}");
    assert_same(&look(&b.tree), &look(&b.two.far.path("tree")));
    assert!(b.names().is_empty() && b.two.decouplings().is_empty());
    assert_eq!(fs::read_dir(&b.state).expect("a listing").count(), 0, "nothing stays");
}
