//! Ownership of a file system in an object store: numbered records, of which the highest counts.
//!
//! ```text
//!   holders/0000000000000007   {"machine": …, "pid": …, "beat": 41, "left": false}
//! ```
//!
//! A record is taken with put-if-absent, so each number has one holder; only its holder writes it again.
//!
//! Invariants:
//! - Records decide who should serve. The journal's claim and the metadata store's own fence keep an older server
//!   from doing harm, however late it wakes up.
//! - A holder finds out within [`BEAT`] of running that there is a higher number, and then never writes again.
//! - A server that finds a holder of this machine looks at its process; it watches a holder of another
//!   machine for [`SILENCE`]. It watches one whose record cannot be read likewise: the number counts all the same, and a holder
//!   that is there writes the record anew with its next beat.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_objects::{ObjectError, Objects};
use chiton_runtime::{World, sync, thread};
use serde::{Deserialize, Serialize};

use super::directory::{host, started};
use crate::address::DataAddress;
use crate::error::StartError;

/// How often a holder shows that it is there, and looks whether it still is one.
const BEAT: Duration = Duration::from_secs(2);
/// A holder on another machine that has not been heard of for so long is gone.
const SILENCE: Duration = Duration::from_secs(12);
const PREFIX: &str = "holders/";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    host: String,
    /// The host's boot and this process's view of process ids: only there the id means something.
    machine: String,
    pid: i32,
    started: u64,
    /// Drawn at random: a record whose put was answered late is recognised.
    nonce: u64,
    beat: u64,
    left: bool,
}

impl Record {
    fn own(nonce: u64) -> Record {
        let pid = rustix::process::getpid();
        Record {
            host: host(),
            machine: machine(),
            pid: pid.as_raw_nonzero().get(),
            started: started(pid).unwrap_or(0),
            nonce,
            beat: 0,
            left: false,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain values")
    }

    fn name(&self) -> String {
        format!("process {} on {}", self.pid, self.host)
    }
}

fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let pids = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {} {}", host(), boot.trim(), pids.display())
}

