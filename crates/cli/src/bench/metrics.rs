//! The cost of metrics: a server that measures each request, beside one that does not.

use chiton_bench::report::Row;
use chiton_client::{Client, ClientOptions};
use chiton_server::ServerOptions;
use chiton_types::{Ino, Mode};

use super::Plan;
use super::subject::{Subject, name, timed};
use crate::failure::{Failure, Outcome};

const CALLS: u64 = 1_000_000;

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let calls = CALLS / plan.divisor;
    // Creates and statfs, without and with metrics.
    let mut rates: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 0..plan.rounds {
        // The one that comes second finds a warmer machine: they take turns.
        let order = if round % 2 == 0 { [false, true] } else { [true, false] };
        for metrics in order {
            let (creates, questions) = rates_of(plan, &format!("metrics-{round}-{metrics}"), metrics, calls)?;
            rates[0][usize::from(metrics)].push(creates);
            rates[1][usize::from(metrics)].push(questions);
        }
    }
    let row = |what: &str, [without, with]: &[Vec<f64>; 2]| {
        Row::new(&format!("{what} with metrics / without"), "ops/s", without, with)
            .with_target(0.95)
            .with_bound("CPU: two looks at the clock and a histogram for each call")
    };
    Ok(vec![
        row("creates in the server's process", &rates[0]),
        row("statfs in the server's process", &rates[1]),
    ])
}

/// Calls a second: creates of new files, then statfs, the cheapest question.
fn rates_of(plan: &Plan, dir: &str, metrics: bool, calls: u64) -> Outcome<(f64, f64)> {
    let options = ServerOptions { metrics, ..ServerOptions::default() };
    let subject = Subject::start_as(plan, dir, options)?;
    let client =
        chiton_embedded::client(&subject.server, ClientOptions::default()).map_err(Failure::failed)?;
    let dir = client.mkdir_all("/dir").map_err(Failure::failed)?.ino;
    let creates = creates(&client, dir, calls)?;
    let ((), seconds) = timed(|| {
        for _ in 0..calls {
            client.statfs().map_err(Failure::failed)?;
        }
        Ok(())
    })?;
    drop(client);
    subject.end()?;
    Ok((creates, calls as f64 / seconds))
}

fn creates(client: &Client, dir: Ino, calls: u64) -> Outcome<f64> {
    let caller = client.caller();
    let ((), seconds) = timed(|| {
        for i in 0..calls {
            client.start_create(&caller, dir, &name(i), Mode(0o644)).wait().map_err(Failure::failed)?;
        }
        Ok(())
    })?;
    Ok(calls as f64 / seconds)
}
