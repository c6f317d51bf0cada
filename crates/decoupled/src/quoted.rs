//! Paths for people: names may hold any bytes, lines of a terminal may not.

use std::borrow::Cow;
use std::fmt::Write;

/// A path as `ls` and shells write it: as it is, or as `$'a\nb'` if it holds bytes that are no text, or control characters.
pub fn quoted(path: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(path) {
        Ok(text) if !text.starts_with("$'") && !text.chars().any(char::is_control) => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(path)),
    }
}

fn escaped(path: &[u8]) -> String {
    let mut out = String::from("$'");
    for chunk in path.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                '\\' | '\'' => out.extend(['\\', char]),
                char if char.is_control() => octal(&mut out, char.encode_utf8(&mut [0; 4]).as_bytes()),
                char => out.push(char),
            }
        }
        octal(&mut out, chunk.invalid());
    }
    out.push('\'');
    out
}

fn octal(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(out, "\\{byte:03o}").expect("a string takes everything");
    }
}

/// The bytes of a path that is not valid UTF-8; JSON output carries them beside the text.
pub fn if_no_text(path: &[u8]) -> Option<Vec<u8>> {
    std::str::from_utf8(path).is_err().then(|| path.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_as_in_shells() {
        for (path, expect) in [
            (&b"dir/a b"[..], "dir/a b"),
            ("für/ж".as_bytes(), "für/ж"),
            (b"a'b\\c", "a'b\\c"),
            (b"", ""),
            (b"a\nb\tc\rd", r"$'a\nb\tc\rd'"),
            (b"it's\n\\", r"$'it\'s\n\\'"),
            (b"\x1b[31m\x7f", r"$'\033[31m\177'"),
            (b"a\xff\xc3", r"$'a\377\303'"),
            ("\u{85}".as_bytes(), r"$'\302\205'"),
            (b"$'x'", r"$'$\'x\''"),
        ] {
            assert_eq!(quoted(path), expect);
        }
        assert_eq!(if_no_text(b"text\n"), None);
        assert_eq!(if_no_text(b"\xff"), Some(vec![0xff]));
    }
}