fn key(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

fn number(key: &str) -> Option<u64> {
    u64::from_str_radix(key.strip_prefix(PREFIX)?, 16).ok()
}

/// The record of a number, as it was found.
struct Found {
    number: u64,
    bytes: Vec<u8>,
    /// `None` if it is damaged.
    record: Option<Record>,
}

impl Found {
    fn name(&self) -> String {
        match &self.record {
            Some(record) => record.name(),
            None => format!("a server whose record {} is damaged", key(self.number)),
        }
    }
}

/// Told once why the hold is lost.
pub(crate) type OnLost = Box<dyn Fn(Lost<'_>) + Send + Sync>;

/// How a hold is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lost<'a> {
    /// Another has taken it: its name.
    To(&'a str),
    /// The store is gone: why.
    Gone(&'a str),
}

/// The hold of this process.
pub(crate) struct ObjectHold {
    keeper: Arc<Keeper>,
    thread: Option<thread::JoinHandle>,
}

/// The state that the beating thread shares with the holder.
pub(crate) struct Keeper {
    objects: Arc<dyn Objects>,
    number: u64,
    record: Record,
    lost: AtomicBool,
    on_lost: sync::Mutex<Option<OnLost>>,
    ended: sync::Mutex<bool>,
    wake_up: sync::Condvar,
}

impl ObjectHold {
    /// Takes the next number.
    pub(crate) fn take(
        objects: Arc<dyn Objects>,
        data: &DataAddress,
        take_over: bool,
        world: &dyn World,
    ) -> Result<ObjectHold, StartError> {
        let failed = |e: ObjectError| StartError::Failed(format!("{data}: {e}"));
        let record = Record::own(world.random());
        let number = loop {
            let last = last_record(&*objects, 0).map_err(failed)?;
            if let Some(holder) = &last
                && !take_over
                && is_there(&*objects, holder).map_err(failed)?
            {
                return Err(StartError::Held {
                    data: data.clone(),
                    holder: holder.name(),
                    next: "stop it, or take over (--take-over)".to_owned(),
                });
            }
            let next = last.map_or(1, |holder| holder.number + 1);
            match objects.put_if_absent(&key(next), &record.bytes()) {
                Ok(true) => break next,
                Ok(false) => {}
                Err(e) if e.is_transient() => {
                    if objects.get(&key(next), None).is_ok_and(|found| found == record.bytes()) {
                        break next;
                    }
                }
                Err(e) => return Err(failed(e)),
            }
        };
        for object in objects.list(PREFIX, None, 1000).map_err(failed)? {
            if object.key < key(number) {
                objects.delete(&object.key).map_err(failed)?;
            }
        }
        let keeper = Arc::new(Keeper {
            objects,
            number,
            record,
            lost: AtomicBool::new(false),
            on_lost: sync::Mutex::new(None),
            ended: sync::Mutex::new(false),
            wake_up: sync::Condvar::new(),
        });
        let beating = keeper.clone();
        let thread = thread::spawn("chiton-hold", move || beating.beat())
            .map_err(|e| StartError::Failed(format!("a thread: {e}")))?;
        Ok(ObjectHold { keeper, thread: Some(thread) })
    }

    pub(crate) fn keeper(&self) -> Arc<Keeper> {
        self.keeper.clone()
    }
}

impl Drop for ObjectHold {
    fn drop(&mut self) {
        *self.keeper.ended.lock() = true;
        self.keeper.wake_up.notify_all();
        if let Some(thread) = self.thread.take() {
            // Nothing that it could still report concerns anybody.
            let _ = thread.join();
        }
        if !self.keeper.lost.load(Ordering::SeqCst) {
            // Else the next one looks at the process.
            let left = Record { left: true, ..self.keeper.record.clone() };
            let _ = self.keeper.objects.put(&key(self.keeper.number), &left.bytes());
        }
    }
}

impl Keeper {
    /// Calls `on_lost` when it is found that the hold is lost.
    pub(crate) fn on_lost(&self, on_lost: OnLost) {
        *self.on_lost.lock() = Some(on_lost);
        if self.lost.load(Ordering::SeqCst) {
            self.notify(Lost::To("another server"));
        }
    }

    /// Asks the store whether the hold is still ours: `Some` names the new holder.
    pub(crate) fn lost_to(&self) -> Result<Option<String>, ObjectError> {
        let newer = last_record(&*self.objects, self.number)?;
        Ok(newer.map(|holder| {
            let name = holder.name();
            if !self.lost.swap(true, Ordering::SeqCst) {
                self.notify(Lost::To(&name));
            }
            name
        }))
    }

    /// False if nobody is there to be notified yet.
    fn notify(&self, how: Lost<'_>) -> bool {
        let on_lost = self.on_lost.lock().take();
        on_lost.inspect(|on_lost| on_lost(how)).is_some()
    }

    fn beat(&self) {
        let mut record = self.record.clone();
        loop {
            {
                let mut ended = self.ended.lock();
                if !*ended {
                    self.wake_up.wait_for(&mut ended, BEAT);
                }
                if *ended {
                    return;
                }
            }
            record.beat += 1;
            // A store that cannot be reached is the journal's matter to report.
            match self.lost_to() {
                Ok(Some(_)) => return,
                Ok(None) => drop(self.objects.put(&key(self.number), &record.bytes())),
                Err(error) if error.is_gone() && self.notify(Lost::Gone(&error.to_string())) => return,
                Err(_) => {}
            }
        }
    }
}

/// The highest record above `after`.
fn last_record(objects: &dyn Objects, after: u64) -> Result<Option<Found>, ObjectError> {
    let mut last = key(after);
    let mut found = None;
    loop {
        let page = objects.list(PREFIX, Some(&last), 1000)?;
        let Some(object) = page.last() else { break };
        last = object.key.clone();
        found = number(&last).or(found);
    }
    let Some(number) = found else { return Ok(None) };
    let bytes = objects.get(&key(number), None)?;
    let record = serde_json::from_slice(&bytes).ok();
    Ok(Some(Found { number, bytes, record }))
}

/// True if the holder is there, as far as can be known.
fn is_there(objects: &dyn Objects, holder: &Found) -> Result<bool, ObjectError> {
    if let Some(record) = &holder.record {
        if record.left {
            return Ok(false);
        }
        if record.machine == machine() {
            let pid = rustix::process::Pid::from_raw(record.pid);
            return Ok(pid.and_then(started) == Some(record.started));
        }
    }
    for _ in 0..SILENCE.as_secs() {
        thread::sleep(Duration::from_secs(1));
        match objects.get(&key(holder.number), None) {
            Ok(now) if now != holder.bytes => {
                return Ok(!serde_json::from_slice::<Record>(&now).is_ok_and(|now| now.left));
            }
            Ok(_) => {}
            // A newer one has removed it.
            Err(e) if e.is_not_found() => return Ok(true),
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use chiton_objects::MemoryObjects;
    use chiton_runtime::SeededWorld;

    use super::*;

    #[test]
    fn the_highest_record_holds() {
        let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::new());
        let world = SeededWorld::new(1);
        let data = DataAddress::S3("s3://bucket/fs".parse().expect("a location"));
        let take = |over| ObjectHold::take(objects.clone(), &data, over, &world);
        let first = take(false).map_err(|e| e.to_string()).expect("free");
        let refused = take(false).err().expect("held").to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        assert!(refused.contains("--take-over"), "{refused}");
        let notified = Arc::new(AtomicBool::new(false));
        let notify = notified.clone();
        first.keeper().on_lost(Box::new(move |_| notify.store(true, Ordering::SeqCst)));
        assert_eq!(first.keeper().lost_to(), Ok(None));
        let second = take(true).map_err(|e| e.to_string()).expect("taken over");
        assert!(first.keeper().lost_to().expect("asked").is_some());
        assert!(notified.load(Ordering::SeqCst), "the first is notified");
        // Its end does not touch the record of the second.
        drop(first);
        assert_eq!(second.keeper().lost_to(), Ok(None));
        assert!(take(false).is_err());
        drop(second);
        take(false).map_err(|e| e.to_string()).expect("free after it left");
    }

    #[test]
    fn a_dead_process_of_this_machine_holds_nothing() {
        let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::new());
        let dead = Record { started: 1, ..Record::own(7) };
        objects.put(&key(3), &dead.bytes()).expect("put");
        let data = DataAddress::S3("s3://bucket/fs".parse().expect("a location"));
        let hold = ObjectHold::take(objects.clone(), &data, false, &SeededWorld::new(1));
        assert_eq!(hold.map_err(|e| e.to_string()).expect("free").keeper.number, 4);
    }

    #[test]
    fn a_damaged_record_keeps_nobody_out_and_counts_as_newer() {
        let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::new());
        let data = DataAddress::S3("s3://bucket/fs".parse().expect("a location"));
        let take = || ObjectHold::take(objects.clone(), &data, true, &SeededWorld::new(1));
        objects.put(&key(3), br#"{"host": "cut o"#).expect("put");
        let hold = take().map_err(|e| e.to_string()).expect("taken over");
        assert_eq!(hold.keeper.number, 4);
        objects.put(&key(5), b"").expect("put");
        let name = hold.keeper().lost_to().expect("asked").expect("somebody came after it");
        assert!(name.contains("holders/0000000000000005 is damaged"), "{name}");
    }
}
