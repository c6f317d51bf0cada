//! Named bytes that are written whole: file data, journals in the object store, checkpoints.
//!
//! ```text
//!    Retry ─▶ Metered ─▶ MemoryObjects | LocalObjects | S3Objects (chiton-s3)
//!    block: payload ‖ crc32c per 64 KiB ‖ tail, stored as one object
//! ```
//!
//! # Getting started
//!
//! ```
//! use chiton_objects::{MemoryObjects, Objects};
//!
//! let store = MemoryObjects::new();
//! store.put("blocks/1", b"content")?;
//! store.sync()?;
//! assert_eq!(store.get("blocks/1", Some(0..4))?, b"cont");
//! assert!(!store.put_if_absent("blocks/1", b"other")?, "the first object stays");
//! # Ok::<(), chiton_objects::ObjectError>(())
//! ```
//!
//! Invariants:
//! - [`Objects::put_if_absent`] is the only conditional write: it is the one that directories and S3 share.
//! - Every store passes [`conformance::suite`]; [`MemoryObjects`] is the reference.
//! - A key is checked ([`check_key`]) before it reaches a file name or a network.
//! - A store's failures are [`ObjectError`]s, sorted by the caller's next step.
//!
//! # Layout
//!
//! - [`Objects`]: the trait; [`ObjectError`]: its errors; [`check_key`]: the rules for keys.
//! - [`LocalObjects`]: a directory. [`MemoryObjects`]: tests. The crate `chiton-s3` has a bucket.
//! - [`Retry`] and [`Metered`]: decorators. [`block`]: the format of blocks.
//! - [`conformance`]: the suite that a new store must pass.

mod store;

mod error;
mod key;

mod local;
mod memory;

mod metered;
mod retry;

pub mod block;
pub mod conformance;

pub use block::{BLOCK_BYTES_MAX, BlockIndex, encode_block, read_block};
pub use error::ObjectError;
pub use key::{KEY_BYTES_MAX, PART_BYTES_MAX, check_key, check_prefix};
pub use local::LocalObjects;
pub use memory::{Fault, MemoryObjects};
pub use metered::{Counters, Metered};
pub use retry::{Retry, RetryOptions, Sleeper};
pub use store::{ObjectInfo, Objects};
