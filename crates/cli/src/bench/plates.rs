//! Several plates in one server, beside one: creates in different directories, directories made and removed over plates, files and
//! directories moved to a directory of another plate.
//!
//! Two threads of this process work through one embedded client each, in a directory of each plate. With one plate they share a lock and
//! a journal.

use std::thread;

use chiton_bench::report::Row;
use chiton_client::{Client, ClientOptions};
use chiton_model::RenameHow;
use chiton_server::FormatOptions;
use chiton_types::{Ino, Kind, Mode, PlateId, Plates, Refusal};
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
    renames: f64,
    moves: f64,
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
        row("files renamed to a directory of another plate / of the same", |rates| rates.renames).with_bound(
            "the guard of one row, then of the next: a commit each; the next rename waits for the effect",
        ),
        row("directories moved to a directory of another plate / of the same", |rates| rates.moves)
            .with_bound("the same, and the token, which returns when all is durable"),
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
    let renames = move_each(&clients[0], dirs, DIRS / plan.divisor, |name| {
        clients[0].mknod(&clients[0].caller(), dirs[0], name, Kind::File, Mode(0o644), 0).map(drop)
    })?;
    let moves = move_each(&clients[0], [dirs[1], dirs[0]], DIRS / plan.divisor, |name| {
        clients[0].mkdir(&clients[0].caller(), dirs[1], name, Mode(0o755)).map(drop)
    })?;
    drop(clients);
    subject.end()?;
    let creates = (2 * each) as f64;
    Ok(Rates { creates: creates / seconds, by_cpu: creates / cpu, mkdirs, rmdirs, renames, moves })
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

/// Renames a second, one after the other, of files that are made for it in the first of two directories, to the second.
fn move_each(
    client: &Client,
    [from, to]: [Ino; 2],
    n: u64,
    make: impl Fn(&[u8]) -> Result<(), Refusal>,
) -> Outcome<f64> {
    let caller = client.caller();
    let names: Vec<String> = (0..n).map(|i| format!("moved.{i:06}")).collect();
    names.iter().try_for_each(|name| make(name.as_bytes()).map_err(Failure::failed))?;
    let ((), seconds) = timed(|| {
        names.iter().map(String::as_bytes).try_for_each(|name| {
            client.rename(&caller, from, name, to, name, RenameHow::Replace).map_err(Failure::failed)
        })
    })?;
    Ok(n as f64 / seconds)
}

/// Processor time of this process so far.
pub(super) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
