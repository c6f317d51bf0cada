//! Operations that change rows of several plates.

use chiton_types::PlateId;
use chiton_wire::PeerMessage;

use crate::engine::Engine;
use crate::moment::Moment;
use crate::step::Command;

impl Engine {
    /// Greets the other plates. To be called once they can be reached, after [`Engine::begin`].
    pub fn greet_peers(&mut self) {
        let others = self.settings.plates.all().filter(|plate| *plate != self.settings.plate);
        let hello = PeerMessage::Hello { is_answer: false, carried_out: 0 };
        self.queue.commands.extend(others.map(|to| Command::Peer(to, hello.clone())));
    }

    /// True if what peers wait for is to be made durable at once.
    pub fn wants_commit_now(&self) -> bool {
        false
    }

    /// A message of another plate.
    pub fn peer(&mut self, from: PlateId, message: PeerMessage, _m: &Moment) {
        if let PeerMessage::Hello { is_answer: false, .. } = message {
            self.queue
                .commands
                .push(Command::Peer(from, PeerMessage::Hello { is_answer: true, carried_out: 0 }));
        }
    }
}
