//! Messages between plates: of this process, and of other servers.
//!
//! ```text
//!   plate 1 ── under its engine's lock ──▶ [ messages for plate 2 ] ── under the lock of plate 2's engine ──▶ plate 2
//!                                      ──▶ link to a server ═══ peer channel ═══▶ the same there
//! ```
//!
//! Invariants:
//! - A message is queued before the sender releases the lock of its engine, and taken out while the receiver holds the lock of its
//!   own: so messages of two plates arrive in the order in which they were sent.
//! - No thread holds the locks of two engines. The lock of the queues is taken after an engine's, that of a link last, and nobody
//!   waits while holding them.
//! - A plate that leaves loses the messages to it and from it that have not arrived. Its later messages are dropped.
//! - The queues are bounded by the engines: each waits for the answers to its messages.
//! - While messages are held, they arrive and wait.
//! - A message of another server counts only on its last connection, and only from a plate that is looked for there.

mod link;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chiton_auth::Credentials;
use chiton_engine::Command;
use chiton_runtime::sync::Mutex;
use chiton_transport::{Address, ConnId};
use chiton_types::{PlateId, Plates};
use chiton_wire::{PeerFrame, PeerMessage};

use crate::commits::Commits;
use crate::plate::Plate;
use crate::plate_table::PlateTable;
use link::Link;

/// Another server, and the plates that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerServer {
    /// Its number in the cluster.
    pub number: u64,
    pub addresses: Vec<Address>,
    pub plates: Vec<PlateId>,
}

/// How a server identifies itself to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Its number in the cluster.
    pub number: u64,
    /// The file system that it serves: at a former address of a server there may be one of another cluster now.
    pub filesystem: u64,
    /// Name of this server in the logs of others.
    pub name: String,
}

/// The ways between plates.
pub(crate) struct Peers {
    plates: Plates,
    ways: Mutex<Ways>,
}

struct Ways {
    /// By plate: those that run here.
    queues: Vec<Option<Queue>>,
    /// By server: the link to it, one for each, also if it has no plates now. A second one would take the other's connection away.
    servers: BTreeMap<u64, Arc<Link>>,
    /// By plate: the link to the server that has it.
    links: Vec<Option<Arc<Link>>>,
    /// By server: the connection whose messages count.
    heard: BTreeMap<u64, ConnId>,
    /// Those that hold the messages, by their numbers, and until when each does.
    holds: BTreeMap<u64, Duration>,
    next_hold: u64,
}

impl Ways {
    fn is_held(&self, now: Duration) -> bool {
        self.holds.values().any(|until| now < *until)
    }
}

/// The messages on their way to a plate that runs.
struct Queue {
    /// Of this start of the plate; its scheduler takes the messages.
    commits: Arc<Commits>,
    messages: VecDeque<(PlateId, PeerMessage)>,
}

impl Peers {
    /// For these plates, none of which runs yet.
    pub(crate) fn new(plates: Plates) -> Arc<Peers> {
        let ways = Ways {
            queues: plates.all().map(|_| None).collect(),
            servers: BTreeMap::new(),
            links: plates.all().map(|_| None).collect(),
            heard: BTreeMap::new(),
            holds: BTreeMap::new(),
            next_hold: 0,
        };
        Arc::new(Peers { plates, ways: Mutex::new(ways) })
    }

    /// Which plates there are.
    pub(crate) fn plates(&self) -> Plates {
        self.plates
    }

