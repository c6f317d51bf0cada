//! The rows of one moment of a file system that is served, and the objects beside them, as its servers give them to root and
//! to their own user. Of a file system with several plates each has a view of its own, of a moment that fits those of the others
//! ([`crate::cut`]).
//!
//! Invariants:
//! - Nothing is changed through it.
//! - While a view exists the servers delete no blocks. Views end with the process that reads them.

use std::fmt;
use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::sync::Arc;

use chiton_client::Client;
use chiton_metastore::{Batch, Metastore, Row, StoreError, StoreStats};
use chiton_objects::{ObjectError, ObjectInfo, Objects};
use chiton_runtime::sync::Mutex;
use chiton_types::{Malformed, PlateId, Refusal, Take};

use crate::cut::{Cut, Keeper};

/// Bytes in one request.
const PIECE_BYTES: u64 = 4 << 20;

/// A view of a plate of a running server. It ends when the views of all plates are dropped.
#[derive(Clone)]
pub struct View {
    opened: Arc<Opened>,
    plate: PlateId,
}

/// A view of all plates. The thread ends before the views do.
struct Opened {
    _keeper: Keeper,
    cut: Arc<Cut>,
    /// Why rows cannot be read any more.
    lost: Mutex<Option<Lost>>,
}

/// The end of a view while it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    plate: PlateId,
    /// A new view may be opened at once.
    pub has_moved: bool,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plate = self.plate;
        match self.has_moved {
            true => write!(
                f,
                "the server of plate {plate} was restarted, or another server has the plate now, so the view of its rows is gone"
            ),
            false => write!(f, "no server answers for plate {plate}"),
        }
    }
}

/// The reason why there is no view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewError {
    /// The server's answer.
    pub refusal: Refusal,
    why: String,
}

impl ViewError {
    pub(crate) fn new(refusal: Refusal, why: String) -> ViewError {
        ViewError { refusal, why }
    }

    /// In words, from a server's answer.
    pub(crate) fn of(refusal: Refusal) -> ViewError {
        let why = match refusal {
            Refusal::Busy => "others look at this file system, as many as may: wait for their end".to_owned(),
            Refusal::NotPermitted => "only root and the user of the server may look at the rows of a file system, and over TLS only those \
                 whose certificate was made with --admin"
                .to_owned(),
            Refusal::Unsupported => {
                "such a metadata store gives no view of one moment: end the server, and look at its data directory or bucket".to_owned()
            }
            Refusal::Stale => "it has moved to another server again and again: run it again when the plates of the cluster stay where they \
                 are (chiton cluster status)"
                .to_owned(),
            Refusal::NotConnected => {
                "no server answers for it: run it again when chiton cluster status shows that it has one".to_owned()
            }
            refusal => format!("the server gives no view of its rows: {refusal}; its log says why"),
        };
        ViewError { refusal, why }
    }
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ViewError {}

impl View {
    /// Opens a view of the file system that `client` is connected to, of all its plates. The client's user must be root or the
    /// servers' own.
    ///
    /// # Errors
    /// See [`ViewError`].
    pub fn open(client: &Arc<Client>) -> Result<View, ViewError> {
        let cut = Arc::new(Cut::take(client)?);
        let opened = Opened { _keeper: Keeper::start(&cut), cut, lost: Mutex::default() };
        Ok(View { opened: Arc::new(opened), plate: PlateId(0) })
    }

    /// Number of plates of the file system.
    pub fn plates(&self) -> u16 {
        self.opened.cut.plates()
    }

    /// The same moment of another plate. Objects are the same in all.
    #[must_use]
    pub fn of_plate(&self, plate: PlateId) -> View {
        View { opened: self.opened.clone(), plate }
    }

    /// Number of shards of the file system, if the server reports it.
    pub fn shards(&self) -> Option<u16> {
        self.opened.cut.shards()
    }

    /// Extends the view's life to a minute from now.
    ///
    /// # Errors
    /// [`Refusal::Stale`] if it has ended.
    pub fn keep(&self) -> Result<(), Refusal> {
        self.ask("get 00").map(drop)
    }

    fn ask(&self, words: &str) -> Result<Vec<u8>, Refusal> {
        self.opened.cut.ask(self.plate, words)
    }

    /// The damage in the plate's journal, in words; nothing if it is whole.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn journal(&self) -> Result<String, String> {
        let journal = self.ask("journal").map_err(|refusal| match refusal {
            refusal @ (Refusal::Stale | Refusal::NotConnected) => self.failure(refusal),
            refusal => format!("the server cannot read its journal: {refusal}; its log says why"),
        })?;
        Ok(String::from_utf8_lossy(&journal).into_owned())
    }

