//! The requirements of every store of maps, as one call: [`suite`].
//!
//! Invariants: each case gets a new, empty store from `make`; a failure panics with the difference.

use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::thread;

use crate::{
    Alive, CONDITIONS_MAX, ChangeError, ClusterMap, Condition, Event, INCREMENTS_KEPT, MapChange, MapError,
    Monitor, MonitorError, ServerInfo, TEXT_BYTES_MAX, WEIGHT_ORDINARY, Watch,
};

pub struct Subject {
    pub monitor: Arc<dyn Monitor>,
    /// The same store, reached in another way if there is one.
    pub other: Arc<dyn Monitor>,
    /// Lets time pass for the store.
    pub pass: Box<dyn Fn(Duration)>,
}

pub type Make<'a> = &'a dyn Fn() -> Subject;

/// The lease in the maps of the cases.
const LEASE_MS: u32 = 2000;
/// How long a watch may take until an event that must come has come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs every case. Panics where the store does not conform.
pub fn suite(make: Make<'_>) {
    begins_once(&make());
    changes_are_compared_and_set(&make());
    refused_changes_change_nothing(&make());
    one_of_two_racers_wins(&make());
    conditions_are_part_of_the_change(&make());
    history_names_the_newest_first(&make());
    one_server_of_an_id_lives(&make());
    forgotten_server_expires(&make());
    watch_misses_no_epoch(&make());
    watch_that_is_far_behind_gets_the_map(&make());
    watch_begins_before_the_first_map(&make());
}

fn server(id: u64) -> ServerInfo {
    ServerInfo {
        id,
        addresses: vec![format!("127.0.0.1:{id}")],
        domain: String::new(),
        weight: WEIGHT_ORDINARY,
        is_in: true,
        is_standby: false,
        generation: 1,
    }
}

fn put(id: u64) -> [MapChange; 1] {
    [MapChange::PutServer(server(id))]
}

fn begun(subject: &Subject) -> &dyn Monitor {
    subject.monitor.init(9, 4, LEASE_MS).expect("init");
    &*subject.monitor
}

fn begins_once(subject: &Subject) {
    let (monitor, other) = (&subject.monitor, &subject.other);
    assert_eq!(monitor.map(), Err(MonitorError::Uninitialized));
    assert_eq!(monitor.history(10), Ok(vec![]));
    assert_eq!(monitor.alive(), Ok(Alive::new()));
    let none = Err(ChangeError::Failed(MonitorError::Uninitialized));
    assert_eq!(monitor.change(0, &[], &put(1), "test", "no map"), none);
    assert_eq!(monitor.register(1, 1).err(), Some(MonitorError::Uninitialized));
    assert!(matches!(monitor.init(9, u32::MAX, LEASE_MS), Err(MonitorError::Refused(_))));
    monitor.init(9, 4, LEASE_MS).expect("init");
    assert_eq!(other.init(10, 4, LEASE_MS), Err(MonitorError::Initialized { filesystem: 9 }));
    assert_eq!(other.map(), Ok(ClusterMap::new(9, 4, LEASE_MS).expect("a map")));
}

fn changes_are_compared_and_set(subject: &Subject) {
    let monitor = begun(subject);
    assert_eq!(monitor.change(1, &[], &put(1), "test", "first"), Ok(2));
    let place = [MapChange::SetPlate { plate: 3, owner: Some(1), next: Some(2) }];
    let both = [&put(2)[..], &place].concat();
    assert_eq!(subject.other.change(1, &[], &both, "test", "late"), Err(ChangeError::Outdated(2)));
    assert_eq!(subject.other.change(7, &[], &both, "test", "early"), Err(ChangeError::Outdated(2)));
    assert_eq!(subject.other.change(2, &[], &both, "test", "second"), Ok(3));
    let first = ClusterMap::new(9, 4, LEASE_MS).expect("a map");
    let second = first.changed(&put(1)).expect("it fits").0;
    assert_eq!(monitor.map(), Ok(second.changed(&both).expect("it fits").0));
}

