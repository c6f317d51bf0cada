//! Messages between the plates of a process.
//!
//! ```text
//!   plate 1 ── under its engine's lock ──▶ [ messages for plate 2 ] ── under the lock of plate 2's engine ──▶ plate 2
//! ```
//!
//! Invariants:
//! - A message is queued before the sender gives up the lock of its engine, and taken out while the receiver holds the lock of its
//!   own: so messages of two plates arrive in the order in which they were sent.
//! - No thread holds the locks of two engines. The lock of the queues is taken last, and nobody waits while holding it.
//! - A plate that leaves loses the messages to it and from it that have not arrived. What it sends afterwards goes nowhere.
//! - The queues are bounded by the engines: each waits for answers to what it sent.

use std::collections::VecDeque;
use std::sync::Arc;

use chiton_engine::Command;
use chiton_runtime::sync::Mutex;
use chiton_types::{PlateId, Plates};
use chiton_wire::PeerMessage;

use crate::commits::Commits;
use crate::plate::Plate;

/// The ways between the plates of a process.
pub(crate) struct Peers {
    plates: Plates,
    queues: Mutex<Vec<Option<Queue>>>,
}

/// What is on its way to a plate that runs.
struct Queue {
    /// Of this start of the plate; its scheduler takes the messages.
    commits: Arc<Commits>,
    messages: VecDeque<(PlateId, PeerMessage)>,
}

impl Peers {
    /// For these plates, none of which runs yet.
    pub(crate) fn new(plates: Plates) -> Arc<Peers> {
        let queues = plates.all().map(|_| None).collect();
        Arc::new(Peers { plates, queues: Mutex::new(queues) })
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
        self.queues.lock()[usize::from(plate.plate.0)] = Some(queue);
    }

    /// A plate is gone, and with it what has not arrived.
    pub(crate) fn leave(&self, plate: PlateId) {
        let mut queues = self.queues.lock();
        queues[usize::from(plate.0)] = None;
        for queue in queues.iter_mut().flatten() {
            queue.messages.retain(|(from, _)| *from != plate);
        }
    }

    fn send(&self, plate: &Plate, messages: impl Iterator<Item = (PlateId, PeerMessage)>) {
        let mut queues = self.queues.lock();
        let is_there = queues[usize::from(plate.plate.0)]
            .as_ref()
            .is_some_and(|queue| Arc::ptr_eq(&queue.commits, &plate.waiters.commits));
        if !is_there {
            // Taken out all the same: nobody else delivers them.
            return messages.for_each(drop);
        }
        for (to, message) in messages {
            // One that does not run greets when it comes, and then it is told again what it has to know.
            let Some(Some(queue)) = queues.get_mut(usize::from(to.0)) else { continue };
            queue.messages.push_back((plate.plate, message));
            queue.commits.scheduler_wake_up.wake();
        }
    }

    fn take(&self, plate: PlateId) -> VecDeque<(PlateId, PeerMessage)> {
        let mut queues = self.queues.lock();
        let queue = queues[usize::from(plate.0)].as_mut();
        queue.map(|queue| std::mem::take(&mut queue.messages)).unwrap_or_default()
    }

    fn has_any(&self, plate: PlateId) -> bool {
        self.queues.lock()[usize::from(plate.0)].as_ref().is_some_and(|queue| !queue.messages.is_empty())
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
                Command::Reply(..) | Command::Recall(..) | Command::DropSession(..) | Command::Log(_) => None,
            }),
        );
    }

    /// Gives the engine the messages that have come; false if there are none.
    pub(crate) fn hear_peers(&self) -> bool {
        if self.peers.is_alone() || !self.peers.has_any(self.plate) {
            return false;
        }
        self.with_engine(|engine, m| {
            for (from, message) in self.peers.take(self.plate) {
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
    use chiton_runtime::{SeededWorld, SharedWorld, thread};

    use crate::builder::Builder;
    use crate::role::{Part, Role};
    use crate::{FormatOptions, Server, ServerOptions, Stores, io_pool};

    use super::*;

    /// Two plates without threads, which know of each other.
    fn two() -> [Arc<Plate>; 2] {
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
        let world: SharedWorld = Arc::new(SeededWorld::new(1));
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
        plate.peers.take(plate.plate).into_iter().map(number).collect()
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
