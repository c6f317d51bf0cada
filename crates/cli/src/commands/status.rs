//! `chiton status`.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use serde_json::Value;

use super::df::flatten;
use crate::args::Target;
use crate::failure::Outcome;
use crate::{size, target};

pub(crate) fn run(args: &Target) -> Outcome {
    let client = target::client(&args.target)?;
    let status = target::admin(&client, "status")?;
    if args.json {
        println!("{status}");
        return Ok(());
    }
    let mut groups: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    flatten("", &status, &mut |name, value| {
        let (group, leaf) = name.rsplit_once('.').unwrap_or(("", name));
        // Of the many kinds of operations only those that happened say something.
        if group == "operations" && value.as_f64() == Some(0.0) {
            return;
        }
        groups.entry(group.to_string()).or_default().push((leaf.replace('_', " "), shown(leaf, value)));
    });
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for (group, rows) in groups {
        if !group.is_empty() {
            table.add_row([String::new()]);
            table.add_row([group.replace('_', " ").to_uppercase()]);
        }
        table.add_rows(rows.into_iter().map(|(name, value)| [name, value]));
    }
    println!("{}", table.trim_fmt());
    Ok(())
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Number(n) if name.contains("bytes") => size::human(n.as_u64().unwrap_or(0)),
        Value::String(s) => s.clone(),
        Value::Array(items) => {
            items.iter().map(|i| format!("\n{i}")).collect::<String>().trim_start().to_string()
        }
        other => other.to_string(),
    }
}
