//! Questions: calls that change nothing.

use chiton_model::choice;
use chiton_model::field::{Bits, Fixed, Max};
use chiton_types::{Ino, Name, SessionId};

use crate::call::BATCH_OPS_MAX;
use crate::stat_each::StatTarget;

/// The bits of [`chiton_types::access`].
type Access = Bits<7>;

choice! {
    /// A question: a call that changes nothing, but may count an open and grant leases.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Query "question" {
        /// A name in a directory (`.` and `..` are the client's matter). Asks search permission.
        32 Lookup {
            parent: Ino,
            name: Name,
        }
        33 GetAttr {
            ino: Ino,
        }
        /// Open: attributes, with a check of `want` (bits of [`chiton_types::access`]); counts as opened once.
        /// Writers elsewhere are asked to write back first.
        34 Open {
            ino: Ino,
            /// Bits; 0 for O_PATH-like opens without a check.
            want: u8 as Access,
            /// Of a file that is not empty: the answer is that of [`Query::Map`] for the first byte, so that a small file takes one
            /// message to be read. `want` has to ask for reading.
            content: bool,
        }
        /// Permission check alone (access(2)).
        35 Access {
            ino: Ino,
            /// Bits of [`chiton_types::access`].
            want: u8 as Access,
        }
        /// Entries of a directory in the order of [`chiton_types::name_hash`], after `cookie` (0: from the start).
        36 ReadDir {
            dir: Ino,
            /// Hash of the last entry seen.
            cookie: u64 as Fixed,
            /// At most so many entries (entries of the same hash are never parted, so there may be a few more).
            entries_max: u32,
            /// With attributes, and leases on them.
            plus: bool,
            /// Those of one part, whose range ends with this hash: the caller asks the others for the rest. A directory with parts says
            /// so ([`chiton_types::Refusal::OtherPart`]) without this, or if the range ends elsewhere.
            part_end: Option<u64> as Option<Fixed>,
        }
        /// The parts of a directory, as [`chiton_model::decode_parts`] reads them; no bytes if it has none.
        44 Parts {
            dir: Ino,
        }
        /// The name of a directory in the one that it is in. Asks for read permission on that one.
        43 NameOf {
            dir: Ino,
            ino: Ino,
        }
        /// Target of a symbolic link.
        37 ReadLink {
            ino: Ino,
        }
        /// Value of an extended attribute. Asks for read permission (`user.`), or root (`trusted.`).
        38 GetXattr {
            ino: Ino,
            name: Vec<u8>,
        }
        /// Names of the extended attributes.
        39 ListXattr {
            ino: Ino,
        }
        /// The map from a file's bytes to blocks: see [`crate::Answer::Map`].
        40 Map {
            ino: Ino,
            /// First byte asked for.
            offset: u64 as Fixed,
            /// Bytes asked for; the answer covers whole chunks of the map. It may end earlier, and reaches the end of a hole that the
            /// server knows.
            len: u64 as Fixed,
        }
        /// A whole path from a directory on, symbolic links included, at most 40; asks search permission on the way. The plates
        /// carry it to each other: it is one question wherever the directories are. Answered with [`crate::Answer::Resolved`].
        41 Resolve {
            /// Where a relative path begins. An absolute one, and one that a link makes absolute, begins at the root.
            from: Ino,
            /// At most 4,095 bytes.
            path: Vec<u8>,
            /// Also follow a symbolic link at the end.
            follow: bool,
            /// The client's sessions with all plates, in their order: each plate that the path leads over grants its leases to its
            /// own. Empty if there is one plate.
            sessions: Vec<SessionId>,
        }
        /// Attributes of many inodes of one plate: an answer each, in the order asked ([`crate::Answer::Stats`]). Leases on directories
        /// are not granted.
        45 StatEach {
            [
                /// After the first target that is refused, or whose name is absent, the rest has no answers.
                stop_on_failure,
                /// Grant leases on the inodes, as the answer to a single question does.
                leases,
            ]
            targets: Vec<StatTarget> as Max<StatTarget, BATCH_OPS_MAX>,
        }
        /// Totals of the file system.
        42 StatFs
    }
}