    /// Why a request has no answer.
    fn failure(&self, refusal: Refusal) -> String {
        let has_moved = match refusal {
            Refusal::Stale => true,
            Refusal::NotConnected => false,
            refusal => return format!("the server answers: {refusal}; its log says why"),
        };
        let lost = Lost { plate: self.plate, has_moved };
        let said = format!("{lost}: look again");
        self.opened.lost.lock().get_or_insert(lost);
        said
    }

    /// Why no more rows can be read, if that is so.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.opened.lost.lock().clone()
    }

    fn rows(&self, words: &str) -> Result<Vec<u8>, StoreError> {
        self.ask(words).map_err(|refusal| {
            let path = PathBuf::from(format!("of plate {}", self.plate));
            match refusal {
                Refusal::NoData => {
                    StoreError::Corrupt { path, cause: "the server's log says why".to_owned() }
                }
                refusal => StoreError::Io { path, cause: self.failure(refusal) },
            }
        })
    }

    fn bytes(&self, key: &str, words: &str) -> Result<Vec<u8>, ObjectError> {
        let key = key.to_owned();
        self.ask(words).map_err(|refusal| match refusal {
            Refusal::NotFound => ObjectError::NotFound { key },
            refusal => ObjectError::Io { key, cause: self.failure(refusal) },
        })
    }
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn torn(_: Malformed) -> StoreError {
    StoreError::Io { path: PathBuf::new(), cause: "the server's answer does not fit the question".to_owned() }
}

fn denied(key: &str) -> ObjectError {
    ObjectError::Denied { key: key.to_owned(), cause: "a view is not written".to_owned() }
}

impl Metastore for View {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut answer = self.rows(&format!("get {}", hex(key)))?;
        Ok((!answer.is_empty()).then(|| answer.split_off(1)))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        keys.iter().map(|key| Metastore::get(self, key)).collect()
    }

    fn scan(&self, start: Bound<&[u8]>, end: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        let (how, key) = match start {
            Bound::Included(key) => ("in", key),
            Bound::Excluded(key) => ("ex", key),
            Bound::Unbounded => ("in", &[][..]),
        };
        let end = end.map_or("-".to_owned(), hex);
        let (mut how, mut key, mut rows) = (how, key.to_vec(), Vec::new());
        // An answer is bounded: a short one is not the end, but an empty one.
        while rows.len() < limit {
            let left = limit - rows.len();
            let answer = self.rows(&format!("scan {how} {} {end} {left}", hex(&key)))?;
            let mut from = Take::new(&answer);
            while !from.is_empty() {
                let key = from.bytes().map_err(torn)?.to_vec();
                rows.push((key, from.bytes().map_err(torn)?.to_vec()));
            }
            match rows.last() {
                Some((last, _)) if !answer.is_empty() => (how, key) = ("ex", last.clone()),
                _ => break,
            }
        }
        Ok(rows)
    }

    fn commit(&self, _: &Batch) -> Result<(), StoreError> {
        Err(StoreError::Closed { path: PathBuf::new() })
    }

    fn snapshot(&self) -> Result<Arc<dyn Metastore>, StoreError> {
        Err(StoreError::Closed { path: PathBuf::new() })
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        Ok(StoreStats { rows_approx: self.opened.cut.rows_approx(self.plate), ..StoreStats::default() })
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Objects for View {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        let range = match range {
            Some(range) => range,
            None => 0..self.size(key)?,
        };
        let (mut at, mut bytes) = (range.start, Vec::new());
        while at < range.end {
            let end = range.end.min(at + PIECE_BYTES);
            bytes.extend(self.bytes(key, &format!("object {key} {at} {end}"))?);
            at = end;
        }
        Ok(bytes)
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        let bytes = Objects::get(self, key, Some(offset..offset + into.len() as u64))?;
        into.copy_from_slice(&bytes);
        Ok(())
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        let answer = self.bytes(key, &format!("size {key}"))?;
        Take::new(&answer).u64().map_err(|_| ObjectError::NotFound { key: key.to_owned() })
    }

    fn put(&self, key: &str, _: &[u8]) -> Result<(), ObjectError> {
        Err(denied(key))
    }

    fn put_if_absent(&self, key: &str, _: &[u8]) -> Result<bool, ObjectError> {
        Err(denied(key))
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        Err(denied(key))
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        let answer = self.bytes(prefix, &format!("list {prefix} {} {max}", after.unwrap_or("-")))?;
        let bad = |e: Malformed| ObjectError::Io { key: prefix.to_owned(), cause: e.to_string() };
        let mut from = Take::new(&answer);
        let mut objects = Vec::new();
        while !from.is_empty() {
            let key = String::from_utf8_lossy(from.bytes().map_err(bad)?).into_owned();
            objects.push(ObjectInfo { key, bytes: from.u64().map_err(bad)? });
        }
        Ok(objects)
    }

    fn sync(&self) -> Result<(), ObjectError> {
        Ok(())
    }
}
