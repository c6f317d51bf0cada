//! Errors, sorted by the caller's next step.

use std::fmt;
use std::ops::Range;

/// Why an object could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectError {
    NotFound {
        key: String,
    },
    /// The store is full: free space, then try again.
    NoSpace {
        key: String,
    },
    /// The bytes changed: restore the object, do not retry.
    Corrupt {
        key: String,
        /// A description of the damage.
        cause: String,
    },
    /// Trying again may help. A write may have landed.
    Transient {
        key: String,
        cause: String,
    },
    /// The store does not let us: an administrator has to change that.
    Denied {
        key: String,
        cause: String,
    },
    /// The store itself is gone, with all that was in it: its bucket was deleted. Waiting does not bring it back.
    Gone {
        key: String,
        cause: String,
    },
    /// The store failed; retrying is not known to help. A write may have landed.
    Io {
        key: String,
        cause: String,
    },
    /// The key is not one: a defect or a hostile input of the caller.
    BadKey {
        key: String,
        /// The rule that it breaks.
        cause: String,
    },
}

impl ObjectError {
    /// The key of the object concerned ("" for the whole store).
    pub fn key(&self) -> &str {
        match self {
            ObjectError::NotFound { key }
            | ObjectError::NoSpace { key }
            | ObjectError::Corrupt { key, .. }
            | ObjectError::Transient { key, .. }
            | ObjectError::Denied { key, .. }
            | ObjectError::Gone { key, .. }
            | ObjectError::Io { key, .. }
            | ObjectError::BadKey { key, .. } => key,
        }
    }

    /// True if trying the same again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, ObjectError::Transient { .. })
    }

    /// True if there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, ObjectError::NotFound { .. })
    }

    /// True if the store is gone.
    pub fn is_gone(&self) -> bool {
        matches!(self, ObjectError::Gone { .. })
    }

    /// The error of a range that an object of `bytes` bytes does not have.
    pub fn out_of_range(key: &str, range: &Range<u64>, bytes: u64) -> ObjectError {
        ObjectError::corrupt(key, format!("bytes {}..{} asked of {bytes}", range.start, range.end))
    }

    pub(crate) fn corrupt(key: &str, cause: impl Into<String>) -> ObjectError {
        ObjectError::Corrupt { key: key.to_owned(), cause: cause.into() }
    }

    pub(crate) fn not_found(key: &str) -> ObjectError {
        ObjectError::NotFound { key: key.to_owned() }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ObjectError::BadKey { key, cause } = self {
            return write!(f, "object key {key:?}: {cause}");
        }
        match self.key() {
            "" => f.write_str("the object store: ")?,
            key => write!(f, "object {key:?}: ")?,
        }
        match self {
            ObjectError::NotFound { .. } => f.write_str("not found"),
            ObjectError::NoSpace { .. } => {
                f.write_str("no space left in the object store; free some, or raise its quota")
            }
            ObjectError::Corrupt { cause, .. } => {
                write!(
                    f,
                    "corrupt: {cause}; restore it from a backup (chiton fsck --content names the files)"
                )
            }
            ObjectError::Transient { cause, .. } => write!(f, "failed for now: {cause}"),
            ObjectError::Denied { cause, .. } => {
                write!(f, "denied: {cause}; check the rights on the store, or the credentials")
            }
            ObjectError::Gone { cause, .. } => {
                write!(f, "the bucket is gone: {cause}; restore it from a backup, or format another")
            }
            ObjectError::Io { cause, .. } => write!(f, "input/output error: {cause}"),
            ObjectError::BadKey { .. } => unreachable!("said above"),
        }
    }
}

impl std::error::Error for ObjectError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_object_or_the_whole_store_and_what_to_do() {
        let (key, cause) = ("blocks/1".to_owned(), "3 bytes are missing".to_owned());
        let corrupt = ObjectError::Corrupt { key, cause }.to_string();
        assert!(
            corrupt.starts_with("object \"blocks/1\": corrupt: 3 bytes are missing; restore it"),
            "{corrupt}"
        );
        let full = ObjectError::NoSpace { key: String::new() }.to_string();
        assert!(full.starts_with("the object store: no space left") && full.contains("free some"), "{full}");
    }
}
