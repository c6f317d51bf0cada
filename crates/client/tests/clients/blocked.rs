//! "Refusing must not slow the server": a client that is kept out of a decoupled subtree hears so once, and then knows it until the decoupling ends.

use chiton_client::{Client, OpenFlags};
use chiton_types::{Cred, Ino, Mode, Refusal};
use chiton_wire::{Answer, Call, Claim, RealmAnswer, RealmCall};

use crate::site::Site;

const TRIES: usize = 500;

fn realm(client: &Client, call: RealmCall) -> RealmAnswer {
    match client.service().call(&Cred::ROOT, Call::Realm(Box::new(call))) {
        Ok(Answer::Realm(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

fn decouple(client: &Client, root: Ino, interfere: &str) -> Claim {
    let policy = format!("consistency: weak\ndurability: local\ninterfere_policy: {interfere}").into_bytes();
    let call = RealmCall::Decouple { root, branch: None, nonce: 7, journal_at: "here".into(), policy };
    match realm(client, call) {
        RealmAnswer::Granted(granted) => granted.claim,
        other => panic!("{other:?}"),
    }
}

fn end(client: &Client, claim: Claim) {
    assert_eq!(realm(client, RealmCall::End { claim, force: false }), RealmAnswer::Ended);
}

/// Requests that the server has been sent so far, but for those that only keep sessions alive.
fn asked(client: &Client) -> u64 {
    let status = client.admin("status").expect("status");
    let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
    let kinds = status["operations"].as_object().expect("counts");
    kinds.iter().filter(|(kind, _)| *kind != "ping").filter_map(|(_, n)| n.as_u64()).sum()
}

fn create(client: &Client, dir: Ino, name: &str) -> Result<(), Refusal> {
    let made = client.create(&client.caller(), dir, name.as_bytes(), Mode(0o644), OpenFlags::WRITE);
    made.and_then(|(_, fh)| client.release(fh))
}

#[test]
fn what_is_kept_from_a_client_is_refused_without_a_message_until_it_is_over() {
    let site = Site::new();
    let (owner, other) = (site.connected(), site.connected());
    let job = owner.mkdir_all("/job").expect("made").ino;
    let below = owner.mkdir_all("/job/below").expect("made").ino;
    let claim = decouple(&owner, job, "block");
    let before = asked(&owner);
    for n in 0..TRIES {
        let (caller, name) = (other.caller(), format!("f{n}"));
        assert_eq!(create(&other, job, &name), Err(Refusal::Busy));
        assert_eq!(create(&other, below, &name), Err(Refusal::Busy));
        assert_eq!(other.lookup(&caller, Ino::ROOT, b"job").map(drop), Err(Refusal::Busy));
        assert_eq!(other.lookup(&caller, job, name.as_bytes()).map(drop), Err(Refusal::Busy));
        assert_eq!(other.getattr(below, None).map(drop), Err(Refusal::Busy));
        let started = other.start_create(&caller, below, name.as_bytes(), Mode(0o644)).wait();
        assert_eq!(started.map(drop), Err(Refusal::Busy));
    }
    let sent = asked(&owner) - before;
    assert!(sent < 50, "{sent} requests for {} refusals", 6 * TRIES);
    // When the end is answered nobody refuses any more.
    end(&owner, claim);
    assert_eq!(create(&other, job, "mine"), Ok(()));
    assert_eq!(other.lookup(&other.caller(), Ino::ROOT, b"job").map(drop), Ok(()));
    let again = decouple(&owner, job, "block");
    assert_eq!(create(&other, job, "another"), Err(Refusal::Busy));
    end(&owner, again);
    assert_eq!(create(&other, job, "another"), Ok(()));
    // An inode that has left the subtree since is not refused when the subtree is decoupled again.
    owner.rename_path("/job/below", "/elsewhere").expect("moved");
    let again = decouple(&owner, job, "block");
    assert_eq!(create(&other, job, "a third"), Err(Refusal::Busy));
    assert_eq!(create(&other, below, "mine"), Ok(()));
    end(&owner, again);
}

#[test]
fn who_may_only_look_is_refused_changes() {
    let site = Site::new();
    let (owner, other) = (site.connected(), site.connected());
    let job = owner.mkdir_all("/job").expect("made").ino;
    owner.create_file("/job/there", b"1").expect("made");
    let claim = decouple(&owner, job, "block_writes");
    let before = asked(&owner);
    for n in 0..TRIES {
        assert_eq!(create(&other, job, &format!("f{n}")), Err(Refusal::Busy));
    }
    assert!(asked(&owner) - before < 50);
    assert_eq!(other.read_file("/job/there"), Ok(b"1".to_vec()));
    assert_eq!(other.list("/job").expect("listed").len(), 1);
    end(&owner, claim);
    assert_eq!(create(&other, job, "f0"), Ok(()));
}

#[test]
fn the_owners_own_session_and_a_restart_of_the_server_hold_nothing_up() {
    let site = Site::new();
    let (owner, other) = (site.connected(), site.connected());
    let job = owner.mkdir_all("/job").expect("made").ino;
    let claim = decouple(&owner, job, "block");
    for client in [&owner, &other] {
        (0..3).for_each(|n| assert_eq!(create(client, job, &format!("f{n}")), Err(Refusal::Busy)));
    }
    site.kill();
    site.start();
    for client in [&owner, &other] {
        (0..3).for_each(|n| assert_eq!(create(client, job, &format!("f{n}")), Err(Refusal::Busy)));
    }
    end(&owner, claim);
    for (n, client) in [&owner, &other].into_iter().enumerate() {
        assert_eq!(create(client, job, &format!("f{n}")), Ok(()));
    }
}
