//! Figure 5.7: creates a second while a shared directory grows, on one plate and split over eight.

use super::{many, runs};
use crate::load::{at_once, create, slowest};
use crate::servers::PLATES;
use crate::site::{Party, Shape, Site, set_policy};
use crate::{Result, Setting, Table};

/// Values of a curve.
const STEPS: usize = 20;

pub(super) fn run(setting: &Setting) -> Result<()> {
    let entries = setting.scale.pick(80, 40_000, 10_000_000);
    let clients = many(setting);
    setting.policy("posix")?;
    let split = setting.policy("huge-always")?;
    let each = entries / STEPS / clients;
    let mut table = Table::default();
    for run in 0..runs(setting) {
        for (series, plates) in [("creates", None), ("creates, split", Some(PLATES))] {
            let site = Site::start(setting, Shape { plates, ..Shape::default() })?;
            let parties: Vec<Party> =
                (0..clients).map(|n| site.party(&format!("state{n}"))).collect::<Result<_>>()?;
            if plates.is_some() {
                set_policy(&parties[0].client, parties[0].mkdir("/always")?, &split)?;
            }
            let dir = parties[0].mkdir(if plates.is_some() { "/always/shared" } else { "/shared" })?;
            for step in 0..STEPS {
                let names: Vec<Vec<String>> = (0..clients)
                    .map(|client| (0..each).map(|n| format!("file.{client}.{step}.{n}")).collect())
                    .collect();
                let seconds =
                    slowest(&at_once(&parties, |client, party| create(&party.client, dir, &names[client]))?);
                let made = each * clients;
                table.add(series, (step + 1) * made, run, made as f64 / seconds, "ops/s");
            }
        }
        setting.say(format!("fig5_7, run {}: {entries} entries", run + 1));
    }
    setting.write("fig5_7", &table)
}
