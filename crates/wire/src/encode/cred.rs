//! Capabilities of callers.
//!
//! ```text
//!   0                                   none
//!   1                                   all, everywhere
//!   2 │ capabilities u64                everywhere
//!   3 │ capabilities u64 │ users │ groups    over the inodes of a user namespace
//!
//!   users, groups: count varint, then each: first u32 │ count u32
//! ```

use std::sync::Arc;

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Capabilities, ID_RANGES_MAX, IdMaps, IdRange, Privileges, Scope};

use super::bad;

pub(super) fn put_privileges(out: &mut Vec<u8>, privileges: &Privileges) {
    match &privileges.scope {
        _ if *privileges == Privileges::NONE => out.put_u8(0),
        _ if *privileges == Privileges::ALL => out.put_u8(1),
        Scope::Everywhere => {
            out.put_u8(2);
            out.put_u64(privileges.capabilities.0);
        }
        Scope::Mapped(maps) => {
            out.put_u8(3);
            out.put_u64(privileges.capabilities.0);
            put_ranges(out, &maps.users);
            put_ranges(out, &maps.groups);
        }
    }
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[IdRange]) {
    out.put_varint(ranges.len() as u64);
    for range in ranges {
        out.put_u32(range.first);
        out.put_u32(range.count);
    }
}

pub(super) fn take_privileges(from: &mut Take<'_>) -> Result<Privileges, Malformed> {
    Ok(match from.u8()? {
        0 => Privileges::NONE,
        1 => Privileges::ALL,
        2 => Privileges { capabilities: Capabilities(from.u64()?), scope: Scope::Everywhere },
        3 => {
            let capabilities = Capabilities(from.u64()?);
            let maps = IdMaps { users: take_ranges(from)?, groups: take_ranges(from)? };
            Privileges { capabilities, scope: Scope::Mapped(Arc::new(maps)) }
        }
        _ => return bad("a scope of capabilities"),
    })
}

fn take_ranges(from: &mut Take<'_>) -> Result<Vec<IdRange>, Malformed> {
    let n = from.count(8)?;
    if n > ID_RANGES_MAX {
        return bad("at most 340 ranges of a user namespace");
    }
    (0..n).map(|_| Ok(IdRange { first: from.u32()?, count: from.u32()? })).collect()
}
