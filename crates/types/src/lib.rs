//! The words that every other crate speaks: identities, times, names,
//! attributes, credentials, errors, the byte codec, and the journal's frames.
//!
//! Invariants:
//! - Nothing here knows a clock, a random source, a socket or a disk.
//! - One newtype for every identity: an inode number cannot be passed where a
//!   position is meant.
//! - [`Errno`] is produced in one place only: [`Refusal::errno`].

pub mod codec;
pub mod frame;

mod attr;
mod capability;
mod counted;
mod cred;
mod error;
mod id;
mod name;
mod plates;
mod time;

pub use attr::{Attr, Kind, Mode, access};
pub use capability::{Capabilities, ID_RANGES_MAX, IdMaps, IdRange, Privileges, Scope};
pub use codec::{Malformed, Put, Take};
pub use counted::counted;
pub use cred::Cred;
pub use error::{Errno, Refusal};
pub use id::{
    BlockId, Epoch, Ino, PlateId, Position, RealmId, SHARDS_DEFAULT, SHARDS_MAX, Seq, SessionId, ShardId,
};
pub use name::{NAME_BYTES_MAX, Name, PATH_BYTES_MAX, name_hash};
pub use plates::Plates;
pub use time::Time;
