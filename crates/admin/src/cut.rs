//! Views of all plates of a file system that fit each other, on whichever servers the plates run.
//!
//! ```text
//!   prepare ─▶ all plates ─ hold ─▶ all plates ─ take ─▶ all plates ─ release ─▶ all plates
//!                                 └── no plate takes a message of another ──┘
//! ```
//!
//! Each plate answers for itself (`server/src/view.rs`). Every step has its answers from all plates before the next one begins, so all
//! plates hold their messages at one moment, and each takes its rows while all others still hold theirs.
//!
//! Invariants:
//! - A plate that was restarted or has moved between two steps does not know the view, and all steps are tried again.
//! - Views end with the cut. If its process dies, the servers end holds after 10 s and views after a minute.

use std::sync::Arc;
use std::time::Duration;

use chiton_client::Client;
use chiton_runtime::sync::{Condvar, Mutex};
use chiton_runtime::{RealWorld, World, parallel, thread};
use chiton_types::{PlateId, Refusal};
use serde_json::Value;

use crate::view::ViewError;

/// Plates that are asked at the same time.
const ASKED_MAX: usize = 16;
/// How long steps are tried again while plates move, and the time between, in which operations over several plates continue.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(1);
/// How often a plate is tried that cannot write, or that no server answers for: it may be about to move.
const FAILURES_MAX: usize = 3;
/// How often each view is used, at least.
const KEPT_EVERY: Duration = Duration::from_secs(15);

pub(crate) struct Cut {
    client: Arc<Client>,
    shards: Option<u16>,
    views: Vec<OfPlate>,
}

/// The view of a plate.
struct OfPlate {
    plate: PlateId,
    /// Its number at the plate.
    id: u64,
    rows_approx: u64,
}

/// A step that a plate refuses.
struct Refused {
    plate: PlateId,
    step: &'static str,
    refusal: Refusal,
}

impl Refused {
    /// Whether another try may succeed.
    fn is_passing(&self, tries: usize) -> bool {
        match self.refusal {
            Refusal::Stale => true,
            Refusal::Busy => self.is_late(),
            Refusal::Io | Refusal::NotConnected => tries < FAILURES_MAX,
            _ => false,
        }
    }

    /// The messages were not held until the end.
    fn is_late(&self) -> bool {
        self.refusal == Refusal::Busy && matches!(self.step, "take" | "release")
    }

    fn error(&self, plates: u16) -> ViewError {
        let Refused { plate, refusal, .. } = *self;
        if self.is_late() {
            let why = format!(
                "the checkpoints of the plates take longer than 10 s, that of plate {plate} too: run it again when the servers have less \
                 to write"
            );
            return ViewError::new(refusal, why);
        }
        let error = ViewError::of(refusal);
        if plates == 1 { error } else { ViewError::new(refusal, format!("plate {plate}: {error}")) }
    }
}

impl Cut {
    /// Takes the views. Tries again for a while if plates move meanwhile.
    ///
    /// # Errors
    /// See [`ViewError`].
    pub(crate) fn take(client: &Arc<Client>) -> Result<Cut, ViewError> {
        let plates = client.plates();
        if plates == 1 {
            let mut cut = Cut { client: client.clone(), shards: None, views: Vec::new() };
            cut.begin("open").map_err(|refused| refused.error(plates))?;
            return Ok(cut);
        }
        let began = RealWorld.monotonic();
        for tries in 1.. {
            let refused = match Cut::of_several(client) {
                Ok(cut) => return Ok(cut),
                Err(refused) => refused,
            };
            if !refused.is_passing(tries) || RealWorld.monotonic().saturating_sub(began) >= PATIENCE {
                return Err(refused.error(plates));
            }
            thread::sleep(PAUSE);
        }
        unreachable!("the patience ends")
    }

    fn of_several(client: &Arc<Client>) -> Result<Cut, Refused> {
        let mut cut = Cut { client: client.clone(), shards: None, views: Vec::new() };
        all_answers(cut.ask_all("prepare", |_| "view prepare".to_owned()))?;
        cut.begin("hold")?;
        let taken = all_answers(cut.step("take"))?;
        for (view, (_, answer)) in cut.views.iter_mut().zip(taken) {
            view.rows_approx = json(&answer)["rows"].as_u64().unwrap_or(0);
        }
        all_answers(cut.step("release"))?;
        Ok(cut)
    }

