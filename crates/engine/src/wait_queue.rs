//! Requests that wait: for a lease, a lock, durability, room, or the end of the recovery.
//!
//! Invariants:
//! - A waiting request is in exactly one place: here, or in the engine's queue of those that can be tried again.
//! - Those that wait for one inode resume in the order in which they came.

use std::collections::{BTreeMap, BTreeSet};

use chiton_model::Outcome;
use chiton_types::{Cred, Epoch, Ino, PlateId, Position, Seq, SessionId};
use chiton_wire::{Answer, Call, Failure, OpKey, PeerMessage, Request, SubtreeQuestion};
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::growth::Round;
use crate::leases::Leases;
use crate::parts::Queue;
use crate::peers::Resolving;
use crate::realms::Merging;
use crate::stat_each::Answered;

/// Names a waiting request until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

/// A request on its way, with its progress.
#[derive(Debug)]
pub struct Task {
    pub(crate) session: SessionId,
    pub(crate) request: Request,
    /// The results so far, if it is a batch.
    pub(crate) results: Vec<Result<(Position, Outcome), Failure>>,
    /// Of many questions: the answers so far, each at its place.
    pub(crate) stats: Vec<Answered>,
    /// Given when it is put into the queue first.
    pub(crate) ticket: Option<Ticket>,
    /// Counted and noted with its session already.
    pub(crate) begun: bool,
    /// Carried out; the answer waits until this position is durable.
    pub(crate) done: Option<Box<(Position, Answer)>>,
    /// Of a merge: the events that are not done yet.
    pub(crate) merging: Option<Box<Merging>>,
    /// Of a path that leads over several plates: how far it is.
    pub(crate) resolving: Option<Box<Resolving>>,
    /// Set if another plate asks, and no session: its message.
    pub(crate) peer: Option<Box<(PlateId, PeerMessage)>>,
}

impl Task {
    #[inline]
    pub(crate) fn new(session: SessionId, request: Request) -> Task {
        Task {
            session,
            request,
            results: Vec::new(),
            stats: Vec::new(),
            ticket: None,
            begun: false,
            done: None,
            merging: None,
            resolving: None,
            peer: None,
        }
    }

    /// The question, if another plate asks.
    pub(crate) fn asked_by_peer(&self) -> Option<&(PlateId, PeerMessage)> {
        self.peer.as_deref()
    }

    /// A request of another plate.
    pub(crate) fn of_peer(from: PlateId, message: PeerMessage) -> Task {
        let request = Request {
            id: 0,
            seq: Seq(0),
            settled: Seq(0),
            epoch: Epoch(0),
            again: None,
            cred: Cred::ROOT,
            call: Call::Ping,
        };
        Task { peer: Some(Box::new((from, message))), ..Task::new(SessionId(0), request) }
    }
}

/// The event that a request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// That others give back leases on these.
    Leases(SmallVec<[Ino; 4]>),
    /// That this position is durable.
    Durable(Position),
    /// That a lock is granted.
    Lock,
    /// That the dirty rows are fewer.
    Room,
    /// That a checkpoint ends.
    Checkpoint,
    /// That the recovery ends.
    Recovery,
    /// That more inode numbers are granted.
    Numbers,
    /// That others have acknowledged that a file grew.
    Growth(Round),
    /// That another plate guards a row for this operation.
    Guard(OpKey),
    /// That an operation of another plate ends, for which this row is guarded.
    Guarded(Ino),
    /// That this inode is born, or is said not to be.
    Birth(Ino),
    /// That another plate says whether this number is unused.
    Unborn(Ino),
    /// That another plate says to which realm this directory of its belongs.
    Realm(Ino),
    /// That the next change of a policy comes from another plate.
    Policies,
    /// That every plate has this operation's change of a policy.
    PolicySet(OpKey),
    /// That another plate has carried a path on.
    Carried(u64),
    /// That another plate says where the subtree of a limited client is.
    Subtree(Box<SubtreeQuestion>),
}

/// The requests that wait, by ticket: the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    tasks: BTreeMap<Ticket, (Task, Wait)>,
    by_ino: HashMap<Ino, SmallVec<[Ticket; 2]>>,
    last: u64,
}

