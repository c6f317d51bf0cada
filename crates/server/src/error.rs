//! Why a server does not start, or storage is not formatted: sentences that say what to do.

use std::fmt;

use chiton_types::PlateId;

use crate::address::DataAddress;
use crate::growth::{BECAME_FILE, Became};

/// Why storage is not formatted.
#[derive(Debug)]
pub enum FormatError {
    /// There is a file system already.
    Formatted(DataAddress),
    /// The directory holds something else.
    NotEmpty(DataAddress),
    /// A number of shards that is not 1 to 65,535.
    Shards(u16),
    /// A number of plates that is not 1 to this many.
    Plates {
        plates: u16,
        plates_max: u16,
    },
    Failed(String),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Formatted(data) => {
                write!(
                    f,
                    "{data} holds a file system already: mount it (chiton mount --data {data} MOUNTPOINT), or name another place"
                )
            }
            FormatError::NotEmpty(data) => {
                write!(f, "{data} is not empty, and holds no file system of Chiton: name an empty directory")
            }
            FormatError::Shards(shards) => {
                write!(f, "a file system cannot have {shards} shards: name 1 to {}", chiton_types::SHARDS_MAX)
            }
            FormatError::Plates { plates, plates_max } => write!(
                f,
                "a file system with so many shards cannot have {plates} plates: name 1 to {plates_max}, since each plate needs a \
                 shard of its own"
            ),
            FormatError::Failed(what) => write!(f, "cannot format: {what}"),
        }
    }
}

impl std::error::Error for FormatError {}

/// Why a server does not start.
#[derive(Debug)]
pub enum StartError {
    /// There is no file system.
    NotFormatted(DataAddress),
    /// Something else is there.
    Foreign(DataAddress, String),
    /// The file that describes the file system cannot be read.
    Damaged(DataAddress, String),
    /// It was written by a newer version.
    Newer {
        data: DataAddress,
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// Another process has it.
    Held {
        data: DataAddress,
        /// The holder, as it names itself.
        holder: String,
        /// The command or step that helps.
        next: String,
    },
    /// It belongs to the servers of a cluster.
    Clustered { data: DataAddress, monitor: String },
    /// It was copied to the storage of a cluster, which has changed since.
    Became { data: DataAddress, cluster: Became },
    /// It has no such plate.
    NoPlate { data: DataAddress, plate: PlateId, plates: u16 },
    /// It has several plates, and `what` works with one.
    Plates { data: DataAddress, plates: u16, what: &'static str },
    /// Stored data is damaged.
    Corrupt(String),
    /// A store or the system failed.
    Failed(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::NotFormatted(data) => {
                let missing = match data {
                    DataAddress::Dir(_) => "if its disk is not mounted, mount that",
                    DataAddress::S3(_) => "if its name is another one, use that",
                };
                write!(
                    f,
                    "{data} holds no file system: {missing}; to make a new, empty one there, format it first: chiton format \
                     {data} (chiton mount --format makes and mounts one)"
                )
            }
            StartError::Foreign(data, what) => {
                write!(f, "{data} holds no file system of Chiton ({what}): name its data directory or bucket")
            }
            StartError::Damaged(data, what) => write!(
                f,
                "the file chiton.json of {data} is damaged or missing: {what}; restore it from any backup of the file system, since \
                 it never changes"
            ),
            StartError::Newer { data, found, known } => write!(
                f,
                "{data} has format version {found}, and this program knows {known}: use a newer program"
            ),
            StartError::Held { data, holder, next } => write!(f, "{data} is in use by {holder}: {next}"),
            StartError::Clustered { data, monitor } => write!(
                f,
                "{data} belongs to a cluster, which alone may open it: start one of its servers (chiton serve --monitor {monitor} \
                 --data {data}), or use its mounts and servers (chiton mount --monitor {monitor})"
            ),
            StartError::Became { data, cluster } => write!(
                f,
                "{data} has become the cluster at {} (chiton mount --monitor {}), and changes here would be missing there; to serve \
                 the old file system all the same, remove its file {BECAME_FILE}",
                cluster.data, cluster.monitor
            ),
            StartError::NoPlate { data, plate, plates } => {
                write!(f, "{data} has no plate {plate}: its plates are 0 to {}", plates.saturating_sub(1))
            }
            StartError::Plates { data, plates, what } => {
                write!(
                    f,
                    "{data} has {plates} plates, and {what} works only for a file system with one plate so far"
                )
            }
            StartError::Corrupt(what) => write!(
                f,
                "cannot recover what is stored: {what}; chiton fsck and chiton journal inspect show the damage; if neither \
                 that nor a backup helps, chiton mount --salvage serves what can be read, read-only"
            ),
            StartError::Failed(what) => write!(f, "cannot start: {what}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Why a server's end was not as it should be.
#[derive(Debug)]
pub enum ShutdownError {
    /// Something that was answered is in no journal: it is lost.
    NotDurable(String),
    /// Everything is in the journal, and the metadata store lacks some of it: the next start replays that.
    NoCheckpoint(String),
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShutdownError::NotDurable(what) => {
                write!(f, "some answered operations could not be made durable, and are lost: {what}")
            }
            ShutdownError::NoCheckpoint(what) => write!(
                f,
                "the last checkpoint failed: {what}; nothing is lost: the next start replays the journal"
            ),
        }
    }
}

impl std::error::Error for ShutdownError {}
