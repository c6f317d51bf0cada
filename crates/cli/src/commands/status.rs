//! `chiton status`: a short report (is it healthy, how far is everything durable, which clients are connected,
//! which directories are decoupled, what to do next); with `--verbose` also all counters of the server, with
//! `--json` all of it as numbers. Of a cluster it is the report of all servers.

mod cluster;
mod everything;
mod offline;
mod report;

use std::path::Path;

use crate::args::Status;
use crate::commands::cluster::{Watched, monitor_of, watched};
use crate::failure::Outcome;
use crate::{reach, target};

pub(crate) fn run(args: &Status) -> Outcome {
    let (named, monitor) = (args.watched.target.as_deref(), args.watched.monitor.as_ref());
    let without_server = match named {
        Some(target) => {
            reach::answering(Path::new(target))?;
            // The data of a cluster have no server of their own.
            if monitor_of(target).is_some() { None } else { offline::offline(target)? }
        }
        None => None,
    };
    let status = match without_server {
        Some(status) => status,
        None => match watched(named, monitor)? {
            Watched::Cluster(servers) => return cluster::run(args, servers),
            Watched::Server(client) => target::admin(&client, "status")?,
        },
    };
    if args.watched.json {
        println!("{status}");
        return Ok(());
    }
    println!("{}", report::of(named.unwrap_or_default(), &status));
    if args.verbose {
        println!("\n{}", everything::everything(&status));
    }
    Ok(())
}
