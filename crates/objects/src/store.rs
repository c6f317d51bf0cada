//! The trait that every object store implements.
//!
//! Invariants:
//! - Blocking, object-safe, callable from many threads.
//! - An object appears whole or not at all; no reader ever sees half a put.
//! - A store never holds both `a` and `a/b` (a directory cannot); it may refuse the second with
//!   [`ObjectError::BadKey`], also after the first was deleted.

use std::ops::Range;

use crate::ObjectError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    pub key: String,
    /// Length in bytes.
    pub bytes: u64,
}

/// A store of named bytes.
///
/// Every method may fail with [`ObjectError::BadKey`], `Transient`, `Denied`, `Gone` or `Io`; each method names
/// further errors.
pub trait Objects: Send + Sync {
    /// The bytes of an object, or of the part `range` (offsets in bytes).
    ///
    /// `NotFound`; `Corrupt` if the object is shorter than the range's end (it is never cut silently).
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError>;

    /// Fills `into` from byte `offset` on. Errors as [`Objects::get`]; then `into` holds anything.
    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError>;

    /// Announces a read. `true`: the store reads ahead in the background, so that reads do not wait for a disk;
    /// `false`: the caller must read ahead itself.
    fn will_need(&self, _key: &str) -> bool {
        false
    }

    /// The length of an object in bytes. `NotFound`.
    fn size(&self, key: &str) -> Result<u64, ObjectError>;

    /// Stores or replaces an object. Visible at once, durable only after [`Objects::sync`]: after a crash before
    /// it, the object may be the new one, the one before, or absent (never torn). `NoSpace`.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError>;

    /// Stores an object if no object has this key. `true`: the object is stored, and durable. `false`: another one
    /// exists (and is durable), and nothing was changed. Exactly one of several racing callers gets `true`.
    ///
    /// `NoSpace`. After `Transient` or `Io` the object may be stored nevertheless: a caller that retries and gets
    /// `false` must compare the content with its own nonce.
    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError>;

    /// Removes an object; no error if there is none. Durable after [`Objects::sync`], may reappear before.
    fn delete(&self, key: &str) -> Result<(), ObjectError>;

    /// At most `max` objects whose keys start with `prefix` (any string of key characters, `""` for all) and
    /// come after `after`, sorted by key (bytewise). The next page follows the last key of this one.
    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError>;

    /// Makes every put and delete that returned before this call durable. No-op where they are at once.
    ///
    /// After an error the durability of unsynced changes is unknown: reopen the store and put them again.
    fn sync(&self) -> Result<(), ObjectError>;
}
