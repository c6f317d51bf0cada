//! The few names, callers, sizes and places that histories draw from: few, so that they collide.

use std::sync::Arc;

use chiton_model::{CHUNK_BYTES, FILE_BYTES_MAX, INLINE_BYTES_MAX, Make, SYMLINK_BYTES_MAX};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT};
use chiton_types::{Capabilities, Cred, IdMaps, IdRange, Kind, Name, Privileges, Scope};

/// Where writes and clones begin: small offsets, the borders of the first chunks.
pub(crate) const PLACES: [u64; 7] =
    [0, 5, 5000, CHUNK_BYTES - 21, CHUNK_BYTES, 2 * CHUNK_BYTES - 9, INLINE_BYTES_MAX as u64];

pub(crate) const SIZES: [u64; 10] = [
    0,
    1,
    17,
    40,
    5010,
    CHUNK_BYTES - 11,
    CHUNK_BYTES + 4,
    3 * CHUNK_BYTES,
    FILE_BYTES_MAX,
    FILE_BYTES_MAX + 1,
];

pub(crate) const XATTRS: [&[u8]; 11] = [
    b"user.a",
    b"user.b",
    b"trusted.t",
    b"security.s",
    b"system.x",
    b"user.",
    b"odd",
    b"user.n\0l",
    b"security.capability",
    ACL_ACCESS,
    ACL_DEFAULT,
];

/// The value of an attribute: a list, if it is one, else bytes.
pub(crate) fn xattr_value(name: &[u8], by: u8, len: usize) -> Vec<u8> {
    if !name.starts_with(b"system.posix") {
        return vec![by; len];
    }
    // Tag, rights, who.
    let (a, b, c) = (u16::from(by) % 8, u16::from(by) / 8 % 8, len as u16 % 8);
    let none = u32::MAX;
    let entries: &[(u16, u16, u32)] = match len % 8 {
        0 => &[],
        1 => &[(1, a, none), (4, b, none), (32, c, none)],
        2 => &[(1, 7, none), (2, a, 1), (2, b, 2), (4, c, none), (16, 7, none), (32, 5, none)],
        3 => &[(1, a, none), (4, b, none), (8, 6, 2), (16, c, none), (32, 0, none)],
        4 => &[(1, 7, none), (2, 3, 3), (4, a, none), (8, b, 1), (8, 7, 4), (16, 6, none), (32, c, none)],
        5 => &[(1, 6, none), (4, 4, none), (16, a, none), (32, b, none)],
        // None: without a mask, and in the wrong order.
        6 => &[(1, 7, none), (2, a, 1), (4, b, none), (32, c, none)],
        _ => &[(4, 7, none), (1, 7, none), (32, 7, none)],
    };
    list_bytes(entries)
}

pub(crate) fn list_bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, rights, id) in entries {
        bytes.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Root, users who share some groups, root without capabilities, users with some, and the root of a user namespace.
pub(crate) fn cred(n: u8) -> Cred {
    let with = |uid, capabilities| {
        let privileges = Some(Privileges { capabilities, ..Privileges::ALL });
        Cred { privileges, ..Cred::new(uid, uid, &[]) }
    };
    let protected_hardlinks = n % 2 == 1;
    let cred = match n / 8 % 12 {
        5 => with(0, Capabilities::NONE),
        6 => with(2, Capabilities::FOWNER.and(Capabilities::FSETID)),
        7 => with(2, Capabilities::CHOWN.and(Capabilities::DAC_READ_SEARCH)),
        8 => with(0, Capabilities::DAC_OVERRIDE.and(Capabilities::MKNOD)),
        9 => with(3, Capabilities::SYS_ADMIN.and(Capabilities::SETFCAP)),
        10 => {
            let range = |first, count| vec![IdRange { first, count }];
            let maps = IdMaps { users: range(2, 2), groups: range(1, 2) };
            let scope = Scope::Mapped(Arc::new(maps));
            Cred { privileges: Some(Privileges { scope, ..Privileges::ALL }), ..Cred::new(3, 2, &[]) }
        }
        0 | 1 | 11 => Cred { groups: Some([].into()), ..Cred::ROOT },
        2 => Cred::new(1, 1, &[2]),
        3 => Cred::new(2, 2, &[]),
        _ => Cred::new(3, 1, &[3, 4]),
    };
    let umask = [0, 0o022, 0o007, 0o077][usize::from(n / 2 % 4)];
    Cred { protected_hardlinks, umask, ..cred }
}

pub(crate) fn pooled_name(n: u8) -> Name {
    let long = [b'n'; 255];
    let names: [&[u8]; 7] = [b"a", b"b", b"c", b"\xff\x01", b"e", b"f", &long];
    Name::new(names[usize::from(n) % names.len()]).expect("a name")
}

pub(crate) fn make(what: u8) -> Make {
    match what % 16 {
        0..4 => Make::File { content: vec![what; usize::from(what)] },
        4..9 => Make::Dir,
        9 | 10 => Make::File { content: Vec::new() },
        11 => Make::Symlink { target: b"a/b"[..usize::from(what) % 4].to_vec() },
        12 => Make::Symlink { target: vec![b't'; SYMLINK_BYTES_MAX + usize::from(what % 32 / 16)] },
        13 => Make::Node { kind: Kind::Fifo, rdev: u32::from((what / 16).is_multiple_of(8)) },
        14 => Make::Node {
            kind: [Kind::Char, Kind::Block, Kind::Socket, Kind::Dir][usize::from(what / 16) % 4],
            rdev: u32::from(what / 64 == 1 && what / 16 % 4 < 2),
        },
        _ => Make::File { content: vec![1; INLINE_BYTES_MAX + usize::from(what % 32 / 16)] },
    }
}
