//! Many threads in one: each has a stack and runs until it waits, and the seed decides which thread is next.
//!
//! ```text
//!   ready ──(drawn at random)──▶ runs ──▶ waits for a key or a time ──▶ ready      none is ready: the clock moves on
//! ```
//!
//! Invariants:
//! - One thread runs at a time, and only waiting ends its turn, or a stall: some threads stand still before they take a lock.
//! - Nothing depends on addresses, real time or the operating system: the same seed, the same order of turns.
//! - A thread belongs to a party (a machine). The threads of a paused party get no turn.

mod state;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::schedule::{Installed, Schedule, install};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use state::{Alarm, EVENTS, PartyState, State, Thread, WOKEN};

use crate::clock::{PartyWorld, TrueTime};
use crate::random::Random;

/// A machine of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party(pub u32);

impl Party {
    /// The simulation itself: right clock, never paused.
    pub const OUTSIDE: Party = Party(0);
}

const STACK_BYTES: usize = 1 << 20;
/// Stacks kept for the next threads.
const STACKS_MAX: usize = 256;
/// The time of a turn in nanoseconds, so that no thread waits for itself for ever.
const TURN_NS: u64 = 500;

/// The threads of a run.
pub struct Scheduler {
    time: Arc<TrueTime>,
    state: RefCell<State>,
    turns: Cell<u64>,
    /// Mixes in each turn: two runs with the same fingerprint went the same way.
    fingerprint: Cell<u64>,
}

thread_local! {
    static SCHEDULER: RefCell<Option<Rc<Scheduler>>> = const { RefCell::new(None) };
}

/// The scheduler of this thread of the operating system, until dropped.
pub struct Running {
    scheduler: Rc<Scheduler>,
    installed: Option<Installed>,
}

impl std::ops::Deref for Running {
    type Target = Rc<Scheduler>;
    fn deref(&self) -> &Rc<Scheduler> {
        &self.scheduler
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.scheduler.let_go();
        SCHEDULER.with_borrow_mut(|now| *now = None);
        self.installed.take();
    }
}

/// Why a run did not get where it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    Panicked(String),
    /// No thread is ready and no alarm is set: they wait for each other.
    Deadlock(String),
    /// It takes longer than it may.
    TooLong(String),
}

impl Scheduler {
    /// Begins: from now on, threads started on this thread of the operating system run by turns drawn from `seed`.
    pub fn begin(seed: u64) -> Running {
        let time = Arc::new(TrueTime::default());
        let state = State {
            random: Random::new(seed, 1),
            threads: BTreeMap::new(),
            next_thread: 1,
            ready: Vec::new(),
            current: 0,
            alarms: BinaryHeap::new(),
            alarm: BTreeMap::new(),
            next_alarm: 0,
            waiting: BTreeMap::new(),
            parties: BTreeMap::new(),
            stacks: Vec::new(),
            panic: None,
            stalls: None,
            events: VecDeque::new(),
            has_events_thread: false,
        };
        let scheduler = Rc::new(Scheduler {
            time,
            state: RefCell::new(state),
            turns: Cell::new(0),
            fingerprint: Cell::new(seed),
        });
        scheduler.add_party(Party::OUTSIDE, 0, seed);
        SCHEDULER.with_borrow_mut(|now| *now = Some(scheduler.clone()));
        let installed = Some(install(scheduler.clone()));
        Running { scheduler, installed }
    }

    /// A new machine with its own clock.
    pub fn add_party(&self, party: Party, drift_ppm: i64, seed: u64) -> Arc<PartyWorld> {
        let world = Arc::new(PartyWorld::new(self.time.clone(), drift_ppm, seed));
        let state = PartyState { world: world.clone(), paused: false, held: Vec::new() };
        self.state.borrow_mut().parties.insert(party, state);
        world
    }

    /// From now on one in this many locks is taken late.
    pub fn stall_one_in(&self, locks: u64, seed: u64) {
        self.state.borrow_mut().stalls = Some((Random::new(seed, 14), locks));
    }

