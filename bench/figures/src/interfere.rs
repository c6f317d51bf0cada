//! Clients that create in directories of their own, while another one is busy in the same directories.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use chiton_client::{Client, Lookup, OpenFlags};
use chiton_decoupled::Realm;
use chiton_types::{Ino, Mode, Refusal};

use crate::latency::Latencies;
use crate::load::{at_once, look_and_create_one, slowest};
use crate::setting::now;
use crate::site::{Party, Shape, Site, refused, set_policy};
use crate::walk::Walk;
use crate::{Result, Setting};

/// Files that a client creates between two checks of shared state.
const CHUNK: usize = 16;

/// The work of the clients.
pub(crate) struct Workload<'a> {
    pub(crate) clients: usize,
    /// The policy of the directories: strong, or one that decouples.
    pub(crate) policy: &'a str,
    pub(crate) decoupled: bool,
    pub(crate) names: &'a [String],
    pub(crate) interference: Interference,
    /// Whether each create is timed separately, from the start of the other client.
    pub(crate) timed: bool,
}

/// The work of the other client. It begins when a tenth of the files exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interference {
    /// The number of files that it creates in each directory, one in each in turn; 0: there is no other client.
    Files(usize),
    /// The same, as many as it can until all clients are done.
    Creates,
    /// This in one directory after the other, until all clients are done.
    Walks(Walk),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Until each client was done, in seconds.
    pub(crate) each: Vec<f64>,
    /// Single creates of all clients, if they were timed.
    pub(crate) creates: Latencies,
    /// Files that the other one made, looked at or touched, and tries that were refused with EBUSY.
    pub(crate) acts: u64,
    pub(crate) refused: u64,
    /// How long it took for these, in seconds.
    pub(crate) seconds: f64,
}

impl Outcome {
    /// Until the last client was done, in seconds.
    pub(crate) fn slowest(&self) -> f64 {
        slowest(&self.each)
    }
}

struct Victim {
    party: Party,
    dir: Ino,
    realm: Option<Arc<Realm>>,
}

/// Runs it on a new server.
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
    let is_over = || over.load(Ordering::Relaxed);
    let creates = Mutex::new(Latencies::default());
    thread::scope(|scope| {
        let interferer = scope.spawn(|| {
            while made.load(Ordering::Relaxed) < begin_at && !is_over() {
                thread::sleep(Duration::from_micros(200));
            }
            let dirs = victims.iter().map(|victim| victim.dir).collect::<Vec<_>>();
            interfere(&other, &dirs, work.interference, &is_over)
        });
        let done = at_once(&victims, |_, victim| {
            let client = victim.realm.as_ref().map_or(&victim.party.client, |realm| realm.client());
            let mut took = Latencies::with_room(if work.timed { work.names.len() } else { 0 });
            for (at, names) in work.names.chunks(CHUNK).enumerate() {
                for name in names {
                    let create = || look_and_create_one(client, victim.dir, name);
                    if work.timed && at * CHUNK * 10 >= work.names.len() {
                        took.time(create)
                    } else {
                        create()
                    }?;
                }
                made.fetch_add(names.len() as u64, Ordering::Relaxed);
            }
            let mut creates = creates.lock().map_err(|_| "a client panicked")?;
            creates.join(took);
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        let other = interferer.join().map_err(|_| "the interfering client panicked")??;
        let creates = creates.lock().map(|mut creates| std::mem::take(&mut *creates));
        Ok(Outcome { each: done?, creates: creates.map_err(|_| "a client panicked")?, ..other })
    })
}

/// Runs the other client. A refusal is no failure.
fn interfere(
    client: &Client,
    dirs: &[Ino],
    interference: Interference,
    is_over: &dyn Fn() -> bool,
) -> Result<Outcome> {
    let (begun, mut outcome) = (now(), Outcome::default());
    for n in 0.. {
        if interference == Interference::Files(n)
            || (is_over() && !matches!(interference, Interference::Files(_)))
        {
            break;
        }
        for dir in dirs {
            let acts = match interference {
                Interference::Walks(walk) => walk.run(client, *dir, is_over),
                Interference::Files(_) | Interference::Creates => {
                    touch(client, *dir, &format!("file.other.{n}")).map(|()| 1)
                }
            };
            match acts {
                Ok(acts) => outcome.acts += acts,
                Err(Refusal::Busy) => outcome.refused += 1,
                Err(refusal) => return Err(refused(refusal)),
            }
        }
    }
    outcome.seconds = (now() - begun).as_secs_f64();
    Ok(outcome)
}

/// Creates a file as a mount does.
pub(crate) fn touch(client: &Client, dir: Ino, name: &str) -> std::result::Result<(), Refusal> {
    let caller = client.caller();
    if let Lookup::Found { .. } = client.lookup(&caller, dir, name.as_bytes())? {
        return Err(Refusal::Exists);
    }
    let (_, fh) = client.create(&caller, dir, name.as_bytes(), Mode(0o644), OpenFlags::READ_WRITE)?;
    client.release(fh)
}
