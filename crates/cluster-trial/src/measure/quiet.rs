//! Messages to the monitor while clients work and nothing changes.

use std::io::{Read, Write};
use std::net::TcpStream;

use chiton_client::Client;

use super::{Figure, Share};
use crate::Result;
use crate::cluster::Cluster;

const BATCH: u32 = 1000;

/// The messages to the etcd during so many creates and removes, without the renewals of leases.
pub(crate) fn run(cluster: &Cluster, client: &Client, operations: u32) -> Result<Figure> {
    let failed = |refusal: chiton_types::Refusal| format!("steady operations: {refusal}");
    client.mkdir_all("steady").map_err(failed)?;
    client.sync().map_err(failed)?;
    let before = messages(cluster.monitor())?;
    let mut done = 0;
    while done < operations {
        let names: Vec<String> = (0..BATCH).map(|n| format!("{n}")).collect();
        client.create_many("steady", &names).map_err(failed)?;
        client.unlink_many("steady", &names).map_err(failed)?;
        done += 2 * BATCH;
    }
    client.sync().map_err(failed)?;
    let count = messages(cluster.monitor())? - before;
    let what = format!("messages to the etcd in {done} operations, without renewals of leases");
    Ok(Figure::new(what, "messages", vec![count]).goal(0.0, Share::All))
}

/// The messages that the first member of the etcd has received so far, without renewals.
fn messages(monitor: &str) -> Result<f64> {
    let members = monitor.strip_prefix("etcd://").unwrap_or(monitor);
    let member = members.split([',', '/']).next().unwrap_or(members);
    let failed = |e: std::io::Error| format!("the metrics of the etcd at {member}: {e}");
    let mut stream = TcpStream::connect(member).map_err(failed)?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {member}\r\n\r\n").map_err(failed)?;
    let mut said = String::new();
    stream.read_to_string(&mut said).map_err(failed)?;
    let counters: Vec<f64> = said
        .lines()
        .filter(|line| line.starts_with("grpc_server_msg_received_total{"))
        .filter(|line| !line.contains("\"LeaseKeepAlive\""))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    match counters.is_empty() {
        true => Err(format!("the etcd at {member} shows no counters of messages")),
        false => Ok(counters.iter().sum()),
    }
}
