//! Figure 3a: what the server's journal costs, by how many segments are on their way to the object store at a time, and by their length.

use crate::load::{at_once, create, names, slowest};
use crate::site::{Party, Shape, Site, set_policy};
use crate::{Result, Setting, Table};

/// Length of a segment where it is not varied, in bytes.
const SEGMENT: usize = 4 << 20;
/// Segments on their way where that is not varied.
const DISPATCH: usize = 40;

/// A curve: its name, the policy, how the journal is made of objects, the files of each client.
type Curve<'a> = (&'a str, &'a str, Option<(usize, usize)>, &'a [String]);

pub(super) fn run(setting: &Setting) -> Result<()> {
    let posix = setting.policy("posix")?;
    let ramdisk = setting.policy("ramdisk")?;
    let durable = setting.policy("posix-durable")?;
    let names = names(setting.scale.pick(50, 2_000, 100_000));
    let few = &names[..setting.scale.pick(5, 10, 500)];
    let journal = |dispatch| Some((SEGMENT, dispatch));
    let curves: [Curve<'_>; 6] = [
        ("no journal", &ramdisk, None, &names),
        ("dispatch 1", &posix, journal(1), &names),
        ("dispatch 10", &posix, journal(10), &names),
        ("dispatch 40", &posix, journal(40), &names),
        ("dispatch 1, answered when durable", &durable, journal(1), few),
        ("dispatch 40, answered when durable", &durable, journal(40), few),
    ];
    let most = *setting.scale.clients().last().unwrap_or(&1);
    let mut table = Table::default();
    for run in 0..setting.scale.runs() {
        for &clients in setting.scale.clients() {
            for (series, policy, objects, names) in curves {
                let seconds = slowest_of(setting, clients, policy, objects, names)?;
                table.add(series, clients, run, seconds / names.len() as f64 * 1e6, "us a create");
            }
            setting.say(format!("fig3a, run {}: {clients} clients", run + 1));
        }
        for kib in setting.scale.pick(&[64, 4096][..], &[64, 512, 4096, 16_384], &[64, 512, 4096, 16_384]) {
            let objects = Some((kib << 10, DISPATCH));
            let seconds = slowest_of(setting, most, &posix, objects, &names)?;
            table.add("segment", kib, run, seconds / names.len() as f64 * 1e6, "us a create");
        }
    }
    table.add("segment, clients", "all", 0, most as f64, "clients");
    setting.write("fig3a", &table)
}

/// Seconds of the slowest of several clients.
fn slowest_of(
    setting: &Setting,
    clients: usize,
    policy: &str,
    objects: Option<(usize, usize)>,
    names: &[String],
) -> Result<f64> {
    let site = Site::start(setting, Shape { objects, ..Shape::default() })?;
    let parties = (0..clients).map(|n| site.party(&format!("state{n}"))).collect::<Result<Vec<Party>>>()?;
    let dir = |n: usize| -> Result<_> {
        let dir = parties[n].mkdir(&format!("/client{n}"))?;
        set_policy(&parties[n].client, dir, policy)?;
        Ok(dir)
    };
    let dirs = (0..clients).map(dir).collect::<Result<Vec<_>>>()?;
    Ok(slowest(&at_once(&parties, |n, party| create(&party.client, dirs[n], names))?))
}
