//! The scale model: operations of a short run are measured, and a model makes of their costs what hundreds of servers would do.
//!
//! ```text
//!   short run, one server ──▶ processor time of server and clients, of an operation ──▶ of a message, and of a name
//!                                                                                          │
//!   short runs, all numbers of servers ──▶ rates ◀── beside ──▶ rates of the model, one machine
//!                                                              rates of the model, a machine for each server
//! ```

use super::{many, runs};
use crate::huge::{Huge, directory};
use crate::measure::{Files, Measured};
use crate::model::{self, Costs, Directories, Machines, Outcome, Span, Work};
use crate::servers::{PLATES, Servers, counts};
use crate::{Result, Setting, Table};

/// Shards, which cap the number of plates, and plates of each server.
const SHARDS: usize = 4_096;
/// Of a message between machines, one way, in nanoseconds.
const NETWORK: u64 = 50_000;
const BATCH: usize = 1_000;
/// Clients of each server: one by one, and of batches.
const CLIENTS: usize = 32;
const BATCHING: usize = 2;
/// Operations for which a run of the model is long enough.
const OPERATIONS: u64 = 40;
/// The least that a name costs, where the clock of the processor time was too coarse.
const LEAST_NS: f64 = 100.0;

/// The directories, their name, policy, and number (0: one for each client).
const DIRECTORIES: [(Directories, &str, Huge, usize); 3] = [
    (Directories::Shared, "never", Huge::Never, 1),
    (Directories::Split, "always", Huge::Always, 1),
    (Directories::Private, "private", Huge::Never, 0),
];

/// An operation in directories: one by one and by batches.
struct Sample {
    operation: &'static str,
    directories: Directories,
    name: &'static str,
    single: Measured,
    batched: Measured,
}

pub(super) fn run(setting: &Setting) -> Result<()> {
    let mut table = Table::default();
    for run in 0..runs(setting) {
        let mut delay = 0;
        let mut samples = Vec::new();
        for &count in counts(setting) {
            let servers = Servers::start(setting, count)?;
            if count == 1 {
                delay = delay_here(setting, &servers)?;
                table.add("delay", 1, run, delay as f64 / 1e3, "µs");
            }
            samples.push((count, measure(setting, &servers)?));
            setting.say(format!("scale, run {}: {count} server(s) measured", run + 1));
        }
        let costs: Vec<(&Sample, Costs)> =
            samples[0].1.iter().map(|sample| (sample, sample.costs())).collect();
        for (sample, costs) in &costs {
            add_costs(&mut table, sample, *costs, run);
        }
        for (count, samples) in &samples {
            for (sample, (_, costs)) in samples.iter().zip(&costs) {
                check(setting, &mut table, sample, *costs, *count, delay, run);
            }
        }
        for (sample, costs) in &costs {
            project(setting, &mut table, sample, *costs, run);
        }
        setting.say(format!("scale, run {}: modelled", run + 1));
    }
    setting.write("scale", &table)
}

/// All operations in all directories.
fn measure(setting: &Setting, servers: &Servers) -> Result<Vec<Sample>> {
    let (files, clients) = (setting.scale.pick(60, 16_000, 160_000), many(setting));
    let mut samples = Vec::new();
    for (directories, name, huge, dirs) in DIRECTORIES {
        let dir = directory(setting, servers, huge, 0)?;
        let of = |batch| Files { files, dirs, batch, clients }.measure_in(servers, &dir);
        for ((operation, single), (_, batched)) in of(1)?.into_iter().zip(of(BATCH)?) {
            samples.push(Sample { operation, directories, name, single, batched });
        }
    }
    Ok(samples)
}

/// The time of a message on this machine, beside the work of client and server, in nanoseconds: one client alone has nobody to wait for.
fn delay_here(setting: &Setting, servers: &Servers) -> Result<u64> {
    let files = Files { files: setting.scale.pick(30, 3_000, 20_000), dirs: 1, batch: 1, clients: 1 };
    let phases = files.measure(servers)?;
    let create = &phases[0].1;
    let work: f64 = create.servers.iter().sum::<f64>() + create.clients;
    let rest = (create.phase.seconds - work) / create.phase.ops as f64 / 2.0;
    Ok((rest.max(0.0) * 1e9) as u64)
}

impl Sample {
    /// The cost of a message: that of an operation alone, less that of a name in a batch.
    fn costs(&self) -> Costs {
        let messages = match self.directories {
            Directories::Split => f64::from(PLATES),
            Directories::Shared | Directories::Private => 1.0,
        };
        let work = |of: fn(&Measured) -> f64| {
            let cost = |measured: &Measured| of(measured) * 1e9 / measured.phase.ops as f64;
            let names = self.batched.phase.ops as f64 / self.batch_count();
            split_up(cost(&self.single), cost(&self.batched), messages / names)
        };
        Costs { client: work(|measured| measured.clients), server: work(|m| m.servers.iter().sum()) }
    }

