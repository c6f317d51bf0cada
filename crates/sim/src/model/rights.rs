//! Permissions according to acl(5), path_resolution(7) and the manuals of the system calls. This shares no code
//! with the judged engine.
//!
//! Invariants:
//! - Root may do all that these rules are about.
//! - The entries of an access list for the owner, the mask and others are the mode's bits: a chmod changes both.

use chiton_types::{Ino, Kind, Name, Refusal};

use super::{Model, Node};
use crate::users::User;

/// To read: of a directory, its list of names.
pub const READ: u8 = 4;
/// To write: of a directory, its names.
pub const WRITE: u8 = 2;
/// The right to search a directory.
pub const SEARCH: u8 = 1;

const SETGID: u16 = 0o2000;
const STICKY: u16 = 0o1000;

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct List {
    pub owner: u8,
    /// Other users, by their numbers.
    pub users: Vec<(u32, u8)>,
    pub group: u8,
    pub groups: Vec<(u32, u8)>,
    /// The most that other users and all groups are given.
    pub mask: Option<u8>,
    pub other: u8,
}

impl List {
    /// As the value of the attribute `system.posix_acl_access` or `system.posix_acl_default`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0];
        let mut entry = |tag: u16, rights: u8, id: u32| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::from(rights).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        };
        entry(0x01, self.owner, u32::MAX);
        self.users.iter().for_each(|(uid, rights)| entry(0x02, *rights, *uid));
        entry(0x04, self.group, u32::MAX);
        self.groups.iter().for_each(|(gid, rights)| entry(0x08, *rights, *gid));
        self.mask.iter().for_each(|mask| entry(0x10, *mask, u32::MAX));
        entry(0x20, self.other, u32::MAX);
        bytes
    }

    /// The nine equivalent bits of the mode.
    pub fn bits(&self) -> u16 {
        u16::from(self.owner) << 6 | u16::from(self.mask.unwrap_or(self.group)) << 3 | u16::from(self.other)
    }

    /// The list of an inode with this mode.
    pub(super) fn under(mut self, mode: u16) -> List {
        let class = |shift: u16| (mode >> shift) as u8 & 7;
        (self.owner, self.other) = (class(6), class(0));
        *self.mask.as_mut().unwrap_or(&mut self.group) = class(3);
        self
    }

    /// `None` if the mode has all of it.
    pub(super) fn unless_plain(self) -> Option<List> {
        let is_plain = self.mask.is_none() && self.users.is_empty() && self.groups.is_empty();
        (!is_plain).then_some(self)
    }
}

/// Owner, group, mode and lists of a new inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
    pub access: Option<List>,
    /// Default list, of a directory.
    pub default: Option<List>,
}

impl Birth {
    /// Made by root, where nothing is inherited.
    pub fn of_root(mode: u16) -> Birth {
        Birth { uid: 0, gid: 0, mode, access: None, default: None }
    }
}

/// Whether a user has all these rights on an inode.
fn may(user: User, node: &Node, want: u8) -> bool {
    if user == User::Root {
        return true;
    }
    let class = |shift: u16| (node.mode >> shift) as u8 & want == want;
    if user.id() == node.uid {
        return class(6);
    }
    let Some(list) = &node.access else {
        return if user.is_in(node.gid) { class(3) } else { class(0) };
    };
    let mask = list.mask.unwrap_or(7);
    let gives = |rights: u8| rights & mask & want == want;
    if let Some((_, rights)) = list.users.iter().find(|(uid, _)| *uid == user.id()) {
        return gives(*rights);
    }
    let groups = std::iter::once((node.gid, list.group)).chain(list.groups.iter().copied());
    let mine: Vec<u8> = groups.filter(|(gid, _)| user.is_in(*gid)).map(|(_, rights)| rights).collect();
    if mine.is_empty() { class(0) } else { mine.into_iter().any(gives) }
}

/// Whether a user has the rights of the owner.
fn owns(user: User, node: &Node) -> bool {
    user == User::Root || user.id() == node.uid
}

/// The permissions that a rule gives.
fn rule(allowed: bool, otherwise: Refusal) -> Result<(), Refusal> {
    if allowed { Ok(()) } else { Err(otherwise) }
}

impl Model {
    /// The inode at a path, for a user with the right to search every directory on it.
    ///
    /// # Errors
    /// [`Refusal::Access`]; [`Refusal::NotFound`] if there is nothing.
    pub fn walk(&self, user: User, path: &str) -> Result<Ino, Refusal> {
        path.split('/').filter(|part| !part.is_empty()).try_fold(Ino::ROOT, |at, part| {
            let node = self.node(at).ok_or(Refusal::NotFound)?;
            if node.kind != Kind::Dir {
                return Err(Refusal::NotFound);
            }
            rule(may(user, node, SEARCH), Refusal::Access)?;
            let name = Name::try_from(part).map_err(|_| Refusal::NotFound)?;
            node.entries.get(&name).copied().ok_or(Refusal::NotFound)
        })
    }

