//! The suite of all monitors against a real etcd, and the loss of members of a larger one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chiton_etcd::EtcdMonitor;
use chiton_etcd_process::Etcd;
use chiton_monitor::conformance::{Subject, suite};
use chiton_monitor::{Alive, Condition, Event, MapChange, Monitor, MonitorError};
use chiton_runtime::thread::sleep;

fn open(etcd: &Etcd, prefix: &str) -> EtcdMonitor {
    let address = format!("{}/{prefix}", etcd.address()).parse().expect("an address");
    EtcdMonitor::open(&address).expect("opened")
}

#[test]
fn it_conforms() {
    let dir = tempfile::tempdir().expect("a directory");
    let etcd = Etcd::start(dir.path(), 1).expect("an etcd");
    let number = AtomicU32::new(0);
    suite(&|| {
        let prefix = number.fetch_add(1, Ordering::Relaxed).to_string();
        Subject {
            monitor: Arc::new(open(&etcd, &prefix)),
            other: Arc::new(open(&etcd, &prefix)),
            pass: Box::new(sleep),
        }
    });
}

/// An etcd that cannot be reached is named, and nothing is said of the map.
#[test]
fn without_an_etcd_there_is_a_clear_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut etcd = Etcd::start(dir.path(), 1).expect("an etcd");
    let monitor = open(&etcd, "test");
    monitor.init(1, 1, 2000).expect("init");
    let mut liveness = monitor.register(1, 1).expect("registered");
    etcd.kill(0);
    for error in [monitor.map().err(), liveness.renew().err(), monitor.register(2, 1).err()] {
        assert!(
            matches!(&error, Some(MonitorError::Unavailable(why)) if why.contains(&etcd.address()["etcd://".len()..])),
            "{error:?}"
        );
    }
}

/// One of three members dies, whichever, and no call fails; a watch continues with every epoch.
#[test]
fn one_member_less_fails_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut etcd = Etcd::start(dir.path(), 3).expect("an etcd");
    let monitor = open(&etcd, "test");
    monitor.init(1, 4, 2000).expect("init");
    let mut liveness = monitor.register(1, 1).expect("registered");
    let mut watch = open(&etcd, "test").watch(1);
    let mut copy = monitor.map().expect("the map");
    let mut change = |epoch: u64| {
        let put = [MapChange::SetPlate { plate: (epoch % 4) as u32, owner: None, next: None }];
        let requires = [Condition::Alive(1, 1), Condition::Gone(2)];
        assert_eq!(monitor.change(epoch, &requires, &put, "test", "it is tried"), Ok(epoch + 1));
        liveness.renew().expect("renewed");
        assert_eq!(monitor.alive(), Ok(Alive::from([(1, 1)])));
    };
    let mut epoch = 1;
    for member in 0..3 {
        for _ in 0..5 {
            change(epoch);
            epoch += 1;
        }
        etcd.kill(member);
        for _ in 0..5 {
            change(epoch);
            epoch += 1;
        }
        etcd.restart(member).expect("restarted");
    }
    while copy.epoch < epoch {
        match watch.next(Duration::from_secs(20)) {
            Some(Event::Map(increment)) => copy.apply(&increment).expect("the next epoch"),
            Some(Event::Servers) => {}
            other => panic!("at epoch {}: {other:?}", copy.epoch),
        }
    }
    assert_eq!(monitor.map(), Ok(copy));
    assert_eq!(monitor.history(100).expect("history").len() as u64, epoch - 1);
}

/// Without a majority nothing is promised, and afterwards the map and its epoch are the same.
#[test]
fn a_majority_that_comes_back_knows_everything() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut etcd = Etcd::start(dir.path(), 3).expect("an etcd");
    let monitor = open(&etcd, "test");
    monitor.init(1, 4, 2000).expect("init");
    let put = [MapChange::SetPlate { plate: 0, owner: None, next: None }];
    monitor.change(1, &[], &put, "test", "before").expect("changed");
    let mut liveness = monitor.register(1, 1).expect("registered");
    let before = monitor.map();
    etcd.kill(1);
    etcd.kill(2);
    assert!(monitor.change(2, &[], &put, "test", "without").is_err());
    assert!(liveness.renew().is_err(), "nobody can vouch for the lease");
    etcd.restart_all(&[1, 2]).expect("restarted");
    let after = monitor.map();
    // The change without a majority may be carried out later, or not at all.
    assert!(after == before || after.as_ref().is_ok_and(|map| map.epoch == 3), "{after:?}");
    assert!(monitor.alive().is_ok());
}
