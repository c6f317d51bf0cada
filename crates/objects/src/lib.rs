//! Named immutable-ish bytes: where file data, journals in the object store and checkpoints live.
//!
//! ```text
//!    Retry ─▶ Metered ─▶ MemoryObjects | LocalObjects | (S3, RADOS)
//!    block: payload ‖ crc32c per 64 KiB ‖ tail, stored as one object
//! ```
//!
//! Invariants:
//! - [`Objects::put_if_absent`] is the only conditional write: it is the one that directories and S3 share.
//! - Every store passes one conformance suite; the memory store is the reference.
//! - A key is checked ([`check_key`]) before it reaches a file name or a network.
//! - What a store cannot do is an [`ObjectError`] sorted by what the caller should do about it.

mod error;
mod key;
mod store;

pub use error::ObjectError;
pub use key::{KEY_BYTES_MAX, PART_BYTES_MAX, check_key, check_prefix};
pub use store::{ObjectInfo, Objects};
