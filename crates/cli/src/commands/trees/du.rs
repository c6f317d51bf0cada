//! `chiton du`.

use chiton_trees::{Subject, Task, Totals};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

use super::report::{AGAIN, Report};
use super::work::{another_answer, repeat};
use super::{Here, Paths, carry_out, place};
use crate::failure::Outcome;
use crate::size;

#[derive(Debug, Args)]
#[command(
    after_help = "A file with several names counts once. \"stored\" is the space of content in the object store; blocks that several files share (cp --reflink, chiton cp) count for each. The server does the work as a job (chiton jobs), which Ctrl-C cancels; --here does it in this process.\n\nExamples:\n  chiton du /mnt/chiton/home\n  chiton du --depth 1 /mnt/chiton/home\n  chiton du --server tcp:server:7117 / --json"
)]
pub(crate) struct Du {
    #[command(flatten)]
    pub(crate) paths: Paths,
    /// A line for each directory down to this depth, too.
    #[arg(long, short, default_value_t = 0)]
    pub(crate) depth: usize,
    /// Print sizes in bytes.
    #[arg(long, short)]
    pub(crate) bytes: bool,
    #[command(flatten)]
    pub(crate) here: Here,
}

pub(crate) fn du(args: &Du) -> Outcome {
    let Paths { paths, at } = &args.paths;
    let (client, said) = place::open(at, paths, "du")?;
    let mut report = Report::begin("counted", at.json)?;
    let mut subjects = Vec::new();
    for said in &said {
        match said.place(&client) {
            Ok(place) => subjects.push(Subject::from(&place)),
            Err(failure) => report.failed(failure),
        }
    }
    let task = Task::Usage { subjects, depth: args.depth };
    let Totals::Usage(lines) = carry_out(&client, &task, !args.here.here, &mut report, &repeat)? else {
        return Err(another_answer());
    };
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let done = "the totals are incomplete";
    if at.json {
        let lines = lines.iter().map(|line| {
            json!({
                "path": text(&line.path),
                "depth": line.depth,
                "bytes": line.bytes,
                "stored_bytes": line.allocated,
                "files": line.files,
                "directories": line.dirs,
            })
        });
        return report.end(json!({ "usage": lines.collect::<Vec<_>>() }), done, AGAIN);
    }
    let shown = |bytes| if args.bytes { u64::to_string(&bytes) } else { size::human(bytes) };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["size", "stored", "files", "directories", "path"]);
    for line in &lines {
        let numbers =
            [shown(line.bytes), shown(line.allocated), line.files.to_string(), line.dirs.to_string()];
        table.add_row(numbers.into_iter().chain([text(&line.path)]));
    }
    for column in table.column_iter_mut().take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{}", table.trim_fmt());
    report.result(done, AGAIN)
}
