//! A client at work in a directory whose policy changes: through the server, or in its decoupling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use chiton_client::OpenFlags;
use chiton_decoupled::{Realm, RealmError};
use chiton_model::XattrHow;
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread;
use chiton_types::{Ino, Refusal};

use super::super::driver::on;
use super::super::stage::{Desk, PAUSE, Stage};
use super::Cell;
use super::ledger::Ledger;
use crate::history::{Action, Answer, Handle};
use crate::perform::{Handles, perform};
use crate::random::Random;

/// How often an action is tried, with a millisecond between: longer than a dead server stays away.
const TRIES_MAX: usize = 10_000;

/// The file that is held open over the change.
pub(super) const HELD: Handle = Handle(1);
/// The attribute in which a directory's policy is set.
pub(super) const POLICY: &[u8] = b"chiton.policy";

pub(super) struct Job {
    stage: Arc<Stage>,
    pub(super) desk: Desk,
    /// The directory whose policy it is.
    pub(super) top: Ino,
    top_path: &'static str,
    /// The directory in which it works: that one, or one in it.
    root: String,
    pub(super) realm: Mutex<Option<Arc<Realm>>>,
    /// The cell that holds, or two while one becomes the other.
    cells: Mutex<Vec<Cell>>,
    changes: AtomicU64,
    pub(super) ledger: Mutex<Ledger>,
    /// Handles of the global client (`None`) or of the decoupling.
    handles: Mutex<(Handles, Option<Arc<Realm>>)>,
    /// Nothing more is asked once the server has died: it may have lost something.
    pub(super) stops: bool,
    made: Mutex<Vec<String>>,
    count: Mutex<u64>,
    /// Set when the change is over.
    pub(super) changed: AtomicBool,
}