    /// Begins a view of each plate by this word.
    fn begin(&mut self, word: &'static str) -> Result<(), Refused> {
        let answers = self.ask_all(word, move |_| format!("view {word}"));
        // Those that have begun end with the cut, whatever the others answer.
        for (plate, answer) in answers.iter().flatten() {
            let answer = json(answer);
            self.shards = answer["shards"].as_u64().and_then(|n| u16::try_from(n).ok());
            let id = answer["view"].as_u64().unwrap_or_default();
            let rows_approx = answer["rows"].as_u64().unwrap_or_default();
            self.views.push(OfPlate { plate: *plate, id, rows_approx });
        }
        all_answers(answers).map(drop)
    }

    /// One step of every view.
    fn step(&self, word: &'static str) -> Vec<Answered> {
        let ids: Vec<u64> = self.views.iter().map(|view| view.id).collect();
        self.ask_all(word, move |plate| format!("view {} {word}", ids[usize::from(plate.0)]))
    }

    /// The answers of all plates, in their order.
    fn ask_all(
        &self,
        step: &'static str,
        words: impl Fn(PlateId) -> String + Send + Sync + 'static,
    ) -> Vec<Answered> {
        let client = self.client.clone();
        parallel::map("chiton-view", ASKED_MAX, usize::from(client.plates()), move |number| {
            let plate = PlateId(number as u16);
            let answer = client.admin_at(plate, &words(plate));
            answer.map(|answer| (plate, answer)).map_err(|refusal| Refused { plate, step, refusal })
        })
    }

    /// Asks the view of a plate.
    pub(crate) fn ask(&self, plate: PlateId, words: &str) -> Result<Vec<u8>, Refusal> {
        let view = self.views.get(usize::from(plate.0)).ok_or(Refusal::Invalid)?;
        self.client.admin_at(plate, &format!("view {} {words}", view.id))
    }

    /// Extends the life of each view to a minute from now.
    fn keep(&self) {
        for view in &self.views {
            // One that has ended is reported to the next reader of its rows.
            let _ = self.ask(view.plate, "get 00");
        }
    }

    pub(crate) fn plates(&self) -> u16 {
        self.views.len() as u16
    }

    /// Number of shards of the file system, if a server reports it.
    pub(crate) fn shards(&self) -> Option<u16> {
        self.shards
    }

    /// About how many rows a plate has.
    pub(crate) fn rows_approx(&self, plate: PlateId) -> u64 {
        self.views.get(usize::from(plate.0)).map_or(0, |view| view.rows_approx)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        for view in &self.views {
            // If this fails, the view expires.
            let _ = self.client.admin_at(view.plate, &format!("view {} close", view.id));
        }
    }
}

type Answered = Result<(PlateId, Vec<u8>), Refused>;

/// All answers, or the first refusal.
fn all_answers(answers: Vec<Answered>) -> Result<Vec<(PlateId, Vec<u8>)>, Refused> {
    answers.into_iter().collect()
}

fn json(answer: &[u8]) -> Value {
    serde_json::from_slice(answer).unwrap_or_default()
}

/// A thread that uses the views of a cut from time to time, so that they do not end while their reader is busy with others.
pub(crate) struct Keeper {
    end: Arc<End>,
    thread: Option<thread::JoinHandle>,
}

#[derive(Default)]
struct End {
    has_come: Mutex<bool>,
    changed: Condvar,
}

impl End {
    /// Waits so long; true if the end has come.
    fn wait(&self, at_most: Duration) -> bool {
        let mut has_come = self.has_come.lock();
        if !*has_come {
            self.changed.wait_for(&mut has_come, at_most);
        }
        *has_come
    }
}

impl Keeper {
    pub(crate) fn start(cut: &Arc<Cut>) -> Keeper {
        let (end, kept) = (Arc::<End>::default(), cut.clone());
        let seen = end.clone();
        let body = move || {
            while !seen.wait(KEPT_EVERY) {
                kept.keep();
            }
        };
        // Without it a view that is not read for a minute ends, and the reader says so.
        Keeper { end, thread: thread::spawn("chiton-view-keep", body).ok() }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        *self.end.has_come.lock() = true;
        self.end.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
