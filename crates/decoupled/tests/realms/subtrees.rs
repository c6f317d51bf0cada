//! A program that switches between working alone and working in view of all clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use chiton_client::OpenFlags;
use chiton_decoupled::{Subtree, SubtreeError};
use chiton_types::Refusal;

use crate::site::{IN_MEMORY, IN_STORE, ON_DISK, Party, Site};
use crate::tree::tree;
use crate::work::Work;

fn begin(party: &Party, path: &str, policy: &str) -> Subtree {
    party.mkdir(path);
    Subtree::begin(&party.realms, path, Some(policy.as_bytes())).expect("decoupled")
}

#[test]
fn changes_before_the_switch_are_visible_and_survive() {
    for policy in [IN_MEMORY, ON_DISK, IN_STORE] {
        let site = Site::new();
        let (ours, others) = (site.connected(), site.connected());
        let job = begin(&ours, "/job", policy);
        let large = vec![7; 300_000];
        job.client().mkdir_all("/in/deep").expect("made");
        job.client().create_file("/in/deep/small", b"before").expect("made");
        job.client().write_file("/large", &large).expect("written");
        assert_eq!(others.client.stat("/job/in").map(drop), Err(Refusal::Busy), "{policy}");
        assert!(!job.is_synchronous());

        let report = job.sync_mode(true).expect("switched");
        assert!(report.ended && report.conflict_count == 0 && report.lost_count == 0, "{report:?}");
        assert!(job.is_synchronous() && ours.realms.list().is_empty());
        // Neither has a chance to send anything again.
        ours.client.abandon();
        site.kill();
        site.start();
        let later = site.elsewhere();
        assert_eq!(later.client.read_file("/job/in/deep/small"), Ok(b"before".to_vec()), "{policy}");
        assert_eq!(later.client.read_file("/job/large"), Ok(large), "{policy}");
        assert!(site.connected().realms.recover().is_empty(), "something is left of it: {policy}");
    }
}

#[test]
fn others_see_changes_after_the_switch_when_acknowledged() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.connected());
    let job = begin(&ours, "/job", ON_DISK);
    job.client().create_file("/before", b"").expect("made");
    job.sync_mode(true).expect("switched");
    let seen = |path: &str| others.client.read_file(format!("/job{path}"));
    for n in 0..30 {
        let (path, moved) = (format!("/f{n}"), format!("/g{n}"));
        job.client().create_file(&path, b"one").expect("made");
        assert_eq!(seen(&path), Ok(b"one".to_vec()));
        job.client().write_file(&path, b"another").expect("written");
        assert_eq!(seen(&path), Ok(b"another".to_vec()));
        job.client().rename_path(&path, &moved).expect("moved");
        assert_eq!((seen(&path), seen(&moved)), (Err(Refusal::NotFound), Ok(b"another".to_vec())));
        job.client().remove(&moved).expect("removed");
        assert_eq!(seen(&moved), Err(Refusal::NotFound));
        // And the other way round: all clients see it.
        others.client.create_file(format!("/job/h{n}"), b"theirs").expect("made");
        assert_eq!(job.client().read_file(format!("/h{n}")), Ok(b"theirs".to_vec()));
    }
}

#[test]
fn a_job_with_switches_equals_one_without() {
    for (policy, seed) in [(IN_MEMORY, 3), (ON_DISK, 4), (IN_STORE, 5)] {
        let site = Site::new();
        let (ours, others) = (site.connected(), site.connected());
        ours.mkdir("/twin");
        let job = begin(&ours, "/job", policy);
        let (mut a, mut b) = (Work::new(seed), Work::new(seed));
        for round in 0..6 {
            let alone = round % 2 == 0;
            assert_eq!(job.is_synchronous(), !alone);
            for _ in 0..40 {
                assert_eq!(a.step(&job.client(), ""), b.step(&ours.client, "/twin"), "seed {seed}");
            }
            assert_eq!(others.client.list("/job").is_err(), alone, "{policy}");
            let report = job.sync_mode(alone).expect("switched");
            assert_eq!((report.conflict_count, report.lost_count), (0, 0), "{report:?}");
            // Setting the present mode does nothing.
            job.sync_mode(alone).expect("it is in that mode");
            if alone {
                assert_eq!(
                    tree(&others.client, "/job"),
                    tree(&ours.client, "/twin"),
                    "{policy}, seed {seed}"
                );
            }
        }
        job.close().expect("merged");
        assert_eq!(tree(&others.client, "/job"), tree(&ours.client, "/twin"), "{policy}, seed {seed}");
    }
}

