//! A change of the map on its way to many servers, and its size. The map is one of its own in the same etcd, and nothing else happens.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use chiton_monitor::{Event, MapChange, Monitor, ServerInfo, WEIGHT_ORDINARY};

use super::{Figure, Share, open};
use crate::Result;

const CHANGES: usize = 50;
const REST: Duration = Duration::from_millis(20);
/// A change that needs longer is a failure.
const DEADLINE: Duration = Duration::from_secs(10);
const PLATES: u32 = 64;
const GOAL_MS: f64 = 5.0;
const GOAL_BYTES: f64 = 1023.0;

/// An epoch of the map that a follower has, when, and the bytes that brought it.
struct Arrived {
    epoch: u64,
    at: Instant,
    bytes: usize,
}

pub(crate) fn run(monitor: &str, followers: u16) -> Result<Vec<Figure>> {
    let address = format!("{monitor}/measured-map");
    let changer = open(&address)?;
    changer.init(1, PLATES, 2000).map_err(|e| e.to_string())?;
    let servers: Vec<_> = (1..=u64::from(followers)).map(|id| MapChange::PutServer(server(id))).collect();
    let first = changer.change(1, &[], &servers, "the trial", "servers to measure with");
    let mut epoch = first.map_err(|e| e.to_string())?;
    let (arrive, arrivals) = mpsc::channel();
    let (mut spread, mut spread_from_call, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..followers {
        let (source, arrive) = (open(&address)?, arrive.clone());
        std::thread::Builder::new()
            .name(format!("follower-{number}"))
            .spawn(move || follow(&source, &arrive))
            .map_err(|e| format!("a thread: {e}"))?;
    }
    await_all(&arrivals, followers, epoch)?;
    for number in 0..CHANGES {
        std::thread::sleep(REST);
        let owner = Some(1 + number as u64 % u64::from(followers));
        let change = [MapChange::SetPlate { plate: number as u32 % PLATES, owner, next: None }];
        let called = Instant::now();
        epoch = changer.change(epoch, &[], &change, "the trial", "measured").map_err(|e| e.to_string())?;
        let answered = Instant::now();
        for arrived in await_all(&arrivals, followers, epoch)? {
            // The etcd notifies watches and answers at the same time.
            spread.push(arrived.at.saturating_duration_since(answered));
            spread_from_call.push(arrived.at.saturating_duration_since(called));
            bytes.push(arrived.bytes as f64);
        }
    }
    let what = format!("a change of the map reaches {followers} servers, from the commit's answer");
    Ok(vec![
        Figure::of_times(what, &spread).goal(GOAL_MS, Share::NineOfTen),
        Figure::of_times("the same, from the call (a read and the commit included)", &spread_from_call),
        Figure::new("one change of the map", "bytes", bytes).goal(GOAL_BYTES, Share::All),
    ])
}

fn server(id: u64) -> ServerInfo {
    ServerInfo {
        id,
        addresses: vec![format!("tcp:server-{id}.example.net:7117")],
        domain: format!("rack-{}", id % 4),
        weight: WEIGHT_ORDINARY,
        is_in: true,
        is_standby: false,
        generation: 1,
    }
}

/// Follows the map as a server does, until nobody listens.
fn follow(monitor: &dyn Monitor, arrive: &mpsc::Sender<Arrived>) {
    let mut watch = monitor.watch(0);
    loop {
        let arrived = match watch.next(DEADLINE) {
            Some(Event::Whole(map)) => Arrived { epoch: map.epoch, at: Instant::now(), bytes: 0 },
            Some(Event::Map(increment)) => {
                let at = Instant::now();
                Arrived { epoch: increment.to, at, bytes: increment.to_json().map_or(0, |json| json.len()) }
            }
            Some(Event::Servers) | None => continue,
        };
        if arrive.send(arrived).is_err() {
            return;
        }
    }
}

fn await_all(arrivals: &mpsc::Receiver<Arrived>, followers: u16, epoch: u64) -> Result<Vec<Arrived>> {
    let mut all = Vec::new();
    while all.len() < usize::from(followers) {
        let arrived = arrivals.recv_timeout(DEADLINE).map_err(|_| {
            format!("{} of {followers} followers have epoch {epoch} after {DEADLINE:?}", all.len())
        })?;
        if arrived.epoch == epoch {
            all.push(arrived);
        }
    }
    Ok(all)
}
