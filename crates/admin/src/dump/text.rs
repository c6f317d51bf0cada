//! Lines of a dump: escapes, nodes, content.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chiton_model::text::{FLAG_LETTERS, flag_letters};
use chiton_types::{Kind, Mode, Time};

/// Everything of an inode that a dump keeps, but its content and extended attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    /// Immutable and append-only, as in [`chiton_types::Attr::flags`].
    pub(crate) flags: u8,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    /// Device number; 0 for other types.
    pub(crate) rdev: u32,
    /// Bytes of content; 0 for other types.
    pub(crate) size: u64,
    /// Target of a symbolic link; empty for other types.
    pub(crate) target: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Node {
        path: Vec<u8>,
        node: Node,
    },
    /// A further name of a file that came before.
    Link {
        path: Vec<u8>,
        first: Vec<u8>,
    },
    Xattr {
        name: Vec<u8>,
        value: Vec<u8>,
    },
    Data {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// A part of the content that could not be read.
    Unreadable {
        offset: u64,
        len: u64,
        why: Vec<u8>,
    },
    Comment,
    End {
        inodes: u64,
        crc: u32,
    },
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::Dir, "dir"),
    (Kind::File, "file"),
    (Kind::Symlink, "symlink"),
    (Kind::Fifo, "fifo"),
    (Kind::Socket, "socket"),
    (Kind::Char, "char"),
    (Kind::Block, "block"),
];

fn word(kind: Kind) -> &'static str {
    KINDS.iter().find(|(k, _)| *k == kind).expect("every kind has a word").1
}

/// Printable ASCII as it is; everything else, blanks and backslashes too, as `\xHH`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\x5c"),
            0x21..=0x7e => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out
}

/// The inverse of [`escape`].
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let digits =
            rest.strip_prefix(b"x").and_then(|r| r.get(..2)).and_then(|d| std::str::from_utf8(d).ok());
        let byte = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        match byte.and_then(|d| u8::from_str_radix(d, 16).ok()) {
            Some(byte) => out.push(byte),
            None => return Err("a backslash is not followed by x and two hexadecimal digits".to_owned()),
        }
        rest = &rest[3..];
    }
    Ok(out)
}

impl Line {
    pub(crate) fn to_text(&self) -> String {
        match self {
            Line::Node { path, node } => {
                let Node { kind, mode, flags, uid, gid, atime, mtime, rdev, size, target } = node;
                let mut line = format!(
                    "{} {} mode={:04o} uid={uid} gid={gid} atime={} mtime={}",
                    word(*kind),
                    escape(path),
                    mode.0,
                    atime.0,
                    mtime.0
                );
                let _ = match kind {
                    Kind::File => write!(line, " size={size}"),
                    Kind::Symlink => write!(line, " target={}", escape(target)),
                    Kind::Char | Kind::Block => write!(line, " rdev={rdev}"),
                    _ => Ok(()),
                };
                if *flags != 0 {
                    let _ = write!(line, " flags={}", flag_letters(*flags));
                }
                line
            }
            Line::Link { path, first } => format!("link {} {}", escape(path), escape(first)),
            Line::Xattr { name, value } => format!("x {} {}", escape(name), BASE64_STANDARD.encode(value)),
            Line::Data { offset, bytes } => format!("d {offset} {}", BASE64_STANDARD.encode(bytes)),
            Line::Unreadable { offset, len, why } => format!("unreadable {offset} {len} {}", escape(why)),
            Line::Comment => "#".to_owned(),
            Line::End { inodes, crc } => format!("end inodes={inodes} crc32c={crc:08x}"),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Line, String> {
        if text.is_empty() || text.starts_with('#') {
            return Ok(Line::Comment);
        }
        let mut words = text.split(' ');
        let tag = words.next().unwrap_or_default();
        let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
        let line = match tag {
            "link" => Line::Link { path: path(next("the path")?)?, first: path(next("the first path")?)? },
            "x" => Line::Xattr { name: unescape(next("the name")?)?, value: base64(next("the value")?)? },
            "d" => Line::Data {
                offset: number(next("the offset")?, "the offset")?,
                bytes: base64(next("the bytes")?)?,
            },
            "unreadable" => Line::Unreadable {
                offset: number(next("the offset")?, "the offset")?,
                len: number(next("the length")?, "the length")?,
                why: unescape(next("the reason")?)?,
            },
            "end" => {
                let inodes = field(next("inodes=")?, "inodes")?;
                let crc = field(next("crc32c=")?, "crc32c")?;
                let crc = u32::from_str_radix(crc, 16).map_err(|_| format!("crc32c={crc} is no checksum"))?;
                Line::End { inodes: number(inodes, "inodes")?, crc }
            }
            word => {
                let kind = KINDS.iter().find(|(_, w)| *w == word);
                let kind = kind.ok_or_else(|| format!("{word:?} is no kind of line"))?.0;
                Line::Node { path: path(next("the path")?)?, node: node(kind, &mut words)? }
            }
        };
        match words.next() {
            Some(more) => Err(format!("there is more than belongs to it: {more:?}")),
            None => Ok(line),
        }
    }
}

fn node<'a>(kind: Kind, words: &mut impl Iterator<Item = &'a str>) -> Result<Node, String> {
    let mut next = |name: &str| field(words.next().ok_or_else(|| format!("{name}= is missing"))?, name);
    let mode = next("mode")?;
    let mode = u16::from_str_radix(mode, 8).ok().filter(|m| *m <= 0o7777);
    let mode = Mode(mode.ok_or("mode= is not an octal number up to 7777")?);
    let (uid, gid) = (number(next("uid")?, "uid")?, number(next("gid")?, "gid")?);
    let (atime, mtime) = (Time(number(next("atime")?, "atime")?), Time(number(next("mtime")?, "mtime")?));
    let mut node =
        Node { kind, mode, flags: 0, uid, gid, atime, mtime, rdev: 0, size: 0, target: Vec::new() };
    match kind {
        Kind::File => node.size = number(next("size")?, "size")?,
        Kind::Symlink => node.target = unescape(next("target")?)?,
        Kind::Char | Kind::Block => node.rdev = number(next("rdev")?, "rdev")?,
        _ => {}
    }
    if let Some(word) = words.next() {
        for letter in field(word, "flags")?.chars() {
            let known = FLAG_LETTERS.iter().find(|(_, known)| *known == letter);
            node.flags |= known.ok_or_else(|| format!("flags={letter} is none of i and a"))?.0;
        }
    }
    Ok(node)
}

/// A path below the root of the dump: `.`, or names parted by slashes.
fn path(text: &str) -> Result<Vec<u8>, String> {
    let path = unescape(text)?;
    let is_name = |name: &[u8]| chiton_types::Name::new(name).is_ok() && name != b"." && name != b"..";
    if path != b"." && !path.split(|b| *b == b'/').all(is_name) {
        return Err(format!("{text:?} is no path of names"));
    }
    Ok(path)
}

fn field<'a>(word: &'a str, name: &str) -> Result<&'a str, String> {
    word.strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('='))
        .ok_or_else(|| format!("{name}= is missing, there is {word:?}"))
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{what} is not a number that fits: {text:?}"))
}