    /// A plate without peers has no messages.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.plates.count() == 1
    }

    /// A plate is there from now on.
    pub(crate) fn join(&self, plate: &Plate) {
        let queue = Queue { commits: plate.waiters.commits.clone(), messages: VecDeque::new() };
        self.ways.lock().queues[usize::from(plate.plate.0)] = Some(queue);
    }

    /// A plate is gone, and with it what has not arrived.
    pub(crate) fn leave(&self, plate: PlateId) {
        let mut ways = self.ways.lock();
        ways.queues[usize::from(plate.0)] = None;
        for queue in ways.queues.iter_mut().flatten() {
            queue.messages.retain(|(from, _)| *from != plate);
        }
    }

    fn send(&self, plate: &Plate, messages: impl Iterator<Item = (PlateId, PeerMessage)>) {
        let mut ways = self.ways.lock();
        let Ways { queues, links, .. } = &mut *ways;
        let is_there = queues[usize::from(plate.plate.0)]
            .as_ref()
            .is_some_and(|queue| Arc::ptr_eq(&queue.commits, &plate.waiters.commits));
        if !is_there {
            // Taken out all the same: nobody else delivers them.
            return messages.for_each(drop);
        }
        for (to, message) in messages {
            let at = usize::from(to.0);
            if let Some(Some(queue)) = queues.get_mut(at) {
                queue.messages.push_back((plate.plate, message));
                queue.commits.scheduler_wake_up.wake();
            } else if let Some(Some(link)) = links.get(at) {
                link.push(PeerFrame { from: plate.plate, to, message });
            }
            // A plate that does not run greets when it comes, and is then sent again all that it has to know.
        }
    }

    /// No plate takes messages out from now on, until `until` or until the returned value is dropped.
    pub(crate) fn hold(self: &Arc<Self>, until: Duration) -> Hold {
        let mut ways = self.ways.lock();
        let number = ways.next_hold;
        ways.next_hold += 1;
        ways.holds.insert(number, until);
        Hold { peers: self.clone(), number, until }
    }

    fn take(&self, plate: PlateId, now: Duration) -> VecDeque<(PlateId, PeerMessage)> {
        let mut ways = self.ways.lock();
        if ways.is_held(now) {
            return VecDeque::new();
        }
        let queue = ways.queues[usize::from(plate.0)].as_mut();
        queue.map(|queue| std::mem::take(&mut queue.messages)).unwrap_or_default()
    }

    /// Whether there is anything to take out.
    fn has_any(&self, plate: PlateId, now: impl FnOnce() -> Duration) -> bool {
        let ways = self.ways.lock();
        let queue = &ways.queues[usize::from(plate.0)];
        queue.as_ref().is_some_and(|queue| !queue.messages.is_empty())
            && (ways.holds.is_empty() || !ways.is_held(now()))
    }

    /// Where the server that has a plate listens, if it is another one that is known.
    pub(crate) fn addresses_of(&self, plate: PlateId) -> Option<Vec<Address>> {
        let ways = self.ways.lock();
        Some(ways.links.get(usize::from(plate.0))?.as_ref()?.addresses().to_vec())
    }

    /// Takes over the list of other servers and their plates. Their plates are greeted as soon as they can be reached.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn set_servers(
        &self,
        own: &PeerIdentity,
        credentials: Option<&Credentials>,
        servers: &[PeerServer],
        table: &Arc<PlateTable>,
    ) -> std::io::Result<()> {
        let (mut left, before) = {
            let ways = self.ways.lock();
            let number = |link: &Option<Arc<Link>>| link.as_ref().map(|link| link.number());
            (ways.servers.clone(), ways.links.iter().map(number).collect::<Vec<_>>())
        };
        let mut known = BTreeMap::new();
        let mut links: Vec<Option<Arc<Link>>> = self.plates.all().map(|_| None).collect();
        for server in servers.iter().filter(|server| server.number != own.number) {
            let link = match left.remove(&server.number) {
                Some(link) if link.addresses() == server.addresses => link,
                replaced => {
                    left.extend(replaced.map(|link| (server.number, link)));
                    Link::start(
                        own.clone(),
                        credentials.cloned(),
                        server,
                        self.plates,
                        Arc::downgrade(table),
                    )?
                }
            };
            link.set_plates(&server.plates);
            known.insert(server.number, link.clone());
            for plate in &server.plates {
                if let Some(slot) = links.get_mut(usize::from(plate.0)) {
                    *slot = Some(link.clone());
                }
            }
        }
        {
            let mut ways = self.ways.lock();
            ways.heard.retain(|server, _| known.contains_key(server));
            (ways.links, ways.servers) = (links.clone(), known);
        }
        left.into_values().for_each(|link| link.stop());
        // A link that is up already greets only plates that are new to it.
        for (plate, (link, before)) in self.plates.all().zip(links.iter().zip(before)) {
            if let Some(link) = link.as_ref().filter(|link| Some(link.number()) != before) {
                link.greet(table, &[plate]);
            }
        }
        Ok(())
    }

    pub(crate) fn stop(&self) {
        let servers = {
            let mut ways = self.ways.lock();
            ways.links.fill(None);
            std::mem::take(&mut ways.servers)
        };
        servers.values().for_each(|link| link.stop());
    }

    /// A server has opened a connection: messages over its last one do not count any more. False if it is not known.
    pub(crate) fn hear(&self, server: u64, conn: ConnId) -> bool {
        let mut ways = self.ways.lock();
        let is_known = ways.servers.contains_key(&server);
        if is_known {
            ways.heard.insert(server, conn);
        }
        is_known
    }

    /// A message of another server.
    pub(crate) fn deliver(&self, server: u64, conn: ConnId, frame: PeerFrame) {
        let mut ways = self.ways.lock();
        let Ways { queues, links, heard, .. } = &mut *ways;
        let is_from_there = links
            .get(usize::from(frame.from.0))
            .is_some_and(|link| link.as_ref().is_some_and(|link| link.number() == server));
        if heard.get(&server) != Some(&conn) || !is_from_there {
            return;
        }
        if let Some(Some(queue)) = queues.get_mut(usize::from(frame.to.0)) {
            queue.messages.push_back((frame.from, frame.message));
            queue.commits.scheduler_wake_up.wake();
        }
    }
}

