//! The directory to which a certificate is limited.

use crate::error::AuthError;

/// Longest path of a subtree, in bytes. A path of a certificate travels from server to server.
const PATH_BYTES_MAX: usize = 1024;
/// Longest name on it.
const NAME_BYTES_MAX: usize = 255;

/// An absolute path below the root, of names alone: no `.` and `..`, no empty name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subtree(String);

impl Subtree {
    /// Reads a path. A slash at its end, and doubled slashes, are left out.
    ///
    /// # Errors
    /// The rule, in words.
    pub fn new(path: &str) -> Result<Subtree, AuthError> {
        let fail = |rule: &str| AuthError::new(format!("cannot limit a certificate to {path:?}: {rule}"));
        if !path.starts_with('/') {
            return Err(fail("the path must begin with a slash: it begins at the root of the file system"));
        }
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let plain = format!("/{}", names.join("/"));
        match names.iter().find(|name| matches!(**name, "." | "..") || name.len() > NAME_BYTES_MAX) {
            Some(name) if name.len() > NAME_BYTES_MAX => Err(fail("a name on it is longer than 255 bytes")),
            Some(name) => Err(fail(&format!("it may have no {name:?}; write the path without it"))),
            None if names.is_empty() => Err(fail("it is the root; write / for the whole file system")),
            None if plain.len() > PATH_BYTES_MAX || plain.contains('\0') => {
                Err(fail(&format!("it may have at most {PATH_BYTES_MAX} bytes, none of them 0")))
            }
            None => Ok(Subtree(plain)),
        }
    }

    /// The path, with the slash at its begin and none at its end.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// The path with `%` escapes, as a URI needs it.
    pub(crate) fn escaped(&self) -> String {
        let mut escaped = String::with_capacity(self.0.len());
        for byte in self.0.bytes() {
            match byte.is_ascii_alphanumeric() || b"/-._~@".contains(&byte) {
                true => escaped.push(char::from(byte)),
                false => escaped.push_str(&format!("%{byte:02x}")),
            }
        }
        escaped
    }

    /// The path that [`Subtree::escaped`] wrote; the caller checks that it would be written so.
    pub(crate) fn unescape(text: &str) -> Option<String> {
        let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'%' => {
                    let digits = [rest.next()?, rest.next()?];
                    let digits =
                        str::from_utf8(&digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
                    u8::from_str_radix(digits, 16).ok()?
                }
                byte => byte,
            });
        }
        String::from_utf8(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_of_names_alone() {
        for (text, plain) in [("/a", "/a"), ("//a//b/", "/a/b"), ("/...", "/..."), ("/a b", "/a b")] {
            assert_eq!(Subtree::new(text).expect("a path").path(), plain);
        }
        let long = format!("/{}", "x".repeat(256));
        let deep = "/abc".repeat(257);
        for text in ["", "a", "/", "//", "/a/..", "/./a", "/a\0b", &long, &deep] {
            let why = Subtree::new(text).expect_err(text).to_string();
            assert!(why.starts_with("cannot limit a certificate to"), "{why}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_path_comes_back_from_a_uri(names in proptest::collection::vec("[^/\\x00]{1,20}", 1..4)) {
            let path = format!("/{}", names.join("/"));
            if let Ok(subtree) = Subtree::new(&path) {
                let escaped = subtree.escaped();
                proptest::prop_assert!(escaped.is_ascii() && !escaped.contains(['&', '?', '#', ' ']));
                proptest::prop_assert_eq!(Subtree::unescape(&escaped), Some(path));
            }
        }
    }
}
