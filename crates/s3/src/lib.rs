//! Objects in a bucket of an S3 service.
//!
//! ```text
//!   caller's thread ──▶ block_on ──▶ object_store's client ──▶ HTTP(S)
//!                          │ one small tokio runtime drives all sockets of the process
//! ```
//!
//! Invariants:
//! - One request for each call (parts of a large put, pages of a listing aside): retrying is up to [`chiton_objects::Retry`].
//! - A conditional put with an unknown outcome is `Transient`, also for the service's own "conflict, try again"
//!   (409): only "the condition does not hold" (412, 304) means that another object exists.

mod config;
mod error;
mod location;
mod probe;
mod profile;
mod requests;

use chiton_async::{block_on, runtime};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use chiton_objects::{ObjectError, ObjectInfo, Objects, check_key, check_prefix};
use error::sort;

pub use config::S3Config;
pub use location::S3Location;
pub use probe::probe_conditional_put;
pub use requests::Requests;

/// A put of more bytes goes in parts …
const PUT_BYTES_MAX: usize = 32 << 20;
/// Bytes of a part of a larger upload.
const PART_BYTES: usize = 16 << 20;
/// How often a library's request is tried again.
const LIBRARY_RETRIES: usize = 6;

/// Objects below a prefix of a bucket.
#[derive(Debug)]
pub struct S3Objects {
    client: Arc<AmazonS3>,
    library_client: Arc<AmazonS3>,
    location: S3Location,
    hint: String,
}

impl S3Objects {
    /// Objects at `location`; credentials, region and endpoint from the environment and the profile files. Asks the
    /// service nothing: see [`S3Objects::probe`].
    ///
    /// # Errors
    /// In words, if the settings contradict each other.
    pub fn open(location: &S3Location) -> Result<S3Objects, String> {
        S3Objects::open_with(location, &S3Config::load()?)
    }

    /// The same with settings of the caller's.
    ///
    /// # Errors
    /// In words, if the settings do not fit.
    pub fn open_with(location: &S3Location, config: &S3Config) -> Result<S3Objects, String> {
        let client = |retries| runtime().block_on(async { config.client(location, retries).map(Arc::new) });
        let (client, library_client) = (client(0)?, client(LIBRARY_RETRIES)?);
        let service = config.endpoint.clone().unwrap_or_else(|| format!("AWS, region {}", config.region));
        let keys = if config.lacks_keys() {
            " (no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)"
        } else {
            ""
        };
        let hint = format!("{service}{keys}");
        Ok(S3Objects { client, library_client, location: location.clone(), hint })
    }

    /// A client of the bucket for libraries with their own keys, which begin without the location's prefix. It
    /// retries failures of the service itself.
    pub fn library_client(&self) -> Arc<dyn ObjectStore> {
        self.library_client.clone()
    }

    pub fn location(&self) -> &S3Location {
        &self.location
    }

    /// Finds out whether the service can be used: reached, bucket there, credentials right, conditional puts kept.
    /// `nonce` is random. Takes a few requests.
    ///
    /// # Errors
    /// A message with advice.
    pub fn probe(&self, nonce: u64) -> Result<(), String> {
        probe_conditional_put(self, nonce).map_err(|e| self.explain(&e))
    }

    /// Advice for an administrator after this error.
    pub fn explain(&self, error: &ObjectError) -> String {
        probe::advice(error, &self.location.bucket, &self.hint)
    }

    fn path(&self, key: &str) -> Path {
        match self.location.prefix.is_empty() {
            true => Path::from(key),
            false => Path::from(format!("{}/{key}", self.location.prefix)),
        }
    }

    fn run<T>(&self, key: &str, op: impl Future<Output = object_store::Result<T>>) -> Result<T, ObjectError> {
        block_on(op).map_err(|e| sort(key, &e))
    }

    fn range(&self, key: &str, range: &Range<u64>) -> Result<bytes::Bytes, ObjectError> {
        if range.start >= range.end || range.end > i64::MAX as u64 {
            // Not to be asked of the service: nothing, or nonsense.
            let bytes = self.size(key)?;
            let is_inside = range.start <= range.end && range.end <= bytes;
            return if is_inside {
                Ok(bytes::Bytes::new())
            } else {
                Err(ObjectError::out_of_range(key, range, bytes))
            };
        }
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let path = self.path(key);
        let got = block_on(async {
            let result = self.client.get_opts(&path, options).await?;
            let bytes = result.meta.size;
            Ok((bytes, result.bytes().await?))
        });
        match got {
            Ok((_, part)) if part.len() as u64 == range.end - range.start => Ok(part),
            Ok((bytes, _)) => Err(ObjectError::out_of_range(key, range, bytes)),
            Err(e) if error::status(&e) == Some(416) => {
                Err(ObjectError::out_of_range(key, range, self.size(key)?))
            }
            Err(e) => Err(sort(key, &e)),
        }
    }

