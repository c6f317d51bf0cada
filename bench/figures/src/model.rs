//! A model of many servers and clients: discrete events, with costs that were measured here.
//!
//! ```text
//!   client ──(its processor)──▶ delay ──▶ message handled ──▶ plate, one message at a time ──▶ delay ──▶ client: the next operation
//!                                         └───── on a processor of the plate's server ─────┘
//! ```
//!
//! Invariants:
//! - Each client has one operation at a time. It is over when all its messages are answered.
//! - A plate carries out one message after the other, in the order in which they were handled; a processor does one thing at a time.
//! - Plates are dealt out to the servers evenly. The same seed gives the same outcome.
//!
//! Not in the model: the disk, commits in the background, the network's bandwidth, and faults.

mod events;
mod processors;

use std::collections::VecDeque;

use chiton_runtime::{SeededWorld, World};

use self::events::Events;
use self::processors::Processors;

/// The time that a message takes of a processor in nanoseconds, and each name in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) message: u64,
    pub(crate) name: u64,
}

impl Work {
    fn of(self, messages: u64, names: u64) -> u64 {
        messages * self.message + names * self.name
    }
}

/// The cost of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) client: Work,
    pub(crate) server: Work,
}

impl Costs {
    /// On processors that are so many times as slow.
    pub(crate) fn times(self, factor: f64) -> Costs {
        let times = |ns: u64| (ns as f64 * factor) as u64;
        let work = |work: Work| Work { message: times(work.message), name: times(work.name) };
        Costs { client: work(self.client), server: work(self.server) }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Machines {
    pub(crate) servers: usize,
    /// Processors of a machine.
    pub(crate) processors: usize,
    /// All servers and clients are on one machine. Otherwise each has its own.
    pub(crate) is_one_machine: bool,
    pub(crate) plates: usize,
    pub(crate) clients: usize,
    /// Of a message, one way, in nanoseconds.
    pub(crate) delay: u64,
}

/// The directories in which clients work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Directories {
    /// One for all, on one plate.
    Shared,
    /// One for all, with a part on each plate.
    Split,
    /// One for each client, each on a plate.
    Private,
}

/// How long a run is, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// Not counted. Clients begin at random times in it.
    pub(crate) warm_up: u64,
    pub(crate) counted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) names_per_second: f64,
    /// The part of the processors' time that servers used: of all, and of the busiest one.
    pub(crate) utilisation: f64,
    pub(crate) busiest: f64,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    client: u32,
    plate: u32,
    names: u32,
}

/// The work that occupies a processor.
#[derive(Clone, Copy, Debug)]
enum Task {
    Prepare(u32),
    Handle(Message),
    CarryOut(Message),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Begin(u32),
    Sent(u32),
    Arrived(Message),
    Done { host: u32, task: Task },
    Answered(u32),
}

#[derive(Default)]
struct Plate {
    is_busy: bool,
    waiting: VecDeque<Message>,
}

struct Run<'a> {
    machines: &'a Machines,
    costs: Costs,
    directories: Directories,
    batch: usize,
    end: u64,
    warm_up: u64,
    random: SeededWorld,
    events: Events<Event>,
    hosts: Vec<Processors<Task>>,
    plates: Vec<Plate>,
    /// The plate of each client's directory.
    homes: Vec<u32>,
    unanswered: Vec<u32>,
    names: u64,
    /// Of each server.
    busy: Vec<u64>,
}

