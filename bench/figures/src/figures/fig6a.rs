//! Figure 6a: clients create files in directories of their own, as rpcs, decoupled, and decoupled and merged all at once.

use crate::load::{at_once, create, look_and_create, names, slowest};
use crate::site::{Party, Shape, Site};
use crate::{Result, Setting, Table};

const UNIT: &str = "creates/s";

pub(super) fn run(setting: &Setting) -> Result<()> {
    let policy = setting.policy("batchfs")?;
    setting.policy("posix")?;
    let files = setting.scale.pick(50, 10_000, 100_000);
    let names = names(files);
    let mut table = Table::default();
    for run in 0..setting.scale.runs() {
        for &clients in setting.scale.clients() {
            let all = (clients * files) as f64;
            let rpcs = all / rpcs(setting, clients, &names, create)?;
            table.add("rpcs", clients, run, rpcs, UNIT);
            let (created, merged) = decoupled(setting, clients, &names, &policy)?;
            table.add("decoupled: create", clients, run, all / created, UNIT);
            table.add("decoupled: create + merge", clients, run, all / merged, UNIT);
            setting.say(format!(
                "fig6a, run {}: {clients} clients: rpcs {rpcs:.0}/s, decoupled {:.0}/s, with the merge {:.0}/s",
                run + 1,
                all / created,
                all / merged
            ));
        }
        // The paper says that such a client would be near rpcs.
        let clients = *setting.scale.clients().last().unwrap_or(&1);
        let looking = (clients * files) as f64 / self::rpcs(setting, clients, &names, look_and_create)?;
        table.add("rpcs with a lookup before each", clients, run, looking, UNIT);
    }
    setting.write("fig6a", &table)
}

type Load = fn(&chiton_client::Client, chiton_types::Ino, &[String]) -> Result<()>;

/// Seconds until all have created all.
fn rpcs(setting: &Setting, clients: usize, names: &[String], load: Load) -> Result<f64> {
    let site = Site::start(setting, Shape::default())?;
    let parties = parties(&site, clients)?;
    let dirs = (0..clients).map(|n| parties[n].mkdir(&format!("/client{n}"))).collect::<Result<Vec<_>>>()?;
    Ok(slowest(&at_once(&parties, |n, party| load(&party.client, dirs[n], names))?))
}

/// Seconds until all have created all and have it on their disks, and until all of that is merged too.
fn decoupled(setting: &Setting, clients: usize, names: &[String], policy: &str) -> Result<(f64, f64)> {
    let site = Site::start(setting, Shape::default())?;
    let parties = parties(&site, clients)?;
    let take = |n: usize| parties[n].take(&format!("/client{n}"), policy);
    let realms = (0..clients).map(take).collect::<Result<Vec<_>>>()?;
    let created = at_once(&realms, |_, realm| {
        create(realm.client(), realm.root(), names)?;
        realm.client().sync().map_err(crate::site::refused)
    })?;
    let merged = at_once(&realms, |_, realm| {
        let report = realm.merge(&|_| {}).map_err(|e| e.to_string())?;
        if !report.ended || report.lost_count > 0 {
            return Err(format!("it was not merged: {report:?}").into());
        }
        Ok(())
    })?;
    let there = parties[0].client.list("/client0").map_err(crate::site::refused)?.len();
    if there != names.len() {
        return Err(format!("{there} files are there of {}", names.len()).into());
    }
    Ok((slowest(&created), slowest(&created) + slowest(&merged)))
}

fn parties(site: &Site, clients: usize) -> Result<Vec<Party>> {
    (0..clients).map(|n| site.party(&format!("state{n}"))).collect()
}