#[test]
fn a_forbidden_conflict_refuses_the_switch_of_modes() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.connected());
    let job = begin(&ours, "/job", "consistency: weak\ndurability: local\non_conflict: abort\n");
    job.client().create_file("/both", b"ours").expect("made");
    job.client().create_file("/only-ours", b"ours").expect("made");
    others.client.create_file("/job/both", b"theirs").expect("made");
    let before = job.realm().expect("decoupled").id();
    for _ in 0..2 {
        match job.sync_mode(true) {
            Err(SubtreeError::Conflicts(report)) => {
                let paths: Vec<&str> = report.conflicts.iter().map(|line| &line.path[..]).collect();
                assert_eq!((&paths[..], report.stopped, report.ended), (&["both"][..], true, false));
            }
            other => panic!("{other:?}"),
        }
        let error = job.sync_mode(true).expect_err("as before");
        assert_eq!(error.refusal(), Refusal::Exists);
        assert!(error.to_string().ends_with("1 conflict (both)"), "{error}");
        assert!(!job.is_synchronous() && job.realm().is_some_and(|realm| realm.id() == before));
        assert_eq!(others.client.stat("/job/only-ours").map(drop), Err(Refusal::NotFound), "all or nothing");
    }
    assert_eq!(others.client.read_file("/job/both"), Ok(b"theirs".to_vec()));
    // Still alone: no other client sees this, and changes here may remove the conflict.
    job.client().remove("/both").expect("removed");
    job.client().create_file("/mine", b"ours").expect("made");
    job.sync_mode(true).expect("nothing contradicts any more");
    assert_eq!(others.client.read_file("/job/mine"), Ok(b"ours".to_vec()));
    assert_eq!(job.client().read_file("/both"), Ok(b"theirs".to_vec()));
}

#[test]
fn open_files_continue_in_the_other_mode() {
    let site = Site::new();
    let (ours, others) = (site.connected(), site.connected());
    let job = Arc::new(begin(&ours, "/job", ON_DISK));
    for name in ["/log", "/gone", "/read"] {
        job.client().create_file(name, b"0").expect("made");
    }
    let log = job.open("/log", OpenFlags { append: true, ..OpenFlags::READ_WRITE }).expect("opened");
    let gone = job.open("/gone", OpenFlags::READ_WRITE).expect("opened");
    let read = job.open("/read", OpenFlags::READ).expect("opened");
    let mut expected = b"0".to_vec();
    for n in 0..6 {
        let piece = format!(" {n}:{}", "x".repeat(n * 5_000));
        log.write(0, piece.as_bytes()).expect("written");
        expected.extend_from_slice(piece.as_bytes());
        if job.is_synchronous() {
            assert_eq!(others.client.read_file("/job/log"), Ok(expected.clone()), "round {n}");
        }
        log.fsync().expect("durable");
        job.sync_mode(n % 2 == 0).expect("switched");
        assert_eq!(log.read(0, expected.len() + 1), Ok(expected.clone()), "round {n}");
        assert_eq!(read.read(0, 9), Ok(b"0".to_vec()), "round {n}");
        assert_eq!(job.client().stat("/log").expect("there").ino, log.ino(), "the same inode");
        if n == 0 {
            assert_eq!(gone.read(0, 9), Ok(b"0".to_vec()));
            job.client().remove("/gone").expect("removed");
            assert_eq!(gone.read(0, 9), Ok(b"0".to_vec()), "it is open");
        } else {
            assert_eq!(gone.read(0, 9), Err(Refusal::Stale), "round {n}");
        }
    }
    log.close().expect("closed");
    // By hand: a handle of the client ends with the mode.
    let fh = job.client().open_path("/log", OpenFlags::READ).expect("opened");
    job.sync_mode(true).expect("switched");
    assert_eq!(job.client().read(fh, 0, 1), Err(Refusal::BadHandle));
}