/// Clients with batches of so many names.
pub(crate) fn run(
    machines: &Machines,
    costs: Costs,
    directories: Directories,
    batch: usize,
    span: Span,
) -> Outcome {
    let hosts = if machines.is_one_machine { 1 } else { machines.servers };
    let random = SeededWorld::new(1);
    let homes = (0..machines.clients).map(|_| below(&random, machines.plates) as u32).collect();
    let mut run = Run {
        machines,
        costs,
        directories,
        batch,
        end: span.warm_up + span.counted,
        warm_up: span.warm_up,
        random,
        events: Events::default(),
        hosts: (0..hosts).map(|_| Processors::new(machines.processors)).collect(),
        plates: (0..machines.plates).map(|_| Plate::default()).collect(),
        homes,
        unanswered: vec![0; machines.clients],
        names: 0,
        busy: vec![0; machines.servers],
    };
    for client in 0..machines.clients {
        let at = below(&run.random, span.warm_up.max(1) as usize) as u64;
        run.events.at(at, Event::Begin(client as u32));
    }
    while let Some(event) = run.events.next_before(run.end) {
        run.handle(event);
    }
    let all = (machines.processors as u64 * span.counted) as f64;
    let share = |busy: u64| (busy as f64 / all).min(1.0);
    Outcome {
        names_per_second: run.names as f64 / (span.counted as f64 / 1e9),
        utilisation: run.busy.iter().map(|busy| share(*busy)).sum::<f64>() / machines.servers as f64,
        busiest: run.busy.iter().copied().max().map_or(0.0, share),
    }
}

impl Run<'_> {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Begin(client) if self.machines.is_one_machine => self.ask(0, Task::Prepare(client)),
            Event::Begin(client) => {
                self.events.after(self.duration(Task::Prepare(client)), Event::Sent(client));
            }
            Event::Sent(client) => self.send(client),
            Event::Arrived(message) => self.ask(self.host(message.plate), Task::Handle(message)),
            Event::Done { host, task } => {
                if let Some(next) = self.hosts[host as usize].ended() {
                    self.start(host, next);
                }
                self.done(task);
            }
            Event::Answered(client) => {
                let unanswered = &mut self.unanswered[client as usize];
                *unanswered -= 1;
                if *unanswered == 0 {
                    if self.events.now() >= self.warm_up {
                        self.names += self.batch as u64;
                    }
                    self.handle(Event::Begin(client));
                }
            }
        }
    }

    fn done(&mut self, task: Task) {
        match task {
            Task::Prepare(client) => self.handle(Event::Sent(client)),
            Task::Handle(message) => {
                let plate = &mut self.plates[message.plate as usize];
                if plate.is_busy {
                    plate.waiting.push_back(message);
                } else {
                    plate.is_busy = true;
                    self.ask(self.host(message.plate), Task::CarryOut(message));
                }
            }
            Task::CarryOut(message) => {
                self.events.after(self.machines.delay, Event::Answered(message.client));
                let plate = &mut self.plates[message.plate as usize];
                match plate.waiting.pop_front() {
                    Some(next) => self.ask(self.host(next.plate), Task::CarryOut(next)),
                    None => plate.is_busy = false,
                }
            }
        }
    }

    /// A message to each plate that has names of the operation.
    fn send(&mut self, client: u32) {
        let batch = self.batch as u32;
        let messages = match self.directories {
            Directories::Shared => vec![Message { client, plate: 0, names: batch }],
            Directories::Private => {
                vec![Message { client, plate: self.homes[client as usize], names: batch }]
            }
            Directories::Split => {
                let plates = self.machines.plates;
                let mut drawn: Vec<u32> = (0..batch).map(|_| below(&self.random, plates) as u32).collect();
                drawn.sort_unstable();
                let by_plate = drawn.chunk_by(|a, b| a == b);
                by_plate.map(|names| Message { client, plate: names[0], names: names.len() as u32 }).collect()
            }
        };
        self.unanswered[client as usize] = messages.len() as u32;
        for message in messages {
            self.events.after(self.machines.delay, Event::Arrived(message));
        }
    }

    fn ask(&mut self, host: u32, task: Task) {
        let processors = &mut self.hosts[host as usize];
        // A thread that holds the lock of a plate is given a processor before threads that begin a request.
        let started = match task {
            Task::CarryOut(_) => processors.ask_first(task),
            Task::Prepare(_) | Task::Handle(_) => processors.ask(task),
        };
        if let Some(task) = started {
            self.start(host, task);
        }
    }

    fn start(&mut self, host: u32, task: Task) {
        let duration = self.duration(task);
        if let Task::Handle(message) | Task::CarryOut(message) = task {
            let counted = (self.events.now() + duration).min(self.end).saturating_sub(self.warm_up);
            let server = self.server(message.plate);
            self.busy[server] += counted.min(duration);
        }
        self.events.after(duration, Event::Done { host, task });
    }

    fn duration(&self, task: Task) -> u64 {
        let Costs { client, server } = self.costs;
        match task {
            // As many messages as plates have names of a batch, on average.
            Task::Prepare(_) => client.of(self.messages_of_a_batch(), self.batch as u64),
            Task::Handle(_) => server.of(1, 0),
            Task::CarryOut(message) => server.of(0, u64::from(message.names)),
        }
    }

    fn messages_of_a_batch(&self) -> u64 {
        match self.directories {
            Directories::Shared | Directories::Private => 1,
            Directories::Split => {
                let plates = self.machines.plates as f64;
                (plates * (1.0 - (1.0 - 1.0 / plates).powi(self.batch as i32))).round().max(1.0) as u64
            }
        }
    }

    fn server(&self, plate: u32) -> usize {
        plate as usize % self.machines.servers
    }

    fn host(&self, plate: u32) -> u32 {
        if self.machines.is_one_machine { 0 } else { self.server(plate) as u32 }
    }
}

