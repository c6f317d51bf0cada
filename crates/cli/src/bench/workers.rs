//! How many threads a server needs: creates and stats by several clients, each with a connection of its own, while the number of
//! serving threads varies; and stats after a start, when the rows are in the store alone, while the number of I/O threads does.
//!
//! The other side of each row is a server with the defaults, in the same round.

use std::path::Path;
use std::thread;

use chiton_bench::report::Row;
use chiton_client::Client;
use chiton_server::{FormatOptions, ServerOptions};
use chiton_transport::ServeOptions;
use chiton_types::{Ino, Mode};

use super::Plan;
use super::plates::cpu_seconds;
use super::subject::{Subject, formatted, name, timed};
use crate::failure::{Failure, Outcome};

const CLIENTS: u64 = 8;
/// Files of all clients together.
const FILES: u64 = 80_000;
/// Numbers of threads that are compared with the default.
const THREADS: [usize; 4] = [1, 2, 4, 8];

/// Operations a second, and a second of processor time of clients and server together.
#[derive(Clone, Copy)]
struct Rate {
    ops: f64,
    by_cpu: f64,
}

impl Rate {
    fn of(ops: u64, work: impl FnOnce() -> Outcome) -> Outcome<Rate> {
        let before = cpu_seconds();
        let ((), seconds) = timed(work)?;
        let cpu = cpu_seconds() - before;
        Ok(Rate { ops: ops as f64 / seconds, by_cpu: ops as f64 / cpu })
    }
}

/// Creates and stats.
type Rates = [Rate; 2];

/// The rows of a load: of each number of threads, beside the default.
fn rows_of(
    (what, kind, default, bound): (&str, &str, usize, &str),
    base: &[Rate],
    varied: &[Vec<Rate>],
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (threads, rates) in THREADS.into_iter().zip(varied) {
        let name = format!("{what} by {CLIENTS} clients, {threads} {kind} threads / {default}");
        let of = |rates: &[Rate], one: fn(&Rate) -> f64| -> Vec<f64> { rates.iter().map(one).collect() };
        let ops = Row::new(&name, "ops/s", &of(base, |rate| rate.ops), &of(rates, |rate| rate.ops));
        let cpu = format!("{name}, by processor time");
        let by_cpu = [base, rates].map(|rates| of(rates, |rate| rate.by_cpu));
        rows.push(ops.with_bound(bound));
        rows.push(Row::new(&cpu, "ops/s of CPU", &by_cpu[0], &by_cpu[1]));
    }
    rows
}

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let mut rows = serving(plan)?;
    rows.extend(reading(plan)?);
    Ok(rows)
}

fn serving(plan: &Plan) -> Outcome<Vec<Row>> {
    let default = ServeOptions::default().threads;
    let mut base = Vec::new();
    let mut varied = [const { Vec::new() }; THREADS.len()];
    for round in 0..plan.rounds {
        base.push(warm(plan, &format!("base-{round}"), default)?);
        for (at, threads) in THREADS.into_iter().enumerate() {
            varied[at].push(warm(plan, &format!("threads-{threads}-{round}"), threads)?);
        }
    }
    let mut rows = Vec::new();
    for (at, what) in ["creates", "stats"].into_iter().enumerate() {
        let of = |all: &[Rates]| -> Vec<Rate> { all.iter().map(|rates| rates[at]).collect() };
        let each: Vec<Vec<Rate>> = varied.iter().map(|rates| of(rates)).collect();
        let load = (what, "serving", default, "CPU, and one lock of the engine");
        rows.extend(rows_of(load, &of(&base), &each));
    }
    Ok(rows)
}

fn reading(plan: &Plan) -> Outcome<Vec<Row>> {
    let data = formatted(plan, "cold", &FormatOptions::default())?;
    let filled = Subject::open(&data)?;
    Crowd::start(&filled)?.work(|client, dir| make(client, dir, per_client(plan)))?;
    filled.server.shutdown().map_err(Failure::failed)?;
    let default = ServerOptions::default().io_threads;
    let mut base = Vec::new();
    let mut varied = [const { Vec::new() }; THREADS.len()];
    for _ in 0..plan.rounds {
        base.push(cold(plan, &data, default)?);
        for (at, threads) in THREADS.into_iter().enumerate() {
            varied[at].push(cold(plan, &data, threads)?);
        }
    }
    let load = ("stats after a start", "I/O", default, "reads of the metadata store, in the kernel's cache");
    Ok(rows_of(load, &base, &varied))
}

/// A new server with so many serving threads.
fn warm(plan: &Plan, place: &str, threads: usize) -> Outcome<Rates> {
    let serve = ServeOptions { threads, ..ServeOptions::default() };
    let subject = Subject::start_as(plan, place, ServerOptions { serve, ..ServerOptions::default() })?;
    let crowd = Crowd::start(&subject)?;
    let each = per_client(plan);
    let files = each * CLIENTS;
    let creates = Rate::of(files, || crowd.work(|client, dir| make(client, dir, each)))?;
    let stats = Rate::of(files, || crowd.work(|client, dir| look_at(client, dir, each)))?;
    drop(crowd);
    subject.end()?;
    Ok([creates, stats])
}

/// Stats of a server that has just started, with so many I/O threads.
fn cold(plan: &Plan, data: &Path, io_threads: usize) -> Outcome<Rate> {
    let subject = Subject::open_with(data, ServerOptions { io_threads, ..ServerOptions::default() })?;
    let crowd = Crowd::start(&subject)?;
    let each = per_client(plan);
    let stats = Rate::of(each * CLIENTS, || crowd.work(|client, dir| look_at(client, dir, each)))?;
    drop(crowd);
    subject.server.shutdown().map_err(Failure::failed)?;
    Ok(stats)
}

fn per_client(plan: &Plan) -> u64 {
    FILES / CLIENTS / plan.divisor
}

/// Clients, each with a directory of its own.
struct Crowd(Vec<(Client, Ino)>);

impl Crowd {
    fn start(subject: &Subject) -> Outcome<Crowd> {
        let mut clients = Vec::new();
        for n in 0..CLIENTS {
            let client = if n == 0 { subject.over_socket()? } else { subject.beside(None)? };
            let dir = client.mkdir_all(format!("/dir{n}")).map_err(Failure::failed)?.ino;
            clients.push((client, dir));
        }
        Ok(Crowd(clients))
    }

    /// All of them work at once, each on a thread of its own.
    fn work(&self, work: impl Fn(&Client, Ino) -> Outcome + Sync) -> Outcome {
        let work = &work;
        thread::scope(|scope| {
            let threads: Vec<_> =
                self.0.iter().map(|(client, dir)| scope.spawn(move || work(client, *dir))).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| Failure::failed("a thread of a client panicked"))?
            })
        })
    }
}

fn make(client: &Client, dir: Ino, count: u64) -> Outcome {
    let caller = client.caller();
    (0..count).try_for_each(|n| {
        client.start_create(&caller, dir, &name(n), Mode(0o644)).wait().map(drop).map_err(Failure::failed)
    })
}

fn look_at(client: &Client, dir: Ino, count: u64) -> Outcome {
    let caller = client.caller();
    (0..count).try_for_each(|n| {
        client.start_lookup(&caller, dir, &name(n)).wait().map(drop).map_err(Failure::failed)
    })
}