fn base64(text: &str) -> Result<Vec<u8>, String> {
    BASE64_STANDARD.decode(text).map_err(|e| format!("the base64 is damaged: {e}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_escaped_and_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let text = escape(&bytes);
            prop_assert!(text.bytes().all(|b| (0x21..=0x7e).contains(&b)));
            prop_assert_eq!(unescape(&text), Ok(bytes));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[ -~]{0,60}|(file|dir|d|x|end|link) [ -~]{0,40}") {
            if let Ok(line) = Line::parse(&text) {
                prop_assert_eq!(Line::parse(&line.to_text()), Ok(line));
            }
        }
    }

    #[test]
    fn lines_round_trip_and_wrong_ones_say_why() {
        let lines = [
            "dir . mode=0755 uid=0 gid=0 atime=1 mtime=-2",
            "file a\\x20b/c mode=4711 uid=1 gid=4294967295 atime=1 mtime=1700000000000000001 size=5",
            "file i mode=0644 uid=1 gid=1 atime=1 mtime=1 size=5 flags=ia",
            "symlink s mode=0777 uid=0 gid=0 atime=1 mtime=1 target=../x",
            "char c mode=0600 uid=0 gid=0 atime=1 mtime=1 rdev=259",
            "fifo f mode=0600 uid=0 gid=0 atime=1 mtime=1",
            "link b a\\x20b/c",
            "x user.a AAEC",
            "x user.empty ",
            "d 4096 aGVsbG8=",
            "unreadable 0 65536 Input/output\\x20error",
            "end inodes=5 crc32c=0000beef",
        ];
        for line in lines {
            assert_eq!(Line::parse(line).expect(line).to_text(), line);
        }
        for (line, why) in [
            ("folder x", "no kind of line"),
            ("dir", "the path is missing"),
            ("dir a mode=0755 uid=0", "gid= is missing"),
            ("dir ../a mode=0755 uid=0 gid=0 atime=1 mtime=1", "no path"),
            ("dir /a mode=0755 uid=0 gid=0 atime=1 mtime=1", "no path"),
            ("dir a mode=9 uid=0 gid=0 atime=1 mtime=1", "octal"),
            ("file a mode=0755 uid=0 gid=0 atime=1 mtime=1 size=-1", "size is not a number"),
            ("d 0 a=", "base64"),
            ("link a\\y b", "backslash"),
            ("fifo f mode=0600 uid=0 gid=0 atime=1 mtime=1 rdev=5", "flags= is missing"),
            ("file f mode=0600 uid=0 gid=0 atime=1 mtime=1 size=5 flags=z", "none of i and a"),
        ] {
            let said = Line::parse(line).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
    }
}