fn below(random: &SeededWorld, end: usize) -> usize {
    ((u128::from(random.random()) * end as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs =
        Costs { client: Work { message: 3_000, name: 1_000 }, server: Work { message: 4_000, name: 2_000 } };
    const MACHINES: Machines =
        Machines { servers: 4, processors: 2, is_one_machine: false, plates: 32, clients: 1, delay: 45_000 };
    const SPAN: Span = Span { warm_up: 10_000_000, counted: 100_000_000 };

    fn rate(machines: &Machines, directories: Directories, batch: usize) -> Outcome {
        run(machines, COSTS, directories, batch, SPAN)
    }

    fn is_near(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 0.02, "{found} is not about {wanted}");
    }

    #[test]
    fn one_client_waits_for_each_step() {
        for directories in [Directories::Shared, Directories::Split, Directories::Private] {
            is_near(rate(&MACHINES, directories, 1).names_per_second, 1e9 / 100_000.0);
        }
        let long = Span { counted: 1_000_000_000, ..SPAN };
        let batches = run(&MACHINES, COSTS, Directories::Shared, 1_000, long);
        is_near(batches.names_per_second, 1e12 / 3_097_000.0);
    }

    #[test]
    fn one_plate_bounds_a_shared_directory() {
        let many = Machines { clients: 200, ..MACHINES };
        let outcome = rate(&many, Directories::Shared, 1);
        // Messages and the plate share two processors of one server, of four.
        is_near(outcome.names_per_second, 2e9 / 6_000.0);
        is_near(outcome.busiest, 1.0);
        is_near(outcome.utilisation, 0.25);
        let cheap = Costs { server: Work { message: 500, name: 2_000 }, ..COSTS };
        let outcome = run(&many, cheap, Directories::Shared, 1, SPAN);
        is_near(outcome.names_per_second, 1e9 / 2_000.0);
        is_near(outcome.busiest, 2_500.0 / 4_000.0);
    }

    #[test]
    fn a_split_directory_uses_all_servers() {
        let outcome = rate(&Machines { clients: 800, ..MACHINES }, Directories::Split, 1);
        is_near(outcome.names_per_second, 4.0 * 2e9 / 6_000.0);
        is_near(outcome.utilisation, 1.0);
    }

    #[test]
    fn batches_of_a_split_directory_send_a_message_to_each_plate() {
        let few = Machines { servers: 1, processors: 1, plates: 2, clients: 64, delay: 0, ..MACHINES };
        // Half of the names for each message: 1,000 names cost the server two messages.
        is_near(rate(&few, Directories::Split, 1_000).names_per_second, 1e12 / (2_000.0 * 1_000.0 + 8_000.0));
    }

    #[test]
    fn one_machine_divides_its_processors_between_all() {
        let here = Machines { is_one_machine: true, clients: 64, delay: 10_000, ..MACHINES };
        is_near(rate(&here, Directories::Private, 1).names_per_second, 2e9 / 10_000.0);
    }
}
