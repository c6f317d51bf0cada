//! Where checkpoints go: sorted rows on disk, changed by atomic batches.
//!
//! ```text
//!    dirty rows + position row ──▶ one Batch ──▶ commit (atomic, durable on return)
//!    cache miss ──▶ get, get_many, scan
//! ```
//!
//! # Getting started
//!
//! ```
//! use chiton_metastore::{Batch, MemoryMetastore, Metastore};
//!
//! let store = MemoryMetastore::new();
//! let mut batch = Batch::new();
//! batch.put("inode 7", "a file");
//! batch.put("position", "41");
//! store.commit(&batch)?; // all rows or none, durable on return
//! assert_eq!(store.get(b"inode 7")?, Some(b"a file".to_vec()));
//! # Ok::<(), chiton_metastore::StoreError>(())
//! ```
//!
//! Invariants:
//! - Back ends hide behind [`Metastore`] and pass [`conformance::suite`]; [`MemoryMetastore`] is the reference.
//! - A reader sees all of a batch or nothing of it, during the commit and after a crash.
//! - An acknowledged commit that is lost makes the store fail to open; it never silently goes back in time.
//!
//! # Layout
//!
//! - [`Metastore`]: the trait; [`Batch`]: the rows of a commit; [`StoreError`]: its errors.
//! - [`FjallMetastore`]: a local directory. [`SlateMetastore`]: an object store. [`MemoryMetastore`]: tests.
//! - [`conformance`]: the suite that a new back end must pass.

mod batch;
mod error;
mod store;

mod fjall_store;
mod memory;
mod slate_store;

pub mod conformance;

pub use batch::{Batch, Change};
pub use error::StoreError;
pub use fjall_store::{FjallMetastore, FjallOptions};
pub use memory::{Fault, MemoryMetastore};
pub use slate_store::{SlateMetastore, SlateOptions};
pub use store::{KEY_BYTES_MAX, Metastore, Row, StoreStats, VALUE_BYTES_MAX, prefix_end};