impl WaitQueue {
    /// Adds a request. One that waited before keeps its ticket, and so its place.
    pub(crate) fn push(&mut self, mut task: Task, wait: Wait) -> Ticket {
        let ticket = task.ticket.unwrap_or_else(|| self.issue());
        task.ticket = Some(ticket);
        if let Wait::Leases(inos) = &wait {
            for ino in inos {
                self.by_ino.entry(*ino).or_default().push(ticket);
            }
        }
        let before = self.tasks.insert(ticket, (task, wait));
        assert!(before.is_none(), "a request waits twice");
        ticket
    }

    pub(crate) fn issue(&mut self) -> Ticket {
        self.last += 1;
        Ticket(self.last)
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<(Task, Wait)> {
        let (task, wait) = self.tasks.remove(&ticket)?;
        if let Wait::Leases(inos) = &wait {
            for ino in inos {
                if let Some(tickets) = self.by_ino.get_mut(ino) {
                    tickets.retain(|t| *t != ticket);
                    if tickets.is_empty() {
                        self.by_ino.remove(ino);
                    }
                }
            }
        }
        Some((task, wait))
    }

    /// Those that wait for an inode, in order.
    pub(crate) fn on_ino(&self, ino: Ino) -> SmallVec<[Ticket; 2]> {
        self.by_ino.get(&ino).cloned().unwrap_or_default()
    }

    /// Those whose task and wait satisfy `which`, in order.
    pub(crate) fn select(&self, which: impl Fn(&Task, &Wait) -> bool) -> Vec<Ticket> {
        self.tasks.iter().filter(|(_, (task, wait))| which(task, wait)).map(|(ticket, _)| *ticket).collect()
    }

    /// The sessions whose requests wait for such a thing.
    pub(crate) fn sessions(&self, which: impl Fn(&Wait) -> bool) -> BTreeSet<SessionId> {
        self.tasks.values().filter(|(_, wait)| which(wait)).map(|(task, _)| task.session).collect()
    }

    /// The lowest position that a request waits for.
    pub(crate) fn durable_wanted(&self) -> Option<Position> {
        let position = |(_, wait): &(Task, Wait)| match wait {
            Wait::Durable(position) => Some(*position),
            _ => None,
        };
        self.tasks.values().filter_map(position).min()
    }

    /// The event that a request waits for.
    pub(crate) fn wait_of(&self, ticket: Ticket) -> Option<&Wait> {
        self.tasks.get(&ticket).map(|(_, wait)| wait)
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// The reason for which each request waits.
    #[cfg(test)]
    pub(crate) fn waits(&self) -> Vec<String> {
        let line = |(task, wait): &(Task, Wait)| match &task.peer {
            Some(peer) => format!("{peer:?} waits for {wait:?}"),
            None => format!("{:?} waits for {wait:?}", task.request.call),
        };
        self.tasks.values().map(line).collect()
    }
}

impl Queue {
    /// Puts a request into the wait queue. While it waits for inodes, no lease on them is granted unasked.
    pub(crate) fn enqueue(&mut self, task: Task, wait: Wait, leases: &mut Leases) -> Ticket {
        if let Wait::Leases(inos) = &wait {
            inos.iter().for_each(|ino| leases.wait(*ino));
        }
        self.waiting.push(task, wait)
    }

    /// Takes a request out of the wait queue.
    pub(crate) fn dequeue(&mut self, ticket: Ticket, leases: &mut Leases) -> Option<Task> {
        let (task, wait) = self.waiting.remove(ticket)?;
        if let Wait::Leases(inos) = &wait {
            inos.iter().for_each(|ino| leases.wait_ended(*ino));
        }
        Some(task)
    }

    /// Lets requests that wait for these inodes try again.
    pub(crate) fn wake_inos(&mut self, inos: impl IntoIterator<Item = Ino>, leases: &mut Leases) {
        for ino in inos {
            for ticket in self.waiting.on_ino(ino) {
                let task = self.dequeue(ticket, leases).expect("it was listed as waiting");
                self.ready.push_back(task);
            }
        }
    }

    /// Lets requests try again that wait for such a thing.
    pub(crate) fn wake_where(&mut self, which: impl Fn(&Wait) -> bool, leases: &mut Leases) {
        for ticket in self.waiting.select(|_, wait| which(wait)) {
            let task = self.dequeue(ticket, leases).expect("it was listed as waiting");
            self.ready.push_back(task);
        }
    }
}
