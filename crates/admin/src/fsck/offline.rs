//! Checks and repairs a file system that has no running server.
//!
//! The metadata store has the state of the last checkpoint. The server's own recovery replays later events of the
//! journal in memory, on top of the store. A check writes nothing. A repair first commits the replayed changes, as
//! a checkpoint would, so that the journal is never replayed over repaired rows.
//!
//! Of several plates the check looks at all rows together ([`RowsOfPlates`]), after each journal was replayed over the rows of its plate.
//! Changes that one plate still owes another are carried out then, as the servers of the plates would:
//!
//! ```text
//!   journal of each plate ─ replay ▶ view of its rows ─ owed effects ─▶ frames ─▶ check: into the view of the other plate
//!                                                                         └────▶ repair: into its journal, then replay into its store
//! ```
//!
//! Invariants:
//! - The ownership is taken before anything is opened, and kept: no other process changes the stores meanwhile.
//! - The rows of a plate are never ahead of its journal: an effect is durable in the journal before its rows reach the store.
//! - A file system with a damaged journal is not repaired: the lost events may explain missing rows.

use std::ops::Bound;
use std::sync::Arc;

use chiton_engine::OwnRow;
use chiton_journal::{Journal, JournalError, Options as JournalOptions, Place, ReplayError, replay};
use chiton_metastore::{Batch, FjallMetastore, FjallOptions, Metastore, Row, StoreError, StoreStats};
use chiton_objects::Objects;
use chiton_runtime::SharedWorld;
use chiton_server::{
    Apply, AtRest, CarriedOut, DataAddress, FilesystemInfo, Ownership, Server, StartError, Stores,
};
use chiton_types::{PlateId, Position, Time};

use crate::fsck::owed::owed;
use crate::fsck::{
    CheckError, Finding, Options, Problem, Progress, Repaired, Summary, check, check_plates, repair,
    repair_plates,
};
use crate::{Overlay, RowsOfPlates};

/// A file system in one's own hands.
pub struct Offline {
    _ownership: Ownership,
    world: SharedWorld,
    info: FilesystemInfo,
    objects: Arc<dyn Objects>,
    plates: Vec<PlateParts>,
    damage: Option<String>,
    /// The reason why changes that plates owe each other cannot be carried out.
    unsettled: Option<String>,
}

/// The state of one plate.
struct PlateParts {
    plate: PlateId,
    store: Arc<dyn Metastore>,
    place: Arc<dyn Place>,
    /// The store with the replayed events of the journal, and with the changes that other plates owe to this one.
    view: Arc<Overlay>,
    /// The frames of the latter.
    settled: CarriedOut,
}

/// Rebuilds a metadata store that does not open, from its undamaged parts; returns a description of each step. The
/// journal has the rows that are missing then.
///
/// # Errors
/// [`StartError::Held`] if a server has it; if the rebuilt store does not open either, all files are as before.
pub fn rebuild(data: &DataAddress, world: &dyn chiton_runtime::World) -> Result<Vec<String>, StartError> {
    let Some(dir) = data.dir() else {
        return Err(StartError::Failed(format!("{data}: only the store of a data directory can be rebuilt")));
    };
    Server::info(data)?.check_one_plate(data, "chiton fsck --rebuild")?;
    chiton_server::make_room_for_tools(data);
    let _ownership = Ownership::take(data, false, world)?;
    let (path, failed) = (dir.join("meta"), |error: StoreError| StartError::Failed(error.to_string()));
    let done = FjallMetastore::rebuild(&path, FjallOptions::default()).map_err(failed)?;
    if !done.is_empty() {
        let store = FjallMetastore::open(&path, FjallOptions::default()).map_err(failed)?;
        skip_session_ids(&store).map_err(failed)?;
        store.close().map_err(failed)?;
    }
    Ok(done)
}

/// More ids than sessions have begun since any commit that a rebuild goes back to.
const SKIPPED_SESSION_IDS: u64 = 1 << 32;