/// Keeps the messages between plates where they are. See [`Peers::hold`].
pub(crate) struct Hold {
    peers: Arc<Peers>,
    number: u64,
    until: Duration,
}

impl Hold {
    /// From then on messages may be taken out.
    pub(crate) fn until(&self) -> Duration {
        self.until
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut ways = self.peers.ways.lock();
        ways.holds.remove(&self.number);
        if ways.holds.is_empty() {
            ways.queues.iter().flatten().for_each(|queue| queue.commits.scheduler_wake_up.wake());
        }
    }
}

/// The plates that run here, to be greeted from.
pub(crate) fn greet_from_all(table: &Weak<PlateTable>, to: &[PlateId]) {
    for running in table.upgrade().iter().flat_map(|table| table.all()) {
        running.plate.with_engine(|engine, _| {
            to.iter().filter(|to| **to != running.plate.plate).for_each(|to| engine.greet_peer(*to));
        });
    }
}

impl Plate {
    /// Takes the messages to other plates out of the commands and sends them. To be called with the engine's lock held.
    pub(crate) fn send_to_peers(&self, commands: &mut Vec<Command>) {
        if self.peers.is_alone() || !commands.iter().any(|command| matches!(command, Command::Peer(..))) {
            return;
        }
        let messages = commands.extract_if(.., |command| matches!(command, Command::Peer(..)));
        self.peers.send(
            self,
            messages.filter_map(|command| match command {
                Command::Peer(to, message) => Some((to, message)),
                Command::Reply(..) | Command::Recall(..) | Command::DropSession(..) => None,
                Command::Log(_) | Command::Denied(_) => None,
            }),
        );
    }