    /// Batches that were sent: a client with fewer files than a batch sends one.
    fn batch_count(&self) -> f64 {
        (self.batched.phase.ops as f64 / BATCH as f64).max(1.0)
    }
}

/// Nanoseconds of an operation alone, and of a name of a batch, in which so many messages come to a name.
fn split_up(single: f64, batched: f64, messages: f64) -> Work {
    let message = ((single - batched) / (1.0 - messages).max(0.01)).clamp(0.0, single);
    Work { message: message as u64, name: (single - message).max(LEAST_NS) as u64 }
}

fn add_costs(table: &mut Table, sample: &Sample, costs: Costs, run: usize) {
    for (party, work) in [("server", costs.server), ("client", costs.client)] {
        for (what, ns) in [("message", work.message), ("name", work.name)] {
            let series = format!("cost: {}, {}: {what}, {party}", sample.operation, sample.name);
            table.add(&series, 1, run, ns as f64 / 1e3, "µs");
        }
    }
}

/// A measured rate, and that of the model for the same processes on this machine.
fn check(
    setting: &Setting,
    table: &mut Table,
    sample: &Sample,
    costs: Costs,
    servers: usize,
    delay: u64,
    run: usize,
) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let machines = Machines {
        servers,
        processors,
        is_one_machine: true,
        plates: usize::from(PLATES),
        clients: many(setting),
        delay,
    };
    for (measured, batch, suffix) in [(&sample.single, 1, ""), (&sample.batched, BATCH, ", batches")] {
        let series = format!("{}{suffix}, {}", sample.operation, sample.name);
        measured.add(table, &format!("here: {series}"), servers, run);
        // Other programs take their share of the processors, so that each step takes longer by the clock.
        let others = (measured.others / measured.phase.seconds).min(0.9 * processors as f64);
        table.add(&format!("here: {series}: others"), servers, run, 100.0 * others, "% CPU");
        let costs = costs.times(processors as f64 / (processors as f64 - others));
        let span = span(if batch == 1 { 10 } else { 50 }, costs, batch, sample.directories, 1);
        let modelled = model::run(&machines, costs, sample.directories, batch, span);
        table.add(&format!("here: {series}: model"), servers, run, modelled.names_per_second, "ops/s");
    }
}

/// As many servers, each on a machine like this one, and clients on machines of their own.
fn project(setting: &Setting, table: &mut Table, sample: &Sample, costs: Costs, run: usize) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for servers in setting.scale.pick([1, 2, 3, 4], [1, 8, 64, 300], [1, 8, 64, 300]) {
        for (batch, by_server, suffix) in [(1, CLIENTS, ""), (BATCH, BATCHING, ", batches")] {
            let machines = Machines {
                servers,
                processors,
                is_one_machine: false,
                plates: (servers * usize::from(PLATES)).min(SHARDS),
                clients: servers * by_server,
                delay: NETWORK,
            };
            let span = span(if batch == 1 { 20 } else { 50 }, costs, batch, sample.directories, servers);
            let Outcome { names_per_second, utilisation, busiest } =
                model::run(&machines, costs, sample.directories, batch, span);
            let series = format!("model: {}{suffix}, {}", sample.operation, sample.name);
            table.add(&series, servers, run, names_per_second, "ops/s");
            table.add(&format!("{series}: servers"), servers, run, 100.0 * utilisation, "% CPU");
            table.add(&format!("{series}: busiest server"), servers, run, 100.0 * busiest, "% CPU");
        }
    }
}

/// So many milliseconds of the model's time, and at least some operations of each client, after half as long. Where one plate carries out
/// everything, all clients together have so many.
fn span(ms: u64, costs: Costs, batch: usize, directories: Directories, servers: usize) -> Span {
    let operation = batch as u64 * (costs.client.name + costs.server.name);
    let (ms, operations) = match directories {
        // All clients wait for one plate, and the slower their turns come, the fewer events there are.
        Directories::Shared => (10 * ms, OPERATIONS),
        Directories::Split | Directories::Private => (ms, (OPERATIONS / servers as u64).max(4)),
    };
    let counted = (ms * 1_000_000).max(operations * operation);
    Span { warm_up: counted / 2, counted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_split_into_those_of_messages_and_names() {
        // A message of 8 µs and a name of 2 µs: 10 µs alone, and 2.064 µs in batches with 8 messages of 1,000.
        let work = split_up(10_000.0, 2_064.0, 0.008);
        assert_eq!((work.message, work.name), (8_000, 2_000));
        // A clock that is too coarse, and noise.
        assert_eq!(split_up(0.0, 0.0, 0.008).name, LEAST_NS as u64);
        let noisy = split_up(2_000.0, 3_000.0, 0.001);
        assert_eq!((noisy.message, noisy.name), (0, 2_000));
    }
}
