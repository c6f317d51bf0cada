//! `chiton status`.

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
    let mut section = String::new();
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    flatten("", &status, &mut |name, value| {
        let (group, leaf) = name.rsplit_once('.').unwrap_or(("", name));
        if group != section {
            section = group.to_string();
            table.add_row([group.to_uppercase(), String::new()]);
        }
        table.add_row([format!("  {}", leaf.replace('_', " ")), shown(leaf, value)]);
    });
    println!("{table}");
    Ok(())
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Number(n) if name.contains("bytes") => size::human(n.as_u64().unwrap_or(0)),
        Value::String(s) => s.clone(),
        Value::Array(items) => items.iter().map(|i| format!("\n{i}")).collect::<String>().trim_start().to_string(),
        other => other.to_string(),
    }
}
