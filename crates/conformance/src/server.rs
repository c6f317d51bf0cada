//! The server under test: a session with each of its plates, and the questions as they are on the wire.
//!
//! Invariants:
//! - Every operation has a number, and none is settled, so each can be sent again.
//! - Nothing is cached, so a recall is acknowledged at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chiton_runtime::sync::Mutex;
use chiton_runtime::thread::{self, JoinHandle};
use chiton_transport::{Address, CONNECT_TIMEOUT, Connection, OpenError, RecallChannel};
use chiton_types::{Cred, Epoch, Ino, PlateId, Plates, Seq, SessionId};
use chiton_wire::{
    Again, Answer, Call, Channel, Failure, Hello, PROTOCOL_VERSION, RecallDone, Request, Welcome,
};

use crate::finding::{Outcome, failed};
use crate::suite::Target;

/// Servers that a plate was sent on to, one after the other, before the suite gives it up.
const SENT_ON_MAX: usize = 8;

/// Sessions with all plates.
pub(crate) struct Server {
    plates: Plates,
    sessions: Vec<Session>,
}

/// A session with one plate.
struct Session {
    connection: Connection,
    seq: AtomicU64,
    boot: u64,
    recalls: Arc<Recalls>,
    acknowledging: Option<JoinHandle>,
}

struct Recalls {
    channel: RecallChannel,
    /// The inodes of which leases were recalled, in order.
    seen: Mutex<Vec<Ino>>,
}

/// The contents of a server's welcome.
struct Greeted {
    session: (SessionId, u64),
    shards: u16,
    plates: u16,
}

impl Server {
    pub(crate) fn connect(target: &Target) -> Result<Server, OpenError> {
        let (first, greeted) = Session::open(target, PlateId(0))?;
        let plates = Plates::new(greeted.shards, greeted.plates).ok_or_else(|| {
            OpenError::Malformed(format!("{} plates share {} shards", greeted.plates, greeted.shards))
        })?;
        let mut sessions = vec![first];
        for plate in plates.all().skip(1) {
            sessions.push(Session::open(target, plate)?.0);
        }
        Ok(Server { plates, sessions })
    }

    pub(crate) fn plate_count(&self) -> u16 {
        self.plates.count()
    }

    /// The plate that owns an inode.
    pub(crate) fn plate_of(&self, ino: Ino) -> Outcome<PlateId> {
        let none = || failed(format!("route to inode {ino}"), "a shard of the file system", "another shard");
        self.plates.of(ino).ok_or_else(none)
    }

    fn session(&self, at: Ino) -> Outcome<&Session> {
        Ok(&self.sessions[usize::from(self.plate_of(at)?.0)])
    }

    /// Asks the plate of an inode something that has no number.
    pub(crate) fn ask(&self, at: Ino, cred: &Cred, call: Call) -> Outcome<Result<Answer, Failure>> {
        self.session(at)?.ask(0, None, cred, call)
    }

    /// Numbers for so many operations at the plate of an inode, and the start of its server.
    pub(crate) fn numbers(&self, at: Ino, count: u64) -> Outcome<(u64, u64)> {
        let session = self.session(at)?;
        Ok((session.seq.fetch_add(count, Ordering::Relaxed), session.boot))
    }

    /// Sends an operation, or a batch, under its number.
    pub(crate) fn ask_numbered(
        &self,
        at: Ino,
        (seq, again): (u64, Option<Again>),
        cred: &Cred,
        call: Call,
    ) -> Outcome<Result<Answer, Failure>> {
        self.session(at)?.ask(seq, again, cred, call)
    }

    /// The inodes whose leases were recalled so far, of all plates.
    pub(crate) fn recalled(&self) -> Vec<Ino> {
        self.sessions.iter().flat_map(|session| session.recalls.seen.lock().clone()).collect()
    }
}

impl Session {
    fn open(target: &Target, plate: PlateId) -> Result<(Session, Greeted), OpenError> {
        let mut address = target.address.clone();
        for _ in 0..SENT_ON_MAX {
            match Session::open_at(target, &address, plate) {
                Err(OpenError::Elsewhere { epoch, addresses }) => {
                    let next = addresses.iter().find_map(|text| text.parse::<Address>().ok());
                    address = next.ok_or(OpenError::Elsewhere { epoch, addresses })?;
                }
                opened => return opened,
            }
        }
        Err(OpenError::Malformed(format!("it sends on clients of plate {plate} {SENT_ON_MAX} times")))
    }

    fn open_at(target: &Target, address: &Address, plate: PlateId) -> Result<(Session, Greeted), OpenError> {
        let credentials = target.credentials.as_ref();
        let hello = |channel, resume| Hello {
            version: PROTOCOL_VERSION,
            channel,
            resume,
            identity: "conformance suite".to_owned(),
            resend_count: 0,
            decouples: false,
            plate,
            client: 0,
            filesystem: 0,
        };
        let main = hello(Channel::Main, None);
        let (connection, welcome) = Connection::open(address, credentials, &main, CONNECT_TIMEOUT)?;
        let Welcome::Accepted { session, secret, boot, shards, plates, .. } = welcome else {
            return Err(OpenError::Malformed("its welcome says neither yes nor no".to_owned()));
        };
        let greeted = Greeted { session: (session, secret), shards, plates };
        let recall = hello(Channel::Recall, Some(greeted.session));
        let (channel, _) = RecallChannel::open(address, credentials, &recall, CONNECT_TIMEOUT)?;
        let recalls = Arc::new(Recalls { channel, seen: Mutex::new(Vec::new()) });
        let acknowledging = {
            let recalls = recalls.clone();
            thread::spawn("chiton-recalls", move || recalls.acknowledge())?
        };
        let acknowledging = Some(acknowledging);
        let session = Session { connection, seq: AtomicU64::new(1), boot, recalls, acknowledging };
        Ok((session, greeted))
    }

    fn ask(
        &self,
        seq: u64,
        again: Option<Again>,
        cred: &Cred,
        call: Call,
    ) -> Outcome<Result<Answer, Failure>> {
        let id = self.connection.next_id();
        let cred = cred.clone();
        let request = Request { id, seq: Seq(seq), settled: Seq(0), epoch: Epoch(0), again, cred, call };
        match self.connection.call(&request) {
            Ok(reply) => Ok(reply.result),
            Err(lost) => {
                Err(failed(format!("ask {:?}", request.call), "an answer", format!("no answer: {lost}")))
            }
        }
    }
}

impl Recalls {
    fn acknowledge(&self) {
        while let Ok(recall) = self.channel.next() {
            self.seen.lock().push(recall.ino);
            if self.channel.done(RecallDone { id: recall.id }).is_err() {
                return;
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let bye = self.ask(0, None, &Cred::ROOT, Call::Bye);
        // A server that is gone keeps no session either.
        drop(bye);
        self.recalls.channel.close();
        if let Some(thread) = self.acknowledging.take() {
            drop(thread.join());
        }
    }
}
