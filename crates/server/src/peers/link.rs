//! The link to another server: one connection, over which plates of this process send to plates there.
//!
//! Invariants:
//! - After a connection broke nothing of a plate goes over the next one before its greeting: the receiver can take the following
//!   messages for consecutive ones (see [`chiton_engine::Engine::greet_peer`]).
//! - While there is no connection, messages are dropped.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chiton_auth::Credentials;
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::thread;
use chiton_transport::{Address, CONNECT_TIMEOUT, PeerChannel};
use chiton_types::{PlateId, Plates, SessionId};
use chiton_wire::{Channel, Hello, PROTOCOL_VERSION, PeerFrame, PeerMessage};

use super::{PeerIdentity, PeerServer, greet_from_all};
use crate::plate_table::PlateTable;

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Link {
    number: u64,
    addresses: Vec<Address>,
    own: PeerIdentity,
    credentials: Option<Credentials>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Those of the other server, as far as is known here.
    plates: Vec<PlateId>,
    channel: Option<Arc<PeerChannel>>,
    /// The plates that have greeted each other over this connection: ours, and the other server's.
    greeted: BTreeSet<(PlateId, PlateId)>,
    messages: VecDeque<PeerFrame>,
    is_broken: bool,
    is_stopping: bool,
}

impl Link {
    /// Connects, again and again, until stopped.
    pub(super) fn start(
        own: PeerIdentity,
        credentials: Option<Credentials>,
        server: &PeerServer,
        plates: Plates,
        table: Weak<PlateTable>,
    ) -> std::io::Result<Arc<Link>> {
        let state = Mutex::new(State::default());
        let (number, addresses) = (server.number, server.addresses.clone());
        let link = Arc::new(Link { number, addresses, own, credentials, state, changed: Condvar::new() });
        let keeper = link.clone();
        thread::spawn("chiton-link", move || keeper.keep(plates, &table))?;
        Ok(link)
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    pub(super) fn set_plates(&self, plates: &[PlateId]) {
        self.state.lock().plates = plates.to_vec();
    }

    /// Greets these plates there, if there is a connection.
    pub(super) fn greet(&self, table: &Arc<PlateTable>, plates: &[PlateId]) {
        let is_up = self.state.lock().channel.is_some();
        if is_up {
            greet_from_all(&Arc::downgrade(table), plates);
        }
    }

    /// Sends a message when its turn comes.
    pub(super) fn push(&self, frame: PeerFrame) {
        let mut state = self.state.lock();
        if state.channel.is_none() {
            return;
        }
        let pair = (frame.from, frame.to);
        if matches!(frame.message, PeerMessage::Hello { is_answer: false, .. }) {
            state.greeted.insert(pair);
        } else if !state.greeted.contains(&pair) {
            return;
        }
        state.messages.push_back(frame);
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        if let Some(channel) = state.channel.take() {
            channel.close();
        }
        self.changed.notify_all();
    }

    fn hello(&self) -> Hello {
        Hello {
            version: PROTOCOL_VERSION,
            channel: Channel::Peer,
            resume: Some((SessionId(self.own.number), self.own.filesystem)),
            identity: self.own.name.clone(),
            resend_count: 0,
            decouples: false,
            plate: PlateId(0),
            client: 0,
            filesystem: 0,
        }
    }

    fn keep(self: Arc<Link>, plates: Plates, table: &Weak<PlateTable>) {
        loop {
            let credentials = self.credentials.as_ref();
            let opened = self.addresses.iter().find_map(|address| {
                PeerChannel::open(address, credentials, &self.hello(), CONNECT_TIMEOUT).ok()
            });
            let channel = {
                let mut state = self.state.lock();
                if !state.is_stopping && opened.is_none() {
                    self.changed.wait_for(&mut state, PAUSE);
                }
                if state.is_stopping {
                    return;
                }
                let Some(channel) = opened.map(Arc::new) else { continue };
                state.channel = Some(channel.clone());
                state.is_broken = false;
                state.greeted.clear();
                state.messages.clear();
                channel
            };
            let (watched, link) = (channel.clone(), self.clone());
            let watcher = thread::spawn("chiton-link-end", move || {
                watched.wait_for_end();
                link.broke(&watched);
            });
            let there: Vec<PlateId> = {
                let state = self.state.lock();
                plates.all().filter(|plate| state.plates.contains(plate)).collect()
            };
            greet_from_all(table, &there);
            self.send_all(&channel);
            channel.close();
            self.broke(&channel);
            // A thread that could not be started leaves a broken connection to the next message to find.
            let _ = watcher.map(thread::JoinHandle::join);
        }
    }

    /// Sends until the connection breaks or the link stops.
    fn send_all(&self, channel: &PeerChannel) {
        loop {
            let messages = {
                let mut state = self.state.lock();
                while state.messages.is_empty() && !state.is_broken && !state.is_stopping {
                    self.changed.wait(&mut state);
                }
                if state.is_broken || state.is_stopping {
                    return;
                }
                std::mem::take(&mut state.messages)
            };
            if channel.send(messages).is_err() {
                return;
            }
        }
    }

    fn broke(&self, channel: &Arc<PeerChannel>) {
        let mut state = self.state.lock();
        if state.channel.as_ref().is_some_and(|current| Arc::ptr_eq(current, channel)) {
            state.channel = None;
            state.is_broken = true;
            state.messages.clear();
        }
        self.changed.notify_all();
    }
}
