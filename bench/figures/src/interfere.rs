//! Clients that create in directories of their own, while another one creates in the same directories.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use chiton_client::{Client, Lookup, OpenFlags};
use chiton_realm::Realm;
use chiton_types::{Ino, Mode, Refusal};

use crate::load::{at_once, look_and_create_one, slowest};
use crate::setting::now;
use crate::site::{Party, Shape, Site, refused, set_policy};
use crate::{Result, Setting};

/// What the clients do.
pub(crate) struct Workload<'a> {
    pub(crate) clients: usize,
    /// What holds in the directories: a strong policy, or one that decouples.
    pub(crate) policy: &'a str,
    pub(crate) decoupled: bool,
    pub(crate) names: &'a [String],
    /// So many files the other client tries to make in each directory; 0: there is none.
    pub(crate) interfering: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Until the slowest client was done, in seconds.
    pub(crate) slowest: f64,
    /// Files that the other one made, and tries that were refused with EBUSY.
    pub(crate) made: u64,
    pub(crate) refused: u64,
    /// How long it took for these, in seconds.
    pub(crate) seconds: f64,
}

/// A client at work.
struct Victim {
    party: Party,
    dir: Ino,
    realm: Option<Arc<Realm>>,
}

/// Runs it on a server of its own.
pub(crate) fn run(setting: &Setting, work: &Workload<'_>) -> Result<Outcome> {
    let site = Site::start(setting, Shape::default())?;
    let victim = |n: usize| -> Result<Victim> {
        let party = site.party(&format!("state{n}"))?;
        let path = format!("/client{n}");
        let dir = party.mkdir(&path)?;
        set_policy(&party.client, dir, work.policy)?;
        let realm = if work.decoupled { Some(party.take(&path, work.policy)?) } else { None };
        Ok(Victim { party, dir, realm })
    };
    let victims = (0..work.clients).map(victim).collect::<Result<Vec<_>>>()?;
    let other = site.client()?;
    let (made, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begin_at = (work.clients * work.names.len() / 10) as u64;
    thread::scope(|scope| {
        let interferer = scope.spawn(|| {
            while made.load(Ordering::Relaxed) < begin_at && !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_micros(200));
            }
            let dirs = victims.iter().map(|victim| victim.dir).collect::<Vec<_>>();
            interfere(&other, &dirs, work.interfering)
        });
        let done = at_once(&victims, |_, victim| {
            let client = victim.realm.as_ref().map_or(&victim.party.client, |realm| realm.client());
            for names in work.names.chunks(16) {
                names.iter().try_for_each(|name| look_and_create_one(client, victim.dir, name))?;
                made.fetch_add(names.len() as u64, Ordering::Relaxed);
            }
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        let other = interferer.join().map_err(|_| "the interfering client panicked")??;
        Ok(Outcome { slowest: slowest(&done?), ..other })
    })
}

/// Creates so many files in each directory, one in each in turn. Being refused is no failure.
fn interfere(client: &Client, dirs: &[Ino], files: usize) -> Result<Outcome> {
    let (begun, mut outcome) = (now(), Outcome::default());
    for n in 0..files {
        for dir in dirs {
            match touch(client, *dir, &format!("file.other.{n}")) {
                Ok(()) => outcome.made += 1,
                Err(Refusal::Busy) => outcome.refused += 1,
                Err(refusal) => return Err(refused(refusal)),
            }
        }
    }
    outcome.seconds = (now() - begun).as_secs_f64();
    Ok(outcome)
}

/// As a mount creates.
pub(crate) fn touch(client: &Client, dir: Ino, name: &str) -> std::result::Result<(), Refusal> {
    let caller = client.caller();
    if let Lookup::Found { .. } = client.lookup(&caller, dir, name.as_bytes())? {
        return Err(Refusal::Exists);
    }
    let (_, fh) = client.create(&caller, dir, name.as_bytes(), Mode(0o644), OpenFlags::READ_WRITE)?;
    client.release(fh)
}
