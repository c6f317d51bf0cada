//! Metrics of a server in Prometheus' text format.
//!
//! ```text
//!   each plate ─ figures (JSON) ─┐
//!   the server ─ figures (JSON) ─┴─ table ─▶ HELP, TYPE and a line for each value
//! ```
//!
//! Invariants:
//! - A scrape reads memory only. It sends no request to a store, and holds each engine's lock for a few counts.
//! - Every metric of the table is announced, also while it has no values: a server without plates has the same names as others.

mod table;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use chiton_engine::Health;
use chiton_s3::Requests;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::latency::Latency;
use crate::plate::Plate;
use crate::server::Server;
use table::{DURATION, INFO, Kind, Label, Metric, OF_PLATES, OF_SERVER};

/// Counters of requests that are no kinds of requests.
const OUTCOMES: [&str; 3] = ["refused", "waited", "fetched"];

impl Server {
    /// The metrics of this server and of the plates that run on it, in Prometheus' text format.
    pub fn metrics(&self) -> String {
        let plates = self.table().all();
        let of_plate = |plate: &Plate| OfPlate {
            plate: plate.plate.to_string(),
            figures: plate.scrape(),
            latency: plate.latency.clone(),
        };
        let scrape = Scrape {
            server: self.scrape(),
            filesystem: format!("{:016x}", self.filesystem().filesystem),
            plates: plates.iter().map(|running| of_plate(&running.plate)).collect(),
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(scrape));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).expect("a string takes everything");
        text
    }

    fn scrape(&self) -> Value {
        let table = self.table();
        let disk = table.all().first().map(|running| running.plate.engine.lock_as_it_is().disk());
        let requests = Requests::so_far();
        json!({
            "plates": table.all().len(),
            "plate_starts": table.starts(),
            "plate_recoveries": table.recoveries(),
            "disk_size_bytes": disk.map(|disk| disk.0),
            "disk_free_bytes": disk.map(|disk| disk.1),
            "s3": {
                "requests": object(requests.by_kind()),
                "failed": requests.failed,
                "sent_bytes": requests.sent_bytes,
            },
        })
    }
}

impl Plate {
    /// The figures of this plate.
    fn scrape(&self) -> Value {
        let (mut figures, peers) = {
            let mut engine = self.engine.lock();
            engine.committed_elsewhere(self.waiters.commits.here.swap(0, Relaxed));
            (engine.sizes(), engine.peer_gauges())
        };
        for outcome in OUTCOMES {
            figures[outcome] = figures["operations"][outcome].take();
        }
        let is_healthy = self.health() == Health::Good
            && !self.checkpoints.store_full.load(Relaxed)
            && !self.is_tight()
            && !self.condition.away.is_any();
        figures["healthy"] = json!(u8::from(is_healthy));
        figures["stores_away"] = json!(self.condition.away.json().as_array().map_or(0, Vec::len));
        figures["recovery_sessions"] = json!(figures["recovery"]["sessions"].as_u64().unwrap_or(0));
        figures["errors"] = json!(self.condition.errors.load(Relaxed));
        figures["replayed_events"] = json!(self.replayed_events);
        let seconds = |(step, took): &(&str, Duration)| ((*step).to_owned(), json!(took.as_secs_f64()));
        figures["start"] = self.start.lock().steps().iter().map(seconds).collect();
        figures["waiting_commits"] = json!(self.waiters.commits.len());
        figures["recalls_sent"] = json!(self.waiters.recalls.load(Relaxed));
        figures["cache_limit_bytes"] = json!(self.options.cache_bytes);
        if let Some(latency) = &self.latency {
            figures["waits"] = object(latency.waits());
            figures["slow"] = json!(latency.slow());
        }
        figures["peers"] = json!({
            "guards": peers.guards,
            "crossings": peers.crossings,
            "outbox": peers.outbox,
            "requests": peers.requests,
            "ungreeted": peers.ungreeted,
            "lent_ranges": peers.lent_ranges,
        });
        figures["journal"] = self.scrape_journal();
        figures["checkpoint"] = self.scrape_checkpoints();
        figures["blocks"] = self.scrape_blocks();
        figures
    }

    fn scrape_journal(&self) -> Value {
        let (durable, last) = (self.journal.durable(), self.journal.last());
        let place = self.place.metered();
        json!({
            "position": last.0,
            "lag_events": last.0.saturating_sub(durable.0),
            "lag_bytes": self.journal.pending_bytes(),
            "lag_seconds": self.oldest_not_durable().as_secs_f64(),
            "appended_bytes": self.checkpoints.appended_bytes.load(Relaxed),
            "written_bytes": place.written_bytes.load(Relaxed),
            "calls": {
                "create": place.created.load(Relaxed),
                "append": place.appends.load(Relaxed),
                "sync": place.syncs.load(Relaxed),
                "remove": place.removed.load(Relaxed),
            },
        })
    }

