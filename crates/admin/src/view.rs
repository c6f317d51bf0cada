//! The rows of one moment of a file system that is served, and the objects beside them, as its server gives them to root and
//! to its own user. Of a file system with several plates each has a view of its own, of a moment that fits those of the others.
//!
//! Invariants:
//! - Nothing is changed through it.
//! - While a view exists the server deletes no blocks. A view that is not used for a minute ends.

use std::fmt;
use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::sync::Arc;

use chiton_client::Client;
use chiton_metastore::{Batch, Metastore, Row, StoreError, StoreStats};
use chiton_objects::{ObjectError, ObjectInfo, Objects};
use chiton_types::{Malformed, PlateId, Refusal, Take};

/// Bytes in one request.
const PIECE_BYTES: u64 = 4 << 20;

/// A view of a plate of a running server. It ends when the views of all plates are dropped.
#[derive(Clone)]
pub struct View {
    opened: Arc<Opened>,
    plate: PlateId,
}

/// A view of all plates.
struct Opened {
    client: Arc<Client>,
    id: u64,
    shards: Option<u16>,
    plates: u16,
}

/// The reason why there is no view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewError {
    /// The server's answer.
    pub refusal: Refusal,
    why: String,
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ViewError {}

impl View {
    /// Opens a view of the server that `client` is connected to. The client's user must be root or the server's
    /// own.
    ///
    /// # Errors
    /// See [`ViewError`].
    pub fn open(client: &Arc<Client>) -> Result<View, ViewError> {
        let answer = client.admin("view open").map_err(|refusal| {
            let why = match refusal {
                Refusal::Busy => {
                    "others look at this file system, as many as may: wait for their end".to_owned()
                }
                Refusal::NotPermitted => {
                    "only root and the user of the server may look at the rows of a file system".to_owned()
                }
                Refusal::Unsupported => {
                    "such a metadata store gives no view of one moment, or the plates of the file system do not all run on one server: \
                     end the servers, and look at what they served"
                        .to_owned()
                }
                refusal => format!("the server gives no view of its rows: {refusal}; its log says why"),
            };
            ViewError { refusal, why }
        })?;
        let answer: serde_json::Value = serde_json::from_slice(&answer).map_err(|e| ViewError {
            refusal: Refusal::Io,
            why: format!("the server's view is no JSON: {e}"),
        })?;
        let id = answer["view"].as_u64().unwrap_or_default();
        let shards = answer["shards"].as_u64().and_then(|n| u16::try_from(n).ok());
        let plates = answer["plates"].as_u64().and_then(|n| u16::try_from(n).ok()).unwrap_or(1);
        let opened = Opened { client: client.clone(), id, shards, plates };
        Ok(View { opened: Arc::new(opened), plate: PlateId(0) })
    }

    /// Number of plates of the file system.
    pub fn plates(&self) -> u16 {
        self.opened.plates
    }

    /// The same moment of another plate. Objects are the same in all.
    #[must_use]
    pub fn of_plate(&self, plate: PlateId) -> View {
        View { opened: self.opened.clone(), plate }
    }

    /// Number of shards of the file system, if the server reports it.
    pub fn shards(&self) -> Option<u16> {
        self.opened.shards
    }

    /// Extends the view's life to a minute from now.
    ///
    /// # Errors
    /// [`Refusal::Stale`] if it has ended.
    pub fn keep(&self) -> Result<(), Refusal> {
        self.ask("get 00").map(drop)
    }

    pub(crate) fn ask(&self, words: &str) -> Result<Vec<u8>, Refusal> {
        self.opened.client.admin(&format!("view {}.{} {words}", self.opened.id, self.plate.0))
    }

    fn rows(&self, words: &str) -> Result<Vec<u8>, StoreError> {
        self.ask(words).map_err(|refusal| {
            let path = PathBuf::new();
            match refusal {
                Refusal::NoData => {
                    StoreError::Corrupt { path, cause: "the server's log says why".to_owned() }
                }
                Refusal::Stale => {
                    StoreError::Io { path, cause: "the server has ended the view: look again".to_owned() }
                }
                refusal => {
                    StoreError::Io { path, cause: format!("the server answers: {refusal}; its log says why") }
                }
            }
        })
    }

    fn bytes(&self, key: &str, words: &str) -> Result<Vec<u8>, ObjectError> {
        let key = key.to_owned();
        self.ask(words).map_err(|refusal| match refusal {
            Refusal::NotFound => ObjectError::NotFound { key },
            refusal => ObjectError::Io { key, cause: format!("the server answers: {refusal}") },
        })
    }
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Drop for Opened {
    fn drop(&mut self) {
        // If this fails, the view expires.
        let _ = self.client.admin(&format!("view {} close", self.id));
    }
}

fn torn(_: Malformed) -> StoreError {
    StoreError::Io { path: PathBuf::new(), cause: "the server's answer is not what was asked for".to_owned() }
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
        Ok(StoreStats::default())
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
