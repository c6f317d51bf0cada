//! Jobs whose servers end, and jobs while directories are split.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chiton_client::Client;
use chiton_runtime::thread;
use chiton_server::TreeJobs;
use chiton_trees::{Copying, Job, JobState, ModeChange, Removal, Removed, Task, Totals, Unfollowed, jobs};
use chiton_types::{Ino, Mode, Name};

use super::site::{Gate, Kept, Site};
use super::{chmod, subject, usage};

/// Waits until a job waits at the gate.
fn await_job(client: &Client) -> u64 {
    loop {
        if let Some(job) = jobs(client).expect("listed").first() {
            return job.id;
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The result of a task whose server ends while it works, and the ends that its watch has heard of.
fn over_a_restart(task: impl Fn(&Client) -> Task) -> (Result<JobState, Unfollowed>, usize, Site) {
    let gate = Arc::new(Gate::default());
    let mut site = Site::gated(3, &gate);
    site.fill("/tree", 3);
    let client = site.client(0);
    let task = task(&client);
    let (result, ended) = std::thread::scope(|scope| {
        let followed = scope.spawn(|| {
            let mut kept = Kept::default();
            let status = task.perform_there(&client, &mut kept);
            (status.map(|status| status.state), kept.ended.len())
        });
        await_job(&site.client(0));
        site.restart();
        followed.join().expect("it ends")
    });
    gate.open();
    (result, ended, site)
}

#[test]
fn a_task_begins_again_at_the_server_that_takes_over() {
    let (result, ended, site) = over_a_restart(|client| chmod(client, "/tree", "go="));
    assert_eq!((result, ended), (Ok(JobState::Done), 1));
    assert_eq!(site.client(0).stat("/tree/dir-2/file-99").expect("there").mode, Mode(0o600));
    let (result, ended, _) = over_a_restart(|client| usage(client, "/tree"));
    assert_eq!((result, ended), (Ok(JobState::Done), 1));
}

#[test]
fn a_copy_is_resumed_and_a_change_that_does_harm_twice_is_not_begun_again() {
    let copy = |client: &Client| {
        let name = Name::try_from("copy").expect("a name");
        Task::Copy(vec![Copying { from: subject(client, "/tree"), into: Ino::ROOT, name, since: None }])
    };
    let (result, ended, site) = over_a_restart(copy);
    assert_eq!((result, ended), (Ok(JobState::Done), 1));
    assert_eq!(site.client(0).stat("/copy/dir-2/file-99").expect("there").mode, Mode(0o644));
    let (result, _, site) = over_a_restart(|client| chmod(client, "/tree", "g=u,u-w"));
    assert!(matches!(result, Err(Unfollowed::Ended { .. })), "{result:?}");
    assert_eq!(site.client(0).stat("/tree/dir-2/file-99").expect("there").mode, Mode(0o644));
}

#[test]
fn a_job_stops_when_its_server_has_no_plates_and_begins_again() {
    let gate = Arc::new(Gate::default());
    let site = Site::gated(1, &gate);
    site.fill("/tree", 2);
    let client = site.client(0);
    let task = chmod(&client, "/tree", "700");
    let job = Job::start(&client, &task).expect("started");
    site.jobs().has_no_plates();
    gate.open();
    let status = job.wait(&mut Kept::default()).expect("known");
    assert_eq!((status.state, &status.totals), (JobState::Stopped, &None), "{status:?}");
    assert!(status.why.is_some_and(|why| why.contains("start it again")));
    let mut kept = Kept::default();
    let status = task.perform_there(&client, &mut kept).expect("done");
    assert_eq!((status.state, status.names, kept.ended.len()), (JobState::Done, 203, 0));
}

#[test]
fn a_task_that_ends_its_servers_is_given_up() {
    let site = Site::new(1);
    site.fill("/tree", 1);
    let (client, jobs) = (site.client(0), site.shared_jobs());
    let address = site.address();
    let begun = Arc::new(AtomicUsize::new(0));
    let count = begun.clone();
    site.jobs().serve_by(move |options| {
        count.fetch_add(1, Ordering::SeqCst);
        jobs.upgrade().expect("the site has them").has_no_plates();
        Client::connect(&address, options).map_err(|e| e.to_string())
    });
    let mut kept = Kept::default();
    let result = chmod(&client, "/tree", "700").perform_there(&client, &mut kept);
    assert!(matches!(result, Err(Unfollowed::Ended { names: 0, .. })), "{result:?}");
    assert_eq!((begun.load(Ordering::SeqCst), kept.ended.len()), (5, 4));
    assert_eq!(client.stat("/tree").expect("there").mode, Mode(0o755), "nothing was begun");
}

#[test]
fn a_job_meets_each_name_once_while_its_directory_is_split_and_folded() {
    let site = Site::new(3);
    site.fill("/tree", 1);
    let client = site.client(0);
    let names: Vec<String> = (0..8_000).map(|n| format!("name-{n}")).collect();
    assert!(client.create_many("/tree/dir-0", &names).expect("asked").iter().all(Result::is_ok));
    let dir = client.stat("/tree/dir-0").expect("there").ino;
    let mut turns = 0;
    for mode in ["700", "640", "u+x", "604", "600", "711"] {
        let by_job = Job::start(&client, &chmod(&client, "/tree", mode)).expect("started");
        let counting = Job::start(&client, &usage(&client, "/tree")).expect("started");
        let other = site.client(0);
        loop {
            match turns % 2 {
                0 => drop(other.split(&other.caller(), dir, |_| {}).expect("split")),
                _ => other.fold(&other.caller(), dir, |_| {}).expect("folded"),
            }
            turns += 1;
            let running = |job: &Job<'_>| job.status(u64::MAX).expect("known").state == JobState::Running;
            if !running(&by_job) && !running(&counting) {
                break;
            }
        }
        let status = by_job.wait(&mut Kept::default()).expect("done");
        assert_eq!((status.state, status.names, status.refused), (JobState::Done, 8_102, 0), "{status:?}");
        let Some(Totals::Changed(done)) = status.totals else { panic!("no totals") };
        assert_eq!(done.changed, 8_102, "{mode}");
        let Some(Totals::Usage(lines)) = counting.wait(&mut Kept::default()).expect("done").totals else {
            panic!("no usage")
        };
        assert_eq!((lines[0].files, lines[0].dirs), (8_100, 2));
    }
    assert!(turns >= 6, "{turns}");
    let wanted = ModeChange::parse("711").expect("a mode").of(0, false, 0);
    for name in names.iter().step_by(97) {
        assert_eq!(client.stat(format!("/tree/dir-0/{name}")).expect("there").mode, Mode(wanted), "{name}");
    }
}

#[test]
fn a_tree_is_removed_name_by_name_with_a_report_of_what_stays() {
    let site = Site::new(3);
    let (root, alice) = (site.client(0), site.client(1000));
    site.fill("/tree", 2);
    let remove = |client: &Client| {
        let place = chiton_trees::Place::find(client, b"/tree", b"/tree").expect("there");
        Task::Remove(vec![Removal::of(&place).expect("not the root")])
    };
    let mut kept = Kept::default();
    let task = remove(&alice);
    let status = task.perform_there(&alice, &mut kept).expect("done");
    let Some(Totals::Removed(Removed { files: 0, dirs: 0, refused: 200, .. })) = status.totals else {
        panic!("{status:?}")
    };
    assert_eq!((status.kind.as_str(), kept.refused.len()), ("rm", 200));
    assert!(kept.refused.iter().any(|(path, _)| path == "/tree/dir-1/file-7"), "{:?}", kept.refused);
    let status = remove(&root).perform_there(&root, &mut Kept::default()).expect("done");
    let Some(Totals::Removed(done)) = status.totals else { panic!("{status:?}") };
    assert_eq!((done.files, done.dirs, done.refused), (200, 3, 0));
    assert!(root.stat("/tree").is_err());
    // Names that others have removed are no failure.
    let status = task.perform_there(&root, &mut Kept::default()).expect("done");
    assert_eq!((status.state, status.refused), (JobState::Done, 0));
}
