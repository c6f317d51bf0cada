//! Jobs of a real server in this process, with one plate and with several, asked by clients over its socket.

#![allow(clippy::disallowed_methods, reason = "a test waits for real threads")]

mod outlive;
mod search;
mod site;

use std::sync::Arc;

use chiton_client::OnRefusal;
use chiton_model::{Make, Op};
use chiton_tree_jobs::{REMEMBERED_MAX, RUNNING_MAX};
use chiton_trees::{Copying, Job, JobState, ModeChange, Place, Subject, Task, Totals, jobs};
use chiton_types::{Ino, Mode, Name, Refusal};

use site::{Gate, Kept, PLATES, Site};

fn subject(client: &chiton_client::Client, path: &str) -> Subject {
    Subject::from(&Place::find(client, path.as_bytes(), path.as_bytes()).expect("there"))
}

fn chmod(client: &chiton_client::Client, path: &str, mode: &str) -> Task {
    let mode = ModeChange::parse(mode).expect("a mode");
    Task::Chmod { subjects: vec![subject(client, path)], recursive: true, mode, umask: 0o022 }
}

fn usage(client: &chiton_client::Client, path: &str) -> Task {
    Task::Usage { subjects: vec![subject(client, path)], depth: 1 }
}

#[test]
fn a_job_does_what_the_command_does() {
    for plates in PLATES {
        let site = Site::new(plates);
        let client = site.client(0);
        site.fill("/tree", 10);
        let copies = ["/by-job", "/by-hand"].map(|to| {
            let name = Name::new(&to.as_bytes()[1..]).expect("a name");
            Task::Copy(vec![Copying { from: subject(&client, "/tree"), into: Ino::ROOT, name, since: None }])
        });
        let copied = Job::start(&client, &copies[0]).and_then(|job| job.wait(&mut Kept::default()));
        let copied = copied.expect("done");
        assert_eq!(
            (copied.state, copied.kind.as_str(), copied.path.as_str()),
            (JobState::Done, "cp", "/tree")
        );
        assert_eq!(copied.totals, Some(copies[1].perform(&client, &mut Kept::default())), "{plates} plates");
        for mode in ["go=", "u+x,g=u"] {
            let by_job = Job::start(&client, &chmod(&client, "/by-job", mode)).expect("started");
            let by_job = by_job.wait(&mut Kept::default()).expect("done");
            let by_hand = chmod(&client, "/by-hand", mode).perform(&client, &mut Kept::default());
            assert_eq!((by_job.totals, by_job.refused), (Some(by_hand), 0), "{plates} plates, {mode}");
        }
        let owner = |path| Task::Chown {
            subjects: vec![subject(&client, path)],
            recursive: true,
            uid: Some(7),
            gid: Some(8),
        };
        let by_job = Job::start(&client, &owner("/by-job")).expect("started").wait(&mut Kept::default());
        assert_eq!(
            by_job.expect("done").totals,
            Some(owner("/by-hand").perform(&client, &mut Kept::default()))
        );
        let lines = |path: &str| {
            let Some(Totals::Usage(lines)) = Job::start(&client, &usage(&client, path))
                .and_then(|job| job.wait(&mut Kept::default()))
                .expect("done")
                .totals
            else {
                panic!("no usage")
            };
            lines.into_iter().map(|line| (line.depth, line.bytes, line.files, line.dirs)).collect::<Vec<_>>()
        };
        assert_eq!(lines("/by-job").len(), 11);
        let sorted = |mut lines: Vec<_>| {
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(lines("/by-job")), sorted(lines("/by-hand")));
        let looks = ["/by-job/dir-3/file-7", "/by-hand/dir-3/file-7"].map(|path| {
            let attr = client.stat(path).expect("there");
            (attr.mode, attr.uid, attr.gid, attr.size, client.read_file(path).expect("read"))
        });
        assert_eq!(looks[0], looks[1]);
        assert_eq!((looks[0].0, looks[0].1), (Mode(0o770), 7));
    }
}

#[test]
fn a_job_has_the_rights_of_its_user_and_is_seen_by_no_other() {
    let site = Site::new(3);
    let (root, alice, bob) = (site.client(0), site.client(1000), site.client(1001));
    site.fill("/tree", 2);
    root.create_file("/tree/secret", b"x").expect("made");
    let job = Job::start(&alice, &chmod(&alice, "/tree", "777")).expect("started");
    let mut kept = Kept::default();
    let status = job.wait(&mut kept).expect("over");
    assert_eq!((status.state, status.uid), (JobState::Done, 1000));
    // The tree, its directories, their files, and one more.
    assert_eq!((status.refused, kept.refused.len()), (1 + 2 + 200 + 1, 204));
    assert!(kept.refused.iter().all(|(_, refusal)| *refusal == Refusal::NotPermitted), "{:?}", kept.refused);
    assert!(kept.refused.iter().any(|(path, _)| path == "/tree/secret"), "{:?}", kept.refused);
    assert_eq!(root.stat("/tree/secret").expect("there").mode, Mode(0o644));
    assert_eq!(Job::find(&bob, job.id()).map(|job| job.id()), Err(Refusal::NotPermitted));
    assert_eq!(jobs(&bob), Ok(vec![]));
    for user in [&alice, &root] {
        let seen = jobs(user).expect("listed");
        assert_eq!(seen.iter().map(|job| job.id).collect::<Vec<_>>(), [job.id()]);
        assert_eq!(
            Job::find(user, job.id()).and_then(|job| job.status(203)).map(|it| it.refusals.len()),
            Ok(1)
        );
    }
    assert_eq!(Job::find(&root, job.id() + 1).map(|job| job.id()), Err(Refusal::NotFound));
}

