//! Describes damage in a journal's bytes, and its location.

use std::fmt;

use chiton_types::Position;

/// Damage at one place of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Number of the segment.
    pub segment: u64,
    /// Offset of the bad header or frame in it, in bytes.
    pub offset: u64,
    pub kind: DamageKind,
    pub cause: Cause,
}

/// The meaning of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The end of a commit that the writer's death interrupted. It was never reported as durable.
    Torn,
    /// Something that was durable, or never made by a writer.
    Corrupt,
}

/// The expected and the found value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No segment header: too few bytes, or zeros.
    HeaderAbsent {
        /// Bytes in the segment.
        bytes: u64,
    },
    /// A format that this program does not know.
    Version { expected: u32, found: u32 },
    /// The header's name for itself is not where it was found.
    Misplaced {
        /// Which of its names: "journal" or "segment".
        name: &'static str,
        /// The position that the place implies.
        expected: u64,
        /// The position in the header.
        found: u64,
    },
    /// The segment ends within a frame.
    Short {
        /// Bytes that the frame needs.
        expected: u64,
        /// Bytes until the segment's end.
        found: u64,
    },
    /// A length that no frame has.
    Length {
        /// The maximum length of a body.
        expected_max: u64,
        /// The length in the frame.
        found: u64,
    },
    /// A wrong checksum of a header, frame or mark.
    Checksum {
        /// The checksum in the frame.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// Bytes with a right checksum that no writer makes, or none where a constant should be.
    Malformed {
        /// The expected content.
        expected: &'static str,
    },
    /// The next segment does not begin where this one ends.
    Positions {
        /// The position that the next event should have.
        expected: Position,
        /// The position at which the next segment begins.
        found: Position,
    },
}

impl Damage {
    /// The same damage, now known to be corruption.
    pub(crate) fn corrupt(self) -> Damage {
        Damage { kind: DamageKind::Corrupt, ..self }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DamageKind::Torn => "torn",
            DamageKind::Corrupt => "corrupt",
        };
        write!(f, "{kind} journal: segment {:016x}, offset {}: {}", self.segment, self.offset, self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::HeaderAbsent { bytes } => {
                write!(f, "expected a segment header, found {bytes} bytes of one")
            }
            Cause::Version { expected, found } => {
                write!(f, "expected format version {expected}, found {found}")
            }
            Cause::Misplaced { name, expected, found } => {
                write!(f, "expected {name} {expected:016x}, found {found:016x}")
            }
            Cause::Short { expected, found } => write!(f, "expected {expected} bytes, found {found}"),
            Cause::Length { expected_max, found } => {
                write!(f, "expected a length of at most {expected_max}, found {found}")
            }
            Cause::Checksum { expected, found } => {
                write!(f, "expected checksum {expected:08x}, found {found:08x}")
            }
            Cause::Malformed { expected } => write!(f, "expected {expected}"),
            Cause::Positions { expected, found } => {
                write!(
                    f,
                    "expected position {expected} next, found that the next segment begins with {found}"
                )
            }
        }
    }
}

impl std::error::Error for Damage {}