/// Session ids are reserved in the rows alone, and are never used again: those of rows that went back may have been given out.
fn skip_session_ids(store: &dyn Metastore) -> Result<(), StoreError> {
    let (key, _) = OwnRow::SessionMark(0).encode().expect("a row of the server");
    let row = store.get(&key)?.map(|value| OwnRow::decode(&key, &value));
    // A row that cannot be read is the check's to find.
    let Some(Ok(Some(OwnRow::SessionMark(mark)))) = row else { return Ok(()) };
    let (key, value) = OwnRow::SessionMark(mark + SKIPPED_SESSION_IDS).encode().expect("a row of the server");
    store.commit(&Batch::from_iter([(key, Some(value))]))
}

impl Offline {
    /// Opens and locks a file system. `progress` gets bytes of the journal: done, total.
    ///
    /// # Errors
    /// [`StartError::Held`] if a server has it; others as at a server's start.
    pub fn open(
        data: &DataAddress,
        world: SharedWorld,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Offline, StartError> {
        Offline::open_at_rest(data, None, world, progress)
    }

    /// The same, also of a cluster.
    ///
    /// # Errors
    /// The same, and those of [`AtRest::check`].
    pub fn open_at_rest(
        data: &DataAddress,
        at_rest: Option<&AtRest>,
        world: SharedWorld,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Offline, StartError> {
        let info = Server::info_at_rest(data, at_rest)?;
        let at_rest = at_rest.filter(|_| info.monitor.is_some());
        chiton_server::make_room_for_tools(data);
        let ownership = Ownership::take(data, false, &*world)?;
        Offline::open_held(data, (info, ownership), at_rest, world, progress)
    }

    /// Opens a file system to copy it to a cluster: also one whose copy was cut off after it was closed for servers. `take_over` ends
    /// the server that has it.
    ///
    /// # Errors
    /// As [`Offline::open`].
    pub fn open_to_grow(
        data: &DataAddress,
        take_over: bool,
        world: SharedWorld,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Offline, StartError> {
        let info = Server::info_of_any(data)?;
        info.check_alone(data)?;
        chiton_server::make_room_for_tools(data);
        let ownership = Ownership::take(data, take_over, &*world)?;
        Offline::open_held(data, (info, ownership), None, world, progress)
    }

    fn open_held(
        data: &DataAddress,
        (info, ownership): (FilesystemInfo, Ownership),
        at_rest: Option<&AtRest>,
        world: SharedWorld,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Offline, StartError> {
        let (mut plates, mut all_objects) = (Vec::new(), None);
        for plate in info.plates().all() {
            let mut stores = Stores::open_at_rest(data, plate, at_rest)?;
            ownership.guard(&mut stores);
            let Stores { objects, open_meta, place, .. } = stores;
            let store = open_meta().map_err(|e| match e {
                StoreError::Corrupt { .. } => StartError::Corrupt(format!(
                    "{e}. The library opens a store whole or not at all: chiton fsck --rebuild --yes makes of what is whole \
                     one that opens; else restore it from a backup (a copy of the data directory, or a chiton dump)"
                )),
                _ => StartError::Failed(e.to_string()),
            })?;
            all_objects = Some(objects);
            let view = Arc::new(Overlay::new(store.clone()));
            plates.push(PlateParts { plate, view, store, place, settled: CarriedOut::default() });
        }
        let objects = all_objects.expect("there is a plate");
        let mut offline =
            Offline { _ownership: ownership, world, info, objects, plates, damage: None, unsettled: None };
        for part in &offline.plates {
            match offline.replay(part, part.view.clone(), progress) {
                Ok(()) => {}
                Err(StartError::Corrupt(cause)) => {
                    let whose = offline.name_of(part);
                    offline.damage = Some(format!("{whose}{cause}"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if offline.damage.is_none() {
            match offline.settle() {
                Ok(()) => {}
                Err(StartError::Corrupt(cause)) => offline.unsettled = Some(cause),
                Err(error) => return Err(error),
            }
        }
        Ok(offline)
    }

    /// Carries out in memory the changes that plates owe each other.
    fn settle(&mut self) -> Result<(), StartError> {
        if self.plates.len() == 1 {
            return Ok(());
        }
        let views = self.plates.iter().map(|part| &*part.view as &dyn Metastore);
        for (to, effects) in owed(views).map_err(|e| not_replayed(&e))? {
            let part = &self.plates[usize::from(to.0)];
            let settled = self.at_rest(part, part.view.clone())?.carry_out(&effects)?;
            self.plates[usize::from(to.0)].settled = settled;
        }
        Ok(())
    }

    /// A plate with another store in the place of its own.
    fn at_rest(
        &self,
        part: &PlateParts,
        store: Arc<dyn Metastore>,
    ) -> Result<chiton_server::Offline, StartError> {
        let stores = Stores {
            objects: self.objects.clone(),
            open_meta: Box::new(move || Ok(store.clone())),
            place: part.place.clone(),
            objects_address: String::new(),
        };
        chiton_server::Offline::open_with(&self.info, part.plate, &stores, self.world.clone())
    }

    /// The beginning of a message about one of several plates.
    fn name_of(&self, part: &PlateParts) -> String {
        if self.plates.len() == 1 { String::new() } else { format!("plate {}: ", part.plate) }
    }

    /// Brings a store to the end of the journal, as the start of a server would.
    fn replay(
        &self,
        part: &PlateParts,
        store: Arc<dyn Metastore>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), StartError> {
        let failed = |e: StoreError| not_replayed(&e);
        let (key, _) = OwnRow::Position(Position(0)).encode().expect("a row of the server");
        let value = store.get(&key).map_err(failed)?;
        let Some(Ok(Some(OwnRow::Position(stored)))) = value.map(|value| OwnRow::decode(&key, &value)) else {
            return Err(StartError::Corrupt(
                "from where to replay the journal, the metadata store does not say".to_owned(),
            ));
        };
        // First reads all frames, so that a later failure is not blamed on the journal.
        let mut frames = 0u64;
        let mut count = |_: &chiton_journal::Frame<'_>| {
            frames += 1;
            Ok::<_, std::convert::Infallible>(())
        };
        match replay(&*part.place, stored, &mut count, &mut |_| {}) {
            Ok(end) if end.last < stored => {
                return Err(StartError::Corrupt(format!(
                    "the journal ends at position {}, the metadata store holds all up to {stored}",
                    end.last
                )));
            }
            // After an end in order there is nothing to replay, and a store in which recovery would fail is looked at.
            Ok(_) if frames == 0 => return Ok(()),
            Ok(_) => {}
            Err(ReplayError::Journal(error)) => {
                return Err(StartError::Corrupt(format!("the journal: {error}")));
            }
        }
        let offline = self.at_rest(part, store)?;
        let select = &mut |_: Position, _: &_, _: &_| true;
        let all = Apply { after: Position(0), upto: Position(u64::MAX), select, skip_misfits: false };
        offline.apply(all, &mut |p| progress(p.bytes_done, p.bytes_total)).map(drop).map_err(|error| {
            match error {
                StartError::Corrupt(cause) => {
                    StartError::Corrupt(format!("the journal cannot be replayed: {cause}"))
                }
                error => error,
            }
        })
    }

    /// The journal's damage, if there is any.
    pub fn journal_damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    pub fn info(&self) -> &FilesystemInfo {
        &self.info
    }

    /// Its rows, with the replayed events. Commits to them stay in memory.
    pub fn rows(&self) -> Arc<dyn Metastore> {
        match &self.plates[..] {
            [one] => one.view.clone(),
            _ => Arc::new(self.rows_of_plates(|part| part.view.clone())),
        }
    }

    fn rows_of_plates(&self, of: impl Fn(&PlateParts) -> Arc<dyn Metastore>) -> RowsOfPlates {
        RowsOfPlates::new(self.info.plates(), self.plates.iter().map(of).collect())
    }

    /// For each plate, the session ids below this may have been given out.
    ///
    /// # Errors
    /// The store's. A row that cannot be read is the check's to find.
    pub fn session_marks(&self) -> Result<Vec<u64>, StoreError> {
        let (key, _) = OwnRow::SessionMark(0).encode().expect("a row of the server");
        let mut marks = Vec::new();
        for part in &self.plates {
            let row = part.view.get(&key)?.map(|value| OwnRow::decode(&key, &value));
            if let Some(Ok(Some(OwnRow::SessionMark(mark)))) = row {
                marks.push(mark);
            }
        }
        Ok(marks)
    }

    /// The object store with its blocks and other objects.
    pub fn objects(&self) -> Arc<dyn Objects> {
        self.objects.clone()
    }

    fn options(&self, options: &Options) -> Options {
        Options { shards: Some(self.info.shards), live: false, ..options.clone() }
    }

    /// As [`check`].
    ///
    /// # Errors
    /// As [`check`].
    pub fn check(
        &self,
        options: &Options,
        found: &mut dyn FnMut(Finding),
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Summary, CheckError> {
        if let Some(cause) = self.journal_damage() {
            found(Finding {
                problem: Problem::JournalDamage { cause: cause.to_owned() },
                path: None,
                plate: None,
            });
        }
        if let Some(cause) = &self.unsettled {
            return Err(CheckError::Unsettled(cause.clone()));
        }
        let options = self.options(options);
        let mut summary = match &self.plates[..] {
            [one] => check(&*one.view, &*self.objects, &options, found, progress)?,
            _ => {
                let rows = self.rows_of_plates(|part| part.view.clone());
                check_plates(&rows, &*self.objects, &options, found, progress)?
            }
        };
        summary.findings += u64::from(self.journal_damage().is_some());
        Ok(summary)
    }

    /// As [`repair`]; changes nothing if [`Offline::journal_damage`] returns damage.
    ///
    /// # Errors
    /// As [`repair`].
    pub fn repair(
        &mut self,
        options: &Options,
        now: Time,
        report: &mut dyn FnMut(&Finding, bool),
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Repaired, CheckError> {
        if self.journal_damage().is_some() {
            let summary = self.check(options, &mut |finding| report(&finding, false), progress)?;
            return Ok(Repaired { repaired: 0, left: summary.findings, summary });
        }
        if let Some(cause) = &self.unsettled {
            return Err(CheckError::Unsettled(cause.clone()));
        }
        for part in &mut self.plates {
            part.view = Arc::new(Overlay::new(part.store.clone()));
        }
        for at in 0..self.plates.len() {
            self.write_settled(at)?;
            let part = &self.plates[at];
            self.replay(part, Arc::new(Open(part.store.clone())), &mut |_, _| {})
                .map_err(|e| CheckError::Store(failed(e.to_string())))?;
        }
        let options = self.options(options);
        let done = match &self.plates[..] {
            [one] => repair(&*one.store, &*self.objects, &options, now, report, progress)?,
            _ => {
                let rows = self.rows_of_plates(|part| part.store.clone());
                repair_plates(&rows, &*self.objects, &options, now, report, progress)?
            }
        };
        self.objects.sync()?;
        Ok(done)
    }

    /// Appends the changes that a plate carries out for others to its journal.
    fn write_settled(&mut self, at: usize) -> Result<(), CheckError> {
        let part = &mut self.plates[at];
        let CarriedOut { frames, events } = std::mem::take(&mut part.settled);
        if events == 0 {
            return Ok(());
        }
        let (store, place) = (part.store.clone(), part.place.clone());
        let part = &self.plates[at];
        let offline = self.at_rest(part, Arc::new(Open(store)));
        let identity = offline.map_err(|e| CheckError::Store(failed(e.to_string())))?.identity();
        let append = || -> Result<(), JournalError> {
            let (journal, _) = Journal::open(place, identity, JournalOptions::default())?;
            let last = journal.append_vec(frames, events)?;
            journal.wait_durable(last)?;
            journal.close()
        };
        append().map_err(|e| {
            let whose = self.name_of(part);
            CheckError::Store(failed(format!("{whose}the journal cannot be written: {e}")))
        })
    }
}

fn failed(cause: String) -> StoreError {
    StoreError::Io { path: Default::default(), cause }
}

fn not_replayed(error: &StoreError) -> StartError {
    match error {
        StoreError::Corrupt { .. } => StartError::Corrupt(format!("the journal cannot be replayed: {error}")),
        _ => StartError::Failed(error.to_string()),
    }
}

/// The store, protected from a close by recovery.
struct Open(Arc<dyn Metastore>);

impl Metastore for Open {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(key)
    }
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.0.get_many(keys)
    }
    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.0.scan(start, end, limit)
    }
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.0.commit(batch)
    }
    fn stats(&self) -> Result<StoreStats, StoreError> {
        self.0.stats()
    }
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        for part in &self.plates {
            // Every commit was durable when it returned.
            let _ = part.store.close();
        }
    }
}
