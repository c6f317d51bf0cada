//! Services around a service: they answer calls in their own way, in the session and over the connection of the inner one.

use std::sync::Arc;
use std::time::Duration;

use chiton_types::{Ino, PlateId, Position, Refusal, SessionId};

use crate::service::{CallError, Connection, Durability, Interrupted, PlateLookup, Service, Session};
use crate::{PartLists, Recalls};

pub(crate) trait Decorator: Send + Sync {
    fn inner(&self) -> &dyn Service;
}

impl<D: Decorator> Session for D {
    fn session(&self, ino: Ino) -> SessionId {
        self.inner().session(ino)
    }

    fn valid_until(&self, ino: Ino) -> Duration {
        self.inner().valid_until(ino)
    }

    fn recalls(&self) -> &Recalls {
        self.inner().recalls()
    }

    fn is_shared(&self) -> bool {
        self.inner().is_shared()
    }

    fn settle(&self) -> Result<(), CallError> {
        self.inner().settle()
    }

    fn closed(&self, ino: Ino) {
        self.inner().closed(ino);
    }
}

impl<D: Decorator> Durability for D {
    fn durable(&self) -> Position {
        self.inner().durable()
    }

    fn commit(&self, upto: Position) -> Result<(), Refusal> {
        self.inner().commit(upto)
    }

    fn commit_with(&self, ino: Ino) -> Result<(), Refusal> {
        self.inner().commit_with(ino)
    }

    fn needs_commit(&self) -> bool {
        self.inner().needs_commit()
    }

    fn take_lost(&self) -> bool {
        self.inner().take_lost()
    }

    fn make_room(&self) -> Result<(), CallError> {
        self.inner().make_room()
    }
}

impl<D: Decorator> PlateLookup for D {
    fn part_lists(&self) -> Arc<PartLists> {
        self.inner().part_lists()
    }

    fn plate_of(&self, ino: Ino) -> PlateId {
        self.inner().plate_of(ino)
    }

    fn plates(&self) -> u16 {
        self.inner().plates()
    }
}

impl<D: Decorator> Connection for D {
    fn is_embedded(&self) -> bool {
        self.inner().is_embedded()
    }

    fn is_away(&self) -> bool {
        self.inner().is_away()
    }

    fn probe(&self) -> Result<(), String> {
        self.inner().probe()
    }

    fn unsettled(&self) -> usize {
        self.inner().unsettled()
    }

    fn messages(&self) -> u64 {
        self.inner().messages()
    }

    fn set_interrupted(&self, interrupted: Interrupted) {
        self.inner().set_interrupted(interrupted);
    }

    fn leave(&self, limit: Duration) {
        self.inner().leave(limit);
    }

    fn abandon(&self) {
        self.inner().abandon();
    }
}