    fn known(&self, ino: Ino) -> Result<&Node, Refusal> {
        self.node(ino).ok_or(Refusal::Stale)
    }

    /// access(2).
    ///
    /// # Errors
    /// [`Refusal::Access`].
    pub fn check(&self, user: User, ino: Ino, want: u8) -> Result<(), Refusal> {
        rule(may(user, self.known(ino)?, want), Refusal::Access)
    }

    /// Making a name in a directory.
    ///
    /// # Errors
    /// [`Refusal::Access`].
    pub fn may_make(&self, user: User, dir: Ino) -> Result<(), Refusal> {
        self.check(user, dir, WRITE | SEARCH)
    }

    /// Removing or replacing a name, if it exists. In a sticky directory only the owner of the directory or of the
    /// file may.
    ///
    /// # Errors
    /// [`Refusal::Access`], [`Refusal::NotPermitted`].
    pub fn may_remove(&self, user: User, dir: Ino, name: &Name) -> Result<(), Refusal> {
        self.may_make(user, dir)?;
        let node = self.known(dir)?;
        let Some(victim) = node.entries.get(name) else { return Ok(()) };
        let is_free = node.mode & STICKY == 0 || owns(user, node) || owns(user, self.known(*victim)?);
        rule(is_free, Refusal::NotPermitted)
    }

    /// A directory that gets another parent changes itself: `..` is in it.
    ///
    /// # Errors
    /// [`Refusal::Access`].
    pub fn may_move(&self, user: User, dir: Ino, name: &Name) -> Result<(), Refusal> {
        match self.known(dir)?.entries.get(name) {
            Some(moved) if self.known(*moved)?.kind == Kind::Dir => self.check(user, *moved, WRITE),
            _ => Ok(()),
        }
    }

    /// chmod(2), utimensat(2) with times, an access control list.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`].
    pub fn may_change(&self, user: User, ino: Ino) -> Result<(), Refusal> {
        rule(owns(user, self.known(ino)?), Refusal::NotPermitted)
    }

    /// chown(2): owners may give a file to a group of theirs.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`].
    pub fn may_give(&self, user: User, ino: Ino, uid: Option<u32>, gid: Option<u32>) -> Result<(), Refusal> {
        let node = self.known(ino)?;
        let keeps_owner = uid.is_none_or(|uid| uid == node.uid);
        let is_own_group = gid.is_none_or(|gid| gid == node.gid || user.is_in(gid));
        let allowed = user == User::Root
            || (keeps_owner && is_own_group && (user.id() == node.uid || (uid, gid) == (None, None)));
        rule(allowed, Refusal::NotPermitted)
    }

    /// setxattr(2) of a `user.` attribute.
    ///
    /// # Errors
    /// [`Refusal::Access`], [`Refusal::NotPermitted`].
    pub fn may_set_xattr(&self, user: User, ino: Ino) -> Result<(), Refusal> {
        let node = self.known(ino)?;
        rule(matches!(node.kind, Kind::File | Kind::Dir), Refusal::NotPermitted)?;
        if node.kind == Kind::Dir && node.mode & STICKY != 0 {
            self.may_change(user, ino)?;
        }
        self.check(user, ino, WRITE)
    }

    /// The mode after a chmod by an allowed user: the set-group-id bit is only for members of the group.
    ///
    /// # Errors
    /// [`Refusal::Stale`].
    pub fn mode_after(&self, user: User, ino: Ino, mode: u16) -> Result<u16, Refusal> {
        let keeps = user == User::Root || user.is_in(self.known(ino)?.gid);
        Ok(if keeps { mode } else { mode & !SETGID })
    }

    /// The initial attributes of an inode that is made in a directory with this mode (which has no set-id bits).
    ///
    /// # Errors
    /// [`Refusal::Stale`].
    pub fn birth(&self, user: User, dir: Ino, kind: Kind, mode: u16) -> Result<Birth, Refusal> {
        let dir = self.known(dir)?;
        let passes_group = dir.mode & SETGID != 0;
        let gid = if passes_group { dir.gid } else { user.id() };
        let mut born = Birth { uid: user.id(), gid, ..Birth::of_root(mode) };
        if kind == Kind::Dir && passes_group {
            born.mode |= SETGID;
        }
        if let Some(list) = dir.default.as_ref().filter(|_| matches!(kind, Kind::File | Kind::Dir)) {
            born.mode &= !0o777 | list.bits();
            born.access = list.clone().under(born.mode).unless_plain();
            born.default = (kind == Kind::Dir).then(|| list.clone());
        }
        Ok(born)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Change, NewInode};
    use crate::users::TEAM;
    use chiton_types::Time;

