//! The library over a Unix socket, beside a bare echo over one.

use std::collections::VecDeque;

use chiton_bench::echo::{self, EchoOptions, Transport};
use chiton_bench::report::Row;
use chiton_client::Client;
use chiton_types::{Ino, Mode};

use super::Plan;
use super::subject::{Subject, name, timed};
use crate::failure::{Failure, Outcome};

const ONE_BY_ONE: u64 = 50_000;
const IN_FLIGHT: u64 = 500_000;
const BATCHED: u64 = 5_000_000;
/// Requests of one thread that are under way at a time.
const DEPTH: usize = 64;
const BATCH: u64 = 1_000;

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let (one_by_one, in_flight) = (ONE_BY_ONE / plan.divisor, IN_FLIGHT / plan.divisor);
    let echoed = |options: &EchoOptions| echo::measure(options).map_err(Failure::failed);
    let mut rates: [(Vec<f64>, Vec<f64>); 2] = Default::default();
    let mut batched = Vec::new();
    for round in 0..plan.rounds {
        let subject = Subject::start(plan, &format!("socket-data-{round}"))?;
        let client = subject.over_socket()?;
        let bare = echoed(&EchoOptions::one_at_a_time(Transport::Unix, one_by_one))?.round_trips_per_second();
        rates[0].0.push(bare);
        rates[0].1.push(singly(&client, one_by_one)?);
        let bare =
            echoed(&EchoOptions::pipelined_singly(Transport::Unix, in_flight))?.round_trips_per_second();
        rates[1].0.push(bare);
        rates[1].1.push(pipelined(&client, in_flight)?);
        batched.push(in_batches(&client, BATCHED / plan.divisor)?);
        drop(client);
        subject.end()?;
    }
    let [(echo_single, single), (echo_pipelined, ours_pipelined)] = rates;
    let million = vec![1e6; batched.len()];
    let burst = BATCHED / plan.divisor;
    Ok(vec![
        Row::new("socket creates, one at a time / echo", "ops/s", &echo_single, &single)
            .with_target(0.6)
            .with_bound("CPU: system calls and wake-ups"),
        Row::new(
            "socket creates, 64 in flight / echo, a call for each",
            "ops/s",
            &echo_pipelined,
            &ours_pipelined,
        )
        .with_target(0.4)
        .with_bound("CPU: the engine's work a create; the echo does none"),
        Row::new(
            &format!("socket creates, batches of 1,000, burst of {burst} / a million"),
            "ops/s",
            &million,
            &batched,
        )
        .with_target(1.0)
        .with_bound("CPU and memory: engine and client, a core each, the checkpoint beside them"),
    ])
}

fn directory(client: &Client, dir: &str) -> Outcome<Ino> {
    client.mkdir_all(dir).map(|attr| attr.ino).map_err(|r| Failure::failed(format!("mkdir {dir}: {r}")))
}

pub(super) fn singly(client: &Client, n: u64) -> Outcome<f64> {
    let dir = directory(client, "/single")?;
    let caller = client.caller();
    let ((), seconds) = timed(|| {
        for i in 0..n {
            client.start_create(&caller, dir, &name(i), Mode(0o644)).wait().map_err(Failure::failed)?;
        }
        Ok(())
    })?;
    Ok(n as f64 / seconds)
}

pub(super) fn pipelined(client: &Client, n: u64) -> Outcome<f64> {
    let dir = directory(client, "/pipelined")?;
    let caller = client.caller();
    let mut waiting = VecDeque::with_capacity(DEPTH);
    let ((), seconds) = timed(|| {
        for i in 0..n {
            if waiting.len() == DEPTH {
                // Half of them at once, so that requests and replies travel in company.
                for pending in waiting.drain(..DEPTH / 2) {
                    chiton_client::InFlight::wait(pending).map_err(Failure::failed)?;
                }
            }
            waiting.push_back(client.start_create(&caller, dir, &name(i), Mode(0o644)));
        }
        for pending in waiting.drain(..) {
            pending.wait().map_err(Failure::failed)?;
        }
        Ok(())
    })?;
    Ok(n as f64 / seconds)
}

/// Number of batches in flight: the client prepares the next one while the server works.
const BATCHES_AHEAD: usize = 4;

fn in_batches(client: &Client, n: u64) -> Outcome<f64> {
    let dir = directory(client, "/batched")?;
    let caller = client.caller();
    let mut waiting = VecDeque::with_capacity(BATCHES_AHEAD);
    let finish = |pending: chiton_client::InFlight<_>| -> Outcome {
        let each: chiton_client::Each<_> = pending.wait().map_err(Failure::failed)?;
        each.into_iter().try_for_each(|made| made.map(drop).map_err(Failure::failed))
    };
    let ((), seconds) = timed(|| {
        for first in (0..n).step_by(BATCH as usize) {
            let names: Vec<Vec<u8>> = (first..first + BATCH).map(name).collect();
            if waiting.len() == BATCHES_AHEAD {
                waiting.pop_front().map_or(Ok(()), &finish)?;
            }
            waiting.push_back(client.start_create_in(&caller, dir, &names, Mode(0o644)));
        }
        waiting.drain(..).try_for_each(&finish)
    })?;
    Ok(n as f64 / seconds)
}
