//! The map in memory, for tests and simulation.
//!
//! Invariants: time comes from the world only, and leases end when it says so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::SharedWorld;
use chiton_runtime::sync::{Condvar, Mutex};

use crate::{
    AUDIT_LINES_KEPT, Alive, AuditLine, ChangeError, ClusterMap, Condition, Event, INCREMENTS_KEPT, Liveness,
    MapChange, MapIncrement, Monitor, MonitorError, Prepared, Watch,
};

/// Clones share one store.
#[derive(Clone)]
pub struct MemoryMonitor(Arc<Shared>);

struct Shared {
    world: SharedWorld,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    map: Option<ClusterMap>,
    /// Changes of the map, the newest last.
    increments: VecDeque<MapIncrement>,
    /// Changes that administrators made, the newest first.
    audit: VecDeque<AuditLine>,
    servers: BTreeMap<u64, Registration>,
    /// The number of registrations so far.
    registrations: u64,
    /// The number of registrations and ends of registrations so far.
    turnover: u64,
}

struct Registration {
    generation: u64,
    ends: Duration,
    /// Distinguishes it from an earlier one of the same server.
    serial: u64,
}

impl MemoryMonitor {
    pub fn new(world: SharedWorld) -> MemoryMonitor {
        MemoryMonitor(Arc::new(Shared { world, state: Mutex::default(), changed: Condvar::default() }))
    }
}

impl Shared {
    /// Runs `f` over the state without the servers whose lease has ended, and wakes the watches.
    fn with<T>(&self, f: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = self.state.lock();
        let before = (state.turnover, state.epoch());
        let now = self.world.monotonic();
        state.expire(now);
        let result = f(&mut state, now);
        if before != (state.turnover, state.epoch()) {
            self.changed.notify_all();
        }
        result
    }
}

impl State {
    fn epoch(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.epoch)
    }

    fn map(&self) -> Result<&ClusterMap, MonitorError> {
        self.map.as_ref().ok_or(MonitorError::Uninitialized)
    }

    fn expire(&mut self, now: Duration) {
        let before = self.servers.len();
        self.servers.retain(|_, server| server.ends > now);
        self.turnover += (before - self.servers.len()) as u64;
    }
}

impl Monitor for MemoryMonitor {
    fn init(&self, filesystem: u64, plates: u32, lease_ms: u32) -> Result<(), MonitorError> {
        self.0.with(|state, _| {
            if let Some(map) = &state.map {
                return Err(MonitorError::Initialized { filesystem: map.filesystem });
            }
            state.map = Some(ClusterMap::new(filesystem, plates, lease_ms)?);
            Ok(())
        })
    }

    fn map(&self) -> Result<ClusterMap, MonitorError> {
        self.0.with(|state, _| state.map().cloned())
    }

    fn change(
        &self,
        expected_epoch: u64,
        requires: &[Condition],
        changes: &[MapChange],
        who: &str,
        why: &str,
    ) -> Result<u64, ChangeError> {
        self.0.with(|state, _| {
            let map = state.map()?;
            if map.epoch != expected_epoch {
                return Err(ChangeError::Outdated(map.epoch));
            }
            let Prepared { map, increment, line } =
                Prepared::new(map, requires, changes, self.0.world.now(), who, why)?;
            let alive = |id| state.servers.get(&id).map(|server| server.generation);
            if let Some(broken) = requires.iter().find(|condition| !condition.holds(alive)) {
                return Err(ChangeError::Condition(*broken));
            }
            state.increments.push_back(increment);
            if state.increments.len() as u64 > INCREMENTS_KEPT {
                state.increments.pop_front();
            }
            state.audit.push_front(line);
            state.audit.truncate(AUDIT_LINES_KEPT as usize);
            Ok(state.map.insert(map).epoch)
        })
    }

    fn history(&self, count: usize) -> Result<Vec<AuditLine>, MonitorError> {
        Ok(self.0.with(|state, _| state.audit.iter().take(count).cloned().collect()))
    }

    fn register(&self, id: u64, generation: u64) -> Result<Box<dyn Liveness>, MonitorError> {
        self.0.with(|state, now| {
            let valid_for = Duration::from_millis(state.map()?.lease_ms.into());
            if let Some(server) = state.servers.get(&id) {
                return Err(MonitorError::Registered { id, generation: server.generation });
            }
            state.turnover += 1;
            state.registrations += 1;
            let serial = state.registrations;
            state.servers.insert(id, Registration { generation, ends: now + valid_for, serial });
            let liveness = MemoryLiveness { shared: self.0.clone(), id, serial, valid_for };
            Ok(Box::new(liveness) as Box<dyn Liveness>)
        })
    }

    fn alive(&self) -> Result<Alive, MonitorError> {
        let generations = |state: &mut State, _| {
            state.servers.iter().map(|(id, server)| (*id, server.generation)).collect()
        };
        Ok(self.0.with(generations))
    }

    fn watch(&self, since_epoch: u64) -> Box<dyn Watch> {
        Box::new(MemoryWatch { shared: self.0.clone(), epoch: since_epoch, turnover: None })
    }
}

