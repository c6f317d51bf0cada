//! Batches of a thousand over a Unix socket, beside one call for each name: creates, stats, unlinks. One connection, one directory.
//!
//! Both sides have a server and a file system of their own, since a directory that has held names is not like a new one.

use chiton_bench::report::Row;
use chiton_client::Client;
use chiton_types::{Ino, Mode, Refusal};

use super::Plan;
use super::plates::cpu_seconds;
use super::subject::{Subject, name, timed};
use crate::failure::{Failure, Outcome};

const BATCHED: u64 = 500_000;
/// One at a time: so much takes about as long.
const SINGLE: u64 = 50_000;
const BATCH: usize = 1_000;

/// Operations a second, and a second of processor time of client and server together.
struct Rate {
    ops: f64,
    by_cpu: f64,
}

impl Rate {
    fn of(ops: u64, f: impl FnOnce() -> Outcome) -> Outcome<Rate> {
        let before = cpu_seconds();
        let ((), seconds) = timed(f)?;
        let cpu = cpu_seconds() - before;
        Ok(Rate { ops: ops as f64 / seconds, by_cpu: ops as f64 / cpu })
    }
}

/// A call for a batch of names.
type BatchCall<'c> = &'c dyn Fn(&[Vec<u8>]) -> Result<(), Refusal>;

/// Creates, stats and unlinks.
type Rates = [Rate; 3];

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let (mut single, mut batched) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        single.push(on_a_new_server(plan, &format!("single-{round}"), SINGLE / plan.divisor, one_at_a_time)?);
        batched.push(on_a_new_server(plan, &format!("batched-{round}"), BATCHED / plan.divisor, in_batches)?);
    }
    let mut rows = Vec::new();
    for (at, what) in ["creates", "stats", "unlinks"].into_iter().enumerate() {
        let of = |rates: &[Rates], one: fn(&Rate) -> f64| rates.iter().map(|rates| one(&rates[at])).collect();
        let ops = |rates: &[Rates]| -> Vec<f64> { of(rates, |rate| rate.ops) };
        let by_cpu = |rates: &[Rates]| -> Vec<f64> { of(rates, |rate| rate.by_cpu) };
        rows.push(
            Row::new(
                &format!("{what}, batches of 1,000 / one at a time"),
                "ops/s",
                &ops(&single),
                &ops(&batched),
            )
            .with_target(20.0)
            .with_bound("CPU of one core in the engine; one at a time: wake-ups of both sides"),
        );
        rows.push(Row::new(
            &format!("{what}, batches of 1,000 / one at a time, by processor time"),
            "ops/s of CPU",
            &by_cpu(&single),
            &by_cpu(&batched),
        ));
    }
    Ok(rows)
}

fn on_a_new_server(
    plan: &Plan,
    place: &str,
    count: u64,
    run: fn(&Client, Ino, &[Vec<u8>]) -> Outcome<Rates>,
) -> Outcome<Rates> {
    let subject = Subject::start(plan, place)?;
    let client = subject.over_socket()?;
    let dir = client.mkdir_all("/dir").map_err(|r| Failure::failed(format!("mkdir /dir: {r}")))?.ino;
    let names: Vec<Vec<u8>> = (0..count).map(name).collect();
    let rates = run(&client, dir, &names)?;
    drop(client);
    subject.end()?;
    Ok(rates)
}

fn one_at_a_time(client: &Client, dir: Ino, names: &[Vec<u8>]) -> Outcome<Rates> {
    let (caller, count) = (client.caller(), names.len() as u64);
    let each = |call: &dyn Fn(&[u8]) -> Result<(), Refusal>| {
        Rate::of(count, || names.iter().try_for_each(|name| call(name).map_err(Failure::failed)))
    };
    Ok([
        each(&|name| client.start_create(&caller, dir, name, Mode(0o644)).wait().map(drop))?,
        each(&|name| client.start_lookup(&caller, dir, name).wait().map(drop))?,
        each(&|name| client.start_unlink(&caller, dir, name).wait())?,
    ])
}

/// Each call is one message: the next is begun when it is answered.
fn in_batches(client: &Client, dir: Ino, names: &[Vec<u8>]) -> Outcome<Rates> {
    let (caller, count) = (client.caller(), names.len() as u64);
    let each = |call: BatchCall<'_>| {
        Rate::of(count, || names.chunks(BATCH).try_for_each(|names| call(names).map_err(Failure::failed)))
    };
    Ok([
        each(&|names| whole(client.create_in(&caller, dir, names, Mode(0o644))))?,
        each(&|names| whole(client.stat_in(&caller, dir, names)))?,
        each(&|names| whole(client.unlink_in(&caller, dir, names)))?,
    ])
}

/// The first refusal of a batch.
fn whole<T>(each: Vec<Result<T, Refusal>>) -> Result<(), Refusal> {
    each.into_iter().try_for_each(|one| one.map(drop))
}
