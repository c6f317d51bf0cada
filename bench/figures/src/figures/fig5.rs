//! Figure 5: the cost of each mechanism for one client that creates files in one directory, and the cost of whole
//! systems. With it the draft's sections 5.1.1 and 5.2: the time of a single event in each mechanism, and the cost
//! of the journal by its place.
//!
//! Written are times of whole compositions; a mechanism's own is the difference of two of them, made where it is drawn, as the paper
//! made it.

use crate::compositions::{alone, offline, strong};
use crate::latency::Latencies;
use crate::load::{create, names};
use crate::site::{Shape, Site, refused, set_policy};
use crate::{Result, Setting, Table};

/// The journal of a strong subtree as objects: bytes of one, and how many are on their way at a time, as the paper set it.
const STREAM: Shape = Shape { tcp: false, objects: Some((4 << 20, 40)), in_memory: false, plates: None };
const IN_MEMORY: Shape = Shape { in_memory: true, ..STREAM };

pub(super) fn run(setting: &Setting) -> Result<()> {
    let names = names(setting.scale.pick(100, 100_000, 100_000));
    let posix = setting.policy("posix")?;
    let ramdisk = setting.policy("ramdisk")?;
    let batchfs = setting.policy("batchfs")?;
    let deltafs = setting.policy("deltafs")?;
    let in_memory = setting.policy("ramdisk-decoupled")?;
    let weak_global = setting.policy("weak-global")?;
    let nonvolatile = setting.policy("offline")?;
    let mut table = Table::default();
    for run in 0..setting.scale.pick(1, 3, 5) {
        let mut add = |x: &str, seconds: f64| table.add("time", x, run, seconds, "s");
        add("ramdisk", strong(setting, &ramdisk, Shape::default(), &names)?.seconds);
        add("posix", strong(setting, &posix, STREAM, &names)?.seconds);
        if run < setting.scale.runs() {
            add("posix, journal in memory", strong(setting, &posix, IN_MEMORY, &names)?.seconds);
        }
        add("append", alone(setting, &in_memory, &names)?.created);
        let local = alone(setting, &deltafs, &names)?;
        add("append + local_persist", local.created);
        let merged = alone(setting, &batchfs, &names)?;
        add("append + local_persist, before the merge", merged.created);
        add("merge", merged.merged);
        let global = alone(setting, &weak_global, &names)?;
        add("append + global_persist", global.created);
        add("merge of what is in the object store", global.merged);
        add("nonvolatile_apply", offline(setting, &nonvolatile, &names)?.applied);
        let bytes = local.journal_bytes as f64 / names.len() as f64;
        table.add("journal", "bytes of a create", run, bytes, "bytes");
        table.add("count", "creates", run, names.len() as f64, "creates");
        setting.say(format!("fig5, run {}: a journal of {bytes:.0} bytes a create", run + 1));
    }
    for run in 0..setting.scale.runs() {
        latencies(setting, run, &mut table)?;
        setting.say(format!("fig5, run {}: single events", run + 1));
    }
    setting.write("fig5", &table)
}

/// p50 and p99 of the time of one event, by mechanism. Measured separately, since reading the clock twice takes a
/// good part of the time of an append.
fn latencies(setting: &Setting, run: usize, table: &mut Table) -> Result<()> {
    // Mechanisms that work on a journal take a batch of events at a time: an event's is its share.
    let batch = setting.scale.pick(10, 1_000, 1_000);
    let many = names(setting.scale.pick(3 * batch, 20 * batch, 200 * batch));
    let durable = &many[..setting.scale.pick(3, 50, 500)];
    let [posix, ramdisk, waiting] = ["posix", "ramdisk", "posix-durable"].map(|name| setting.policy(name));
    let (posix, ramdisk, waiting) = (posix?, ramdisk?, waiting?);
    let mut add = |mechanism: &str, took: &Latencies| {
        for (series, share) in [("p50", 0.5), ("p99", 0.99)] {
            table.add(series, mechanism, run, took.us(share), "us an event");
        }
    };
    add("rpcs", &rpcs(setting, &ramdisk, Shape::default(), &many)?);
    add("rpcs + stream", &rpcs(setting, &posix, STREAM, &many)?);
    add("rpcs + stream, answered when durable", &rpcs(setting, &waiting, STREAM, durable)?);
    add("rpcs + stream in memory, answered when durable", &rpcs(setting, &waiting, IN_MEMORY, durable)?);
    add("append_client_journal", &appends(setting, &setting.policy("ramdisk-decoupled")?, &many)?);
    for (mechanism, policy) in [("local_persist", "deltafs"), ("global_persist", "weak-global")] {
        add(mechanism, &in_batches(setting, &setting.policy(policy)?, &many, batch, Then::Persist)?);
    }
    let batchfs = setting.policy("batchfs")?;
    add("volatile_apply", &in_batches(setting, &batchfs, &many, batch, Then::Apply)?);
    let (nonvolatile, mut applied) = (setting.policy("offline")?, Latencies::default());
    for _ in 0..setting.scale.pick(1, 3, 20) {
        let seconds = offline(setting, &nonvolatile, &many[..batch])?.applied;
        applied.note(seconds / batch as f64);
    }
    add("nonvolatile_apply", &applied);
    table.add("count", "events of a batch", run, batch as f64, "events");
    Ok(())
}

/// Each create by a remote procedure call.
fn rpcs(setting: &Setting, policy: &str, shape: Shape, names: &[String]) -> Result<Latencies> {
    let site = Site::start(setting, shape)?;
    let party = site.party("state")?;
    let dir = party.mkdir("/job")?;
    set_policy(&party.client, dir, policy)?;
    let mut took = Latencies::with_room(names.len());
    for name in names.chunks(1) {
        took.time(|| create(&party.client, dir, name))?;
    }
    Ok(took)
}

/// Each create by an event in the client's journal.
fn appends(setting: &Setting, policy: &str, names: &[String]) -> Result<Latencies> {
    let site = Site::start(setting, Shape::default())?;
    let party = site.party("state")?;
    let realm = party.take("/job", policy)?;
    let mut took = Latencies::with_room(names.len());
    for name in names.chunks(1) {
        took.time(|| create(realm.client(), realm.root(), name))?;
    }
    realm.abandon();
    Ok(took)
}

/// The end of a batch of events.
#[derive(Clone, Copy)]
enum Then {
    /// Makes it as durable as the policy says.
    Persist,
    /// It is merged too; only that is timed.
    Apply,
}

/// An event's share of each batch.
fn in_batches(
    setting: &Setting,
    policy: &str,
    names: &[String],
    batch: usize,
    then: Then,
) -> Result<Latencies> {
    let site = Site::start(setting, Shape::default())?;
    let party = site.party("state")?;
    let realm = party.take("/job", policy)?;
    let mut took = Latencies::with_room(names.len() / batch);
    for names in names.chunks(batch) {
        create(realm.client(), realm.root(), names)?;
        let persist = || realm.client().sync().map_err(refused);
        match then {
            Then::Persist => took.time_of_each(names.len(), persist)?,
            Then::Apply => {
                persist()?;
                let merge = || realm.sync(&|_| {}).map_err(|e| e.to_string().into());
                let report = took.time_of_each(names.len(), merge)?;
                if report.lost_count > 0 {
                    return Err(format!("it was not merged: {report:?}").into());
                }
            }
        }
    }
    realm.abandon();
    Ok(took)
}
