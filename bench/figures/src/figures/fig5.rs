//! Figure 5: what each mechanism costs one client that creates files in one directory, and what whole systems cost.
//!
//! Written are times of whole compositions; a mechanism's own is the difference of two of them, made where it is drawn, as the paper
//! made it.

use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_realm::{Realm, Realms, RealmsOptions};
use chiton_server::{Server, ServerOptions};
use chiton_world::RealWorld;

use crate::load::{create, names};
use crate::setting::timed;
use crate::site::{Party, Shape, Site, refused, set_policy};
use crate::{Result, Setting, Table};

/// The journal of a strong subtree as objects: bytes of one, and how many are on their way at a time, as the paper set it.
const STREAM: (usize, usize) = (4 << 20, 40);

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
        add("ramdisk", strong(setting, &ramdisk, None, &names)?);
        add("posix", strong(setting, &posix, Some(STREAM), &names)?);
        add("append", alone(setting, &in_memory, &names)?.created);
        let local = alone(setting, &deltafs, &names)?;
        add("append + local_persist", local.created);
        let merged = alone(setting, &batchfs, &names)?;
        add("append + local_persist, before the merge", merged.created);
        add("merge", merged.merged);
        let global = alone(setting, &weak_global, &names)?;
        add("append + global_persist", global.created);
        add("merge of what is in the object store", global.merged);
        add("nonvolatile_apply", offline(setting, &nonvolatile, &names)?);
        let bytes = local.journal_bytes as f64 / names.len() as f64;
        table.add("journal", "bytes of a create", run, bytes, "bytes");
        table.add("count", "creates", run, names.len() as f64, "creates");
        setting.say(format!("fig5, run {}: a journal of {bytes:.0} bytes a create", run + 1));
    }
    setting.write("fig5", &table)
}

/// Seconds of rpcs, and until all of it is as durable as the policy says.
fn strong(setting: &Setting, policy: &str, objects: Option<(usize, usize)>, names: &[String]) -> Result<f64> {
    let site = Site::start(setting, Shape { objects, ..Shape::default() })?;
    let party = site.party("state")?;
    let dir = party.mkdir("/job")?;
    set_policy(&party.client, dir, policy)?;
    let created = timed(|| {
        create(&party.client, dir, names)?;
        party.client.sync().map_err(refused)
    })?;
    Ok(created.1)
}

/// What a decoupled client took.
struct Alone {
    /// Seconds until all files were made, and as durable as the policy says.
    created: f64,
    /// Seconds of the merge.
    merged: f64,
    /// Length of the journal before the merge.
    journal_bytes: u64,
}

fn alone(setting: &Setting, policy: &str, names: &[String]) -> Result<Alone> {
    let site = Site::start(setting, Shape::default())?;
    let party: Party = site.party("state")?;
    let realm: Arc<Realm> = party.take("/job", policy)?;
    let ((), created) = timed(|| {
        create(realm.client(), realm.root(), names)?;
        realm.client().sync().map_err(refused)
    })?;
    let journal_bytes = realm.status().journal_bytes;
    let (report, merged) = timed(|| realm.merge(&|_| {}).map_err(|e| e.to_string().into()))?;
    if !report.ended || report.lost_count > 0 {
        return Err(format!("it was not merged: {report}").into());
    }
    Ok(Alone { created, merged, journal_bytes })
}

/// Seconds in which a process that serves nobody opens the file system, merges a journal that lies in the object store, and
/// closes it.
fn offline(setting: &Setting, policy: &str, names: &[String]) -> Result<f64> {
    let mut site = Site::start(setting, Shape::default())?;
    let party = site.party("state")?;
    let realm = party.take("/job", policy)?;
    create(realm.client(), realm.root(), names)?;
    realm.client().sync().map_err(refused)?;
    let id = realm.id();
    drop(realm);
    if let Some(error) = party.realms.close().pop() {
        return Err(error.to_string().into());
    }
    drop(party);
    site.end_server()?;
    let data = site.path("data");
    let ((), seconds) = timed(|| {
        let server = Server::start(data.as_path(), ServerOptions::default(), Arc::new(RealWorld))
            .map_err(|e| e.to_string())?;
        let client =
            Arc::new(Client::embedded(server.clone(), ClientOptions::default()).map_err(|e| e.to_string())?);
        let options = RealmsOptions { state_dir: site.path("tool"), client: ClientOptions::default() };
        let realms = Realms::new(client.clone(), options);
        let realm = realms.adopt(id).map_err(|e| e.to_string())?;
        let report = realm.merge(&|_| {}).map_err(|e| e.to_string())?;
        if !report.ended || report.lost_count > 0 {
            return Err(format!("it was not merged: {report}").into());
        }
        client.sync().map_err(refused)?;
        drop((realm, realms, client));
        Ok(server.shutdown()?)
    })?;
    Ok(seconds)
}
