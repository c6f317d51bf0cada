//! `chiton fsck`.

mod served;

use std::process::ExitCode;
use std::sync::Arc;

use chiton_admin::fsck::{CheckError, Finding, Offline, Options, Progress, Summary, check_online};
use chiton_client::Client;
use chiton_runtime::{RealWorld, World};
use chiton_server::{DataAddress, StartError};
use chiton_types::counted;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::args::Fsck;
use crate::at_rest;

/// Exit codes, after those of e2fsck.
const CLEAN: u8 = 0;
const REPAIRED: u8 = 1;
const LEFT: u8 = 4;
const FAILED: u8 = 8;
/// How often a check begins, while plates move and nothing is found.
const CHECKS_MAX: usize = 3;

pub(crate) fn run(args: &Fsck) -> ExitCode {
    match fsck(args) {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            chiton_runtime::log_line!("chiton: {message}");
            ExitCode::from(FAILED)
        }
    }
}

fn fsck(args: &Fsck) -> Result<u8, String> {
    if args.repair && !args.yes {
        return Err(
            "--repair changes the metadata store: run it without --repair first to see its effects, then add \
                    --repair --yes"
                .to_owned(),
        );
    }
    if args.yes && !args.repair && !args.rebuild {
        return Err("--yes goes with --repair or --rebuild".to_owned());
    }
    if args.rebuild && !args.yes {
        return Err(
            "--rebuild changes the files of the metadata store (the originals stay in meta/rows.before-rebuild): copy the \
             data directory if you can, then say --rebuild --yes"
                .to_owned(),
        );
    }
    let bar = bar();
    let options =
        Options { content: args.content, rate: args.rate, memory_bytes: memory(args), ..Options::default() };
    if let Some(client) = served::client(args).map_err(|failure| failure.message)? {
        return online(args, &Arc::new(client), &options, &bar);
    }
    let data: DataAddress = args.target.parse()?;
    let at_rest = at_rest::of(&data, args.monitor.as_ref()).map_err(|failure| failure.message)?;
    if args.rebuild {
        let done = chiton_admin::fsck::rebuild(&data, &RealWorld).map_err(|error| error.to_string())?;
        for line in &done {
            chiton_runtime::log_line!("chiton: rebuild: {line}");
        }
        if done.is_empty() {
            chiton_runtime::log_line!("chiton: rebuild: the metadata store opens, nothing was changed");
        }
    }
    let mut replaying = |done, total| show(&bar, Progress { pass: "journal", done, total });
    let mut offline = match Offline::open_at_rest(
        &data,
        at_rest.as_ref(),
        Arc::new(RealWorld),
        &mut replaying,
    ) {
        Ok(offline) => offline,
        Err(error @ StartError::Held { .. }) if at_rest.is_none() => {
            return Err(format!(
                "{error}; to check it beside its server, name its mount point or address; or end the server first"
            ));
        }
        Err(error) => return Err(error.to_string()),
    };
    let (mut repaired, left, summary);
    repaired = 0;
    if args.repair {
        if let Some(cause) = offline.journal_damage() {
            bar.suspend(|| {
                chiton_runtime::log_line!("chiton: nothing is repaired while the journal is damaged: {cause}")
            });
        }
        let mut report = |finding: &Finding, done: bool| {
            repaired += u64::from(done);
            bar.suspend(|| print(args, finding, done));
        };
        let done = offline.repair(&options, RealWorld.now(), &mut report, &mut |p| show(&bar, p));
        let done = done.map_err(|e| e.to_string())?;
        (left, summary) = (done.left, done.summary);
    } else {
        let mut report = |finding: Finding| bar.suspend(|| print(args, &finding, false));
        summary = offline.check(&options, &mut report, &mut |p| show(&bar, p)).map_err(|e| e.to_string())?;
        left = summary.findings;
    }
    bar.finish_and_clear();
    conclude(args, repaired, left, &summary);
    Ok(match (left, repaired) {
        (0, 0) => CLEAN,
        (0, _) => REPAIRED,
        _ => LEFT,
    })
}

