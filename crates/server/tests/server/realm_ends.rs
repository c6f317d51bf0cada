//! Decoupled realms that end while a server dies, or cannot write.

use chiton_journal::PlaceError;
use chiton_server::EmbeddedSession;
use chiton_types::{Ino, Refusal};
use chiton_wire::{Call, Failure, ObjectCall, RealmAnswer, RealmCall};

use crate::realms::Realms;
use crate::rig::{Asks, Rig, quiet, refused, session};

#[test]
fn what_nothing_survives_ends_with_its_session_and_the_rest_is_listed() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let s = session(&server);
    let dirs: Vec<Ino> = ["a", "b", "c"].map(|name| s.mkdir(Ino::ROOT, name)).into();
    let none = "consistency: weak\ndurability: none\ninterfere_policy: block";
    let local = "consistency: weak\ndurability: local\ninterfere_policy: block_writes";
    let other = session(&server);
    other.decouple(dirs[0], 1, none);
    s.decouple(dirs[1], 2, none);
    s.decouple(dirs[2], 3, local);
    drop(other);
    let roots = |s: &EmbeddedSession| s.realms().iter().map(|r| r.root).collect::<Vec<_>>();
    assert_eq!(roots(&s), [dirs[1], dirs[2]]);
    s.create(dirs[0], "free");
    s.commit();
    std::mem::forget(s);
    rig.crash(&server);
    let server = rig.start(quiet());
    let s = session(&server);
    assert_eq!(roots(&s), [dirs[2]], "its session died with the server");
    let status: serde_json::Value =
        serde_json::from_str(&server.report("status").expect("a status")).expect("JSON");
    assert_eq!(status["decouplings"], 1);
    let listed = &status["decoupled"][0];
    assert_eq!((listed["path"].as_str(), listed["interfere"].as_str()), (Some("/c"), Some("block_writes")));
    assert_eq!((listed["attached"].as_bool(), listed["realm"].as_u64()), (Some(false), Some(3)));
}

#[test]
fn nobody_hears_of_an_end_that_a_crash_can_take_back() {
    let mut rig = Rig::new();
    let server = rig.start(quiet());
    let (holder, admin) = (session(&server), session(&server));
    let dir = holder.mkdir(Ino::ROOT, "job");
    let claim = holder.decouple(dir, 7, "consistency: weak\ndurability: local").claim;
    rig.place.set_trouble(Some(PlaceError::Failed("the disk died".into())));
    let io = Failure::Refused(Refusal::Io);
    assert_eq!(admin.end(claim, true), Err(io.clone()));
    // A client that is refused for good drops its journal.
    let object = ObjectCall::Get { bytes_max: 9 };
    let of_the_holder = [
        RealmCall::Check { claim, inodes: Vec::new(), names: Vec::new() },
        RealmCall::Rows { claim, needs: Vec::new() },
        RealmCall::MergeLock { claim, acquire: true },
        RealmCall::Object { claim, name: "0".to_owned(), action: object },
        RealmCall::Attach { realm: claim.realm, nonce: 8, journal_at: String::new() },
        RealmCall::End { claim, force: false },
        RealmCall::List,
    ];
    for call in of_the_holder {
        assert_eq!(holder.try_realm(call.clone()), Err(io.clone()), "{call:?}");
    }
    rig.place.set_trouble(None);
    rig.crash(&server);
    let server = rig.start(quiet());
    let next = session(&server);
    assert_eq!(next.realms().len(), 1, "its end was not durable");
    let claim = next.attach(claim.realm, 9).claim;
    assert_eq!(next.end(claim, false), Ok(RealmAnswer::Ended));
    assert_eq!(
        refused(next.try_call(Call::Realm(Box::new(RealmCall::MergeLock { claim, acquire: true })))),
        Refusal::Stale
    );
}
