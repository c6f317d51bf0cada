//! Batches over any directories: results and trees are those of the same operations one at a time.

use std::collections::BTreeMap;

use chiton_client::{Client, ClientOptions, Lookup, NewFile, OnRefusal, Performed, Pipeline};
use chiton_model::{AttrChange, Make, Op, XattrHow};
use chiton_types::{Ino, Kind, Mode, Name, Refusal};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::site::Site;

const DIRS: usize = 6;
const NAMES: usize = 5;

/// An operation in words that mean the same in two file systems.
#[derive(Clone, Debug)]
enum Step {
    Make(usize, usize, Vec<u8>),
    Mkdir(usize, usize),
    Symlink(usize, usize),
    Unlink(usize, usize),
    Rmdir(usize, usize),
    Link(usize, usize, usize),
    Chmod(usize, u16),
    Mark(usize, Vec<u8>),
    Truncate(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (dir, name) = (0..DIRS, 0..NAMES);
    prop_oneof![
        4 => (dir.clone(), name.clone(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(dir, name, content)| Step::Make(dir, name, content)),
        2 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Mkdir(dir, name)),
        1 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Symlink(dir, name)),
        3 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Unlink(dir, name)),
        2 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Rmdir(dir, name)),
        2 => (dir.clone(), name, dir.clone()).prop_map(|(dir, name, file)| Step::Link(dir, name, file)),
        1 => (dir.clone(), 0..0o777u16).prop_map(|(dir, mode)| Step::Chmod(dir, mode | 0o700)),
        1 => (dir.clone(), prop::collection::vec(any::<u8>(), 0..9)).prop_map(|(dir, value)| Step::Mark(dir, value)),
        1 => (dir, any::<u64>()).prop_map(|(file, size)| Step::Truncate(file, size)),
    ]
}

/// A client of a file system with directories on all plates, each with a file `kept` that no step removes.
struct Scene {
    _site: Site,
    client: Client,
    dirs: Vec<Ino>,
    kept: Vec<Ino>,
}

impl Scene {
    fn new(plates: u16) -> Scene {
        let site = Site::with_plates(plates);
        let client =
            site.connected_with(ClientOptions { write_behind_after: None, ..ClientOptions::default() });
        let dirs: Vec<Ino> =
            (0..DIRS).map(|n| client.mkdir_all(format!("dir-{n}")).expect("made").ino).collect();
        let kept = (0..DIRS).map(|n| client.create_file(format!("dir-{n}/kept"), b"kept").expect("made").ino);
        let kept = kept.collect();
        Scene { _site: site, client, dirs, kept }
    }

    fn op(&self, step: &Step) -> Op {
        let name = |n: &usize| Name::new(format!("name-{n}").as_bytes()).expect("a name");
        let make = |dir: &usize, n: &usize, make| Op::Make {
            parent: self.dirs[*dir],
            name: name(n),
            make,
            mode: Mode(0o644),
        };
        match step {
            Step::Make(dir, n, content) => make(dir, n, Make::File { content: content.clone() }),
            Step::Mkdir(dir, n) => make(dir, n, Make::Dir),
            Step::Symlink(dir, n) => make(dir, n, Make::Symlink { target: b"kept".to_vec() }),
            Step::Unlink(dir, n) => Op::Unlink { parent: self.dirs[*dir], name: name(n) },
            Step::Rmdir(dir, n) => Op::Rmdir { parent: self.dirs[*dir], name: name(n) },
            Step::Link(dir, n, file) => {
                Op::Link { ino: self.kept[*file], parent: self.dirs[*dir], name: name(n) }
            }
            Step::Chmod(dir, mode) => {
                let change = AttrChange { mode: Some(Mode(*mode)), ..AttrChange::default() };
                Op::SetAttr { ino: self.dirs[*dir], change }
            }
            Step::Mark(file, value) => Op::SetXattr {
                ino: self.kept[*file],
                how: XattrHow::Set,
                name: b"user.mark".to_vec(),
                value: value.clone(),
            },
            Step::Truncate(file, size) => {
                let change = AttrChange { size: Some(*size), ..AttrChange::default() };
                Op::SetAttr { ino: self.kept[*file], change }
            }
        }
    }