/// Beside its server: looks, and changes nothing.
fn online(args: &Fsck, client: &Arc<Client>, options: &Options, bar: &ProgressBar) -> Result<u8, String> {
    if args.repair || args.rebuild {
        return Err(format!(
            "{} has a running server: only a file system without a server can be repaired. Unmount it or end its server, then run \
             chiton fsck --repair --yes on its data directory",
            args.target
        ));
    }
    let mut checks = 1;
    let result = loop {
        let mut findings = 0u64;
        let mut report = |finding: Finding| {
            findings += 1;
            bar.suspend(|| print(args, &finding, false));
        };
        match check_online(client, options, &mut report, &mut |p| show(bar, p)) {
            // A finding that is printed cannot be taken back.
            Err(CheckError::Lost(lost)) if lost.has_moved && findings == 0 && checks < CHECKS_MAX => {
                checks += 1;
                bar.suspend(|| chiton_runtime::log_line!("chiton: {lost}: checking again"));
            }
            result => break result,
        }
    };
    let summary = result.map_err(|e| e.to_string())?;
    bar.finish_and_clear();
    conclude(args, 0, summary.findings, &summary);
    Ok(if summary.findings == 0 { CLEAN } else { LEFT })
}

fn memory(args: &Fsck) -> usize {
    usize::try_from(args.memory).unwrap_or(usize::MAX).max(1 << 20)
}

fn print(args: &Fsck, finding: &Finding, repaired: bool) {
    if args.json {
        let mut line = finding.to_json();
        line["repaired"] = json!(repaired);
        println!("{line}");
    } else if repaired {
        println!("repaired {finding}");
    } else {
        println!("{finding}");
    }
}

fn conclude(args: &Fsck, repaired: u64, left: u64, summary: &Summary) {
    if args.json {
        println!("{}", json!({ "summary": summary, "repaired": repaired, "left": left }));
        return;
    }
    let Summary { inodes, directories, entries, blocks, .. } = summary;
    let all = [(inodes, "inode"), (directories, "directory"), (entries, "entry"), (blocks, "block")];
    let [inodes, directories, entries, blocks] = all.map(|(number, one)| counted(*number, one));
    println!("{inodes} ({directories}), {entries}, {blocks}");
    let of = |count: u64, one: &'static str, many: &'static str| (count, if count == 1 { one } else { many });
    for (count, rest) in [
        of(
            summary.removed_but_open,
            "inode was removed, and is open or not freed yet; the server frees it",
            "inodes were removed, and are open or not freed yet; the server frees them",
        ),
        of(
            summary.blocks_of_sessions,
            "block without a name belongs to a session that is not over",
            "blocks without a name belong to sessions that are not over",
        ),
        of(
            summary.blocks_to_sweep,
            "block of an ended session is deleted at the server's next start",
            "blocks of ended sessions are deleted at the server's next start",
        ),
        of(
            summary.doubtful,
            "possible problem, which may result from unreadable rows",
            "possible problems, which may result from unreadable rows",
        ),
    ] {
        if count > 0 {
            println!("{count} {rest}");
        }
    }
    match (left, repaired) {
        (0, 0) => println!("clean"),
        (0, _) => println!("{repaired} repaired, clean"),
        (_, 0) if !args.repair && summary.repairable > 0 => println!(
            "{left} found; chiton fsck --repair --yes {} repairs {} of them",
            args.target, summary.repairable
        ),
        _ => println!("{repaired} repaired, {left} left"),
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(
        ProgressStyle::with_template("{msg:10} {bar:30} {human_pos}/{human_len}").expect("a valid template"),
    );
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_message(progress.pass);
    bar.set_length(progress.total);
    bar.set_position(progress.done);
}
