//! Four jobs at once, each in a subtree with the policy that suits it, against the same four under one policy. The paper lacks it.

use crate::load::{at_once, look_and_create_one, names, slowest};
use crate::site::{Party, Shape, Site, refused, set_policy};
use crate::{Result, Setting, Table};

/// The jobs, by the policy that suits each.
const JOBS: [&str; 4] = ["posix", "batchfs", "deltafs", "ramdisk"];

struct Job<'a> {
    policy: &'a str,
    text: String,
    party: Party,
    names: &'a [String],
}

pub(super) fn run(setting: &Setting) -> Result<()> {
    let names = names(setting.scale.pick(60, 20_000, 100_000));
    let mut table = Table::default();
    for run in 0..setting.scale.pick(1, 3, 3) {
        for policy in JOBS {
            let alone = together(setting, &[policy], &names)?;
            table.add("alone, own policy", policy, run, alone[0], "s");
        }
        for (series, policies) in [("together, own policies", JOBS), ("together, all posix", ["posix"; 4])] {
            let took = together(setting, &policies, &names)?;
            for (policy, seconds) in JOBS.iter().zip(&took) {
                table.add(series, policy, run, *seconds, "s");
            }
            table.add(series, "all four", run, slowest(&took), "s");
            setting.say(format!("coexist, run {}: {series}: {:.2} s", run + 1, slowest(&took)));
        }
    }
    table.add("files", "each job", 0, names.len() as f64, "files");
    setting.write("coexist", &table)
}

/// Concurrent jobs on one server: seconds until each was done, durable as its policy says, and merged if that says
/// so.
fn together(setting: &Setting, policies: &[&str], names: &[String]) -> Result<Vec<f64>> {
    let site = Site::start(setting, Shape::default())?;
    let job = |(n, policy): (usize, &&'static str)| -> Result<Job<'_>> {
        let text = setting.policy(policy)?;
        Ok(Job { policy, text, party: site.party(&format!("state{n}"))?, names })
    };
    let policies: Vec<&'static str> =
        policies.iter().filter_map(|policy| JOBS.iter().find(|job| *job == policy).copied()).collect();
    let jobs = policies.iter().enumerate().map(job).collect::<Result<Vec<_>>>()?;
    at_once(&jobs, |n, job| job.run(&format!("/job{n}")))
}

impl Job<'_> {
    fn run(&self, path: &str) -> Result<()> {
        let dir = self.party.mkdir(path)?;
        set_policy(&self.party.client, dir, &self.text)?;
        let realm = match self.policy {
            "batchfs" | "deltafs" => Some(self.party.take(path, &self.text)?),
            _ => None,
        };
        let client = realm.as_ref().map_or(&self.party.client, |realm| realm.client());
        self.names.iter().try_for_each(|name| look_and_create_one(client, dir, name))?;
        client.sync().map_err(refused)?;
        if let Some(realm) = realm.filter(|_| self.policy == "batchfs") {
            let report = realm.merge(&|_| {}).map_err(|e| e.to_string())?;
            if !report.ended || report.lost_count > 0 {
                return Err(format!("it was not merged: {report:?}").into());
            }
        }
        Ok(())
    }
}
