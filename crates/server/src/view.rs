//! The rows of one moment and the objects beside them, for a tool that checks a file system that is served.
//!
//! Words, of which the answers are bytes:
//!
//! | words | answer |
//! |---|---|
//! | `open` | JSON: `view` (a number), `shards`, `plates`, `rows` (about how many), after a checkpoint. Of a file system with one plate |
//! | `prepare` | nothing, after a checkpoint: the next one is short |
//! | `hold` | JSON: `view`, `shards`, `plates`. The view has no rows yet, and no plate of this server takes messages of others for 10 s |
//! | `N take` | JSON: `rows`, after a checkpoint: the view has the rows of this moment |
//! | `N release` | nothing: the plates take messages again |
//! | `N get KEY` | nothing, or 1 and the value |
//! | `N scan in\|ex KEY END\|- LIMIT` | keys and values, each with its length before it; none: the end |
//! | `N list PREFIX AFTER\|- MAX` | objects: key with its length before it, u64 bytes |
//! | `N object KEY START END` | the bytes |
//! | `N size KEY` | nothing if there is none, or u64 |
//! | `N journal` | what is damaged in the journal, in words; nothing if it is whole |
//! | `N close` | nothing |
//!
//! Rows and the journal are those of the plate that is asked. Keys of rows are hexadecimal. Rows in a damaged part of the store's files are
//! refused as `NoData`.
//!
//! Views of several plates, on whichever servers, are a consistent cut if their client takes each step at all plates before it takes the next
//! one at any:
//!
//! ```text
//!   client ─ prepare ─▶ all plates ─ hold ─▶ all plates ─ take ─▶ all plates ─ release ─▶ all plates
//!                                    └──── no plate takes a message of another ────┘
//! ```
//!
//! So no plate's rows rest on something that another plate did after its own snapshot. A decision of one plate that another has not
//! carried out stands as owed in the rows of the first. If a plate stops or moves meanwhile, its view is gone, and the next step is refused
//! as `Stale`. If the 10 s were over before `take` or `release`, that is refused as `Busy`. In both cases there is no cut, and the client
//! begins anew.
//!
//! Invariants:
//! - Only root and the server's own user look: rows hold everybody's content.
//! - A few views at a time; one that nobody asks for a minute ends. While there is one, nothing is swept.
//! - A hold ends with its view, or after 10 s, whatever becomes of its client.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use chiton_journal::{JournalError, survey};
use chiton_metastore::Metastore;
use chiton_types::{Capabilities, Cred, Put, Refusal};
use chiton_wire::{Answer, Failure};
use serde_json::json;

use crate::checkpointer::Reason;
use crate::often::Often;
use crate::peers::Hold;
use crate::plate::Plate;

/// A view that nobody asks for so long ends.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes of an answer, at most.
const ANSWER_BYTES: usize = 4 << 20;
const PAGE: usize = 4096;
/// No plate takes messages of others for so long while views of all are made.
const HOLD: Duration = Duration::from_secs(10);
/// Most views at a time: each keeps the store from giving space back.
const VIEWS_MAX: usize = 8;

/// A view that is open.
pub(crate) struct View {
    id: u64,
    /// `None` before they are taken.
    rows: Option<Arc<dyn Metastore>>,
    /// While views of all plates are made.
    hold: Option<Hold>,
    used: Duration,
}

impl Plate {
    /// True if a client looks at rows of the past.
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

    /// Answers a question about a view.
    pub(crate) fn view(&self, cred: &Cred, words: &str) -> Result<Answer, Failure> {
        let administers = cred.everywhere(Capabilities::SYS_ADMIN) == Some(true);
        if !administers && cred.uid != rustix::process::geteuid().as_raw() {
            return Err(Failure::Refused(Refusal::NotPermitted));
        }
        let answer = match (words.split_once(' '), words) {
            (Some((id, words)), _) => number(id).and_then(|id| self.ask_view(id, words)),
            (None, "open") => self.open_view(),
            (None, "prepare") => self.checkpoint_for_view().map(|()| Vec::new()),
            (None, "hold") => self.hold_for_view(),
            (None, _) => Err(Refusal::Invalid),
        };
        answer.map(Answer::Bytes).map_err(Failure::Refused)
    }