#[test]
fn a_cancelled_job_ends_early_and_only_by_its_user_or_root() {
    let gate = Arc::new(Gate::default());
    let site = Site::gated(1, &gate);
    let (root, alice, bob) = (site.client(0), site.client(1000), site.client(1001));
    site.fill("/tree", 2);
    let start = |client| Job::start(client, &usage(client, "/tree")).expect("started");
    let (first, second) = (start(&alice), start(&alice));
    // Another user cannot even name it.
    assert!(Job::find(&bob, first.id()).is_err());
    let words = |id: u64| format!("jobs cancel {id}");
    assert_eq!(bob.admin(&words(first.id())), Err(Refusal::NotPermitted));
    first.cancel().expect("cancelled");
    Job::find(&root, second.id()).and_then(|job| job.cancel()).expect("cancelled");
    assert_eq!(first.status(0).expect("known").state, JobState::Running, "its thread has not noticed");
    gate.open();
    for job in [first, second] {
        let status = job.wait(&mut Kept::default()).expect("over");
        assert_eq!((status.state, status.names), (JobState::Cancelled, 0));
        // Once more changes nothing.
        job.cancel().expect("cancelled");
        assert_eq!(job.status(0).expect("known").state, JobState::Cancelled);
    }
}

#[test]
fn a_watch_cancels_its_job_between_messages() {
    let site = Site::new(1);
    let client = site.client(0);
    site.fill("/tree", 100);
    let mut kept = Kept { ends_after: Some(0), ..Kept::default() };
    let job = Job::start(&client, &chmod(&client, "/tree", "700")).expect("started");
    let status = job.wait(&mut kept).expect("over");
    assert_eq!(status.state, JobState::Cancelled);
    assert!(status.names < 10_101, "{status:?}");
    let Some(Totals::Changed(done)) = status.totals else { panic!("no totals") };
    assert!(done.stopped);
}

#[test]
fn a_job_goes_on_without_the_client_that_started_it() {
    let gate = Arc::new(Gate::default());
    let site = Site::gated(3, &gate);
    site.fill("/tree", 3);
    let id = {
        let client = site.client(1000);
        Job::start(&client, &usage(&client, "/tree")).expect("started").id()
    };
    gate.open();
    let client = site.client(1000);
    let status = Job::find(&client, id).and_then(|job| job.wait(&mut Kept::default())).expect("over");
    let Some(Totals::Usage(lines)) = status.totals else { panic!("no usage") };
    assert_eq!((status.state, lines[0].files), (JobState::Done, 300));
}

#[test]
fn so_many_jobs_run_and_so_many_are_remembered() {
    let gate = Arc::new(Gate::default());
    let site = Site::gated(1, &gate);
    let client = site.client(0);
    site.fill("/tree", 1);
    let task = usage(&client, "/tree");
    let running: Vec<Job<'_>> =
        (0..RUNNING_MAX).map(|_| Job::start(&client, &task).expect("started")).collect();
    assert_eq!(Job::start(&client, &task).map(|job| job.id()), Err(Refusal::Busy));
    gate.open();
    for job in &running {
        assert_eq!(job.wait(&mut Kept::default()).expect("over").state, JobState::Done);
    }
    for _ in 0..REMEMBERED_MAX {
        Job::start(&client, &task).and_then(|job| job.wait(&mut Kept::default())).expect("over");
    }
    let known = jobs(&client).expect("listed");
    assert!(known.len() <= REMEMBERED_MAX, "{}", known.len());
    assert_eq!(running[0].status(0), Err(Refusal::NotFound));
    assert!(known.windows(2).all(|pair| pair[0].id < pair[1].id), "the oldest first");
}

#[test]
fn a_server_without_jobs_or_at_its_end_starts_none() {
    let bare = Site::without_jobs();
    bare.fill("/tree", 1);
    let client = bare.client(0);
    assert_eq!(Job::start(&client, &usage(&client, "/tree")).map(|job| job.id()), Err(Refusal::Unsupported));
    assert_eq!(jobs(&client), Err(Refusal::Unsupported));

    let gate = Arc::new(Gate::default());
    let site = Site::gated(1, &gate);
    site.fill("/tree", 1);
    let client = site.client(0);
    let job = Job::start(&client, &usage(&client, "/tree")).expect("started");
    gate.open();
    site.jobs().end();
    let state = job.status(0).expect("known").state;
    assert!(matches!(state, JobState::Stopped | JobState::Done), "{state:?}");
    assert_eq!(Job::start(&client, &usage(&client, "/tree")).map(|job| job.id()), Err(Refusal::Unsupported));
}

#[test]
fn a_job_without_a_client_and_one_with_too_many_lines_fail_in_words() {
    let site = Site::new(1);
    let client = site.client(0);
    let many = client.mkdir_all("/many").expect("made").ino;
    let make = |n: u32| {
        let name = Name::try_from(&format!("dir-{n}")[..]).expect("a name");
        Op::Make { parent: many, name, make: Make::Dir, mode: Mode(0o755) }
    };
    let made = client.perform(&client.caller(), (0..10_001).map(make).collect(), OnRefusal::PerformAll);
    assert!(made.iter().all(Result::is_ok));
    let job = Job::start(&client, &usage(&client, "/many")).expect("started");
    let status = job.wait(&mut Kept::default()).expect("over");
    assert_eq!((status.state, &status.totals), (JobState::Failed, &None));
    assert!(status.why.as_ref().is_some_and(|why| why.contains("ask for less depth")), "{status:?}");
    site.jobs().serve_by(|_| Err("no way".to_owned()));
    let job = Job::start(&client, &usage(&client, "/many")).expect("started");
    let status = job.wait(&mut Kept::default()).expect("over");
    assert!(status.why.is_some_and(|why| why.contains("no way")));
}