struct MemoryLiveness {
    shared: Arc<Shared>,
    id: u64,
    serial: u64,
    valid_for: Duration,
}

impl Liveness for MemoryLiveness {
    fn renew(&mut self) -> Result<(), MonitorError> {
        self.shared.with(|state, now| match state.servers.get_mut(&self.id) {
            Some(server) if server.serial == self.serial => {
                server.ends = now + self.valid_for;
                Ok(())
            }
            _ => Err(MonitorError::Expired { id: self.id }),
        })
    }

    fn valid_for(&self) -> Duration {
        self.valid_for
    }

    fn leave(self: Box<Self>) -> Result<(), MonitorError> {
        self.shared.with(|state, _| {
            if state.servers.get(&self.id).is_some_and(|server| server.serial == self.serial) {
                state.servers.remove(&self.id);
                state.turnover += 1;
            }
        });
        Ok(())
    }
}

struct MemoryWatch {
    shared: Arc<Shared>,
    /// The last that was delivered.
    epoch: u64,
    /// As of the last [`Event::Servers`].
    turnover: Option<u64>,
}

impl MemoryWatch {
    fn event(&mut self, state: &State) -> Option<Event> {
        if self.turnover != Some(state.turnover) {
            self.turnover = Some(state.turnover);
            return Some(Event::Servers);
        }
        let map = state.map.as_ref().filter(|map| map.epoch != self.epoch)?;
        let next = state.increments.iter().find(|increment| increment.from == self.epoch);
        self.epoch = next.map_or(map.epoch, |increment| increment.to);
        Some(next.map_or_else(|| Event::Whole(map.clone()), |increment| Event::Map(increment.clone())))
    }
}

impl Watch for MemoryWatch {
    fn next(&mut self, timeout: Duration) -> Option<Event> {
        let shared = self.shared.clone();
        let mut left = timeout;
        let mut state = shared.state.lock();
        loop {
            let now = shared.world.monotonic();
            state.expire(now);
            if let Some(event) = self.event(&state) {
                return Some(event);
            }
            if left.is_zero() {
                return None;
            }
            let first_end = state.servers.values().map(|server| server.ends - now).min();
            let pause = first_end.map_or(left, |end| end.min(left));
            // The clock of a test stands still while this thread waits, so the clock alone must not end the wait.
            let waited = shared.changed.wait_for(&mut state, pause);
            let passed = if waited.timed_out() { pause } else { shared.world.monotonic() - now };
            left = left.saturating_sub(passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use chiton_runtime::{RealWorld, SeededWorld};

    use super::*;
    use crate::conformance::{Subject, suite};

    #[test]
    fn conforms_in_simulated_time() {
        suite(&|| {
            let world = Arc::new(SeededWorld::new(7));
            let monitor = MemoryMonitor::new(world.clone());
            let other = monitor.clone();
            Subject {
                monitor: Arc::new(monitor),
                other: Arc::new(other),
                pass: Box::new(move |time| world.advance(time)),
            }
        });
    }

    #[test]
    fn lease_ends_exactly_when_the_world_says_so() {
        let world = Arc::new(SeededWorld::new(7));
        let monitor = MemoryMonitor::new(world.clone());
        monitor.init(1, 1, 1000).expect("init");
        let mut liveness = monitor.register(1, 1).expect("register");
        world.advance(Duration::from_millis(999));
        liveness.renew().expect("it lives");
        world.advance(Duration::from_millis(999));
        assert_eq!(monitor.alive(), Ok(Alive::from([(1, 1)])));
        world.advance(Duration::from_millis(1));
        assert_eq!(monitor.alive(), Ok(Alive::new()));
        assert_eq!(liveness.renew(), Err(MonitorError::Expired { id: 1 }));
    }

    #[test]
    fn watch_reports_the_end_of_a_lease_while_it_waits() {
        let monitor = MemoryMonitor::new(Arc::new(RealWorld));
        monitor.init(1, 1, 5).expect("init");
        let mut watch = monitor.watch(1);
        assert_eq!(watch.next(Duration::ZERO), Some(Event::Servers));
        drop(monitor.register(1, 1).expect("register"));
        assert_eq!(watch.next(Duration::from_secs(60)), Some(Event::Servers));
        while monitor.alive() != Ok(Alive::new()) {
            assert_eq!(watch.next(Duration::from_secs(60)), Some(Event::Servers));
        }
    }

    #[test]
    fn only_the_last_audit_lines_are_kept() {
        let monitor = MemoryMonitor::new(Arc::new(SeededWorld::new(7)));
        monitor.init(1, 1, 1000).expect("init");
        let changes = AUDIT_LINES_KEPT + 5;
        for epoch in 1..=changes {
            monitor.change(epoch, &[], &[], "test", "one more").expect("change");
        }
        let history = monitor.history(usize::MAX).expect("history");
        assert_eq!(history.len() as u64, AUDIT_LINES_KEPT);
        assert_eq!(history.first().map(|line| line.epoch), Some(changes + 1));
    }
}