fn refused_changes_change_nothing(subject: &Subject) {
    let monitor = begun(subject);
    let before = monitor.map();
    let unknown = [MapChange::RemoveServer(5)];
    let refused = |error| Err(ChangeError::Failed(MonitorError::Refused(error)));
    assert_eq!(monitor.change(1, &[], &unknown, "test", "no such"), refused(MapError::Server(5)));
    let long = "w".repeat(TEXT_BYTES_MAX + 1);
    for (who, why) in [("test", &long[..]), (&long[..], "long")] {
        let result = monitor.change(1, &[], &put(1), who, why);
        assert!(matches!(
            result,
            Err(ChangeError::Failed(MonitorError::Refused(MapError::Limit { found: 256, .. })))
        ));
    }
    let many = [Condition::Gone(1); CONDITIONS_MAX + 1];
    let result = monitor.change(1, &many, &put(1), "test", "too many conditions");
    assert!(matches!(result, Err(ChangeError::Failed(MonitorError::Refused(MapError::Limit { .. })))));
    assert_eq!(monitor.change(1, &many[1..], &put(1), "test", "as many as may be"), Ok(2));
    assert_eq!(before.map(|map| map.epoch), Ok(1));
    assert_eq!(monitor.history(10).map(|lines| lines.len()), Ok(1));
}

/// Two threads add servers; every change of both must be in the map.
fn one_of_two_racers_wins(subject: &Subject) {
    const EACH: u64 = 20;
    begun(subject);
    let racers: Vec<_> = [(subject.monitor.clone(), 0), (subject.other.clone(), EACH)]
        .into_iter()
        .map(|(monitor, offset)| {
            let race = move || {
                for id in offset..offset + EACH {
                    let mut epoch = monitor.map().expect("map").epoch;
                    while let Err(error) = monitor.change(epoch, &[], &put(id), "racer", "race") {
                        let ChangeError::Outdated(now) = error else { panic!("{error}") };
                        assert!(now > epoch, "outdated by {now}, expected {epoch}");
                        epoch = now;
                    }
                }
            };
            thread::spawn("racer", race).expect("a thread")
        })
        .collect();
    for racer in racers {
        assert!(racer.join().is_ok(), "a racer failed");
    }
    let map = subject.monitor.map().expect("map");
    assert_eq!((map.epoch, map.servers.len() as u64), (1 + 2 * EACH, 2 * EACH));
}

fn conditions_are_part_of_the_change(subject: &Subject) {
    use Condition::{Alive, Gone};
    let monitor = begun(subject);
    let liveness = subject.other.register(1, 7).expect("register");
    let broken = |condition| Err(ChangeError::Condition(condition));
    for (requires, first_broken) in [
        (&[Gone(1)][..], Gone(1)),
        (&[Alive(1, 6)], Alive(1, 6)),
        (&[Alive(2, 1)], Alive(2, 1)),
        (&[Alive(1, 7), Gone(2), Gone(1), Alive(2, 1)], Gone(1)),
    ] {
        assert_eq!(monitor.change(1, requires, &put(1), "test", "condition"), broken(first_broken));
    }
    assert_eq!(monitor.change(5, &[Gone(1)], &put(1), "test", "both"), Err(ChangeError::Outdated(1)));
    assert_eq!(monitor.change(1, &[Alive(1, 7), Gone(2)], &put(1), "test", "lives"), Ok(2));
    liveness.leave().expect("leave");
    assert_eq!(monitor.change(2, &[Alive(1, 7)], &put(2), "test", "left"), broken(Alive(1, 7)));
    assert_eq!(monitor.change(2, &[Gone(1)], &put(2), "test", "left"), Ok(3));
}

fn history_names_the_newest_first(subject: &Subject) {
    let monitor = begun(subject);
    for id in 1..=12 {
        monitor.change(id, &[], &put(id), &format!("server {id}"), "it starts").expect("change");
    }
    let all = subject.other.history(100).expect("history");
    let epochs: Vec<u64> = all.iter().map(|line| line.epoch).collect();
    assert_eq!(epochs, (2..=13).rev().collect::<Vec<_>>());
    let newest = &all[0];
    let texts = (&newest.who[..], &newest.why[..], &newest.changes[..]);
    assert_eq!(texts, ("server 12", "it starts", "put server 12"));
    assert_eq!(subject.other.history(3).as_deref(), Ok(&all[..3]));
    assert_eq!(subject.other.history(0), Ok(vec![]));
}

