//! `chiton top`: counters of the server as rates, a line an interval.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use chiton_runtime::{RealWorld, World};
use serde_json::Value;

use super::df::flatten;
use crate::args::Top;
use crate::failure::{Failure, Outcome};
use crate::target;

/// Lines after which the head is printed again.
const HEAD_EVERY: u64 = 20;

pub(crate) fn run(args: &Top) -> Outcome {
    if !(0.05..=3600.0).contains(&args.interval) {
        return Err(Failure::failed("--interval is between 0.05 and 3600 seconds"));
    }
    let client = target::client(&args.target.target)?;
    let mut before = counters(&target::admin(&client, "top")?);
    let mut at = RealWorld.monotonic();
    for line in 0.. {
        if args.count.is_some_and(|count| line >= count) {
            break;
        }
        thread::sleep(Duration::from_secs_f64(args.interval));
        let now = counters(&target::admin(&client, "top")?);
        let seconds = (RealWorld.monotonic() - at).as_secs_f64();
        at = RealWorld.monotonic();
        let rates: BTreeMap<&String, f64> = now
            .iter()
            .map(|(name, value)| {
                (name, (value - before.get(name).copied().unwrap_or(0.0)).max(0.0) / seconds)
            })
            .collect();
        if args.target.json {
            println!("{}", serde_json::json!(rates));
        } else {
            let busy: Vec<_> = rates.iter().filter(|(_, rate)| **rate > 0.0).collect();
            if line % HEAD_EVERY == 0 {
                println!("operations a second, by kind (kinds that did not occur are left out)");
            }
            let shown: Vec<String> = busy.iter().map(|(name, rate)| format!("{name} {rate:.0}")).collect();
            println!("{}", if shown.is_empty() { "idle".to_string() } else { shown.join("  ") });
        }
        before = now;
    }
    Ok(())
}

/// Numbers that only grow, by name.
fn counters(top: &Value) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    flatten("", top, &mut |name, value| {
        // The server's clock is among them, for programs that compute rates.
        if let Some(n) = value.as_f64().filter(|_| name != "monotonic_ms") {
            all.insert(name.trim_start_matches("operations.").to_string(), n);
        }
    });
    all
}
