//! Several plates in one server, beside one: creates in different directories, directories made and removed over plates.
//!
//! Two threads of this process work through one embedded client each, in a directory of each plate. With one plate they share a lock and
//! a journal.

use std::thread;

use chiton_bench::report::Row;
use chiton_client::{Client, ClientOptions};
use chiton_server::FormatOptions;
use chiton_types::{Ino, Mode, PlateId, Plates};
use rustix::time::{ClockId, clock_gettime};

use super::Plan;
use super::subject::{Subject, name, timed};
use crate::failure::{Failure, Outcome};

/// Creates of each of the two threads.
const CREATES: u64 = 200_000;
/// Directories that are made and removed one after the other.
const DIRS: u64 = 2_000;

/// Rates of one file system.
struct Rates {
    creates: f64,
    /// Creates a second of processor time of this process.
    by_cpu: f64,
    mkdirs: f64,
    rmdirs: f64,
}

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let (mut one, mut two): (Vec<Rates>, Vec<Rates>) = Default::default();
    for round in 0..plan.rounds {
        one.push(rates(plan, round, 1)?);
        two.push(rates(plan, round, 2)?);
    }
    let row = |name: &str, of: fn(&Rates) -> f64| {
        let [one, two] = [&one, &two].map(|all| all.iter().map(of).collect::<Vec<f64>>());
        Row::new(name, "ops/s", &one, &two)
    };
    Ok(vec![
        row("creates by 2 threads, 2 plates / 1 plate", |rates| rates.creates)
            .with_target(1.8)
            .with_bound("CPU: threads and journals share the processors"),
        row("creates a CPU second, 2 plates / 1 plate", |rates| rates.by_cpu)
            .with_target(0.9)
            .with_bound("CPU"),
        row("directories made on another plate / on the parent's", |rates| rates.mkdirs)
            .with_bound("lent numbers come ahead; the effect is sent after the answer"),
        row("directories removed from another plate / from the parent's", |rates| rates.rmdirs)
            .with_bound("a commit of the guard, and one of the birth before it"),
    ])
}

fn rates(plan: &Plan, round: usize, plates: u16) -> Outcome<Rates> {
    let format = FormatOptions { plates, ..FormatOptions::default() };
    let subject = Subject::start_with(plan, &format!("plates-{plates}-{round}"), &format)?;
    let all = subject.server.plates();
    let client =
        || chiton_embedded::client(&subject.server, ClientOptions::default()).map_err(Failure::failed);
    let clients = [client()?, client()?];
    let last = PlateId(plates - 1);
    let dirs =
        [directory(&clients[0], "first", (all, PlateId(0)))?, directory(&clients[0], "second", (all, last))?];
    let each = CREATES / plan.divisor;
    let cpu_before = cpu_seconds();
    let ((), seconds) = timed(|| {
        thread::scope(|scope| {
            let threads =
                clients.iter().zip(dirs).map(|(client, dir)| scope.spawn(move || create(client, dir, each)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| Failure::failed("a thread that creates files panicked"))?
            })
        })
    })?;
    let cpu = cpu_seconds() - cpu_before;
    // The names of which the directories are born on the last plate: with one plate, as many others.
    let (mkdirs, rmdirs) = make_and_remove(&clients[0], all, last, DIRS / plan.divisor)?;
    drop(clients);
    subject.end()?;
    let creates = (2 * each) as f64;
    Ok(Rates { creates: creates / seconds, by_cpu: creates / cpu, mkdirs, rmdirs })
}

/// A new directory below the root that this plate owns.
fn directory(client: &Client, prefix: &str, (plates, plate): (Plates, PlateId)) -> Outcome<Ino> {
    let caller = client.caller();
    for n in 0..10_000 {
        let name = format!("{prefix}.{n}");
        let made = client.mkdir(&caller, Ino::ROOT, name.as_bytes(), Mode(0o755)).map_err(Failure::failed)?;
        if plates.of(made.attr.ino) == Some(plate) {
            return Ok(made.attr.ino);
        }
    }
    Err(Failure::failed(format!("no directory was born on plate {plate}")))
}

fn create(client: &Client, dir: Ino, n: u64) -> Outcome {
    let caller = client.caller();
    for i in 0..n {
        client.start_create(&caller, dir, &name(i), Mode(0o644)).wait().map_err(Failure::failed)?;
    }
    Ok(())
}

/// Directories a second: made, and removed, of those that are born on this plate.
fn make_and_remove(client: &Client, plates: Plates, plate: PlateId, n: u64) -> Outcome<(f64, f64)> {
    let caller = client.caller();
    let (mut made, mut spent) = (Vec::new(), 0.0);
    for i in 0..100 * n {
        if made.len() as u64 == n {
            break;
        }
        let name = format!("dir.{i:06}");
        let (entry, seconds) = timed(|| {
            client.mkdir(&caller, Ino::ROOT, name.as_bytes(), Mode(0o755)).map_err(Failure::failed)
        })?;
        if plates.of(entry.attr.ino) == Some(plate) {
            made.push(name);
            spent += seconds;
        }
    }
    let count = made.len() as f64;
    let ((), removing) = timed(|| {
        made.iter()
            .try_for_each(|name| client.rmdir(&caller, Ino::ROOT, name.as_bytes()).map_err(Failure::failed))
    })?;
    Ok((count / spent, count / removing))
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
