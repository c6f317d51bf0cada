//! `chiton top`: counters of the server as rates, a line an interval; of a cluster a line for each server, too.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use chiton_client::Client;
use chiton_runtime::{RealWorld, World};
use serde_json::{Value, json};

use super::cluster::{Round, Servers, Watched, watched};
use crate::args::Top;
use crate::failure::{Failure, Outcome};
use crate::target;

/// Lines after which the head is printed again.
const HEAD_EVERY: u64 = 20;

/// Requests a second, by kind.
type Rates = BTreeMap<String, f64>;

pub(crate) fn run(args: &Top) -> Outcome {
    if !(0.05..=3600.0).contains(&args.interval) {
        return Err(Failure::failed("--interval is between 0.05 and 3600 seconds"));
    }
    match watched(args.watched.target.as_deref(), args.watched.monitor.as_ref())? {
        Watched::Server(client) => of_server(args, &client),
        Watched::Cluster(servers) => of_cluster(args, servers),
    }
}

fn of_server(args: &Top, client: &Client) -> Outcome {
    let mut clock = Clock::new();
    let mut before = target::admin(client, "top")?;
    for line in lines(args) {
        let now = target::admin(client, "top")?;
        let rates = rates(&before, &now, clock.seconds());
        if args.watched.json {
            println!("{}", json!(rates));
        } else {
            head(line);
            println!("{}", words(&rates));
        }
        before = now;
    }
    Ok(())
}

fn of_cluster(args: &Top, mut servers: Servers) -> Outcome {
    let mut clock = Clock::new();
    let mut before = servers.ask("top")?;
    for line in lines(args) {
        let now = servers.ask("top")?;
        let seconds = clock.seconds();
        let each = rates_of_each(&before, &now, seconds);
        let all = each.iter().filter_map(|(_, rates)| rates.as_ref()).fold(Rates::new(), |mut all, rates| {
            rates.iter().for_each(|(kind, rate)| *all.entry(kind.clone()).or_default() += rate);
            all
        });
        if args.watched.json {
            let servers: BTreeMap<String, &Option<Rates>> =
                each.iter().map(|(id, rates)| (id.to_string(), rates)).collect();
            println!("{}", json!({ "all": all, "servers": servers }));
        } else {
            head(line);
            println!("{:<10}{}", "all", words(&all));
            for (server, (id, rates)) in now.servers.iter().zip(&each) {
                let said = rates.as_ref().map_or_else(|| server.state().to_owned(), words);
                println!("{:<10}{said}", format!("server {id}"));
            }
        }
        before = now;
    }
    before.complete(&servers.address)
}

/// Of each server of the map; `None` if it has not answered.
fn rates_of_each(before: &Round, now: &Round, seconds: f64) -> Vec<(u64, Option<Rates>)> {
    let earlier = |id: u64| before.servers.iter().find(|server| server.info.id == id)?.report();
    let of = |server: &super::cluster::Seen| {
        let now = server.report()?;
        // A server that has just begun to answer has rates from the next line on.
        Some(rates(earlier(server.info.id).unwrap_or(now), now, seconds))
    };
    now.servers.iter().map(|server| (server.info.id, of(server))).collect()
}

/// The numbers of the lines, each after an interval.
fn lines(args: &Top) -> impl Iterator<Item = u64> {
    let interval = Duration::from_secs_f64(args.interval);
    (0..args.count.unwrap_or(u64::MAX)).inspect(move |_| thread::sleep(interval))
}

fn head(line: u64) {
    if line.is_multiple_of(HEAD_EVERY) {
        println!("operations a second, by kind (kinds that did not occur are left out)");
    }
}

fn words(rates: &Rates) -> String {
    let busy: Vec<String> = rates
        .iter()
        .filter(|(_, rate)| **rate > 0.0)
        .map(|(kind, rate)| format!("{kind} {rate:.0}"))
        .collect();
    if busy.is_empty() { "idle".to_owned() } else { busy.join("  ") }
}

/// A plate that has left a server took its counts along: no rate is negative.
fn rates(before: &Value, now: &Value, seconds: f64) -> Rates {
    let counts = now["operations"].as_object().into_iter().flatten();
    let rate = |(kind, count): (&String, &Value)| {
        let count = count.as_f64()?;
        let earlier = before["operations"][kind].as_f64().unwrap_or(0.0);
        Some((kind.clone(), (count - earlier).max(0.0) / seconds))
    };
    counts.filter_map(rate).collect()
}

struct Clock(Duration);

impl Clock {
    fn new() -> Clock {
        Clock(RealWorld.monotonic())
    }

    /// Seconds since the last call.
    fn seconds(&mut self) -> f64 {
        let now = RealWorld.monotonic();
        now.saturating_sub(std::mem::replace(&mut self.0, now)).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_operations_and_never_negative() {
        let of = |make: u64, lookup: u64| json!({ "operations": { "make": make, "lookup": lookup }, "monotonic_ms": 9 });
        let said = rates(&of(10, 7), &of(30, 3), 2.0);
        assert_eq!(said, Rates::from([("make".to_owned(), 10.0), ("lookup".to_owned(), 0.0)]));
        assert_eq!(words(&said), "make 10");
        assert_eq!(words(&rates(&of(1, 1), &of(1, 1), 1.0)), "idle");
    }
}