fn one_server_of_an_id_lives(subject: &Subject) {
    let monitor = begun(subject);
    let mut first = monitor.register(1, 7).expect("register");
    assert!(first.valid_for() >= Duration::from_millis(LEASE_MS.into()));
    first.renew().expect("renew");
    for generation in [7, 8] {
        let refused = subject.other.register(1, generation).err();
        assert_eq!(refused, Some(MonitorError::Registered { id: 1, generation: 7 }));
    }
    let second = subject.other.register(2, 3).expect("another id");
    assert_eq!(monitor.alive(), Ok(Alive::from([(1, 7), (2, 3)])));
    first.leave().expect("leave");
    assert_eq!(monitor.alive(), Ok(Alive::from([(2, 3)])));
    let mut again = subject.other.register(1, 8).expect("its place is free");
    again.renew().expect("the former one's end does not touch it");
    assert_eq!(monitor.alive(), Ok(Alive::from([(1, 8), (2, 3)])));
    drop(second);
}

fn forgotten_server_expires(subject: &Subject) {
    let monitor = begun(subject);
    let mut kept = monitor.register(1, 1).expect("register");
    let mut lapsed = monitor.register(2, 1).expect("register");
    let forgotten = monitor.register(3, 1).expect("register");
    let lease = forgotten.valid_for();
    drop(forgotten);
    // A store may be late with the end of a lease, so the case waits for it, and renews one meanwhile.
    let gone = (0..100).any(|_| {
        kept.renew().expect("it is renewed in time");
        (subject.pass)(lease / 4);
        subject.other.alive() == Ok(Alive::from([(1, 1)]))
    });
    assert!(gone, "a server outlived its lease: {:?}", monitor.alive());
    assert_eq!(lapsed.renew(), Err(MonitorError::Expired { id: 2 }));
    monitor.register(2, 2).expect("its place is free").leave().expect("leave");
    assert_eq!(lapsed.renew(), Err(MonitorError::Expired { id: 2 }));
}

/// The next event about the map.
fn next_map(watch: &mut dyn Watch) -> Event {
    loop {
        match watch.next(PATIENCE) {
            Some(Event::Servers) => {}
            Some(event) => return event,
            None => panic!("no event about the map in {PATIENCE:?}"),
        }
    }
}

/// The next event, which must be about servers.
fn expect_servers(watch: &mut dyn Watch) {
    assert_eq!(watch.next(PATIENCE), Some(Event::Servers));
}

fn watch_misses_no_epoch(subject: &Subject) {
    let monitor = begun(subject);
    monitor.change(1, &[], &put(1), "test", "before the watch").expect("change");
    let mut copy = ClusterMap::new(9, 4, LEASE_MS).expect("a map");
    let mut watch = subject.other.watch(1);
    expect_servers(&mut *watch);
    for epoch in 2..=12 {
        monitor.change(epoch, &[], &put(epoch), "test", "during the watch").expect("change");
    }
    while copy.epoch < 13 {
        match next_map(&mut *watch) {
            Event::Map(increment) => copy.apply(&increment).expect("the next epoch"),
            event => panic!("an increment was kept, but the watch yields {event:?}"),
        }
    }
    assert_eq!(monitor.map(), Ok(copy));
    let liveness = monitor.register(1, 1).expect("register");
    expect_servers(&mut *watch);
    liveness.leave().expect("leave");
    expect_servers(&mut *watch);
    assert_eq!(subject.other.alive(), Ok(Alive::new()));
}

fn watch_that_is_far_behind_gets_the_map(subject: &Subject) {
    let monitor = begun(subject);
    let last = 1 + INCREMENTS_KEPT + 5;
    for epoch in 1..last {
        monitor.change(epoch, &[], &put(1), "test", "many").expect("change");
    }
    let mut watch = subject.other.watch(2);
    assert_eq!(next_map(&mut *watch), Event::Whole(monitor.map().expect("map")));
    monitor.change(last, &[], &put(2), "test", "one more").expect("change");
    let Event::Map(increment) = next_map(&mut *watch) else { panic!("the increment is kept") };
    assert_eq!((increment.from, increment.to), (last, last + 1));
    let mut future = subject.other.watch(last + 100);
    assert_eq!(next_map(&mut *future), Event::Whole(monitor.map().expect("map")));
}

fn watch_begins_before_the_first_map(subject: &Subject) {
    let mut watch = subject.other.watch(0);
    expect_servers(&mut *watch);
    assert_eq!(watch.next(Duration::from_millis(1)), None);
    let monitor = begun(subject);
    assert_eq!(next_map(&mut *watch), Event::Whole(monitor.map().expect("map")));
    monitor.change(1, &[], &put(1), "test", "first").expect("change");
    assert!(matches!(next_map(&mut *watch), Event::Map(_)));
}