impl Job {
    pub(super) fn new(
        stage: &Arc<Stage>,
        desk: Desk,
        (top, top_path): (Ino, &'static str),
        root: String,
        cell: Cell,
        ledger: Ledger,
    ) -> Arc<Job> {
        Arc::new(Job {
            stage: stage.clone(),
            desk,
            top,
            top_path,
            root,
            realm: Mutex::default(),
            cells: Mutex::new(vec![cell]),
            changes: AtomicU64::new(0),
            ledger: Mutex::new(ledger),
            handles: Mutex::default(),
            stops: false,
            made: Mutex::default(),
            count: Mutex::new(0),
            changed: AtomicBool::new(false),
        })
    }

    pub(super) fn is_dead(&self) -> bool {
        self.desk.live.is_over()
    }

    /// Nothing more is to be asked.
    pub(super) fn is_over(&self) -> bool {
        self.is_dead() || (self.stops && self.stage.deaths() > 0)
    }

    /// A failure that is a death's: its disk takes nothing any more a moment before it falls silent.
    fn is_by_death(&self) -> bool {
        thread::sleep(Duration::from_millis(5));
        self.is_over()
    }

    /// Asks for an action, wherever its directory is, until it is answered or everything is over. To be called by one
    /// thread of the client's party.
    pub(super) fn act(&self, action: &Action) -> Result<(), String> {
        if self.is_over() {
            return Ok(());
        }
        let call = self.ledger.lock().begins(action);
        for _ in 0..TRIES_MAX {
            let before = self.changes.load(SeqCst);
            let was_changing = self.cells.lock().len() > 1;
            let (by_client, answer) = self.ask(action);
            self.stage.line(format!("side: {action:?}: {answer:?}"));
            if self.is_over() {
                let mut ledger = self.ledger.lock();
                ledger.late = !self.is_dead();
                ledger.life.cut_off();
                return Ok(());
            }
            let is_changing = was_changing || self.changes.load(SeqCst) > before;
            match &answer {
                // Another client has it, or this client itself is about to decouple it.
                Answer::Refused(Refusal::Busy | Refusal::Undecoupled) if is_changing => {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                // It ends the decoupling itself, which takes several messages.
                Answer::Refused(Refusal::NotConnected) if by_client && is_changing => {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Answer::Refused(_) if self.is_by_death() => {
                    let mut ledger = self.ledger.lock();
                    ledger.late = !self.is_dead();
                    ledger.life.cut_off();
                    return Ok(());
                }
                Answer::Refused(refusal) => return Err(format!("{action:?} is refused: {refusal}")),
                _ => {}
            }
            let mut ledger = self.ledger.lock();
            ledger.answered(call, &answer)?;
            let cells = self.cells.lock().clone();
            ledger.carried_out(by_client, &cells);
            if matches!(action, Action::Fsync { .. } | Action::Sync | Action::FsyncDir)
                && cells.iter().all(|cell| cell.keeps())
            {
                let now = ledger.len();
                ledger.is_safe(now);
            }
            return Ok(());
        }
        Err(format!("{action:?} is not carried out"))
    }

    /// True if the client carried it out itself.
    fn ask(&self, action: &Action) -> (bool, Answer) {
        let realm = self.realm.lock().clone();
        let inside = realm.as_ref().map(|realm| realm.enter());
        if matches!(inside, Some(None)) {
            return (true, Answer::Refused(Refusal::NotConnected));
        }
        let mut handles = self.handles.lock();
        if let Err(refusal) = self.rehome(&mut handles, realm.as_ref()) {
            return (realm.is_some(), Answer::Refused(refusal));
        }
        let Some(realm) = &realm else { return (false, perform(&self.desk.client, &mut handles.0, action)) };
        let mut within = action.clone();
        for path in within.paths_mut() {
            *path = path.strip_prefix(self.top_path).unwrap_or(path).to_owned();
        }
        (true, perform(realm.client(), &mut handles.0, &within))
    }

    /// Open files continue where their directory now is, as in a mount.
    fn rehome(
        &self,
        (handles, at): &mut (Handles, Option<Arc<Realm>>),
        realm: Option<&Arc<Realm>>,
    ) -> Result<(), Refusal> {
        let is_there = match (at.as_ref(), realm) {
            (Some(at), Some(realm)) => Arc::ptr_eq(at, realm),
            (None, None) => true,
            _ => false,
        };
        if is_there {
            return Ok(());
        }
        for (name, fh) in handles.iter_mut() {
            let from = at.as_ref().map_or(&self.desk.client, |realm| realm.client());
            let to = realm.map_or(&self.desk.client, |realm| realm.client());
            let ino = self.ledger.lock().life.file_of(*name).ok_or(Refusal::BadHandle)?;
            let opened = to.open(&to.caller(), ino, OpenFlags::READ_WRITE)?;
            let _ = from.release(std::mem::replace(fh, opened));
            // Buffers were pushed when the subtree was decoupled.
            self.ledger.lock().life.pushed(ino);
        }
        *at = realm.cloned();
        Ok(())
    }

    /// The next operation of many kinds.
    pub(super) fn some(&self, random: &mut Random) -> Result<(), String> {
        let n = {
            let mut count = self.count.lock();
            *count += 1;
            *count
        };
        let path = |name: &str| format!("{}/{name}{n}", self.root);
        let bytes = |len: u64| format!("{n:06}|").bytes().cycle().take(len as usize).collect::<Vec<u8>>();
        let last = self.made.lock().last().cloned();
        let is_held = self.ledger.lock().life.file_of(HELD).is_some();
        let action = match (random.below(10), last) {
            (0..=2, _) if is_held => {
                Action::Write { handle: HELD, offset: random.below(60), bytes: bytes(20) }
            }
            (3, Some(from)) => {
                let to = path("moved");
                if let Some(last) = self.made.lock().last_mut() {
                    last.clone_from(&to);
                }
                Action::Rename { from, to }
            }
            (4, Some(path)) => {
                self.made.lock().pop();
                Action::Unlink { path }
            }
            (5, Some(from)) => Action::Link { from, to: path("link") },
            (6, Some(path)) => Action::Chmod { path, mode: 0o600 + (n % 64) as u16 },
            (7, _) => Action::Mkdir { path: path("dir"), mode: 0o755 },
            (8, Some(path)) => Action::SetXattr { path, name: "user.x".to_owned(), value: bytes(9) },
            _ => {
                self.made.lock().push(path("file"));
                let len = *random.pick(&[12, 60, 5_000]);
                Action::Create { path: path("file"), content: bytes(len) }
            }
        };
        self.act(&action)
    }

    /// Changes the policy to another cell.
    pub(super) fn change(&self, to: Cell, policy: &str) -> Result<(), String> {
        let from = self.cells.lock()[0];
        self.changes.fetch_add(1, SeqCst);
        *self.cells.lock() = vec![from, to];
        self.ledger.lock().life.clock_changes();
        let client = &self.desk.client;
        let set = || client.setxattr(&client.caller(), self.top, POLICY, policy.as_bytes(), XattrHow::Set);
        let realm = self.realm.lock().clone();
        if let Some(realm) = realm {
            match set() {
                Err(Refusal::Busy) => {}
                _ if self.is_over() => return Ok(()),
                other => return Err(format!("its policy is set while it is decoupled: {other:?}")),
            }
            let before = self.ledger.lock().len();
            let merged = self.until(|| match realm.is_ended() {
                true => Ok(()),
                false => {
                    realm.merge(&|_| {}).and_then(|report| match report.stopped || report.lost_count > 0 {
                        true => Err(RealmError::new(Refusal::Invalid, format!("{report:?}"), "")),
                        false => Ok(()),
                    })
                }
            });
            if merged.map_err(|why| format!("it is not merged: {why}"))?.is_none() {
                return Ok(());
            }
            self.is_safe(before);
            *self.realm.lock() = None;
        }
        if let Err(refusal) = set() {
            return if self.is_by_death() {
                Ok(())
            } else {
                Err(format!("its policy is not set: {refusal}"))
            };
        }
        self.stage.line(format!("side: {to} holds"));
        if to.is_decoupled() {
            self.take()?;
        }
        if !self.is_over() {
            *self.cells.lock() = vec![to];
            self.changed.store(true, SeqCst);
        }
        Ok(())
    }

    /// Decouples the subtree as its policy says.
    fn take(&self) -> Result<(), String> {
        let before = self.ledger.lock().len();
        let client = &self.desk.client;
        let taken = self.until(|| self.desk.realms.decouple(&client.caller(), self.top, None, None));
        let Some(realm) = taken.map_err(|why| format!("it is not decoupled: {why}"))? else {
            // A grant that arrived after the death of its client holds nothing on its machine.
            self.desk.realms.list().iter().for_each(|realm| realm.abandon());
            return Ok(());
        };
        self.stage.line("side: decoupled".to_owned());
        // The base of a client's work is durable, never only in memory.
        self.is_safe(before);
        *self.realm.lock() = Some(realm);
        Ok(())
    }

    /// The first `count` entries exist, even if a client or the server dies from now on.
    fn is_safe(&self, count: usize) {
        if !self.is_over() {
            self.ledger.lock().is_safe(count);
        }
    }

    /// Asks until it is done; `None` if everything is over before.
    fn until<T>(&self, mut body: impl FnMut() -> Result<T, RealmError>) -> Result<Option<T>, String> {
        let mut last = String::new();
        for _ in 0..TRIES_MAX {
            match body() {
                _ if self.is_dead() => return Ok(None),
                // Also of a server that was back before it was answered.
                Ok(done) => return Ok(Some(done)),
                Err(error) => {
                    last = error.to_string();
                    self.stage.line(format!("side: {last}"));
                    thread::sleep(PAUSE);
                }
            }
        }
        Err(last)
    }

    /// Merges the client's changes, and compares with the others' view.
    pub(super) fn ends(&self) -> Result<(), String> {
        let Some(realm) = self.realm.lock().take() else { return Ok(()) };
        let mut last = String::new();
        for _ in 0..TRIES_MAX {
            let merged = on(&self.desk, {
                let realm = realm.clone();
                move |_| if realm.is_ended() { Ok(()) } else { realm.merge(&|_| {}).map(drop) }
            });
            match merged {
                Ok(()) => return Ok(()),
                Err(error) => last = error.to_string(),
            }
            thread::sleep(PAUSE);
        }
        Err(format!("it is not merged in the end: {last}"))
    }
}