    fn name(text: &str) -> Name {
        Name::try_from(text).expect("a name")
    }

    /// `/d` with mode, owner, group and list, and in it `f` of the second user, 0640.
    fn model(mode: u16, (uid, gid): (u32, u32), access: Option<List>) -> Model {
        let mut model = Model::new(Time(1));
        let mut make = |parent, text: &str, ino, what, birth| {
            let change = Change::Make { parent, name: name(text), ino: Ino(ino), what, birth };
            model.apply(&change, Time(1)).expect("made");
        };
        make(Ino::ROOT, "d", 10, NewInode::Dir, Birth { uid, gid, mode, access, default: None });
        let file = Birth { uid: 102, gid: 102, ..Birth::of_root(0o640) };
        make(Ino(10), "f", 11, NewInode::File(Vec::new()), file);
        model
    }

    #[test]
    fn one_class_decides() {
        let (read, search) = (READ, SEARCH);
        for (mode, owner, user, want, expect) in [
            (0o700, (101, 101), User::First, read | WRITE | search, true),
            (0o077, (101, TEAM), User::First, search, false),
            (0o700, (101, 101), User::Second, search, false),
            (0o701, (101, 101), User::Second, search, true),
            (0o750, (101, TEAM), User::Second, read | search, true),
            (0o705, (101, TEAM), User::Second, search, false),
            (0o705, (101, 101), User::Second, search, true),
            (0o000, (101, 101), User::Root, WRITE, true),
        ] {
            let model = model(mode, owner, None);
            assert_eq!(
                model.check(user, Ino(10), want).is_ok(),
                expect,
                "{mode:o} {owner:?} {user:?} {want}"
            );
        }
    }

    #[test]
    fn a_list_decides_before_the_mode() {
        let list = List {
            owner: 7,
            users: vec![(101, 7)],
            group: 0,
            groups: vec![(TEAM, 5)],
            mask: Some(5),
            other: 7,
        };
        let model = model(0o757, (0, 0), Some(list));
        for (user, want, expect) in [
            (User::First, READ | SEARCH, true),
            // The mask takes that away.
            (User::First, WRITE, false),
            (User::Second, READ | SEARCH, true),
            // A member of a listed group does not count as other.
            (User::Second, WRITE, false),
        ] {
            assert_eq!(model.check(user, Ino(10), want).is_ok(), expect, "{user:?} {want}");
        }
    }

    #[test]
    fn paths_need_search_rights_and_sticky_directories_protect_files() {
        let closed = model(0o766, (0, 0), None);
        assert_eq!(closed.walk(User::First, "/d/f"), Err(Refusal::Access));
        assert_eq!(closed.walk(User::First, "/d"), Ok(Ino(10)));
        assert_eq!(closed.walk(User::Root, "/d/f"), Ok(Ino(11)));
        let sticky = model(0o1777, (0, 0), None);
        assert_eq!(sticky.may_remove(User::First, Ino(10), &name("f")), Err(Refusal::NotPermitted));
        assert_eq!(sticky.may_remove(User::Second, Ino(10), &name("f")), Ok(()));
        assert_eq!(sticky.may_remove(User::First, Ino(10), &name("absent")), Ok(()));
    }

    #[test]
    fn new_entries_take_group_and_list_of_their_directory() {
        let mut model = model(0o2777, (0, TEAM), None);
        let born = |model: &Model, kind| model.birth(User::First, Ino(10), kind, 0o755).expect("a directory");
        assert_eq!((born(&model, Kind::Dir).gid, born(&model, Kind::Dir).mode), (TEAM, 0o2755));
        assert_eq!(born(&model, Kind::File).mode, 0o755);
        let list =
            List { owner: 7, users: vec![(102, 6)], group: 5, groups: Vec::new(), mask: Some(7), other: 0 };
        let set = Change::List { ino: Ino(10), default: true, list: Some(list.clone()) };
        model.apply(&set, Time(2)).expect("a directory");
        let file = model.birth(User::First, Ino(10), Kind::File, 0o644).expect("a directory");
        assert_eq!(file.mode, 0o640);
        assert_eq!(file.access, Some(List { owner: 6, mask: Some(4), ..list.clone() }));
        assert_eq!(born(&model, Kind::Dir).default, Some(list));
    }
}
