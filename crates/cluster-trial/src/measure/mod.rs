//! Figures of a cluster: how long a take-over and a hand-over make programs wait, how fast a change of the map arrives, and
//! how little the monitor has to do.
//!
//! ```text
//!   etcd ◀── a watch of ours: when does the lease end?
//!   servers ◀── a client of ours, a thread for each plate: create, fsync, again and again ──▶ pauses
//! ```
//!
//! Times are of one clock, of this process. A lease ends when the etcd says so.

mod handover;
mod map_change;
mod probe;
mod quiet;
mod takeover;

use std::time::Duration;

use chiton_client::{Client, ClientOptions};
use chiton_etcd::{EtcdAddress, EtcdMonitor};
use chiton_monitor::Monitor;
use chiton_transport::Address;
use comfy_table::{Table, presets};
use serde_json::json;

use crate::Result;
use crate::cluster::Cluster;

/// How much is measured.
pub(crate) struct Size {
    pub(crate) kills: u16,
    pub(crate) entries: u32,
    pub(crate) moves: u16,
    pub(crate) followers: u16,
    pub(crate) operations: u32,
}

/// A quantity that was measured once or several times.
pub(crate) struct Figure {
    what: String,
    unit: &'static str,
    /// The measured values, ascending.
    values: Vec<f64>,
    /// The limit, and the share of the values that have to keep it.
    goal: Option<(f64, Share)>,
}

#[derive(Clone, Copy, Debug)]
enum Share {
    All,
    NineOfTen,
}

impl Figure {
    fn new(what: impl Into<String>, unit: &'static str, mut values: Vec<f64>) -> Figure {
        values.sort_by(f64::total_cmp);
        Figure { what: what.into(), unit, values, goal: None }
    }

    fn of_times(what: impl Into<String>, times: &[Duration]) -> Figure {
        Figure::new(what, "ms", times.iter().map(|time| time.as_secs_f64() * 1e3).collect())
    }

    fn goal(self, limit: f64, share: Share) -> Figure {
        Figure { goal: Some((limit, share)), ..self }
    }

    /// The value that so many of a hundred do not exceed.
    fn percentile(&self, percent: usize) -> Option<f64> {
        let at = (self.values.len() * percent).div_ceil(100).max(1) - 1;
        self.values.get(at).copied()
    }

    fn keeps_goal(&self) -> Option<bool> {
        let (limit, share) = self.goal?;
        let percent = match share {
            Share::All => 100,
            Share::NineOfTen => 90,
        };
        self.percentile(percent).map(|value| value <= limit)
    }
}

/// Measures everything, one after the other, and ends the cluster.
pub(crate) fn run(mut cluster: Cluster, size: &Size) -> Result<Vec<Figure>> {
    let mut figures = map_change::run(cluster.monitor(), size.followers)?;
    let client = client(&cluster)?;
    let probes = probe::Probes::prepare(&client, &monitor(&cluster)?)?;
    figures.push(quiet::run(&cluster, &client, size.operations)?);
    if size.moves > 0 {
        figures.extend(handover::run(&cluster, &client, &probes, size)?);
    }
    if size.kills > 0 {
        figures.extend(takeover::run(&mut cluster, &client, &probes, size.kills)?);
    }
    drop(client);
    cluster.end()?;
    Ok(figures)
}

fn monitor(cluster: &Cluster) -> Result<EtcdMonitor> {
    open(cluster.monitor())
}

fn open(address: &str) -> Result<EtcdMonitor> {
    let address: EtcdAddress = address.parse().map_err(|e| format!("{address}: {e}"))?;
    EtcdMonitor::open(&address).map_err(|e| e.to_string())
}

/// A client with sessions at all plates, without a mount.
fn client(cluster: &Cluster) -> Result<Client> {
    let credentials = chiton_auth::Credentials::load(cluster.client_identity()).map_err(|e| e.to_string())?;
    let options = ClientOptions { credentials: Some(credentials), ..ClientOptions::default() };
    let source = monitor(cluster)?;
    let ask = move || -> Vec<Address> {
        let servers = source.map().map(|map| map.servers).unwrap_or_default();
        let all = servers.into_values().flat_map(|server| server.addresses);
        all.filter_map(|address| address.parse().ok()).collect()
    };
    Client::connect_to_any(Box::new(ask), false, options).map_err(|e| format!("the servers: {e}"))
}

/// With the goals, for people.
pub(crate) fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["measured", "unit", "n", "median", "p90", "p99", "worst", "goal", ""]);
    for figure in figures {
        let at = |percent| {
            figure.percentile(percent).map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
        };
        let goal = figure.goal.map_or_else(String::new, |(limit, share)| match share {
            Share::All => format!("{limit}"),
            Share::NineOfTen => format!("{limit} (p90)"),
        });
        let verdict = match figure.keeps_goal() {
            Some(true) => "kept",
            Some(false) => "missed",
            None => "",
        };
        table.add_row([
            figure.what.clone(),
            figure.unit.to_owned(),
            figure.values.len().to_string(),
            at(50),
            at(90),
            at(99),
            at(100),
            goal,
            verdict.to_owned(),
        ]);
    }
    table
}

/// The same for programs, with all values.
pub(crate) fn json(figures: &[Figure]) -> Result<String> {
    let all: Vec<_> = figures
        .iter()
        .map(|figure| {
            json!({
                "measured": figure.what,
                "unit": figure.unit,
                "values": figure.values,
                "goal": figure.goal.map(|(limit, _)| limit),
                "percentile_of_goal": figure.goal.map(|(_, share)| match share {
                    Share::All => 100,
                    Share::NineOfTen => 90,
                }),
                "kept": figure.keeps_goal(),
            })
        })
        .collect();
    serde_json::to_string_pretty(&all).map_err(|e| format!("JSON: {e}"))
}
