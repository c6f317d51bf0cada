//! File names: 1 to 255 bytes of any kind but `/` and NUL.

use std::fmt;

use smallvec::SmallVec;

use crate::Refusal;

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path, in bytes, including the terminating NUL of the system call.
pub const PATH_BYTES_MAX: usize = 4096;

/// One component of a path. Never empty, never `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(SmallVec<[u8; 24]>);

impl Name {
    /// Checks and copies `bytes`.
    ///
    /// # Errors
    /// [`Refusal::NameTooLong`] past 255 bytes; [`Refusal::Invalid`] if empty, `.`, `..`,
    /// or with a `/` or NUL inside.
    pub fn new(bytes: &[u8]) -> Result<Name, Refusal> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(Refusal::NameTooLong);
        }
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|b| matches!(b, 0 | b'/'))
        {
            return Err(Refusal::Invalid);
        }
        Ok(Name(SmallVec::from_slice(bytes)))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Place of the name in its directory's order; see [`name_hash`].
    pub fn hash64(&self) -> u64 {
        name_hash(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

impl TryFrom<&str> for Name {
    type Error = Refusal;
    fn try_from(s: &str) -> Result<Name, Refusal> {
        Name::new(s.as_bytes())
    }
}

/// The hash that orders a directory: XXH3 with 64 bits, seed 0, shifted right by one and never below 4.
///
/// Directories are stored, listed and (later) split in the order (hash, name). The value doubles as the
/// readdir cookie of the system call, so it stays within 63 bits, and 0 to 3 are left for `.`, `..` and the ends.
pub fn name_hash(name: &[u8]) -> u64 {
    (xxhash_rust::xxh3::xxh3_64(name) >> 1).max(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let check = |bytes: &[u8], expect: Result<(), Refusal>| {
            assert_eq!(Name::new(bytes).map(|_| ()), expect, "{bytes:?}");
        };
        check(b"a", Ok(()));
        check(&[0xff; 255], Ok(()));
        check(b"...", Ok(()));
        check(&[b'x'; 256], Err(Refusal::NameTooLong));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            check(bad, Err(Refusal::Invalid));
        }
    }

    #[test]
    fn hash_is_part_of_the_format() {
        // Stored keys depend on it: a change here is a change of format.
        assert_eq!(name_hash(b"hello"), xxhash_rust::xxh3::xxh3_64(b"hello") >> 1);
        assert!(name_hash(b"hello") < 1 << 63);
    }
}