    pub fn now(&self) -> Duration {
        self.time.now()
    }

    /// Number of turns so far.
    pub fn count(&self) -> u64 {
        self.turns.get()
    }

    /// A hash of the run's course.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint.get()
    }

    /// Mixes something that happened into the fingerprint.
    pub fn mix(&self, what: u64) {
        let mixed = (self.fingerprint.get() ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.fingerprint.set(mixed ^ (mixed >> 29));
    }

    /// The true time that takes `local` on the clock of the current thread.
    pub fn true_span(&self, local: Duration) -> Duration {
        let state = self.state.borrow();
        let party = state.threads.get(&state.current).map_or(Party::OUTSIDE, |thread| thread.party);
        state.parties[&party].world.true_span(local)
    }

    /// Draws from the stream that also draws the turns.
    pub fn draw<R>(&self, draw: impl FnOnce(&mut Random) -> R) -> R {
        draw(&mut self.state.borrow_mut().random)
    }

    /// Starts a thread of a party.
    pub fn spawn_in(&self, party: Party, name: &str, body: impl FnOnce() + 'static) -> u64 {
        self.start(party, name, Box::new(body))
    }

    /// Pauses or resumes the threads of a party.
    pub fn pause(&self, party: Party, paused: bool) {
        let mut state = self.state.borrow_mut();
        let p = state.parties.get_mut(&party).expect("a party of this run");
        p.paused = paused;
        if !paused {
            let held = std::mem::take(&mut p.held);
            state.ready.extend(held);
        }
    }

    /// Calls `what` after `delay` of true time. It must not wait, except for locks.
    pub fn after(&self, delay: Duration, what: impl FnOnce() + 'static) {
        let at = self.now() + delay;
        self.state.borrow_mut().set_alarm(at, Alarm::Call(Box::new(what)));
    }

    /// Runs until `done`, at most until `deadline`.
    ///
    /// # Errors
    /// See [`Stuck`].
    pub fn run(&self, deadline: Duration, mut done: impl FnMut() -> bool) -> Result<(), Stuck> {
        loop {
            if let Some(panic) = self.state.borrow_mut().panic.take() {
                return Err(Stuck::Panicked(panic));
            }
            if done() {
                return Ok(());
            }
            if self.now() >= deadline {
                return Err(Stuck::TooLong(self.waiting_threads()));
            }
            match self.next_ready() {
                Some(thread) => self.turn(thread),
                None if self.ring() => {}
                None => return Err(Stuck::Deadlock(self.waiting_threads())),
            }
        }
    }

    fn next_ready(&self) -> Option<u64> {
        let state = &mut *self.state.borrow_mut();
        loop {
            if state.ready.is_empty() {
                return None;
            }
            let at = state.random.below(state.ready.len() as u64) as usize;
            let thread = state.ready.swap_remove(at);
            let Some(party) = state.threads.get(&thread).map(|thread| thread.party) else { continue };
            let party = state.parties.get_mut(&party).expect("a thread's party is known");
            if party.paused {
                party.held.push(thread);
                continue;
            }
            return Some(thread);
        }
    }

    fn turn(&self, number: u64) {
        self.time.set(self.now() + Duration::from_nanos(TURN_NS));
        self.turns.set(self.turns.get() + 1);
        self.mix(number ^ (self.now().as_nanos() as u64) << 8);
        let mut fiber = {
            let state = &mut *self.state.borrow_mut();
            state.current = number;
            let thread = state.threads.get_mut(&number).expect("a ready thread is there");
            thread.fiber.take().expect("a ready thread does not run")
        };
        let result = catch_unwind(AssertUnwindSafe(|| fiber.resume(())));
        let state = &mut *self.state.borrow_mut();
        state.current = 0;
        match result {
            Ok(CoroutineResult::Yield(())) => {
                state.threads.get_mut(&number).expect("it has just run").fiber = Some(fiber);
            }
            ended => {
                let thread = state.threads.remove(&number).expect("it has just run");
                if state.stacks.len() < STACKS_MAX {
                    state.stacks.push(fiber.into_stack());
                }
                state.ready.extend(thread.joiners);
                if let Err(panic) = ended {
                    state.panic = Some(format!("{} panicked: {}", thread.name, words(&*panic)));
                }
            }
        }
    }

    /// Moves the clock to the next alarm; false if there is none.
    fn ring(&self) -> bool {
        let call = {
            let state = &mut *self.state.borrow_mut();
            let Some(Reverse((at, number))) = state.alarms.pop() else { return false };
            if at > self.now() {
                self.time.set(at);
            }
            match state.alarm.remove(&number).expect("an alarm that is set is known") {
                // A lock that it takes may be that of a thread that stalls: then it has to wait.
                Alarm::Call(call) if state.stalls.is_some() => {
                    state.events.push_back(call);
                    None
                }
                Alarm::Call(call) => Some(call),
                Alarm::Wake { thread, waits } => {
                    state.time_out(thread, waits);
                    return true;
                }
            }
        };
        match call {
            Some(call) => call(),
            None => self.wake_events(),
        }
        true
    }

    /// Runs due events in a thread, one after the other.
    fn wake_events(&self) {
        if std::mem::replace(&mut self.state.borrow_mut().has_events_thread, true) {
            self.wake(EVENTS, false);
            return;
        }
        let events = || {
            let scheduler = scheduler();
            loop {
                let next = scheduler.state.borrow_mut().events.pop_front();
                match next {
                    Some(call) => call(),
                    None => drop(scheduler.wait(EVENTS, None)),
                }
            }
        };
        self.start(Party::OUTSIDE, "events", Box::new(events));
    }

    /// The remaining threads, and where they wait.
    pub fn waiting_threads(&self) -> String {
        let state = self.state.borrow();
        let mut names: Vec<String> = state
            .threads
            .iter()
            .map(|(number, thread)| format!("{}#{number} of party {}", thread.name, thread.party.0))
            .collect();
        names.sort();
        names.join(", ")
    }

    /// Threads that have not ended, of a party.
    pub fn threads_of(&self, party: Party) -> usize {
        self.state.borrow().threads.values().filter(|thread| thread.party == party).count()
    }

    fn start(&self, party: Party, name: &str, body: Box<dyn FnOnce()>) -> u64 {
        let state = &mut *self.state.borrow_mut();
        let number = state.next_thread;
        state.next_thread += 1;
        let stack = state
            .stacks
            .pop()
            .unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("there is address space for a stack"));
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            SCHEDULER.with_borrow(|scheduler| {
                let scheduler = scheduler.as_ref().expect("threads run within their run");
                let mut state = scheduler.state.borrow_mut();
                state.threads.get_mut(&number).expect("it runs").yielder = yielder;
            });
            body();
        });
        let thread = Thread {
            name: name.to_owned(),
            party,
            fiber: Some(fiber),
            waits: 0,
            waits_for: None,
            timed_out: false,
            yielder: std::ptr::null(),
            joiners: Vec::new(),
        };
        state.threads.insert(number, thread);
        state.ready.push(number);
        number
    }

    /// Ends the turn of the thread that runs; returns when it has its next.
    fn suspend(&self) {
        let yielder = {
            let state = self.state.borrow();
            state.threads.get(&state.current).expect("only threads wait").yielder
        };
        // SAFETY: the yielder lives on the stack of the thread that runs, below this frame, as long as the thread does.
        unsafe { (*yielder).suspend(()) };
    }

    /// Prepares a wait of the thread that runs.
    fn prepare(&self, key: Option<usize>, at_most: Option<Duration>) {
        let state = &mut *self.state.borrow_mut();
        let number = state.current;
        let thread = state.threads.get_mut(&number).expect("only threads wait: alarms and `done` must not");
        thread.waits += 1;
        thread.timed_out = false;
        thread.waits_for = key;
        let (waits, party) = (thread.waits, thread.party);
        if let Some(key) = key {
            state.waiting.entry(key).or_default().push_back(number);
        }
        if let Some(local) = at_most {
            let span = state.parties.get(&party).expect("a thread's party is known").world.true_span(local);
            state.set_alarm(self.now().saturating_add(span), Alarm::Wake { thread: number, waits });
        }
    }

    /// Drops all threads. Those that have not ended leak their state.
    fn let_go(&self) {
        let state = &mut *self.state.borrow_mut();
        for thread in state.threads.values_mut() {
            if let Some(fiber) = &mut thread.fiber {
                // SAFETY: nothing uses this stack again. Its values are leaked, and borrows of other stacks end
                // with it.
                unsafe { fiber.force_reset() };
            }
        }
        state.threads.clear();
        state.alarm.clear();
        state.alarms.clear();
        state.events.clear();
        // A thread that has not ended may keep parts of this for ever.
        state.stacks.clear();
    }
}

