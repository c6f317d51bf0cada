//! Searches: names come as they are found, to one client.

use std::time::Duration;

use chiton_client::Client;
use chiton_model::{Make, Op};
use chiton_runtime::thread;
use chiton_trees::{Conditions, Job, JobState, Searched, Task, Totals};
use chiton_types::{Kind, Mode, Name, Refusal};

use super::site::{Kept, PLATES, Site};
use super::subject;

fn search(client: &Client, path: &str, conditions: Conditions) -> Task {
    Task::Find { subjects: vec![subject(client, path)], conditions }
}

#[test]
fn a_search_finds_what_the_command_finds_and_more_than_a_server_keeps() {
    for plates in PLATES {
        let site = Site::new(plates);
        let client = site.client(0);
        site.fill("/tree", 150);
        let odd = Name::new(&b"odd-\xff"[..]).expect("a name");
        let parent = client.stat("/tree/dir-7").expect("there").ino;
        let make =
            Op::Make { parent, name: odd, make: Make::Symlink { target: b"x".to_vec() }, mode: Mode(0o777) };
        let made = client.perform(&client.caller(), vec![make], chiton_client::OnRefusal::PerformAll);
        assert!(made[0].is_ok(), "{made:?}");
        let all = search(&client, "/tree", Conditions::default());
        let (mut by_job, mut by_hand) = (Kept::default(), Kept::default());
        let status = all.perform_there(&client, &mut by_job).expect("done");
        assert_eq!(status.totals, Some(all.perform(&client, &mut by_hand)), "{plates} plates");
        assert_eq!(
            status.totals,
            Some(Totals::Searched(Searched { names: 15_152, found: 15_152, refused: 0, stopped: false }))
        );
        let sorted = |mut kept: Kept| {
            kept.found.sort_by(|a, b| a.path.cmp(&b.path));
            kept.found
        };
        assert_eq!(sorted(by_job), sorted(by_hand));

        let links = Conditions { kind: Some(Kind::Symlink), ..Conditions::default() };
        let mut kept = Kept::default();
        let status = search(&client, "/tree", links).perform_there(&client, &mut kept).expect("done");
        assert_eq!(status.names, 15_152);
        assert_eq!(kept.found.len(), 1);
        assert_eq!((&kept.found[0].path[..], kept.found[0].attr.size), (&b"/tree/dir-7/odd-\xff"[..], 1));
        let shallow = Conditions { depth_max: Some(1), ..Conditions::default() };
        let mut kept = Kept::default();
        search(&client, "/tree", shallow).perform_there(&client, &mut kept).expect("done");
        assert_eq!(kept.found.len(), 151);
    }
}

#[test]
fn one_client_takes_what_a_search_finds() {
    let site = Site::new(1);
    let (alice, bob) = (site.client(1000), site.client(1001));
    site.fill("/tree", 2);
    let job = Job::start(&alice, &search(&alice, "/tree", Conditions::default())).expect("started");
    // To wait without taking leaves it for the other.
    Job::find(&alice, job.id()).and_then(|job| job.wait(&mut Kept::default())).expect("over");
    let mut kept = Kept::default();
    Job::find_to_take(&alice, job.id()).and_then(|job| job.wait(&mut kept)).expect("over");
    assert_eq!(kept.found.len(), 203);
    assert_eq!(alice.admin(&format!("jobs found {} 0", job.id())), Err(Refusal::Invalid), "it was taken");
    assert_eq!(alice.admin(&format!("jobs found {} 203", job.id())), Ok(Vec::new()));
    assert_eq!(alice.admin(&format!("jobs found {} 204", job.id())), Err(Refusal::Invalid));
    assert_eq!(bob.admin(&format!("jobs found {} 203", job.id())), Err(Refusal::NotPermitted));
}

#[test]
fn a_search_without_a_reader_ends() {
    let site = Site::new(1);
    let client = site.client(0);
    site.fill("/tree", 200);
    let task = search(&client, "/tree", Conditions::default());
    let job = Job::start(&client, &task).expect("started");
    thread::sleep(Duration::from_millis(500));
    assert_eq!(job.status(0).expect("known").state, JobState::Running, "it waits for a reader");
    site.clock().put_forward(Duration::from_secs(61));
    let status = Job::find(&client, job.id()).and_then(|job| job.wait(&mut Kept::default())).expect("over");
    assert_eq!(status.state, JobState::Failed);
    assert!(status.why.is_some_and(|why| why.contains("no client took")));
    // One that is cancelled does not wait for its reader.
    let job = Job::start(&client, &task).expect("started");
    job.cancel().expect("cancelled");
    let status = Job::find(&client, job.id()).and_then(|job| job.wait(&mut Kept::default())).expect("over");
    assert_eq!(status.state, JobState::Cancelled);
}
