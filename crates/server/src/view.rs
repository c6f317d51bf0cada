//! The rows of one moment and the objects beside them, for a tool that checks a file system that is served.
//!
//! Words, of which the answers are bytes:
//!
//! | words | answer |
//! |---|---|
//! | `open` | JSON: `view` (a number), `shards`, `plates`, after a checkpoint of each plate |
//! | `N get KEY` | nothing, or 1 and the value |
//! | `N scan in\|ex KEY END\|- LIMIT` | keys and values, each with its length before it; none: the end |
//! | `N list PREFIX AFTER\|- MAX` | objects: key with its length before it, u64 bytes |
//! | `N object KEY START END` | the bytes |
//! | `N size KEY` | nothing if there is none, or u64 |
//! | `N journal` | what is damaged in the journal, in words; nothing if it is whole |
//! | `N close` | nothing |
//!
//! `N.P` in the place of `N` asks for rows and the journal of plate P; without it they are those of plate 0. Keys of rows are hexadecimal.
//! Rows in a damaged part of the store's files are refused as `NoData`.
//!
//! The rows of several plates are a consistent cut. While the plates write their checkpoints one after the other, no plate takes a message of
//! another:
//!
//! ```text
//!   hold messages ─ plate 0: checkpoint, snapshot ─ plate 1: checkpoint, snapshot ─ … ─ release
//! ```
//!
//! So no plate's rows rest on something that another plate did after its own snapshot. What a plate has decided and another has not
//! carried out stands as owed in the rows of the first.
//!
//! Invariants:
//! - Only root and the server's own user look: rows hold everybody's content.
//! - A few views at a time; one that nobody asks for a minute ends. While there is one, nothing is swept.
//! - A view of several plates ends on all of them together.

use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Duration;

use chiton_journal::{JournalError, survey};
use chiton_metastore::Metastore;
use chiton_types::{Capabilities, Cred, PlateId, Put, Refusal};
use chiton_wire::{Answer, Failure};
use serde_json::json;

use crate::checkpointer::Reason;
use crate::often::Often;
use crate::plate::Plate;
use crate::running::RunningPlate;

/// A view that nobody asks for so long ends.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes of an answer.
const ANSWER_BYTES: usize = 4 << 20;
const PAGE: usize = 4096;
/// No plate takes messages of others for so long while a view of all is made.
const HOLD: Duration = Duration::from_secs(10);
/// Most views at a time: each keeps the store from giving space back.
const VIEWS_MAX: usize = 8;

/// A view that is open.
pub(crate) struct View {
    id: u64,
    rows: Arc<dyn Metastore>,
    used: Duration,
}

impl Plate {
    /// True if somebody looks at rows of the past.
    pub(crate) fn is_viewed(&self) -> bool {
        self.count_views() > 0
    }

    /// How many there are; those that nobody asks any more end here.
    fn count_views(&self) -> usize {
        let now = self.world.monotonic();
        let mut views = self.rows.meta.views.lock();
        views.retain(|view| view.used + IDLE >= now);
        views.len()
    }

    /// Answers what is asked of a view.
    pub(crate) fn view(&self, cred: &Cred, words: &str) -> Result<Answer, Failure> {
        let administers = cred.everywhere(Capabilities::SYS_ADMIN) == Some(true);
        if !administers && cred.uid != rustix::process::geteuid().as_raw() {
            return Err(Failure::Refused(Refusal::NotPermitted));
        }
        let answer = match words.split_once(' ') {
            None if words == "open" => self.open_view(),
            None => Err(Refusal::Invalid),
            Some((view, words)) => self.ask_view(view, words),
        };
        answer.map(Answer::Bytes).map_err(Failure::Refused)
    }

    fn open_view(&self) -> Result<Vec<u8>, Refusal> {
        let others = self.other_plates()?;
        let plates = || std::iter::once(self).chain(others.iter().map(|running| &*running.plate));
        if plates().any(|plate| plate.count_views() >= VIEWS_MAX) {
            return Err(Refusal::Busy);
        }
        let now = || self.world.monotonic();
        let hold = (!others.is_empty()).then(|| self.peers.hold(now() + HOLD));
        // A plate that has taken messages out works on them under this lock.
        plates().filter(|_| hold.is_some()).for_each(|plate| drop(plate.engine.lock()));
        let rows = plates().map(Plate::rows_now).collect::<Result<Vec<_>, _>>()?;
        if hold.is_some_and(|hold| now() >= hold.until()) {
            self.note_often(Often::Rows, "no view: the checkpoints of the plates take too long");
            return Err(Refusal::Busy);
        }
        let (id, used) = (self.world.random() >> 12, now());
        for (plate, rows) in plates().zip(rows) {
            plate.rows.meta.views.lock().push(View { id, rows, used });
        }
        let answer = json!({ "view": id, "shards": self.info.shards, "plates": others.len() + 1 });
        Ok(answer.to_string().into_bytes())
    }

    /// The other plates of the file system, in their order. All must run here.
    fn other_plates(&self) -> Result<Vec<Arc<RunningPlate>>, Refusal> {
        if self.peers.is_alone() {
            return Ok(Vec::new());
        }
        let table = self.table.get().and_then(Weak::upgrade).ok_or(Refusal::Unsupported)?;
        let others = self.peers.plates().all().filter(|plate| *plate != self.plate);
        others.map(|plate| table.get(plate)).collect::<Option<_>>().ok_or(Refusal::Unsupported)
    }