#[test]
fn a_switch_of_modes_does_not_disturb_other_threads() {
    let site = Site::new();
    let ours = site.connected();
    let job = begin(&ours, "/job", ON_DISK);
    let (over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let workers = 3;
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let work = |worker: usize| {
            let (job, over, made) = (&job, &over, &made);
            move || {
                let mut count = 0;
                while !over.load(Ordering::Relaxed) {
                    let (new, path) = (format!("/.new-{worker}"), format!("/{worker}-{count}"));
                    job.client().create_file(&new, path.as_bytes()).expect("made");
                    job.client().rename_path(&new, &path).expect("moved");
                    // One within the other, which a switch in between must not part.
                    let again = job.client().list(job.client().stat("/").map_or("?", |_| "/"));
                    assert!(again.expect("listed").len() > count);
                    count += 1;
                    made.fetch_add(1, Ordering::Relaxed);
                }
                count
            }
        };
        let all: Vec<_> = (0..workers).map(|worker| scope.spawn(work(worker))).collect();
        for n in 0..8 {
            let before = made.load(Ordering::Relaxed);
            while made.load(Ordering::Relaxed) < before + 30 && all.iter().all(|one| !one.is_finished()) {
                std::thread::yield_now();
            }
            job.sync_mode(n % 2 == 0).expect("switched");
        }
        over.store(true, Ordering::Relaxed);
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    job.sync_mode(true).expect("switched");
    let others = site.connected();
    assert_eq!(others.client.list("/job").expect("listed").len(), counts.iter().sum::<usize>());
    for (worker, count) in counts.into_iter().enumerate() {
        for n in 0..count {
            let path = format!("/{worker}-{n}");
            assert_eq!(others.client.read_file(format!("/job{path}")), Ok(path.clone().into_bytes()));
        }
    }
}

#[test]
fn dropped_changes_stay_invisible_and_kept_ones_are_resumed() {
    let site = Site::new();
    let ours = site.connected();
    let job = begin(&ours, "/job", "consistency: invisible\ndurability: local\ninterfere_policy: block\n");
    job.client().create_file("/dropped", b"").expect("made");
    job.discard().expect("dropped");
    assert!(job.is_synchronous());
    assert_eq!(job.client().stat("/dropped").map(drop), Err(Refusal::NotFound));
    job.sync_mode(false).expect("decoupled");
    job.client().create_file("/kept", b"kept").expect("made");
    // An invisible subtree is merged only on command.
    job.close().expect("left");
    assert_eq!(job.client().stat("/kept").map(drop), Err(Refusal::NotConnected));

    let later = site.connected();
    assert_eq!(later.client.stat("/job/kept").map(drop), Err(Refusal::Busy));
    let again = Subtree::of(&later.realms, later.recover()).expect("no branch");
    assert_eq!(again.client().read_file("/kept"), Ok(b"kept".to_vec()));
    again.sync_mode(true).expect("switched");
    assert_eq!(site.connected().client.read_file("/job/kept"), Ok(b"kept".to_vec()));
    again.sync_mode(false).expect("with the same policy");
    assert_eq!(again.realm().expect("decoupled").policy().durability().name(), "local");
    again.discard().expect("dropped");

    let missing = Subtree::begin(&later.realms, "/nothing", None).err().expect("refused");
    assert_eq!(missing.refusal(), Refusal::NotFound);
    assert!(missing.to_string().contains("/nothing"), "{missing}");
    let strong = Subtree::begin(&later.realms, "/job", None).err().expect("refused");
    assert!(strong.to_string().contains("strong"), "{strong}");
}
