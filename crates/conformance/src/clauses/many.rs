//! D50 to D54: many operations or questions at once, repeats, and other clients.

use std::time::Duration;

use chiton_model::{Make, Op};
use chiton_runtime::thread;
use chiton_types::{Ino, Name, Refusal};
use chiton_wire::{Again, Answer, Call, Failure, Query, Recall, Stat, StatTarget};

use crate::case::{Case, alice, empty, make, name, unlink};
use crate::client::Client;
use crate::finding::{Finding, Outcome, failed, holds, same};
use crate::server::Server;

/// Names that one inode has, the directory or one of its parts: it, and so many names.
fn neighbours(case: &Case<'_>, dir: Ino, count: usize) -> (Ino, Vec<String>) {
    let at = case.client.place(dir, &name("first"));
    let candidates = std::iter::once("first".to_owned()).chain((0..).map(|n| format!("name{n}")));
    let fits = |text: &String| case.client.place(dir, &name(text)) == at;
    (at, candidates.filter(fits).take(count).collect())
}

/// The results of a batch, in short.
fn in_short<T>(results: &[Result<T, Failure>]) -> Vec<Result<(), Failure>> {
    results.iter().map(|result| result.as_ref().map(drop).map_err(Clone::clone)).collect()
}

fn send_batch(
    case: &Case<'_>,
    at: Ino,
    ops: Vec<Op>,
    stop_on_failure: bool,
) -> Outcome<Vec<Result<(), Failure>>> {
    let (seq, _) = case.client.server.numbers(at, ops.len() as u64)?;
    let call = Call::Batch { stop_on_failure, ops };
    match case.client.server.ask_numbered(at, (seq, None), &alice(), call)? {
        Ok(Answer::Batch(results)) => Ok(in_short(&results)),
        other => Err(failed("send a batch", "Batch", format!("{other:?}"))),
    }
}

/// Two names are made; between them one again, and in the end the first goes. So each sees the one before.
fn operations(at: Ino, names: &[String]) -> Vec<Op> {
    vec![
        make(at, &names[0], empty(), 0o644),
        make(at, &names[0], empty(), 0o644),
        make(at, &names[1], empty(), 0o644),
        unlink(at, &names[0]),
    ]
}

pub(super) fn batch(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (at, names) = neighbours(case, dir, 2);
    let results = send_batch(case, at, operations(at, &names), false)?;
    let exists = Err(Failure::Refused(Refusal::Exists));
    same("results of a batch", vec![Ok(()), exists, Ok(()), Ok(())], results)?;
    case.is_absent(dir, &names[0])?;
    case.found(dir, &names[1]).map(drop)
}

pub(super) fn stops(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (at, names) = neighbours(case, dir, 2);
    let results = send_batch(case, at, operations(at, &names), true)?;
    let exists = Err(Failure::Refused(Refusal::Exists));
    same("results of a batch that stops", vec![Ok(()), exists], results)?;
    case.found(dir, &names[0])?;
    case.is_absent(dir, &names[1])
}

pub(super) fn lookups(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (at, names) = neighbours(case, dir, 3);
    let (file, sub) = (case.file(dir, &names[0])?, case.subdir(dir, &names[1])?);
    let targets = || -> Vec<StatTarget> {
        let named = |text: &String| StatTarget::Name { parent: at, name: name(text) };
        vec![named(&names[1]), named(&names[2]), StatTarget::Inode(file.ino), named(&names[0])]
    };
    let ask = |stop_on_failure| {
        let query = Query::StatEach { stop_on_failure, leases: false, targets: targets() };
        match case.client.server.ask(at, &alice(), Call::Query(query))? {
            Ok(Answer::Stats(stats)) => Ok(stats),
            other => Err(failed("ask for many attributes", "Stats", format!("{other:?}"))),
        }
    };
    let of = |stat: &Result<Stat, Failure>| match stat {
        Ok(Stat::Attr { attr, .. }) => format!("inode {}", attr.ino),
        Ok(Stat::Elsewhere(ino)) => format!("inode {ino}"),
        Ok(Stat::Absent) => "absent".to_owned(),
        Err(failure) => format!("{failure:?}"),
    };
    let all: Vec<String> = ask(false)?.iter().map(of).collect();
    let file_text = format!("inode {}", file.ino);
    let expected = vec![format!("inode {}", sub.ino), "absent".to_owned(), file_text.clone(), file_text];
    same("attributes of many, in the order asked", expected.clone(), all)?;
    let stopped: Vec<String> = ask(true)?.iter().map(of).collect();
    same("attributes of many until one is absent", expected[..2].to_vec(), stopped)
}

pub(super) fn sent_again(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (at, names) = neighbours(case, dir, 1);
    let send = |numbered: (u64, Option<Again>), op: Op| {
        let step = op.describe();
        match case.client.server.ask_numbered(at, numbered, &alice(), Call::Op { op, open: false })? {
            Ok(Answer::Op { position, outcome, .. }) => Ok((position, outcome)),
            other => Err(failed(step, "Op", format!("{other:?}"))),
        }
    };
    for op in [make(at, &names[0], empty(), 0o644), unlink(at, &names[0])] {
        let (seq, boot) = case.client.server.numbers(at, 1)?;
        let (position, outcome) = send((seq, None), op.clone())?;
        let before = case.attr(dir)?;
        let ino = outcome.attr.as_ref().map(|attr| attr.ino).unwrap_or_default();
        let again = Again { boot, position, ino, time: outcome.time };
        let (repeated, repeat) = send((seq, Some(again)), op.clone())?;
        same(&format!("position when sent again: {}", op.describe()), position, repeated)?;
        let ino_of = |outcome: &chiton_model::Outcome| {
            (outcome.attr.as_ref().map(|attr| attr.ino), outcome.gone.map(|gone| gone.ino))
        };
        same("inodes when sent again", ino_of(&outcome), ino_of(&repeat))?;
        let after = case.attr(dir)?;
        same("the directory when sent again", (before.size, before.mtime), (after.size, after.mtime))?;
    }
    Ok(())
}

/// How often the suite asks for a lease before it takes it that the server grants none.
const LEASES_ASKED: usize = 30;
const BETWEEN_ASKED: Duration = Duration::from_millis(50);

pub(super) fn recalls(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let server = Server::connect(case.target)
        .map_err(|e| failed("begin a second session", "a welcome", e.to_string()))?;
    let other = Client::new(server);
    let absent: Name = name("absent");
    for _ in 0..LEASES_ASKED {
        other.lookup(&alice(), dir, &absent)?.ok();
        let parent = other.place(dir, &absent);
        let query = Query::Lookup { parent, name: absent.clone() };
        match other.server.ask(parent, &alice(), Call::Query(query))? {
            Ok(Answer::Absent { parent_leased: true, .. }) => {
                let before = other.server.recalled().len();
                case.done(&alice(), &make(dir, "absent", Make::Dir, 0o755))?;
                let recalled = other.server.recalled().split_off(before);
                let covers = [dir, parent, Recall::EVERYTHING];
                let is_recalled = recalled.iter().any(|ino| covers.contains(ino));
                let expected = "a recall at the session with the lease, before the change is answered";
                return holds("make a name under another session's lease", is_recalled, expected, recalled);
            }
            _ => thread::sleep(BETWEEN_ASKED),
        }
    }
    Err(Finding::NotApplicable("the server granted no lease on the names".to_owned()))
}