    /// Gives the engine the messages that have come; false if there are none.
    pub(crate) fn hear_peers(&self) -> bool {
        if self.peers.is_alone() || !self.peers.has_any(self.plate, || self.world.monotonic()) {
            return false;
        }
        self.with_engine(|engine, m| {
            for (from, message) in self.peers.take(self.plate, m.mono) {
                engine.peer(from, message, m);
            }
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use chiton_journal::{MemoryPlace, Shape};
    use chiton_metastore::MemoryMetastore;
    use chiton_objects::MemoryObjects;
    use chiton_runtime::{SeededWorld, SharedWorld, World, thread};
    use chiton_types::{Cred, Refusal};
    use chiton_wire::{Answer, Failure};

    use crate::builder::Builder;
    use crate::role::{Part, Role};
    use crate::{FormatOptions, Server, ServerOptions, Stores, io_pool};

    use super::*;

    /// Two plates without threads, which know of each other.
    fn two() -> [Arc<Plate>; 2] {
        two_in(Arc::new(SeededWorld::new(1)))
    }

    fn two_in(world: SharedWorld) -> [Arc<Plate>; 2] {
        let parts =
            [(), ()].map(|()| (Arc::new(MemoryMetastore::new()), Arc::new(MemoryPlace::new(Shape::Grows))));
        let stores = || -> Vec<Stores> {
            let of = |(meta, place): &(Arc<MemoryMetastore>, Arc<MemoryPlace>)| {
                let meta = meta.clone();
                Stores {
                    objects: Arc::new(MemoryObjects::new()),
                    open_meta: Box::new(move || {
                        // It may be opened again after the format has closed it.
                        meta.crash();
                        Ok(meta.clone())
                    }),
                    place: place.clone(),
                    objects_address: String::new(),
                }
            };
            parts.iter().map(of).collect()
        };
        let options = FormatOptions { shards: 2, plates: 2, ..FormatOptions::default() };
        let info = Server::format_with(&stores(), &options, &world).expect("formats");
        let peers = Peers::new(info.plates());
        let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
        let builder = Builder::new(options, world, io_pool::none(), peers.clone());
        let (parts, _) = Role::serving_plates(&info, stores()).parts();
        let built: Vec<_> =
            parts.into_iter().map(|part: Part| builder.clone().build(part).expect("builds")).collect();
        built.iter().for_each(|plate| peers.join(plate));
        [built[0].clone(), built[1].clone()]
    }

    fn message(n: u64) -> Command {
        Command::Peer(PlateId(1), PeerMessage::CarriedOut { upto: n })
    }

    fn arrived(plate: &Plate) -> Vec<u64> {
        let number = |(from, message)| match (from, message) {
            (PlateId(0), PeerMessage::CarriedOut { upto }) => upto,
            other => panic!("{other:?}"),
        };
        plate.peers.take(plate.plate, Duration::ZERO).into_iter().map(number).collect()
    }

    #[test]
    fn messages_arrive_in_the_order_in_which_the_engine_gave_them() {
        let [zero, one] = two();
        let next = Arc::new(Mutex::new(0));
        let send = |zero: Arc<Plate>, next: Arc<Mutex<u64>>| {
            move || {
                for _ in 0..1_000 {
                    let _engine = zero.engine.lock();
                    let mut next = next.lock();
                    zero.send_to_peers(&mut vec![message(*next), message(*next + 1)]);
                    *next += 2;
                }
            }
        };
        let threads = [(), (), ()]
            .map(|()| thread::spawn("sender", send(zero.clone(), next.clone())).expect("a thread"));
        let mut all = Vec::new();
        while all.len() < 6_000 {
            all.extend(arrived(&one));
        }
        assert_eq!(all, (0..6_000).collect::<Vec<_>>());
        threads.into_iter().for_each(|thread| thread.join().expect("sent"));
    }

    /// A second link would take the connection of the first one away at the other server, and nothing would arrive any more.
    #[test]
    fn a_server_has_one_link_whatever_plates_it_has() {
        let peers = Peers::new(Plates::new(4, 2).expect("fewer plates than shards"));
        let table = Arc::new(PlateTable::new(2, Vec::new()));
        let own = PeerIdentity { number: 1, filesystem: 1, name: "server 1".to_owned() };
        let nowhere = "unix:/nonexistent/socket".parse::<Address>().expect("an address");
        let set = |plates: &[u16]| {
            let plates = plates.iter().copied().map(PlateId).collect();
            let other = PeerServer { number: 2, addresses: vec![nowhere.clone()], plates };
            peers.set_servers(&own, None, &[other], &table).expect("threads");
            peers.ways.lock().servers[&2].clone()
        };
        let link = set(&[]);
        for plates in [&[][..], &[0], &[0, 1], &[1], &[], &[0]] {
            assert!(Arc::ptr_eq(&link, &set(plates)));
        }
        assert!(!peers.hear(3, ConnId(1)) && peers.hear(2, ConnId(2)));
        peers.stop();
    }

    #[test]
    fn held_messages_wait_until_the_hold_ends() {
        let [zero, one] = two();
        let arrived_at = |now: u64| one.peers.take(PlateId(1), Duration::from_secs(now)).len();
        let hold = zero.peers.hold(Duration::from_secs(5));
        let second = zero.peers.hold(Duration::from_secs(3));
        zero.send_to_peers(&mut vec![message(1)]);
        assert_eq!(arrived_at(1), 0);
        assert!(!one.peers.has_any(PlateId(1), || Duration::from_secs(4)));
        drop(second);
        assert_eq!(arrived_at(1), 0, "the first still holds them");
        drop(hold);
        assert_eq!(arrived_at(1), 1);
        // One that is forgotten ends by its time, and prolongs no other.
        let _hold = zero.peers.hold(Duration::from_secs(5));
        drop(zero.peers.hold(Duration::from_secs(9)));
        zero.send_to_peers(&mut vec![message(2)]);
        assert_eq!((arrived_at(4), arrived_at(5)), (0, 1));
    }

    /// The answer of plate 0 to a question about a view.
    fn view(plate: &Plate, words: &str) -> Result<serde_json::Value, Failure> {
        match plate.view(&Cred::ROOT, words)? {
            Answer::Bytes(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
            other => panic!("{words}: {other:?}"),
        }
    }

    fn hold_view(plate: &Plate) -> u64 {
        view(plate, "hold").expect("held")["view"].as_u64().expect("a number")
    }

    #[test]
    fn a_view_of_several_plates_has_rows_only_if_messages_were_held() {
        let world = Arc::new(SeededWorld::new(1));
        let [zero, one] = two_in(world.clone());
        let arrives = |n: u64| {
            zero.send_to_peers(&mut vec![message(n)]);
            let is_there = one.peers.has_any(PlateId(1), || world.monotonic());
            arrived(&one);
            is_there
        };
        let step = |id: u64, word: &str| view(&zero, &format!("{id} {word}")).map(drop);
        let refused = |refusal| Err(Failure::Refused(refusal));
        view(&zero, "prepare").expect("a checkpoint");
        let id = hold_view(&zero);
        assert!(!arrives(1));
        assert_eq!(step(id, "get 00"), refused(Refusal::Stale), "there are no rows yet");
        assert_eq!((step(id, "take"), step(id, "release")), (Ok(()), Ok(())));
        assert!(arrives(2));
        assert_eq!(step(id, "get 00"), Ok(()));
        assert_eq!(step(id, "take"), refused(Refusal::Busy), "nothing is held any more");
        assert_eq!((step(id, "close"), step(id, "get 00")), (Ok(()), refused(Refusal::Stale)));
        // The time ends before the rows are taken, or before all others have theirs.
        for taken in [false, true] {
            let id = hold_view(&zero);
            if taken {
                assert_eq!(step(id, "take"), Ok(()));
            }
            world.advance(Duration::from_secs(10));
            assert!(arrives(3));
            if !taken {
                assert_eq!(step(id, "take"), refused(Refusal::Busy));
            }
            assert_eq!(step(id, "release"), refused(Refusal::Busy));
        }
        // One whose client has gone ends both.
        let id = hold_view(&zero);
        assert!(zero.is_viewed());
        world.advance(Duration::from_secs(61));
        assert!(!zero.is_viewed() && arrives(4));
        assert_eq!(step(id, "release"), refused(Refusal::Stale));
        let other = Cred::new(4711, 4711, &[]);
        for words in ["prepare", "hold", "open"] {
            let answer = zero.view(&other, words).map(drop);
            assert_eq!(answer, refused(Refusal::NotPermitted), "{words}");
        }
        assert!(arrives(5), "what was refused holds nothing");
    }

    #[test]
    fn messages_to_and_from_a_plate_that_left_are_lost() {
        let [zero, one] = two();
        let mut commands =
            vec![message(1), Command::DropSession(chiton_types::SessionId(7), Default::default())];
        zero.send_to_peers(&mut commands);
        assert!(matches!(&commands[..], [Command::DropSession(..)]), "{commands:?}");
        one.peers.leave(PlateId(1));
        zero.send_to_peers(&mut vec![message(2)]);
        one.peers.join(&one);
        zero.send_to_peers(&mut vec![message(3)]);
        assert_eq!(arrived(&one), [3]);
        zero.send_to_peers(&mut vec![message(4)]);
        zero.peers.leave(PlateId(0));
        let mut commands = vec![message(5)];
        zero.send_to_peers(&mut commands);
        assert!(commands.is_empty(), "what nobody gets does not stay: {commands:?}");
        assert_eq!(arrived(&one), [] as [u64; 0], "those under way, and those of a start that is over");
    }
}
