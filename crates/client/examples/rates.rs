//! Creates over a Unix socket, beside the bare echo of as many bytes: one at a time, 64 in flight, 1,000 a batch.
//!
//! `cargo run --release -p chiton-client --example rates [creates] [row]`

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chiton_bench::echo::{self, EchoOptions, Transport};
use chiton_client::{Client, ClientOptions};
use chiton_runtime::{RealWorld, SharedWorld, World};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_types::{Ino, Mode, Refusal};
use chiton_wire::Address;

const IN_FLIGHT: usize = 64;
const BATCH: usize = 1_000;
const ROUNDS: usize = 5;
const MODE: Mode = Mode(0o644);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let creates: usize = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let world: SharedWorld = Arc::new(RealWorld);
    let owner = FormatOptions { uid: rustix::process::geteuid().as_raw(), ..FormatOptions::default() };
    Server::format(&dir.path().join("data"), &owner, &world)?;
    let server = Server::start(&dir.path().join("data"), ServerOptions::default(), world)?;
    let address: Address = socket(dir.path()).parse()?;
    server.serve(std::slice::from_ref(&address))?;
    let client = Client::connect(&address, ClientOptions::default())?;

    println!("{:<16} {:>12} {:>12} {:>7} {:>6}", "creates", "echo/s", "ours/s", "ratio", "goal");
    let n = creates as u64;
    row("one at a time", 0.6, creates, &client, one_at_a_time, || {
        Ok(echo::measure(&EchoOptions::one_at_a_time(Transport::Unix, n))?.round_trips_per_second())
    })?;
    row("64 in flight", 0.4, creates, &client, in_flight, || {
        Ok(echo::measure(&EchoOptions::pipelined(Transport::Unix, n))?.round_trips_per_second())
    })?;
    // The goal here is a million a second, so that is what the ratio is to.
    row("1,000 a batch", 1.0, creates, &client, batches, || Ok(1e6))?;
    drop(client);
    server.shutdown()?;
    Ok(())
}

fn socket(dir: &Path) -> String {
    format!("unix:{}", dir.join("socket").display())
}

type Load = fn(&Client, Ino, usize) -> Result<(), Refusal>;

/// Rounds in turns, so that a machine that slows down moves both; the median of the ratios.
fn row(
    name: &str,
    goal: f64,
    creates: usize,
    client: &Client,
    load: Load,
    floor: impl Fn() -> Result<f64, Failure>,
) -> Result<(), Failure> {
    if std::env::args().nth(2).is_some_and(|only| !name.contains(&only)) {
        return Ok(());
    }
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let floor = floor()?;
        let path = format!("{}-{round}", name.replace(' ', "-"));
        let dir = client.mkdir_all(path).map_err(|refusal| refusal.to_string())?.ino;
        let seconds = timed(|| load(client, dir, creates))?;
        rounds.push((creates as f64 / seconds.as_secs_f64(), floor));
    }
    rounds.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (ours, floor) = rounds[ROUNDS / 2];
    println!("{name:<16} {floor:>12.0} {ours:>12.0} {:>7.2} {goal:>6.1}", ours / floor);
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<(), Refusal>) -> Result<Duration, Failure> {
    let began = RealWorld.monotonic();
    work().map_err(|refusal| refusal.to_string())?;
    Ok(RealWorld.monotonic() - began)
}

fn name(n: usize) -> String {
    format!("file-{n:08}")
}

fn one_at_a_time(client: &Client, dir: Ino, count: usize) -> Result<(), Refusal> {
    for n in 0..count {
        client.start_create(&client.caller(), dir, name(n).as_bytes(), MODE).wait()?;
    }
    Ok(())
}

fn in_flight(client: &Client, dir: Ino, count: usize) -> Result<(), Refusal> {
    let mut ahead = VecDeque::new();
    for n in 0..count {
        if ahead.len() == IN_FLIGHT {
            ahead.pop_front().map_or(Ok(()), |oldest: chiton_client::Pending<_>| oldest.wait().map(drop))?;
        }
        ahead.push_back(client.start_create(&client.caller(), dir, name(n).as_bytes(), MODE));
    }
    ahead.into_iter().try_for_each(|pending| pending.wait().map(drop))
}

fn batches(client: &Client, dir: Ino, count: usize) -> Result<(), Refusal> {
    let names: Vec<String> = (0..count).map(name).collect();
    for names in names.chunks(BATCH) {
        for result in client.create_in(&client.caller(), dir, names, MODE)? {
            result?;
        }
    }
    Ok(())
}
