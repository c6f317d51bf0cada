//! `chiton auth`: the certificates with which servers, clients and tools know each other.
//!
//! An authority is a directory of the administrator. No server needs it; only the list of revoked certificates is in the monitor.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use chiton_auth::{Authority, Certified, Grant, Validity};
use chiton_etcd::{EtcdAddress, EtcdMonitor};
use chiton_model::text::utc;
use chiton_monitor::{ChangeError, MapChange, Monitor};
use chiton_runtime::{RealWorld, World};
use chiton_types::Time;
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use serde_json::json;

use super::cluster;
use crate::failure::{Failure, Outcome};

#[derive(Debug, Args)]
#[command(
    after_help = "An authority signs the certificates of one cluster. Keep its directory on the administrator's machine, and a copy of it.\nAn identity is a file with a certificate and its private key: give it only to the process that it names.\n\nExamples:\n  chiton auth init --dir /root/authority\n  chiton auth create node1 --server --dir /root/authority --out node1.pem       for chiton serve --identity node1.pem\n  chiton auth create alice --allow rw:/ --dir /root/authority --out alice.pem   for chiton mount --identity alice.pem\n  chiton auth create backup --allow r:/ --dir /root/authority --out backup.pem  may only read\n  chiton auth create build --allow rw:/ci --dir /root/authority --out build.pem  its root is /ci\n  chiton auth create root --admin --dir /root/authority --out root.pem          for chiton status and chiton top\n  chiton auth list --dir /root/authority\n  chiton auth revoke alice --dir /root/authority --monitor etcd://h1,h2,h3"
)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make an authority, which signs certificates.
    Init(At),
    /// Make an identity: a certificate and its private key in one file.
    Create(Create),
    /// Show the certificates that the authority has signed.
    List(List),
    /// Refuse a certificate from now on, and close its connections.
    Revoke(Revoke),
}

