//! The rules for keys.
//!
//! Invariants: a checked key is a relative path that stays below any directory it is joined to, on any store.

use crate::ObjectError;

/// Longest key in bytes (that of S3).
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest part between slashes in bytes (that of a file name).
pub const PART_BYTES_MAX: usize = 255;

fn bad(key: &str, cause: &str) -> ObjectError {
    let shown = key.chars().take(80).collect();
    ObjectError::BadKey { key: shown, cause: cause.to_owned() }
}

fn check_characters(key: &str) -> Result<(), ObjectError> {
    if key.len() > KEY_BYTES_MAX {
        return Err(bad(key, "longer than 1024 bytes"));
    }
    match key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/')) {
        true => Ok(()),
        false => Err(bad(key, "characters other than a-z A-Z 0-9 . _ - /")),
    }
}

/// True if `part` may stand between the slashes of a key.
pub(crate) fn is_part(part: &str) -> bool {
    !matches!(part, "" | "." | "..") && part.len() <= PART_BYTES_MAX && check_characters(part).is_ok()
}

/// Errors with [`ObjectError::BadKey`] unless `key` has 1 to 1024 bytes of `[a-zA-Z0-9._-/]` and every part between
/// slashes has 1 to 255 and is neither `.` nor `..`.
pub fn check_key(key: &str) -> Result<(), ObjectError> {
    check_characters(key)?;
    match key.split('/').find(|part| !is_part(part)) {
        None => Ok(()),
        Some(part) if part.len() > PART_BYTES_MAX => Err(bad(key, "a part longer than 255 bytes")),
        Some(_) => Err(bad(key, "an empty part, \".\" or \"..\"")),
    }
}

/// As [`check_key`] for the start of keys: `""`, and a last part of any kind, are fine.
pub fn check_prefix(prefix: &str) -> Result<(), ObjectError> {
    check_characters(prefix)?;
    let Some((dirs, _)) = prefix.rsplit_once('/') else { return Ok(()) };
    check_key(dirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let part = "p".repeat(255);
        let long = [part.as_str(); 4].join("/");
        for good in ["a", "a/b", "..a", "A-Z_0.9", "a/.../b", part.as_str(), &long] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        let (part, long) = (format!("{part}p"), format!("{long}/b"));
        for odd in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a b", "ä", "a\0", "a+b", &part, &long]
        {
            assert!(matches!(check_key(odd), Err(ObjectError::BadKey { .. })), "{odd}");
        }
    }

    #[test]
    fn prefixes() {
        for good in ["", "a", "a/", "a/b", ".", "a/."] {
            assert_eq!(check_prefix(good), Ok(()), "{good}");
        }
        for odd in ["/", "/a", "a//", "../", "a/../b", "a*"] {
            assert!(check_prefix(odd).is_err(), "{odd}");
        }
    }
}