    async fn put_parts(&self, path: &Path, bytes: &[u8]) -> object_store::Result<()> {
        let mut upload = self.client.put_multipart(path).await?;
        let parts: Vec<_> = bytes
            .chunks(PART_BYTES)
            .map(|part| upload.put_part(PutPayload::from(bytes::Bytes::copy_from_slice(part))))
            .collect();
        let done = match futures_util::future::try_join_all(parts).await {
            Ok(_) => upload.complete().await.map(|_| ()),
            Err(e) => Err(e),
        };
        if done.is_err() {
            // The bucket's rule for unfinished uploads removes it otherwise.
            let _ = upload.abort().await;
        }
        done
    }
}

impl Objects for S3Objects {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        check_key(key)?;
        match range {
            Some(range) => self.range(key, &range).map(Vec::from),
            None => {
                let path = self.path(key);
                self.run(key, async { self.client.get(&path).await?.bytes().await }).map(Vec::from)
            }
        }
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        check_key(key)?;
        let part = self.range(key, &(offset..offset.saturating_add(into.len() as u64)))?;
        if part.len() != into.len() {
            return Err(ObjectError::out_of_range(key, &(offset..u64::MAX), self.size(key)?));
        }
        into.copy_from_slice(&part);
        Ok(())
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        check_key(key)?;
        let path = self.path(key);
        match self.run(key, self.client.head(&path)) {
            // The answer to HEAD does not show whether the object or the bucket is missing; that to GET does.
            Err(error) if error.is_not_found() => {
                let options = GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() };
                self.run(key, self.client.get_opts(&path, options)).map(|found| found.meta.size)
            }
            result => result.map(|meta| meta.size),
        }
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        check_key(key)?;
        let path = self.path(key);
        if bytes.len() > PUT_BYTES_MAX {
            return self.run(key, self.put_parts(&path, bytes));
        }
        let payload = PutPayload::from(bytes::Bytes::copy_from_slice(bytes));
        self.run(key, self.client.put(&path, payload)).map(|_| ())
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        check_key(key)?;
        let payload = PutPayload::from(bytes::Bytes::copy_from_slice(bytes));
        let path = self.path(key);
        let options = PutOptions::from(PutMode::Create);
        match block_on(self.client.put_opts(&path, payload, options)) {
            Ok(_) => Ok(true),
            Err(e) if error::is_there(&e) => Ok(false),
            Err(e) => Err(sort(key, &e)),
        }
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        check_key(key)?;
        let path = self.path(key);
        match self.run(key, self.client.delete(&path)) {
            Err(e) if e.is_not_found() => Ok(()),
            result => result,
        }
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        check_prefix(prefix)?;
        if max == 0 {
            return Ok(Vec::new());
        }
        // The service's client lists only whole directories; keys before the prefix or `after` are skipped here.
        let dir = prefix.rsplit_once('/').map(|(dir, _)| dir);
        let root = (!self.location.prefix.is_empty()).then(|| format!("{}/", self.location.prefix));
        let root = root.as_deref().unwrap_or("");
        let dir = match dir {
            Some(dir) => Some(Path::from(format!("{root}{dir}"))),
            None => (!root.is_empty()).then(|| Path::from(root)),
        };
        let start = after.unwrap_or("").max(&prefix[..prefix.len().saturating_sub(1)]);
        let offset = Path::from(format!("{root}{start}"));
        self.run(prefix, async {
            let mut found = Vec::new();
            let mut all = match start.is_empty() {
                true => self.client.list(dir.as_ref()),
                false => self.client.list_with_offset(dir.as_ref(), &offset),
            };
            while found.len() < max
                && let Some(object) = all.try_next().await?
            {
                let Some(key) = object.location.as_ref().strip_prefix(root) else { continue };
                if after.is_some_and(|after| key <= after) || key < prefix {
                    continue;
                }
                if !key.starts_with(prefix) {
                    break;
                }
                found.push(ObjectInfo { key: key.to_owned(), bytes: object.size });
            }
            Ok(found)
        })
    }

    fn sync(&self) -> Result<(), ObjectError> {
        Ok(())
    }
}
