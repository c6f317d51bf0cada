//! POSIX access control lists, as acl(5) has them, and their bytes in extended attributes (format version 2 of Linux).
//!
//! ```text
//!   4 bytes  version: 2                          little endian
//!   each entry, in the order of the tags below:
//!     2 bytes tag    1 owner, 2 a user, 4 the group, 8 a group, 16 mask, 32 others
//!     2 bytes rights 4 read, 2 write, 1 execute
//!     4 bytes user or group, 2^32 - 1 where the tag has none
//! ```
//!
//! Invariants:
//! - A list has one entry for the owner, the group and others; and a mask, if it names users or groups.
//! - The rights of the owner, the mask and others of an *access list* are the inode's mode bits. The stored list leaves
//!   them out ([`Acl::stored`]), so chmod changes the mask without touching the list.

use chiton_model::XATTR_VALUE_BYTES_MAX;
use chiton_types::{Cred, Mode, Refusal};

use crate::fault::Fault;

/// The attribute with the access list.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the default list, which inodes made in a directory inherit.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Whether an attribute is an access control list.
pub fn is_list(name: &[u8]) -> bool {
    [ACL_ACCESS, ACL_DEFAULT].contains(&name)
}

const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const NO_ID: u32 = u32::MAX;

/// The subject of an entry of a list. The numbers are Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AclTag {
    Owner,
    User(u32),
    /// The group of the inode.
    OwningGroup,
    Group(u32),
    /// The most that users and groups are given.
    Mask,
    Other,
}

impl AclTag {
    fn number(self) -> (u16, u32) {
        match self {
            AclTag::Owner => (1, NO_ID),
            AclTag::User(uid) => (2, uid),
            AclTag::OwningGroup => (4, NO_ID),
            AclTag::Group(gid) => (8, gid),
            AclTag::Mask => (16, NO_ID),
            AclTag::Other => (32, NO_ID),
        }
    }

    fn from_number(tag: u16, id: u32) -> Option<AclTag> {
        Some(match tag {
            1 => AclTag::Owner,
            2 if id != NO_ID => AclTag::User(id),
            4 => AclTag::OwningGroup,
            8 if id != NO_ID => AclTag::Group(id),
            16 => AclTag::Mask,
            32 => AclTag::Other,
            _ => return None,
        })
    }
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The subject: the owner, a user, a group, the mask or others.
    pub tag: AclTag,
    /// Rights (bits of [`chiton_types::access`]).
    pub rights: u8,
}

/// A valid access list, its entries in the order of their tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

impl Acl {
    /// Checks entries.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] if they are no list: see the module, and the order of the tags.
    pub fn new(entries: Vec<AclEntry>) -> Result<Acl, Refusal> {
        let order: Vec<u16> = entries.iter().map(|entry| entry.tag.number().0).collect();
        let count = |tag: u16| order.iter().filter(|one| **one == tag).count();
        let names = count(2) + count(8) > 0;
        let is_list = order.is_sorted()
            && [1, 4, 32].into_iter().all(|tag| count(tag) == 1)
            && count(16) <= 1
            && (count(16) == 1 || !names)
            && entries.iter().all(|entry| entry.rights <= 7);
        if is_list { Ok(Acl(entries)) } else { Err(Refusal::Invalid) }
    }