    /// The tree as callers see it.
    fn tree(&self) -> BTreeMap<String, (Kind, Mode, u32, u64, Vec<u8>)> {
        let (mut all, mut todo) = (BTreeMap::new(), vec![String::new()]);
        while let Some(dir) = todo.pop() {
            for entry in self.client.list(format!("/{dir}")).expect("listed") {
                let path = format!("{dir}/{}", entry.name);
                // A listing leaves out the attributes of an inode that an operation over plates is changing.
                let attr = self.client.start_stat(entry.ino).wait().expect("there");
                let mark = self.client.getxattr(&self.client.caller(), attr.ino, b"user.mark");
                if attr.kind == Kind::Dir {
                    todo.push(path.clone());
                }
                let size = if attr.kind == Kind::Dir { 0 } else { attr.size };
                all.insert(path, (attr.kind, attr.mode, attr.nlink, size, mark.unwrap_or_default()));
            }
        }
        all
    }
}

/// The part of an inode's attributes on which two file systems agree after an operation on it.
type Shown = Option<(Kind, Mode, u32)>;

/// Where plates work at the same time, a file may have more or fewer names in between.
fn shown(results: &[Performed], counts_names: bool) -> Vec<Result<Shown, Refusal>> {
    let names = |attr: &chiton_types::Attr| if counts_names { attr.nlink } else { 0 };
    let of = |attr: &chiton_types::Attr| (attr.kind, attr.mode, names(attr));
    results.iter().map(|result| result.as_ref().map(|attr| attr.as_ref().map(of)).map_err(|no| *no)).collect()
}

