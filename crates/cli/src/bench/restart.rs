//! From the start of a server with a million files to its first answer.

use chiton_bench::report::Row;
use chiton_client::{Client, ClientOptions};
use chiton_types::Mode;

use super::Plan;
use super::subject::{Subject, name, timed};
use crate::failure::{Failure, Outcome};

const FILES: u64 = 1_000_000;
const PER_DIR: u64 = 10_000;
const LIMIT_SECONDS: f64 = 2.0;

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let subject = Subject::start(plan, "restart-data")?;
    fill(&subject, FILES / plan.divisor)?;
    let data = plan.dir.join("restart-data");
    subject.server.shutdown().map_err(Failure::failed)?;
    drop(subject);
    let mut speeds = Vec::new();
    for _ in 0..plan.rounds {
        let (subject, seconds) = timed(|| {
            let subject = Subject::open(&data)?;
            let client = embedded(&subject)?;
            client.stat(format!("/dir{:04}/file.{:08}", 0, PER_DIR / 2)).map_err(Failure::failed)?;
            Ok(subject)
        })?;
        speeds.push(1.0 / seconds);
        subject.server.shutdown().map_err(Failure::failed)?;
    }
    let limit = vec![1.0 / LIMIT_SECONDS; speeds.len()];
    let name = format!("restart with {} files to the first answer / 2 s", FILES / plan.divisor);
    Ok(vec![
        Row::new(&name, "1/s", &limit, &speeds).with_target(1.0).with_bound("opening the metadata store"),
    ])
}

fn embedded(subject: &Subject) -> Outcome<Client> {
    chiton_embedded::client(&subject.server, ClientOptions::default()).map_err(Failure::failed)
}

fn fill(subject: &Subject, files: u64) -> Outcome {
    let client = embedded(subject)?;
    let caller = client.caller();
    for d in 0..files.div_ceil(PER_DIR) {
        let dir = client.mkdir_all(format!("/dir{d:04}")).map_err(Failure::failed)?.ino;
        let names: Vec<Vec<u8>> = (0..PER_DIR).map(name).collect();
        for made in client.create_in(&caller, dir, &names, Mode(0o644)) {
            made.map_err(Failure::failed)?;
        }
    }
    client.sync().map_err(Failure::failed)
}