    /// The rows of a moment after the call.
    fn rows_now(&self) -> Result<Arc<dyn Metastore>, Refusal> {
        let failed = |line: String| {
            self.note_often(Often::Rows, &format!("no view: {line}"));
            Refusal::Io
        };
        // One that failed before has the rows of an earlier moment.
        if self.has_begun_checkpoint() {
            self.checkpoint_now(Reason::Requested).map_err(failed)?;
        }
        self.checkpoint_now(Reason::Requested).map_err(failed)?;
        self.rows.meta.get().snapshot().map_err(|e| {
            self.log_often(Often::Rows, &format!("no view: {e}"));
            Refusal::Unsupported
        })
    }

    /// `view`: its number, and perhaps a plate.
    fn ask_view(&self, view: &str, words: &str) -> Result<Vec<u8>, Refusal> {
        let (id, plate) = view.split_once('.').unwrap_or((view, "0"));
        let (id, plate) = (number(id)?, PlateId(plate.parse().map_err(|_| Refusal::Invalid)?));
        let others = self.other_plates()?;
        for running in &others {
            running.plate.use_view(id);
        }
        let own = self.use_view(id);
        if words == "close" {
            for views in others.iter().map(|running| &running.plate).map(|plate| &plate.rows.meta.views) {
                views.lock().retain(|view| view.id != id);
            }
            self.rows.meta.views.lock().retain(|view| view.id != id);
            return Ok(Vec::new());
        }
        if plate == self.plate {
            return self.answer(&*own.ok_or(Refusal::Stale)?, words);
        }
        let of = others.iter().find(|running| running.plate.plate == plate).ok_or(Refusal::Invalid)?;
        of.plate.answer(&*of.plate.use_view(id).ok_or(Refusal::Stale)?, words)
    }

    /// The rows of a view, which begins another minute.
    fn use_view(&self, id: u64) -> Option<Arc<dyn Metastore>> {
        let mut views = self.rows.meta.views.lock();
        let view = views.iter_mut().find(|view| view.id == id)?;
        view.used = self.world.monotonic();
        Some(view.rows.clone())
    }

    fn answer(&self, rows: &dyn Metastore, words: &str) -> Result<Vec<u8>, Refusal> {
        let words: Vec<&str> = words.split(' ').collect();
        let store = |e: chiton_metastore::StoreError| {
            self.note_often(Often::Rows, &e.to_string());
            match e {
                chiton_metastore::StoreError::Corrupt { .. } => Refusal::NoData,
                _ => Refusal::Io,
            }
        };
        let mut answer = Vec::new();
        match &words[..] {
            ["get", key] => {
                if let Some(value) = rows.get(&unhex(key)?).map_err(store)? {
                    answer.push(1);
                    answer.extend(value);
                }
            }
            ["scan", how, key, end, limit] => {
                let (key, limit) = (unhex(key)?, number(limit)?.min(PAGE as u64) as usize);
                let end = if *end == "-" { None } else { Some(unhex(end)?) };
                let start = if *how == "in" { Bound::Included(&key[..]) } else { Bound::Excluded(&key[..]) };
                for (key, value) in rows.scan(start, end.as_deref(), limit).map_err(store)? {
                    // At least one, or it would be the end.
                    if !answer.is_empty() && answer.len() + value.len() > ANSWER_BYTES {
                        break;
                    }
                    answer.put_bytes(&key);
                    answer.put_bytes(&value);
                }
            }
            ["journal"] => answer = self.journal_damage()?.into_bytes(),
            words => return self.ask_objects(words),
        }
        Ok(answer)
    }

    /// Reads all of the journal, as a start would, while it is written.
    fn journal_damage(&self) -> Result<String, Refusal> {
        let survey = survey::<JournalError>(&*self.place, &mut |_| Ok(()), &mut |_| {}).map_err(|e| {
            self.note_often(Often::Rows, &format!("the journal cannot be read: {e}"));
            Refusal::Io
        })?;
        Ok(survey.flaws.first().map_or(String::new(), |flaw| {
            let line = format!("the journal: {}", flaw.damage);
            self.note_often(Often::Rows, &line);
            line
        }))
    }

    fn ask_objects(&self, words: &[&str]) -> Result<Vec<u8>, Refusal> {
        let failed = |e: chiton_objects::ObjectError| {
            self.note_often(Often::Rows, &e.to_string());
            if e.is_not_found() { Refusal::NotFound } else { Refusal::Io }
        };
        let mut answer = Vec::new();
        match words {
            ["list", prefix, after, max] => {
                let after = Some(*after).filter(|after| *after != "-");
                let max = number(max)?.min(PAGE as u64) as usize;
                for object in self.blocks.objects.list(prefix, after, max).map_err(failed)? {
                    answer.put_bytes(object.key.as_bytes());
                    answer.put_u64(object.bytes);
                }
            }
            ["object", key, start, end] => {
                let (start, end) = (number(start)?, number(end)?);
                if end.checked_sub(start).is_none_or(|len| len > ANSWER_BYTES as u64) {
                    return Err(Refusal::Invalid);
                }
                answer = self.blocks.objects.get(key, Some(start..end)).map_err(failed)?;
            }
            ["size", key] => match self.blocks.objects.size(key) {
                Ok(bytes) => answer.put_u64(bytes),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(failed(error)),
            },
            _ => return Err(Refusal::Invalid),
        }
        Ok(answer)
    }
}

fn number(text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| Refusal::Invalid)
}

fn unhex(text: &str) -> Result<Vec<u8>, Refusal> {
    let digits: Vec<u32> =
        text.chars().map(|c| c.to_digit(16)).collect::<Option<_>>().ok_or(Refusal::Invalid)?;
    if !digits.len().is_multiple_of(2) {
        return Err(Refusal::Invalid);
    }
    Ok(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_are_read() {
        assert_eq!(super::unhex("00ff1a"), Ok(vec![0, 255, 26]));
        assert_eq!(super::unhex(""), Ok(vec![]));
        assert!(super::unhex("0").is_err() && super::unhex("zz").is_err());
    }
}
