//! Checking a file system while it is served: the server gives a view of the rows of one moment, and the same check
//! reads it from there. Nothing is changed.

use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::sync::Arc;

use chiton_client::Client;
use chiton_metastore::{Batch, Metastore, Row, StoreError, StoreStats};
use chiton_objects::{ObjectError, ObjectInfo, Objects};
use chiton_types::{Malformed, Refusal, Take};

use crate::fsck::{CheckError, Finding, Options, Problem, Progress, Summary, check};

/// Bytes that are asked for at a time.
const PIECE_BYTES: u64 = 4 << 20;

/// Checks what `client` is connected to, as it was when this was called. The client's user is root or the server's own.
///
/// # Errors
/// As [`check`]; [`CheckError::View`] if the server gives no view.
pub fn check_online(
    client: &Client,
    options: &Options,
    found: &mut dyn FnMut(Finding),
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, CheckError> {
    let view = client.admin("view open").map_err(|refusal| {
        CheckError::View(match refusal {
            Refusal::Busy => "another check is under way: wait for its end".to_owned(),
            Refusal::NotPermitted => {
                "only root and the user of the server may check a file system".to_owned()
            }
            Refusal::Unsupported => {
                "this metadata store gives no view of one moment: end the server, and check what it served"
                    .to_owned()
            }
            refusal => format!("the server gives no view of its rows: {refusal}; its log says why"),
        })
    })?;
    let view: serde_json::Value = serde_json::from_slice(&view)
        .map_err(|e| CheckError::View(format!("the server's view is no JSON: {e}")))?;
    let id = view["view"].as_u64().unwrap_or_default();
    let shards = view["shards"].as_u64().and_then(|n| u16::try_from(n).ok());
    let remote = Remote { client, id };
    let options = Options { live: true, shards, ..options.clone() };
    let journal = remote.ask("journal").map_err(|refusal| {
        CheckError::View(format!("the server cannot read its journal: {refusal}; its log says why"))
    })?;
    let cause = String::from_utf8_lossy(&journal).into_owned();
    let is_damaged = !cause.is_empty();
    if is_damaged {
        found(Finding { problem: Problem::JournalDamage { cause }, path: None });
    }
    let mut result = check(&remote, &remote, &options, found, progress);
    if let Ok(summary) = &mut result {
        summary.findings += u64::from(is_damaged);
    }
    // Else it ends by itself.
    let _ = remote.ask("close");
    result
}

struct Remote<'a> {
    client: &'a Client,
    id: u64,
}

impl Remote<'_> {
    fn ask(&self, words: &str) -> Result<Vec<u8>, Refusal> {
        self.client.admin(&format!("view {} {words}", self.id))
    }

    fn rows(&self, words: &str) -> Result<Vec<u8>, StoreError> {
        self.ask(words).map_err(|refusal| {
            let path = PathBuf::new();
            match refusal {
                Refusal::NoData => {
                    StoreError::Corrupt { path, cause: "the server's log says why".to_owned() }
                }
                Refusal::Stale => {
                    StoreError::Io { path, cause: "the server has ended the view: check again".to_owned() }
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

fn torn(_: Malformed) -> StoreError {
    StoreError::Io { path: PathBuf::new(), cause: "the server's answer is not what was asked for".to_owned() }
}

fn denied(key: &str) -> ObjectError {
    ObjectError::Denied { key: key.to_owned(), cause: "a view is not written".to_owned() }
}

impl Metastore for Remote<'_> {
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
        let answer = self.rows(&format!("scan {how} {} {end} {limit}", hex(key)))?;
        let mut from = Take::new(&answer);
        let mut rows = Vec::new();
        while !from.is_empty() {
            let key = from.bytes().map_err(torn)?.to_vec();
            rows.push((key, from.bytes().map_err(torn)?.to_vec()));
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

impl Objects for Remote<'_> {
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
