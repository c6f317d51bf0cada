use std::sync::Arc;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::thread;

use super::*;

const LONG: Duration = Duration::from_secs(1_000);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn threads_wait_for_locks_conditions_times_and_each_other() {
    let scheduler = Scheduler::begin(3);
    let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
    let done = Arc::new(Mutex::new(false));
    let (s, d) = (shared.clone(), done.clone());
    scheduler.spawn_in(Party::OUTSIDE, "main", move || {
        let (s2, s3) = (s.clone(), s.clone());
        let holder = thread::spawn("holder", move || {
            let mut list = s2.0.lock();
            thread::sleep(ms(100));
            list.push("held");
            while list.len() < 2 {
                s2.1.wait(&mut list);
            }
            list.push("woken");
        });
        thread::sleep(ms(50));
        let other = thread::spawn("other", move || {
            s3.0.lock().push("second");
            s3.1.notify_all();
        });
        other.expect("starts").join().expect("ends");
        holder.expect("starts").join().expect("ends");
        let mut list = s.0.lock();
        assert!(s.1.wait_for(&mut list, ms(5_000)).timed_out());
        *d.lock() = true;
    });
    scheduler.run(LONG, || *done.lock()).expect("it ends");
    assert_eq!(*shared.0.lock(), ["held", "second", "woken"]);
    assert!(scheduler.now() > ms(5_050) && scheduler.now() < ms(5_200), "{:?}", scheduler.now());
}

#[test]
fn deadlocks_and_panics_are_reported() {
    let scheduler = Scheduler::begin(1);
    scheduler.spawn_in(Party::OUTSIDE, "waiter", || {
        let (lock, never) = (Mutex::new(()), Condvar::new());
        never.wait(&mut lock.lock());
    });
    let stuck = scheduler.run(LONG, || false);
    assert!(matches!(&stuck, Err(Stuck::Deadlock(who)) if who.contains("waiter")), "{stuck:?}");
    scheduler.spawn_in(Party::OUTSIDE, "breaker", || panic!("broken {}", 1));
    let stuck = scheduler.run(LONG, || false);
    assert_eq!(stuck, Err(Stuck::Panicked("breaker panicked: broken 1".to_owned())));
}

#[test]
fn a_paused_party_stands_still_and_a_seed_repeats() {
    let life = |seed| {
        let scheduler = Scheduler::begin(seed);
        scheduler.add_party(Party(7), 1_000, 5);
        let log = Arc::new(Mutex::new(Vec::new()));
        for n in 0..4 {
            let log = log.clone();
            scheduler.spawn_in(Party(7), "worker", move || {
                for _ in 0..3 {
                    thread::sleep(ms(10));
                    log.lock().push(n);
                }
            });
        }
        scheduler.run(LONG, || log.lock().len() == 4).expect("a round");
        scheduler.pause(Party(7), true);
        assert!(matches!(scheduler.run(ms(500), || false), Err(Stuck::Deadlock(_) | Stuck::TooLong(_))));
        assert_eq!(log.lock().len(), 4);
        scheduler.pause(Party(7), false);
        scheduler.run(LONG, || scheduler.threads_of(Party(7)) == 0).expect("they end");
        let log = log.lock().clone();
        (log, scheduler.fingerprint())
    };
    assert_eq!(life(1), life(1));
    let orders: std::collections::BTreeSet<_> = (0..20).map(|seed| life(seed).0).collect();
    assert!(orders.len() > 5, "seeds differ");
}

#[test]
fn threads_that_stall_are_overtaken_before_they_take_a_lock() {
    let life = |seed, stalls| {
        let scheduler = Scheduler::begin(seed);
        if stalls {
            scheduler.stall_one_in(2, seed);
        }
        let log = Arc::new(Mutex::new(Vec::new()));
        let recalls = Arc::new(chiton_client::Recalls::default());
        for n in 0..3 {
            let (log, recalls) = (log.clone(), recalls.clone());
            scheduler.spawn_in(Party::OUTSIDE, "worker", move || {
                log.lock().push(n);
                // Of the product: it takes a lock.
                recalls.note(chiton_types::Ino(n));
                log.lock().push(n);
            });
        }
        scheduler.run(LONG, || scheduler.threads_of(Party::OUTSIDE) == 0).expect("they end");
        let log = log.lock().clone();
        (log, scheduler.fingerprint())
    };
    let is_apart = |log: &[u64]| log.chunks(2).any(|pair| pair[0] != pair[1]);
    assert!((0..20).all(|seed| !is_apart(&life(seed, false).0)));
    assert!((0..20).any(|seed| is_apart(&life(seed, true).0)));
    assert_eq!(life(5, true), life(5, true));
}
