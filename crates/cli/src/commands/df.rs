//! `chiton df`.

use comfy_table::{Table, presets};
use serde_json::Value;

use crate::args::Target;
use crate::failure::Outcome;
use crate::{size, target};

pub(crate) fn run(args: &Target) -> Outcome {
    let client = target::client(&args.target)?;
    let df = target::admin(&client, "df")?;
    if args.json {
        println!("{df}");
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    flatten("", &df, &mut |name, value| {
        let shown = match value {
            Value::Number(n) if name.contains("bytes") => size::human(n.as_u64().unwrap_or(0)),
            Value::String(s) => s.clone(),
            other => other.to_string(),
        };
        table.add_row([name.replace('_', " "), shown]);
    });
    println!("{}", table.trim_fmt());
    Ok(())
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
