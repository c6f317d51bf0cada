//! `chiton df`.

use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::cluster::{Servers, Watched, watched};
use crate::args::Df;
use crate::failure::{Failure, Outcome};
use crate::{size, target};

pub(crate) fn run(args: &Df) -> Outcome {
    let args = &args.watched;
    match watched(args.target.as_deref(), args.monitor.as_ref())? {
        Watched::Server(client) => show(&target::admin(&client, "df")?, args.json),
        Watched::Cluster(servers) => of_cluster(servers, args.json)?,
    }
    Ok(())
}

/// The servers share their storage, so its space is the same for all; files are counted by the plates.
fn of_cluster(mut servers: Servers, json: bool) -> Outcome {
    let round = servers.ask("df")?;
    let mut total =
        round.merged().ok_or_else(|| Failure::absent("no server of the cluster reports its space"))?;
    let used = |report: Option<&Value>| report.map_or(Value::Null, |report| report["inodes_used"].clone());
    if json {
        let lines = round.servers.iter();
        total["servers"] = lines
            .map(|server| json!({ "id": server.info.id, "state": server.state(), "inodes_used": used(server.report()) }))
            .collect();
        println!("{total}");
        return round.complete(&servers.address);
    }
    show(&total, false);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["server", "address", "state", "plates", "inodes used"]);
    for server in &round.servers {
        table.add_row([
            server.info.id.to_string(),
            server.info.addresses.first().cloned().unwrap_or_default(),
            server.state().to_owned(),
            server.plates.len().to_string(),
            server.report().map_or("?".to_owned(), |report| report["inodes_used"].to_string()),
        ]);
    }
    println!("\n{}", table.trim_fmt());
    round.complete(&servers.address)
}

fn show(df: &Value, json: bool) {
    if json {
        println!("{df}");
        return;
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    flatten("", df, &mut |name, value| {
        let shown = match value {
            Value::Number(n) if name.contains("bytes") => size::human(n.as_u64().unwrap_or(0)),
            Value::String(s) => s.clone(),
            other => other.to_string(),
        };
        table.add_row([name.replace('_', " "), shown]);
    });
    println!("{}", table.trim_fmt());
}

/// Calls `f` with the path and value of every leaf.
pub(crate) fn flatten(path: &str, value: &Value, f: &mut dyn FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, f);
            }
        }
        leaf => f(path, leaf),
    }
}