    /// A view of the only plate.
    fn open_view(&self) -> Result<Vec<u8>, Refusal> {
        if !self.peers.is_alone() {
            return Err(Refusal::Unsupported);
        }
        self.check_room()?;
        let rows = self.rows_now()?;
        let about = rows_approx(&*rows);
        let id = self.add_view(Some(rows), None);
        let answer = json!({ "view": id, "shards": self.info.shards, "plates": 1, "rows": about });
        Ok(answer.to_string().into_bytes())
    }

    /// The beginning of a view: from now on messages are held.
    fn hold_for_view(&self) -> Result<Vec<u8>, Refusal> {
        self.check_room()?;
        let hold = self.peers.hold(self.world.monotonic() + HOLD);
        // The plate may have taken messages out before, and works on them under this lock.
        drop(self.engine.lock());
        let id = self.add_view(None, Some(hold));
        let plates = self.peers.plates().count();
        Ok(json!({ "view": id, "shards": self.info.shards, "plates": plates }).to_string().into_bytes())
    }

    /// Fails if there are as many views as may be.
    fn check_room(&self) -> Result<(), Refusal> {
        if self.count_views() < VIEWS_MAX { Ok(()) } else { Err(Refusal::Busy) }
    }

    fn add_view(&self, rows: Option<Arc<dyn Metastore>>, hold: Option<Hold>) -> u64 {
        // JSON has whole numbers up to 2^53.
        let (id, used) = (self.world.random() >> 12, self.world.monotonic());
        self.rows.meta.views.lock().push(View { id, rows, hold, used });
        id
    }

    /// The rows of a view whose messages are held.
    fn take_for_view(&self, id: u64) -> Result<Vec<u8>, Refusal> {
        self.check_hold(id)?;
        let rows = self.rows_now()?;
        let about = rows_approx(&*rows);
        self.with_view(id, |view| view.rows = Some(rows))?;
        self.check_hold(id)?;
        Ok(json!({ "rows": about }).to_string().into_bytes())
    }

    /// Fails if messages are not held any more.
    fn check_hold(&self, id: u64) -> Result<(), Refusal> {
        let now = self.world.monotonic();
        if self.with_view(id, |view| view.hold.as_ref().is_some_and(|hold| now < hold.until()))? {
            return Ok(());
        }
        self.note_often(Often::Rows, "no view: the checkpoints of the plates take too long");
        Err(Refusal::Busy)
    }

    fn release_for_view(&self, id: u64) -> Result<Vec<u8>, Refusal> {
        let held = self.check_hold(id);
        self.with_view(id, |view| view.hold = None)?;
        held.map(|()| Vec::new())
    }

    fn checkpoint_for_view(&self) -> Result<(), Refusal> {
        self.checkpoint_now(Reason::Requested).map_err(|line| {
            self.note_often(Often::Rows, &format!("no view: {line}"));
            Refusal::Io
        })
    }

    /// The rows of a moment after the call.
    fn rows_now(&self) -> Result<Arc<dyn Metastore>, Refusal> {
        // One that failed before has the rows of an earlier moment.
        if self.has_begun_checkpoint() {
            self.checkpoint_for_view()?;
        }
        self.checkpoint_for_view()?;
        self.rows.meta.get().snapshot().map_err(|e| {
            self.log_often(Often::Rows, &format!("no view: {e}"));
            Refusal::Unsupported
        })
    }

    fn ask_view(&self, id: u64, words: &str) -> Result<Vec<u8>, Refusal> {
        match words {
            "take" => self.take_for_view(id),
            "release" => self.release_for_view(id),
            "close" => {
                self.rows.meta.views.lock().retain(|view| view.id != id);
                Ok(Vec::new())
            }
            words => {
                let rows = self.with_view(id, |view| view.rows.clone())?.ok_or(Refusal::Stale)?;
                self.answer(&*rows, words)
            }
        }
    }

    /// Looks at a view, which begins another minute.
    fn with_view<T>(&self, id: u64, f: impl FnOnce(&mut View) -> T) -> Result<T, Refusal> {
        let mut views = self.rows.meta.views.lock();
        let view = views.iter_mut().find(|view| view.id == id).ok_or(Refusal::Stale)?;
        view.used = self.world.monotonic();
        Ok(f(view))
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
        let _trimming = self.checkpoints.trimming.lock();
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

/// About how many rows there are; 0 if that cannot be found out.
fn rows_approx(rows: &dyn Metastore) -> u64 {
    rows.stats().map_or(0, |stats| stats.rows_approx)
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
