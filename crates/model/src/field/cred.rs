//! Groups and capabilities of callers.
//!
//! By hand: nearly every caller has no capability or all, which takes one byte; and groups come in an `Arc`.
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
use chiton_types::{Capabilities, Cred, ID_RANGES_MAX, IdMaps, IdRange, Privileges, Scope};

use super::{Code, Fixed, Max, Sample};
use crate::code;

/// Most supplementary groups (Linux: 65,536).
pub const GROUPS_MAX: usize = 65_536;

type Groups = Max<Fixed, GROUPS_MAX>;
type Ranges = Max<IdRange, ID_RANGES_MAX>;

crate::record_code! { IdRange "range of ids" { first: u32 as Fixed, count: u32 as Fixed } }
crate::record_code! { IdMaps "maps of ids" { users: Vec<IdRange> as Ranges, groups: Vec<IdRange> as Ranges } }

crate::record_code! { Cred "caller" {
    uid: u32 as Fixed,
    gid: u32 as Fixed,
    groups: Option<Arc<[u32]>> as Option<Groups>,
    privileges: Option<Privileges>,
    protected_hardlinks: bool,
    umask: u16,
} }

impl Code<Arc<[u32]>> for Groups {
    const BYTES_MIN: usize = 1;
    fn form() -> String {
        <Groups as Code<Vec<u32>>>::form()
    }
    #[inline]
    fn put(groups: &Arc<[u32]>, out: &mut Vec<u8>) {
        out.put_varint(groups.len() as u64);
        <Fixed as Code<u32>>::put_all(groups, out);
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<Arc<[u32]>, Malformed> {
        let count = from.count(4)?;
        if count > GROUPS_MAX {
            return Err(Malformed { expected: "at most 65,536 groups" });
        }
        let bytes = from.take(count * 4, "groups")?;
        Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }
    fn check(groups: &Arc<[u32]>) -> Result<(), super::OverLimit> {
        super::within::<GROUPS_MAX>(groups.len())
    }
}

impl Sample<Arc<[u32]>> for Groups {
    fn sample(from: &mut super::Samples<'_>) -> Arc<[u32]> {
        <Fixed as Sample<u32>>::sample_all(from).into()
    }
}

code!(
    Privileges,
    1,
    "0 none; 1 all, everywhere; 2 everywhere, then the set u64 (bit n: capability n of Linux); 3 over the inodes of a user \
     namespace: the set u64, then owners and groups",
    |privileges, out| match &privileges.scope {
        _ if *privileges == Privileges::NONE => out.put_u8(0),
        _ if *privileges == Privileges::ALL => out.put_u8(1),
        Scope::Everywhere => {
            out.put_u8(2);
            out.put_u64(privileges.capabilities.0);
        }
        Scope::Mapped(maps) => {
            out.put_u8(3);
            out.put_u64(privileges.capabilities.0);
            IdMaps::put(maps, out);
        }
    },
    |from| Ok(match from.u8()? {
        0 => Privileges::NONE,
        1 => Privileges::ALL,
        2 => Privileges { capabilities: Capabilities(from.u64()?), scope: Scope::Everywhere },
        3 => {
            let capabilities = Capabilities(from.u64()?);
            Privileges { capabilities, scope: Scope::Mapped(Arc::new(IdMaps::take(from)?)) }
        }
        _ => return Err(Malformed { expected: "a scope of capabilities" }),
    });
    draw = |from| match from.below(4) {
        0 => Privileges::NONE,
        1 => Privileges::ALL,
        2 => Privileges { capabilities: Capabilities(from.number()), scope: Scope::Everywhere },
        _ => {
            let capabilities = Capabilities(from.number());
            Privileges { capabilities, scope: Scope::Mapped(Arc::new(IdMaps::sample(from))) }
        }
    };
    check = |privileges| match &privileges.scope {
        Scope::Everywhere => Ok(()),
        Scope::Mapped(maps) => IdMaps::check(maps),
    }
);