#[derive(Debug, Args)]
struct At {
    /// The directory of the authority.
    #[arg(long, env = "CHITON_AUTHORITY", value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("role").required(true))]
struct Create {
    /// The name of its owner: a host, a user or a service.
    name: String,
    #[command(flatten)]
    at: At,
    /// A client, and its right: rw:PATH may read and change that directory and all below it, r:PATH may only read it. / is the whole
    /// file system. A client of another directory has that one as its root, and sees nothing above or beside it.
    #[arg(long, group = "role", value_name = "rw:PATH|r:PATH")]
    allow: Option<String>,
    /// A server of the cluster.
    #[arg(long, group = "role")]
    server: bool,
    /// An administrator: a client that may also ask servers for reports (status, top).
    #[arg(long, group = "role")]
    admin: bool,
    /// The file to write (default: NAME.pem in the current directory). It must not exist.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// How long the certificate is valid, in days.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    at: At,
    /// The etcd of the cluster: shows which certificates are revoked.
    #[arg(long, env = "CHITON_MONITOR", value_name = "etcd://HOST:PORT,…")]
    monitor: Option<EtcdAddress>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Revoke {
    /// The name of a certificate (all that have it), or its number.
    certificate: String,
    #[command(flatten)]
    at: At,
    /// The etcd of the cluster.
    #[arg(long, env = "CHITON_MONITOR", value_name = "etcd://HOST:PORT,…")]
    monitor: EtcdAddress,
}

pub(crate) fn run(args: &AuthArgs) -> Outcome {
    match &args.command {
        Command::Init(at) => init(at),
        Command::Create(args) => create(args),
        Command::List(args) => list(args),
        Command::Revoke(args) => revoke(args),
    }
}

fn now() -> i64 {
    RealWorld.now().0.div_euclid(1_000_000_000)
}

fn random() -> u128 {
    (u128::from(RealWorld.random()) << 64) | u128::from(RealWorld.random())
}

fn init(at: &At) -> Outcome {
    Authority::init(&at.dir, now(), random()).map_err(Failure::failed)?;
    println!(
        "made an authority in {}: keep ca.key there secret, and keep a copy of the directory",
        at.dir.display()
    );
    Ok(())
}

fn create(args: &Create) -> Outcome {
    let grant = match (&args.allow, args.server) {
        (Some(allow), _) => allow.parse::<Grant>().map_err(Failure::failed)?,
        (None, true) => Grant::Server,
        (None, false) => Grant::Admin,
    };
    chiton_auth::check_name(&args.name).map_err(Failure::failed)?;
    let authority = Authority::open(&args.at.dir).map_err(Failure::failed)?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.pem", args.name)));
    // Before anything is signed: a certificate without a file would stand in the list for ever.
    let mut file = new_file(&out)?;
    let validity = Validity { now: now(), days: args.days };
    let written =
        authority.issue(&args.name, &grant, validity, random()).map_err(Failure::failed).and_then(|issued| {
            file.write_all(issued.identity.as_bytes())
                .and_then(|()| file.sync_all())
                .map_err(|e| Failure::failed(format!("cannot write {}: {e}", out.display())))?;
            Ok(issued)
        });
    let issued = written.inspect_err(|_| drop(fs::remove_file(&out)))?;
    println!(
        "{} ({}) for {}, valid until {}: {}",
        args.name,
        issued.certified.serial,
        grant,
        day(issued.certified.expires),
        out.display()
    );
    Ok(())
}

/// A file for a private key.
fn new_file(path: &Path) -> Outcome<fs::File> {
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|e| {
        Failure::failed(format!("cannot write {}: {e}; choose another file with --out", path.display()))
    })
}

fn day(seconds: i64) -> String {
    utc(Time(seconds.saturating_mul(1_000_000_000))).chars().take(10).collect()
}

fn revoked(monitor: &EtcdAddress) -> Outcome<BTreeMap<String, String>> {
    let monitor = EtcdMonitor::open(monitor).map_err(|e| cluster::failed(&e))?;
    Ok(monitor.map().map_err(|e| cluster::failed(&e))?.revoked)
}

fn list(args: &List) -> Outcome {
    let all =
        Authority::open(&args.at.dir).and_then(|authority| authority.list()).map_err(Failure::failed)?;
    let revoked = args.monitor.as_ref().map(revoked).transpose()?.unwrap_or_default();
    let now = now();
    let state = |one: &Certified| match (revoked.contains_key(one.serial.as_str()), one.expires < now) {
        (true, _) => "revoked",
        (false, true) => "expired",
        (false, false) => "valid",
    };
    if args.json {
        for one in &all {
            let shown = json!({
                "name": one.name, "allows": one.grant.to_string(), "serial": one.serial.as_str(),
                "expires": one.expires, "state": state(one),
            });
            println!("{shown}");
        }
        return Ok(());
    }
    let mut shown = Table::new();
    shown.load_preset(presets::NOTHING).set_header(["name", "allows", "until", "state", "number"]);
    for one in &all {
        let allows = one.grant.to_string();
        let until = day(one.expires);
        shown.add_row([one.name.as_str(), &allows, &until, state(one), one.serial.as_str()]);
    }
    println!("{}", shown.trim_fmt());
    Ok(())
}

fn revoke(args: &Revoke) -> Outcome {
    let authority = Authority::open(&args.at.dir).map_err(Failure::failed)?;
    let found = authority.find(&args.certificate).map_err(Failure::failed)?;
    let monitor = EtcdMonitor::open(&args.monitor).map_err(|e| cluster::failed(&e))?;
    loop {
        let map = monitor.map().map_err(|e| cluster::failed(&e))?;
        let is_new = |one: &&Certified| !map.revoked.contains_key(one.serial.as_str());
        let changes: Vec<MapChange> = found
            .iter()
            .filter(is_new)
            .map(|one| MapChange::Revoke { serial: one.serial.to_string(), name: one.name.clone() })
            .collect();
        if changes.is_empty() {
            println!("{} is revoked already", args.certificate);
            return Ok(());
        }
        match monitor.change(map.epoch, &[], &changes, &cluster::who(), "auth revoke") {
            Ok(epoch) => {
                println!("revoked {} of {} (map of epoch {epoch})", changes.len(), args.certificate);
                return Ok(());
            }
            // Another change came first.
            Err(ChangeError::Outdated(_)) => {}
            Err(error) => return Err(cluster::not_changed(&error)),
        }
    }
}
