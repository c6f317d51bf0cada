//! Shows the state of a directory if unmerged journals were merged into it one after the other. The merge runs on a
//! copy in memory, so the directory itself does not change.
//!
//! ```text
//!   rows of one moment ─▶ preview ◀─ merge ─ journal A, journal B …     the real merge, in another engine
//!                            │
//!                            ├─ its own journal: which journal changed which inode     (Provenance)
//!                            └─ client ─▶ Composed: the tree, conflicts
//! ```
//!
//! Invariants:
//! - The merge itself decides which changes conflict and which side prevails (`on_conflict: overwrite`). A later
//!   journal is to an earlier one as a merge is to the changes of other clients.
//! - Only the preview changes. A journal whose client still writes it is read up to a position that the rows cover,
//!   so the preview has a prefix of the client's operations.

use std::sync::Arc;

use chiton_client::data::BlockIo;
use chiton_client::{Client, ClientOptions};
use chiton_journal::{Frame, JournalError, ReplayError, replay};
use chiton_model::merge::OnConflict;
use chiton_model::{Event, FrameEvents};
use chiton_runtime::SharedWorld;
use chiton_server::Server;
use chiton_types::{Ino, Position, Refusal};
use chiton_wire::{Granted, RealmInfo};

use crate::batches::read_events;
use crate::calls::{Calls, ClaimCalls};
use crate::composed::{Composed, JournalConflict};
use crate::error::RealmError;
use crate::merge::Merger;
use crate::provenance::Provenance;
use crate::report::{LINES_MAX, MergeReport};
use crate::unmerged::{Unmerged, decouplings};

/// A preview under construction: rows of one moment, with journals merged into them.
pub struct Composition {
    preview: Arc<Server>,
    client: Arc<Client>,
    calls: Calls,
    world: SharedWorld,
    composed: Composed,
}

impl Composition {
    /// Begins with the rows of a preview ([`chiton_server::Role::Preview`]). `blocks` is the store of file content.
    ///
    /// # Errors
    /// The preview does not let a client in.
    pub fn begin(preview: Arc<Server>, blocks: Arc<dyn BlockIo>) -> Result<Composition, RealmError> {
        let options = ClientOptions {
            identity: "a composition".to_owned(),
            user: Some((0, 0, Vec::new())),
            write_behind_after: None,
            ..ClientOptions::default()
        };
        let world = options.world.clone();
        let client =
            chiton_embedded::client_with_blocks(&preview, blocks, options).map_err(RealmError::local)?;
        let client = Arc::new(client);
        Ok(Composition {
            calls: Calls { service: client.service().clone() },
            composed: Composed {
                client: client.clone(),
                names: Vec::new(),
                provenance: Provenance::default(),
                conflicts: Vec::new(),
                conflict_count: 0,
                lost: Vec::new(),
                lost_count: 0,
                events: Vec::new(),
                _preview: preview.clone(),
            },
            preview,
            client,
            world,
        })
    }

