//! From a data address to its journal: held, to be changed, or in use by a server, to be read.

use std::sync::Arc;

use chiton_admin::journal::JournalToolError;
use chiton_journal::{FilePlace, JournalError, Place};
use chiton_runtime::RealWorld;
use chiton_server::{DataAddress, Offline, Server, StartError, Stores};
use chiton_types::{PlateId, Position};

use super::SERVER;
use super::args::{Consent, Source};
use crate::failure::{Class, Failure, Outcome};
use crate::{at_rest, target};

/// A journal that can be read.
pub(super) enum Journal {
    /// No other process has it.
    Ours(Offline),
    /// A server has it.
    Live {
        place: Arc<dyn Place>,
        /// The position of its metadata store, if known.
        stored: Option<Position>,
    },
}

impl Journal {
    pub(super) fn place(&self) -> Arc<dyn Place> {
        match self {
            Journal::Ours(offline) => offline.place(),
            Journal::Live { place, .. } => place.clone(),
        }
    }

    pub(super) fn stored(&self) -> Outcome<Option<Position>> {
        match self {
            Journal::Ours(offline) => Ok(Some(offline.stored()?)),
            Journal::Live { stored, .. } => Ok(*stored),
        }
    }

    pub(super) fn offline(&self) -> Option<&Offline> {
        match self {
            Journal::Ours(offline) => Some(offline),
            Journal::Live { .. } => None,
        }
    }
}

/// The journal of a decoupled subtree, if the directory is the one in which a mount keeps it (below its --state-dir).
fn of_decoupled(data: &DataAddress) -> Outcome<Option<Arc<dyn Place>>> {
    let DataAddress::Dir(dir) = data else { return Ok(None) };
    let journal = dir.join("journal");
    if dir.join(target::FORMAT_FILE).exists() || !dir.join("realm.json").is_file() || !journal.is_dir() {
        return Ok(None);
    }
    let place = FilePlace::open(&journal).map_err(|e| JournalToolError::from(JournalError::from(e)))?;
    Ok(Some(Arc::new(place)))
}

/// Only the segments, without a lock.
pub(super) fn segments(source: &Source) -> Outcome<Arc<dyn Place>> {
    let data = &source.data;
    if let Some(place) = of_decoupled(data)? {
        return Ok(place);
    }
    let info = Server::info_of_any(data)?;
    let plates = info.plates;
    let plate = PlateId(source.plate);
    if plate.0 >= plates {
        return Err(StartError::NoPlate { data: data.clone(), plate, plates }.into());
    }
    match info.monitor {
        // Servers may live, and are not disturbed.
        Some(_) => Ok(Stores::open_shared(data, plate)?.place),
        None => Ok(Stores::open_journal(data, plate)?),
    }
}

/// For reading, with the metadata store if no server has it.
pub(super) fn to_read(source: &Source) -> Outcome<Journal> {
    if let Some(place) = of_decoupled(&source.data)? {
        return Ok(Journal::Live { place, stored: None });
    }
    let at_rest = at_rest::of(&source.data, source.monitor.as_ref())?;
    match Offline::open_at_rest(&source.data, PlateId(source.plate), at_rest.as_ref(), Arc::new(RealWorld)) {
        Ok(offline) => Ok(Journal::Ours(offline)),
        Err(StartError::Held { .. }) => Ok(Journal::Live { place: segments(source)?, stored: asked(source) }),
        Err(error) => Err(error.into()),
    }
}

/// The position of the metadata store, from the file system's server.
fn asked(source: &Source) -> Option<Position> {
    let client = target::client(&source.data.to_string()).ok()?;
    let status = target::admin(&client, "status").ok()?;
    status["journals"][usize::from(source.plate)]["checkpointed"].as_u64().map(Position)
}

/// For writing: the user must have named the right journal, and no other process may use it.
pub(super) fn to_change(source: &Source, consent: &Consent) -> Outcome<Offline> {
    let data = &source.data;
    match consent.journal.as_deref() {
        Some(SERVER) => {}
        Some(other) => {
            return Err(Failure::absent(format!(
                "this file system has no journal {other:?}, only {SERVER:?}"
            )));
        }
        None => {
            return Err(Failure::failed(format!("name the journal to change: --journal {SERVER}")));
        }
    }
    let at_rest = at_rest::of(data, source.monitor.as_ref())?;
    let opened = Offline::open_at_rest(data, PlateId(source.plate), at_rest.as_ref(), Arc::new(RealWorld));
    opened.map_err(|error| match error {
        StartError::Held { holder, .. } => Failure::new(
            Class::Busy,
            format!(
                "the journal is live: {data} is in use by {holder}. Stop it first (chiton umount, or end chiton serve); \
                 what only reads is allowed: inspect, export, header get, event get"
            ),
        ),
        error => error.into(),
    })
}

/// True if the user has confirmed; otherwise reports the effect.
pub(super) fn agreed(consent: &Consent, would: &str) -> Outcome {
    if consent.yes {
        return Ok(());
    }
    Err(Failure::failed(format!("nothing was changed. This command would {would}; add --yes to do it")))
}
