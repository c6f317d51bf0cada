//! Creates that are durable when they return, 64 at a time, beside a bare group-commit loop on the same disk.

use std::sync::Arc;
use std::thread;

use chiton_bench::group_commit::{self, GroupCommitOptions};
use chiton_bench::report::Row;
use chiton_client::{Client, ClientOptions};
use chiton_types::{Ino, Mode};

use super::Plan;
use super::subject::{Subject, make_dir, timed};
use crate::failure::{Failure, Outcome};

const EACH: u64 = 2_000;
const WAITERS: u64 = 64;

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let each = EACH / plan.divisor;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let dir = plan.dir.join("group-commit");
        make_dir(&dir)?;
        let bare =
            group_commit::measure(&GroupCommitOptions::standard(dir, each)).map_err(Failure::failed)?;
        theirs.push(bare.records_per_second());
        let subject = Subject::start(plan, &format!("durable-data-{round}"))?;
        let client = Arc::new(
            chiton_embedded::client(&subject.server, ClientOptions::default()).map_err(Failure::failed)?,
        );
        let ((), seconds) = timed(|| creates(&client, each))?;
        ours.push((each * WAITERS) as f64 / seconds);
        drop(client);
        subject.end()?;
    }
    Ok(vec![
        Row::new("durable creates, 64 waiters / bare group commit", "ops/s", &theirs, &ours)
            .with_target(0.6)
            .with_bound("fdatasync, then wake-ups"),
    ])
}

fn creates(client: &Arc<Client>, each: u64) -> Outcome {
    let threads: Vec<_> = (0..WAITERS)
        .map(|t| {
            let client = client.clone();
            thread::spawn(move || {
                for i in 0..each {
                    let name = format!("durable.{t:02}.{i:06}");
                    client.start_create(&client.caller(), Ino::ROOT, name.as_bytes(), Mode(0o644)).wait()?;
                    client.fsyncdir()?;
                }
                Ok::<(), chiton_types::Refusal>(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| Failure::failed("a writer panicked"))?.map_err(Failure::failed)?;
    }
    Ok(())
}