impl Schedule for Scheduler {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce()>) -> u64 {
        let party = {
            let state = self.state.borrow();
            state.threads.get(&state.current).map_or(Party::OUTSIDE, |thread| thread.party)
        };
        self.start(party, name, body)
    }

    fn current(&self) -> u64 {
        self.state.borrow().current
    }

    fn join(&self, thread: u64) {
        {
            let state = &mut *self.state.borrow_mut();
            let current = state.current;
            match state.threads.get_mut(&thread) {
                Some(thread) => thread.joiners.push(current),
                None => return,
            }
        }
        self.prepare(Some(WOKEN), None);
        // The key is no condition's: only the end of the thread makes it ready.
        self.state.borrow_mut().waiting.remove(&WOKEN);
        self.suspend();
    }

    fn wait(&self, key: usize, at_most: Option<Duration>) -> bool {
        self.prepare(Some(key), at_most);
        self.suspend();
        let state = self.state.borrow();
        !state.threads[&state.current].timed_out
    }

    fn wake(&self, key: usize, all: bool) {
        let state = &mut *self.state.borrow_mut();
        let Some(queue) = state.waiting.get_mut(&key) else { return };
        let count = if all { queue.len() } else { queue.len().min(1) };
        for number in queue.drain(..count) {
            state.threads.get_mut(&number).expect("who waits is there").waits_for = Some(WOKEN);
            state.ready.push(number);
        }
        if queue.is_empty() {
            state.waiting.remove(&key);
        }
    }

    fn sleep(&self, time: Duration) {
        self.prepare(None, Some(time));
        self.suspend();
    }

    fn pass(&self, at: &'static Location<'static>) {
        let pause = {
            // Drawing a turn takes no turn, and a panicking thread must not wait.
            let Ok(mut state) = self.state.try_borrow_mut() else { return };
            if state.current == 0 || std::thread::panicking() {
                return;
            }
            let Some((random, locks)) = &mut state.stalls else { return };
            // The simulation records each event at its own moment.
            if !random.chance(1, *locks) || at.file().starts_with(here()) {
                return;
            }
            draw_pause(random)
        };
        self.sleep(pause);
    }
}

/// Where the source of the simulation is.
fn here() -> &'static str {
    file!().strip_suffix("scheduler.rs").expect("the name of this file")
}

/// How long a thread is paused: mostly until all others wait, sometimes for some round trips.
fn draw_pause(random: &mut Random) -> Duration {
    let most_us = *random.pick(&[0, 0, 0, 0, 100, 100, 5_000, 50_000]);
    Duration::from_micros(random.below(most_us + 1))
}

/// The scheduler of this thread of the operating system.
///
/// # Panics
/// If there is no run.
pub fn scheduler() -> Rc<Scheduler> {
    SCHEDULER.with_borrow(|scheduler| scheduler.clone().expect("within a run"))
}

/// The message of a panic.
pub fn words(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "without words".to_owned(),
    }
}

#[cfg(test)]
mod tests;