#[test]
fn batch_does_the_same_as_one_at_a_time() {
    for plates in [1, 3] {
        let (one, many) = (Scene::new(plates), Scene::new(plates));
        let mut runner =
            TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
        let steps = prop::collection::vec(step(), 1..120);
        let cases = (steps, any::<bool>());
        let done = runner.run(&cases, |(steps, stops)| {
            let how = if stops { OnRefusal::StopOnFailure } else { OnRefusal::PerformAll };
            let mut expected = Vec::new();
            for step in &steps {
                let caller = one.client.caller();
                expected.extend(one.client.perform(&caller, vec![one.op(step)], OnRefusal::PerformAll));
                if stops && expected.last().is_some_and(Result::is_err) {
                    break;
                }
            }
            let ops = steps.iter().map(|step| many.op(step)).collect();
            let results = many.client.perform(&many.client.caller(), ops, how);
            let (results, expected) = (shown(&results, stops), shown(&expected, stops));
            prop_assert_eq!(results, expected, "{} plates, {:?}", plates, how);
            prop_assert_eq!(many.tree(), one.tree());
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn batch_sends_a_message_to_each_plate() {
    const PLATES: u16 = 3;
    let scene = Scene::new(PLATES);
    let (client, caller) = (&scene.client, scene.client.caller());
    let names: Vec<String> = (0..40).map(|n| format!("file-{n}")).collect();
    let files: Vec<NewFile<'_>> = scene
        .dirs
        .iter()
        .flat_map(|parent| names.iter().map(|name| (*parent, name.as_bytes())))
        .map(|(parent, name)| NewFile { parent, name, mode: Mode(0o640), content: name })
        .collect();
    let before = client.messages();
    let made: Vec<_> =
        client.create_each(&caller, &files).into_iter().map(|one| one.expect("made")).collect();
    assert!(client.messages() - before <= u64::from(PLATES), "{}", client.messages() - before);
    assert_eq!((made.len(), made[7].size, made[7].mode), (240, 6, Mode(0o640)));
    assert_eq!(client.read_file("dir-3/file-11"), Ok(b"file-11".to_vec()));

    let all: Vec<(Ino, &[u8])> = files.iter().map(|file| (file.parent, file.name)).collect();
    let before = client.messages();
    let found = client.lookup_each(&caller, &all);
    assert_eq!(client.messages() - before, u64::from(PLATES));
    let same = |(found, made): (&Result<Lookup, Refusal>, &chiton_types::Attr)| match found {
        Ok(Lookup::Found { attr, .. }) => attr.ino == made.ino,
        _ => false,
    };
    assert!(found.iter().zip(&made).all(same), "{found:?}");
    let change = AttrChange { mode: Some(Mode(0o600)), ..AttrChange::default() };
    let before = client.messages();
    let changes: Vec<(Ino, AttrChange)> = made.iter().map(|attr| (attr.ino, change)).collect();
    assert!(
        client
            .setattr_each(&caller, &changes)
            .iter()
            .all(|one| one.as_ref().is_ok_and(|attr| attr.mode == Mode(0o600)))
    );
    let links: Vec<(Ino, Ino, Vec<u8>)> = made
        .iter()
        .enumerate()
        .map(|(n, attr)| (attr.ino, scene.dirs[n % DIRS], format!("link-{n}").into()))
        .collect();
    let links: Vec<(Ino, Ino, &[u8])> =
        links.iter().map(|(ino, dir, name)| (*ino, *dir, &name[..])).collect();
    assert!(client.link_each(&caller, &links).iter().all(Result::is_ok));
    assert!(client.messages() - before <= 2 * u64::from(PLATES), "{}", client.messages() - before);
    let inodes: Vec<Ino> = made.iter().map(|attr| attr.ino).collect();
    let before = client.messages();
    assert!(client.stat_each(&inodes).iter().all(|one| one.as_ref().is_ok_and(|attr| attr.nlink == 2)));
    assert_eq!(client.messages() - before, u64::from(PLATES));

    let before = client.messages();
    let gone = client
        .unlink_each(&caller, &[&all[..], &[(scene.dirs[0], b"nothing"), (scene.dirs[1], b"")]].concat());
    assert_eq!(client.messages() - before, u64::from(PLATES));
    assert!(gone[..240].iter().all(Result::is_ok), "{gone:?}");
    assert_eq!(gone[240..], [Err(Refusal::NotFound), Err(Refusal::Invalid)]);
}

#[test]
fn large_files_are_made_beside_small_ones() {
    let scene = Scene::new(3);
    let (large, caller) = (vec![7; 300_000], scene.client.caller());
    let file =
        |dir: usize, name, content| NewFile { parent: scene.dirs[dir], name, mode: Mode(0o644), content };
    let files =
        [file(0, b"large", &large), file(1, b"small", b"x"), file(2, b"kept", b""), file(0, b"..", b"")];
    let made = scene.client.create_each(&caller, &files);
    let sizes: Vec<_> = made.iter().map(|one| one.as_ref().map(|attr| attr.size).map_err(|no| *no)).collect();
    assert_eq!(sizes, [Ok(300_000), Ok(1), Err(Refusal::Exists), Err(Refusal::Exists)]);
    assert_eq!(scene.client.read_file("dir-0/large"), Ok(large));
}

#[test]
fn pipeline_has_a_result_for_every_operation() {
    const COUNT: usize = 5_000;
    let scene = Scene::new(3);
    let (client, caller) = (&scene.client, scene.client.caller());
    let mut pipeline = Pipeline::new(client, &caller);
    let mut results = BTreeMap::new();
    for n in 0..COUNT {
        let name = Name::new(format!("n-{}", n / 2).as_bytes()).expect("a name");
        let make = Make::File { content: Vec::new() };
        pipeline.push(n, Op::Make { parent: scene.dirs[n / 2 % DIRS], name, make, mode: Mode(0o644) });
        if n % 100 == 0
            && let Some((n, result)) = pipeline.next()
        {
            results.insert(n, result.map(drop));
        }
    }
    pipeline.flush();
    while let Some((n, result)) = pipeline.next() {
        results.insert(n, result.map(drop));
    }
    assert_eq!((pipeline.pending(), results.len()), (0, COUNT));
    for (n, result) in results {
        assert_eq!(result, if n % 2 == 0 { Ok(()) } else { Err(Refusal::Exists) }, "{n}");
    }
}