    /// The decouplings that the rows know, in the order of their numbers.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub fn decouplings(&self) -> Result<Vec<RealmInfo>, RealmError> {
        decouplings(&self.client)
    }

    /// Resolves a path of the file system without following symbolic links; `None` if it does not exist.
    pub fn real_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.client.stat(path).ok().and_then(|attr| self.preview.path_of(attr.ino))
    }

    /// Merges a journal into the preview.
    ///
    /// # Errors
    /// Its decoupling is over; it cannot be read, or does not fit the rows. Then the composition is worth nothing.
    pub fn merge_journal(&mut self, journal: &Unmerged) -> Result<(), RealmError> {
        let about = |error: RealmError| error.about(&format!("journal {} ({})", journal.name, journal.at));
        self.merge(journal).map_err(about)
    }

    fn merge(&mut self, journal: &Unmerged) -> Result<(), RealmError> {
        let all = self.decouplings()?;
        let Some(info) = all.into_iter().find(|info| info.claim.realm == journal.realm) else {
            let what = "its decoupling is over: it was merged or dropped";
            return Err(RealmError::new(Refusal::Stale, what, "`chiton decoupled` lists all"));
        };
        let before = self.preview.last();
        let granted = self.calls.attach(journal.realm, self.world.random(), info.journal_at.clone())?;
        let calls = ClaimCalls { calls: self.calls.clone(), claim: granted.claim };
        calls.resolve(OnConflict::Overwrite)?;
        let cut = upto(journal, &granted)?;
        let mut state = granted.state;
        let events = cut.0.saturating_sub(state.merged.0);
        let mut report = MergeReport::default();
        if events > 0 {
            let mut merger = Merger {
                calls: &calls,
                place: journal.place.clone(),
                world: &self.world,
                progress: &|_| {},
                durable: &mut |_| Ok(()),
            };
            report = merger.run(&mut state, cut)?;
        }
        calls.end(false)?;
        self.note(journal, &info, events, before, report)
    }

    /// Records which inodes and names a journal changed, and its conflicts.
    fn note(
        &mut self,
        journal: &Unmerged,
        info: &RealmInfo,
        events: u64,
        before: Position,
        report: MergeReport,
    ) -> Result<(), RealmError> {
        let composed = &mut self.composed;
        let layer = composed.names.len() as u32;
        composed.names.push(journal.name.clone());
        composed.events.push(events);
        composed.conflict_count += report.conflict_count;
        let room = LINES_MAX.saturating_sub(composed.conflicts.len());
        for line in report.conflicts.into_iter().take(room) {
            // Before this journal's changes are recorded, so that the records name the other side.
            let against =
                composed.provenance.of_conflict(&line).map(|at| composed.names[at as usize].clone());
            composed.conflicts.push(JournalConflict::new(journal.name.clone(), against, &info.path, line));
        }
        composed.lost_count += report.lost_count;
        composed.lost.extend(report.lost.into_iter().map(|why| (journal.name.clone(), why)));
        composed.lost.truncate(LINES_MAX);
        let last = self.preview.last();
        self.preview.wait_durable(last).map_err(RealmError::local)?;
        let provenance = &mut composed.provenance;
        let place = self.preview.journal_place();
        read_events(&*place, before, last, &mut |event| provenance.note(event, layer))
    }

    /// Finishes the preview. It also ends decouplings whose journals were not merged into it, so their directories
    /// can be read.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub fn finish(self) -> Result<Composed, RealmError> {
        for info in self.decouplings()? {
            ClaimCalls { calls: self.calls.clone(), claim: info.claim }.end(true)?;
        }
        Ok(self.composed)
    }
}

/// Where reading a journal ends: at its end, or before the first frame that makes an inode with
/// a number which the rows do not know to be granted. It has continued since they were taken.
fn upto(journal: &Unmerged, granted: &Granted) -> Result<Position, RealmError> {
    let after = granted.state.merged;
    let begun = granted.state.batch.map_or(after, |(upto, _)| upto);
    let is_granted = |ino: Ino| granted.ranges.iter().any(|(first, end)| (*first..*end).contains(&ino));
    let mut last = after;
    let mut visit = |frame: &Frame<'_>| {
        for event in FrameEvents::new(frame.first, frame.header.event_count, frame.payload) {
            let (_, event) = event.map_err(|e| Halt::Torn(frame.first, e.to_string()))?;
            if matches!(event, Event::Make { ino, .. } if !is_granted(ino)) {
                return Err(Halt::Ahead);
            }
        }
        last = frame.last();
        Ok(())
    };
    match replay(&*journal.place, after, &mut visit, &mut |_| {}) {
        Ok(replayed) if replayed.last < after => {
            let what =
                format!("it ends at position {}, and the server has merged it up to {after}", replayed.last);
            return Err(RealmError::journal(what));
        }
        Ok(replayed) => check_whole(journal, replayed.last)?,
        Err(ReplayError::Visitor(Halt::Ahead)) => {}
        // No client has opened the journal yet.
        Err(ReplayError::Journal(JournalError::Absent)) if after == Position(0) => {
            check_whole(journal, Position(0))?;
        }
        Err(ReplayError::Visitor(Halt::Torn(at, what))) => {
            return Err(RealmError::journal(format!("position {at}: {what}")));
        }
        Err(ReplayError::Journal(error)) => return Err(RealmError::journal(error)),
    }
    // An interrupted merge has changed rows already.
    if last < begun {
        let what = format!("it ends at position {last}, and the server has begun to merge it up to {begun}");
        return Err(RealmError::journal(what));
    }
    Ok(last)
}

/// Refuses a journal that ends before it was durable.
fn check_whole(journal: &Unmerged, end: Position) -> Result<(), RealmError> {
    match journal.durable {
        Some(durable) if end < durable => {
            Err(RealmError::truncated(&format!("decoupling {}", journal.realm), end, durable))
        }
        _ => Ok(()),
    }
}

/// The reason why reading stops.
enum Halt {
    /// The journal is ahead of the rows.
    Ahead,
    Torn(Position, String),
}

impl From<JournalError> for Halt {
    fn from(error: JournalError) -> Halt {
        Halt::Torn(Position(0), error.to_string())
    }
}