    /// Reads the value of an attribute. `None`: an empty list, which removes what was there.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] if it is none; [`Refusal::Unsupported`] of another version.
    pub fn decode(value: &[u8]) -> Result<Option<Acl>, Refusal> {
        if value.is_empty() {
            return Ok(None);
        }
        let (head, rest) = value.split_first_chunk::<HEAD_BYTES>().ok_or(Refusal::Invalid)?;
        if u32::from_le_bytes(*head) != VERSION {
            return Err(Refusal::Unsupported);
        }
        if rest.len() % ENTRY_BYTES != 0 || value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Refusal::Invalid);
        }
        let entries = rest.chunks_exact(ENTRY_BYTES).map(|bytes| {
            let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            let tag = AclTag::from_number(short(0), id).ok_or(Refusal::Invalid)?;
            Ok(AclEntry { tag, rights: u8::try_from(short(2)).map_err(|_| Refusal::Invalid)? })
        });
        let entries = entries.collect::<Result<Vec<AclEntry>, Refusal>>()?;
        if entries.is_empty() { Ok(None) } else { Acl::new(entries).map(Some) }
    }

    /// The value of an attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, id) = entry.tag.number();
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&u16::from(entry.rights).to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    fn rights(&self, tag: AclTag) -> Option<u8> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.rights)
    }

    fn set(&mut self, tag: AclTag, rights: u8) {
        for entry in &mut self.0 {
            if entry.tag == tag {
                entry.rights = rights;
            }
        }
    }

    /// The entry whose rights are the group's bits of the mode.
    fn group_class(&self) -> AclTag {
        if self.has_mask() { AclTag::Mask } else { AclTag::OwningGroup }
    }

    fn has_mask(&self) -> bool {
        self.rights(AclTag::Mask).is_some()
    }

    /// True if the mode says all of it: no mask, no further users and groups.
    pub fn is_trivial(&self) -> bool {
        self.0.len() == 3
    }

    /// The nine bits of the mode that it stands for.
    pub fn mode(&self) -> u16 {
        let bits = |tag| u16::from(self.rights(tag).unwrap_or(0));
        bits(AclTag::Owner) << 6 | bits(self.group_class()) << 3 | bits(AclTag::Other)
    }

    /// The list as it is shown of an inode with this mode.
    #[must_use]
    pub fn with_mode(&self, mode: Mode) -> Acl {
        let mut shown = self.clone();
        let class = shown.group_class();
        for (tag, shift) in [(AclTag::Owner, 6), (class, 3), (AclTag::Other, 0)] {
            shown.set(tag, (mode.0 >> shift) as u8 & 7);
        }
        shown
    }

    /// The list as it is stored of an access list: without what the mode says.
    #[must_use]
    pub fn stored(&self) -> Acl {
        self.with_mode(Mode(0))
    }

    /// Whether a caller who is not the owner has the rights `want`, by the algorithm of acl(5): the first of these that
    /// fits decides: the caller's user entry; the entries of the caller's groups, of which one has to give all; others.
    /// `mode`: of the inode, which holds the mask.
    ///
    /// # Errors
    /// [`Fault::NeedGroups`] if it depends on groups that are not known.
    pub fn allows(&self, cred: &Cred, owning_group: u32, mode: Mode, want: u8) -> Result<bool, Fault> {
        let mask = if self.has_mask() { (mode.0 >> 3) as u8 } else { 7 };
        let gives = |rights: u8| rights & mask & want == want;
        if let Some(rights) = self.rights(AclTag::User(cred.uid)) {
            return Ok(gives(rights));
        }
        let (mut belongs, mut is_unknown) = (false, false);
        for entry in &self.0 {
            let group = match entry.tag {
                AclTag::OwningGroup => owning_group,
                AclTag::Group(gid) => gid,
                _ => continue,
            };
            let rights = match (entry.tag, self.has_mask()) {
                (AclTag::OwningGroup, false) => (mode.0 >> 3) as u8 & 7,
                _ => entry.rights,
            };
            match cred.in_group(group) {
                Some(true) if gives(rights) => return Ok(true),
                Some(true) => belongs = true,
                Some(false) => {}
                None => is_unknown = true,
            }
        }
        if is_unknown {
            return Err(Fault::NeedGroups);
        }
        Ok(!belongs && mode.0 as u8 & 7 & want == want)
    }

    /// The mode and access list that an inode made with `mode` in a directory with this default list is given. No list if
    /// the mode says it all.
    pub fn inherited(&self, mode: Mode) -> (Mode, Option<Acl>) {
        let bits = self.mode() & mode.0;
        let mode = Mode(mode.0 & !0o777 | bits);
        let list = self.with_mode(mode);
        (mode, (!list.is_trivial()).then_some(list))
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::access::{EXEC, READ, WRITE};
    use chiton_types::{Attr, Kind};

    use super::super::may;
    use super::super::tests::{OnlyXattrs, inode};
    use super::*;
    use crate::plan::InodeFacts;
    use crate::values::Xattrs;

    /// `u::rwx,u:5:r--,…`, as getfacl(1) writes it.
    fn acl(text: &str) -> Acl {
        let entries = text.split(',').map(|entry| {
            let parts: Vec<&str> = entry.split(':').collect();
            let tag = match (parts[0], parts[1]) {
                ("u", "") => AclTag::Owner,
                ("u", uid) => AclTag::User(uid.parse().unwrap()),
                ("g", "") => AclTag::OwningGroup,
                ("g", gid) => AclTag::Group(gid.parse().unwrap()),
                ("m", _) => AclTag::Mask,
                _ => AclTag::Other,
            };
            let right = |c: char, bit: u8| if parts[2].contains(c) { bit } else { 0 };
            AclEntry { tag, rights: right('r', READ) | right('w', WRITE) | right('x', EXEC) }
        });
        Acl::new(entries.collect()).expect("a list")
    }

    #[test]
    fn access_is_checked_by_the_algorithm_of_acl_5() {
        // Owner 1, group 50.
        let list = acl("u::rw-,u:5:rwx,u:6:---,g::r--,g:60:-w-,g:61:rw-,m::rw-,o::r--");
        let xattrs = [(ACL_ACCESS.to_vec(), list.encode())].into_iter().collect();
        let state = OnlyXattrs(Xattrs(xattrs));
        let check = |cred: &Cred, mode: u16, want: u8| {
            let inode = InodeFacts { flags: Attr::ACCESS_LIST, ..inode(Kind::File, mode, 1, 50) };
            match may(&state, cred, &inode, want) {
                Ok(()) => "yes",
                Err(Fault::Refused(Refusal::Access)) => "no",
                Err(Fault::NeedGroups) => "who?",
                other => panic!("{other:?}"),
            }
        };
        let shown = list.mode();
        assert_eq!(shown, 0o664);
        for (uid, groups, mode, want, expect) in [
            (1, &[][..], shown, READ | WRITE, "yes"),
            (1, &[], shown, EXEC, "no"),
            // A named user: the mask takes x away; groups and others are not looked at.
            (5, &[], shown, READ | WRITE, "yes"),
            (5, &[], shown, EXEC, "no"),
            (5, &[61], 0o604, READ, "no"),
            (6, &[50, 60, 61], shown, READ, "no"),
            // Groups: one of them has to give all that is asked for.
            (7, &[50], shown, READ, "yes"),
            (7, &[50], shown, WRITE, "no"),
            (7, &[50, 60], shown, READ | WRITE, "no"),
            (7, &[50, 60], shown, WRITE, "yes"),
            (7, &[61], shown, READ | WRITE, "yes"),
            (7, &[61], 0o644, WRITE, "no"),
            // A member of a group that gives too little is not one of the others.
            (7, &[60], shown, READ, "no"),
            (8, &[], shown, READ, "yes"),
            (8, &[], shown, WRITE, "no"),
            (8, &[], 0o660, READ, "no"),
        ] {
            let cred = Cred::new(uid, 9, groups);
            assert_eq!(check(&cred, mode, want), expect, "{uid} {groups:?} {mode:o} {want}");
        }
        assert_eq!(check(&Cred { groups: None, ..Cred::new(8, 9, &[]) }, shown, READ), "who?");
        assert_eq!(check(&Cred { groups: None, ..Cred::new(5, 9, &[]) }, shown, READ), "yes");
        assert_eq!(check(&Cred::ROOT, 0, READ | WRITE), "yes");
    }

    #[test]
    fn chmod_changes_the_mask_and_the_stored_list_does_not_change() {
        let list = acl("u::rwx,u:5:rw-,g::r-x,m::rwx,o::---");
        assert_eq!(list.mode(), 0o770);
        assert_eq!(list.with_mode(Mode(0o641)), acl("u::rw-,u:5:rw-,g::r-x,m::r--,o::--x"));
        assert_eq!(list.stored(), list.with_mode(Mode(0o641)).stored());
        assert_eq!(list.stored().with_mode(Mode(0o770)), list);
        // Without a mask the group's own rights are the group's bits.
        assert_eq!(acl("u::rw-,g::r--,o::---").with_mode(Mode(0o755)), acl("u::rwx,g::r-x,o::r-x"));
    }

    #[test]
    fn what_is_made_inherits_the_default_list_within_the_mode_that_is_asked_for() {
        let born = |list: &str, mode| {
            let (mode, list) = acl(list).inherited(Mode(mode));
            (mode.0, list)
        };
        assert_eq!(born("u::rwx,g::r-x,o::---", 0o666), (0o640, None));
        assert_eq!(
            born("u::rwx,u:5:rwx,g::rwx,m::rwx,o::r-x", 0o2644),
            (0o2644, Some(acl("u::rw-,u:5:rwx,g::rwx,m::r--,o::r--")))
        );
        assert_eq!(
            born("u::rwx,g::r-x,m::r-x,o::---", 0o777),
            (0o750, Some(acl("u::rwx,g::r-x,m::r-x,o::---")))
        );
    }

    #[test]
    fn lists_round_trip_as_bytes() {
        let list = acl("u::rw-,u:5:rwx,g::r--,g:60:-w-,m::rw-,o::r--");
        let value = list.encode();
        assert_eq!(value.len(), 4 + 6 * 8);
        assert_eq!(value[..12], [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255]);
        assert_eq!(value[12..20], [2, 0, 7, 0, 5, 0, 0, 0]);
        assert_eq!(Acl::decode(&value), Ok(Some(list)));
        assert_eq!(Acl::decode(&[]), Ok(None));
        assert_eq!(Acl::decode(&value[..4]), Ok(None));
        assert_eq!(Acl::decode(&[1, 0, 0, 0]), Err(Refusal::Unsupported));
        for n in (1..value.len()).filter(|n| *n != 4) {
            assert_eq!(Acl::decode(&value[..n]), Err(Refusal::Invalid), "{n}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let entry = |tag, rights| AclEntry { tag, rights };
        let three = [entry(AclTag::Owner, 7), entry(AclTag::OwningGroup, 5), entry(AclTag::Other, 0)];
        let with = |at: usize, more: AclEntry| {
            let mut entries = three.to_vec();
            entries.insert(at, more);
            Acl::new(entries).is_ok()
        };
        assert!(Acl::new(three.to_vec()).is_ok());
        assert!(with(2, entry(AclTag::Mask, 7)));
        assert!(!with(1, entry(AclTag::User(5), 7)), "a mask is missing");
        assert!(!with(3, entry(AclTag::Mask, 7)), "the order");
        assert!(!with(0, entry(AclTag::Owner, 7)), "twice");
        assert!(!with(2, entry(AclTag::Mask, 8)), "no such right");
        assert!(Acl::new(three[..2].to_vec()).is_err());
        assert!(Acl::new(Vec::new()).is_err());
        let mut unnamed = acl("u::rw-,u:5:rwx,g::r--,m::rw-,o::r--").encode();
        unnamed[16..20].fill(255);
        assert_eq!(Acl::decode(&unnamed), Err(Refusal::Invalid));
    }
}
