//! The library over TCP with TLS, beside the same over TCP without.

use std::sync::Arc;

use chiton_auth::{Access, Authority, Credentials, Grant, Validity};
use chiton_bench::report::Row;
use chiton_client::{Client, ClientOptions};
use chiton_runtime::{RealWorld, World};
use chiton_server::Trust;

use super::Plan;
use super::socket::{pipelined, singly};
use super::subject::{Subject, timed};
use crate::failure::{Failure, Outcome};

const ONE_BY_ONE: u64 = 50_000;
const IN_FLIGHT: u64 = 500_000;
const CONNECTS: u64 = 500;
const FILE_BYTES: u64 = 512 << 20;

/// Rates of one subject.
struct Rates {
    single: f64,
    pipelined: f64,
    connects: f64,
    written: f64,
    read: f64,
}

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let now = RealWorld.now().0.div_euclid(1_000_000_000);
    let authority = Authority::init(&plan.dir.join("tls-authority"), now, 1).map_err(Failure::failed)?;
    let credentials = |name: &str, grant: Grant, serial| -> Outcome<Credentials> {
        let issued = authority.issue(name, &grant, Validity { now, days: 1 }, serial);
        issued.and_then(|issued| Credentials::from_pem(&issued.identity)).map_err(Failure::failed)
    };
    let server = credentials("server", Grant::Server, 1 << 8)?;
    let client = credentials("client", Grant::Client(Access::ReadWrite), 2 << 8)?;
    let (mut plain, mut secured) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        plain.push(rates(plan, &format!("plain-data-{round}"), None)?);
        secured.push(rates(plan, &format!("tls-data-{round}"), Some((&server, &client)))?);
    }
    let row = |name: &str, unit: &'static str, of: fn(&Rates) -> f64| {
        let all = |rates: &[Rates]| rates.iter().map(of).collect::<Vec<f64>>();
        Row::new(name, unit, &all(&plain), &all(&secured))
    };
    Ok(vec![
        row("creates over TLS, one at a time / plain TCP", "ops/s", |rates| rates.single),
        row("creates over TLS, 64 in flight / plain TCP", "ops/s", |rates| rates.pipelined),
        row("connections with TLS / plain TCP", "/s", |rates| rates.connects),
        row("a large file written over TLS / plain TCP", "MiB/s", |rates| rates.written),
        row("a large file read over TLS / plain TCP", "MiB/s", |rates| rates.read),
    ])
}

fn rates(plan: &Plan, name: &str, tls: Option<(&Credentials, &Credentials)>) -> Outcome<Rates> {
    let trust = tls.map(|(server, _)| Arc::new(Trust::new(server.clone())));
    let subject = Subject::start_trusting(plan, name, trust)?;
    let address = subject.listen_on_tcp()?;
    let credentials = tls.map(|(_, client)| client.clone());
    let options = ClientOptions { write_behind_after: None, credentials, ..ClientOptions::default() };
    let connect = || Client::connect(&address, options.clone()).map_err(Failure::failed);
    let client = connect()?;
    let single = singly(&client, ONE_BY_ONE / plan.divisor)?;
    let pipelined = pipelined(&client, IN_FLIGHT / plan.divisor)?;
    let count = CONNECTS / plan.divisor;
    let ((), seconds) = timed(|| {
        for _ in 0..count {
            chiton_transport::probe(
                &address,
                options.credentials.as_ref(),
                chiton_transport::CONNECT_TIMEOUT,
            )
            .map_err(Failure::failed)?;
        }
        Ok(())
    })?;
    let connects = count as f64 / seconds;
    let content = vec![7; (FILE_BYTES / plan.divisor) as usize];
    let mebibytes = content.len() as f64 / f64::from(1 << 20);
    let failed = |r| Failure::failed(format!("a large file: {r}"));
    let ((), seconds) = timed(|| {
        client.write_file("/large", &content).map_err(failed)?;
        client.sync().map_err(failed)
    })?;
    let written = mebibytes / seconds;
    let other = connect()?;
    let (read, seconds) = timed(|| other.read_file("/large").map_err(failed))?;
    if read != content {
        return Err(Failure::failed("a large file is not read as it was written"));
    }
    drop((client, other));
    subject.end()?;
    Ok(Rates { single, pipelined, connects, written, read: mebibytes / seconds })
}