    fn scrape_checkpoints(&self) -> Value {
        let last = self.journal.last();
        let replay = self.checkpoints.policy.rate.time(self.charged_load(last));
        json!({
            "count": self.checkpoints.count.load(Relaxed),
            "age_seconds": self.checkpoint_age().as_secs_f64(),
            "failing": u8::from(self.checkpoints.failing.load(Relaxed)),
            "lag_events": self.replay_load(last).events,
            "replay_seconds": replay.as_secs_f64(),
        })
    }

    fn scrape_blocks(&self) -> Value {
        let counters = self.blocks.metered.counters();
        json!({
            "read_bytes": counters.read_bytes.load(Relaxed),
            "written_bytes": counters.written_bytes.load(Relaxed),
            "errors": counters.errors.load(Relaxed),
            "calls": {
                "get": counters.gets.load(Relaxed),
                "put": counters.puts.load(Relaxed) + counters.puts_if_absent.load(Relaxed),
                "size": counters.sizes.load(Relaxed),
                "delete": counters.deletes.load(Relaxed),
                "list": counters.lists.load(Relaxed),
                "sync": counters.syncs.load(Relaxed),
            },
        })
    }
}

fn object<'a>(fields: impl Iterator<Item = (&'a str, u64)>) -> Value {
    fields.map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

/// The figures of one moment.
struct Scrape {
    server: Value,
    filesystem: String,
    plates: Vec<OfPlate>,
}

struct OfPlate {
    plate: String,
    figures: Value,
    latency: Option<Arc<Latency>>,
}

/// A metric's labels: names and values.
type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").field("plates", &self.plates.len()).finish()
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_info(announce(&mut encoder, &INFO)?)?;
        for metric in OF_SERVER {
            let mut family = announce(&mut encoder, metric)?;
            encode_values(&mut family, metric, &Labels::new(), &self.server)?;
        }
        let mut family = announce(&mut encoder, &DURATION)?;
        for of in &self.plates {
            for (op, histogram) in of.latency.iter().flat_map(|latency| latency.histograms()) {
                let labels: Labels<'_> = vec![("plate", Cow::from(&of.plate)), ("op", Cow::from(op))];
                histogram.encode(family.encode_family(&labels)?)?;
            }
        }
        for metric in OF_PLATES {
            let mut family = announce(&mut encoder, metric)?;
            for of in &self.plates {
                encode_values(&mut family, metric, &vec![("plate", Cow::from(&of.plate))], &of.figures)?;
            }
        }
        Ok(())
    }
}

impl Scrape {
    fn encode_info(&self, mut family: MetricEncoder<'_>) -> fmt::Result {
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("filesystem", self.filesystem.as_str())];
        family.encode_family(&labels)?.encode_gauge(&1i64)
    }
}

fn announce<'s>(
    encoder: &'s mut DescriptorEncoder<'_>,
    metric: &'s Metric,
) -> Result<MetricEncoder<'s>, fmt::Error> {
    let kind = match metric.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    };
    encoder.encode_descriptor(metric.name, metric.help, None, kind)
}

/// The values of a metric in some figures; none if they are not there.
fn encode_values(
    family: &mut MetricEncoder<'_>,
    metric: &Metric,
    labels: &Labels<'_>,
    figures: &Value,
) -> fmt::Result {
    let found = figures.pointer(metric.at);
    match metric.label {
        Label::None | Label::Info => match found.and_then(Value::as_f64) {
            Some(value) => encode_value(family, metric, labels, value),
            None => Ok(()),
        },
        Label::Each(label) => {
            for (name, value) in found.and_then(Value::as_object).into_iter().flatten() {
                let Some(value) = value.as_f64() else { continue };
                let labels = [labels.as_slice(), &[(label, Cow::from(name))]].concat();
                encode_value(family, metric, &labels, value)?;
            }
            Ok(())
        }
    }
}

fn encode_value(
    family: &mut MetricEncoder<'_>,
    metric: &Metric,
    labels: &Labels<'_>,
    value: f64,
) -> fmt::Result {
    let mut one = family.encode_family(labels)?;
    match metric.kind {
        Kind::Counter => one.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        Kind::Gauge | Kind::Histogram => one.encode_gauge(&value),
    }
}
