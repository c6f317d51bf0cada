//! Names in directories: searching, making, removing, linking.

use chiton_model::LINKS_MAX;
use chiton_types::access::{EXEC, READ, WRITE};
use chiton_types::{Cred, Kind, Mode, Refusal};

use super::may;
use crate::fault::Fault;
use crate::plan::{InodeFacts, PlanState};

/// The right to search a directory.
///
/// # Errors
/// [`Refusal::Access`], or a [`Fault`] that names the facts to fetch first.
#[inline]
pub fn may_search<S: PlanState>(state: &S, cred: &Cred, dir: &InodeFacts) -> Result<(), Fault> {
    may(state, cred, dir, EXEC)
}

/// The right to add and remove names of a directory.
///
/// # Errors
/// [`Refusal::Access`], or a [`Fault`] that names the facts to fetch first.
#[inline]
pub fn may_change_names<S: PlanState>(state: &S, cred: &Cred, dir: &InodeFacts) -> Result<(), Fault> {
    may(state, cred, dir, WRITE | EXEC)
}

/// Nothing is removed from an append-only directory, nor anything that is immutable or append-only. In a sticky directory
/// only its owner and the owner of the removed inode may remove a name. The right to change the names was asked for before.
///
/// # Errors
/// [`Refusal::NotPermitted`], or a [`Fault`] that names the facts to fetch first.
pub fn may_remove(cred: &Cred, dir: &InodeFacts, victim: &InodeFacts) -> Result<(), Fault> {
    if dir.is_append_only() || victim.is_kept() {
        return Err(Refusal::NotPermitted.into());
    }
    if !dir.mode.has(Mode::STICKY) || cred.uid == dir.uid {
        return Ok(());
    }
    let as_owner = super::either(Some(cred.uid == victim.uid), || {
        cred.over(chiton_types::Capabilities::FOWNER, victim.uid, victim.gid)
    });
    super::require(as_owner, Refusal::NotPermitted)
}

/// A further name of a file. Where the caller's machine protects hard links (`fs.protected_hardlinks`), only for files
/// of the caller's, and for regular files without set-id bits that the caller may read and write.
///
/// # Errors
/// [`Refusal::NotPermitted`], or a [`Fault`] that names the facts to fetch first.
pub fn may_link<S: PlanState>(state: &S, cred: &Cred, inode: &InodeFacts) -> Result<(), Fault> {
    if inode.kind == Kind::Dir || inode.is_kept() {
        return Err(Refusal::NotPermitted.into());
    }
    if !cred.protected_hardlinks || cred.uid == inode.uid {
        return Ok(());
    }
    let has_set_id = inode.mode.has(Mode::SETUID) || inode.mode.has(Mode::SETGID | 0o010);
    let is_safe = match inode.kind == Kind::File && !has_set_id {
        false => Some(false),
        true => match may(state, cred, inode, READ | WRITE) {
            Ok(()) => Some(true),
            Err(Fault::Refused(_)) => Some(false),
            Err(Fault::NeedGroups) => None,
            Err(missing) => return Err(missing),
        },
    };
    let allowed = super::either(is_safe, || super::is_owner(cred, inode));
    super::require(allowed, Refusal::NotPermitted)
}

/// A file with so many names may have one more.
///
/// # Errors
/// [`Refusal::TooManyLinks`].
pub fn room_for_link(nlink: u32) -> Result<(), Refusal> {
    if nlink >= LINKS_MAX { Err(Refusal::TooManyLinks) } else { Ok(()) }
}

/// A directory with this link count may have one more subdirectory.
///
/// # Errors
/// [`Refusal::TooManyLinks`].
pub fn room_for_subdirectory(nlink: u32) -> Result<(), Refusal> {
    room_for_link(nlink)
}

#[cfg(test)]
mod tests {
    use chiton_types::{Capabilities, Privileges};

    use super::super::tests::{OnlyXattrs, inode};
    use super::*;

    #[test]
    fn a_sticky_directory_keeps_the_files_of_others() {
        let dir = |mode| inode(Kind::Dir, mode, 1, 1);
        let file = inode(Kind::File, 0o666, 2, 2);
        let check = |cred: &Cred, mode| may_remove(cred, &dir(mode), &file);
        assert_eq!(check(&Cred::new(3, 3, &[]), 0o777), Ok(()));
        assert_eq!(check(&Cred::new(3, 3, &[]), 0o1777), Err(Refusal::NotPermitted.into()));
        assert_eq!(check(&Cred::unseen(3, 3), 0o1777), Err(Fault::NeedGroups));
        assert_eq!(check(&Cred::unseen(2, 3), 0o1777), Ok(()));
        assert_eq!(check(&Cred::unseen(1, 3), 0o1777), Ok(()));
        assert_eq!(check(&Cred::ROOT, 0o1777), Ok(()));
        let powerless = Cred { privileges: Some(Privileges::NONE), ..Cred::ROOT };
        assert_eq!(check(&powerless, 0o1777), Err(Refusal::NotPermitted.into()));
    }

    #[test]
    fn hard_links_to_what_is_not_safe_are_refused_where_they_are_protected() {
        let free = Cred::new(3, 3, &[]);
        let held = Cred { protected_hardlinks: true, ..free.clone() };
        let acting = |capabilities| Cred {
            privileges: Some(Privileges { capabilities, ..Privileges::ALL }),
            ..held.clone()
        };
        let refused = || Err(Refusal::NotPermitted.into());
        for (kind, mode, cred, expect) in [
            (Kind::File, 0o600, &free, Ok(())),
            (Kind::File, 0o600, &held, refused()),
            (Kind::File, 0o644, &held, refused()),
            (Kind::File, 0o666, &held, Ok(())),
            (Kind::File, 0o4666, &held, refused()),
            (Kind::File, 0o2676, &held, refused()),
            (Kind::File, 0o2666, &held, Ok(())),
            (Kind::Fifo, 0o666, &held, refused()),
            (Kind::Fifo, 0o666, &acting(Capabilities::FOWNER), Ok(())),
            (Kind::File, 0o600, &acting(Capabilities::DAC_OVERRIDE), Ok(())),
            (Kind::File, 0o4600, &acting(Capabilities::DAC_OVERRIDE), refused()),
            (Kind::File, 0o600, &Cred { privileges: None, ..held.clone() }, Err(Fault::NeedGroups)),
            (Kind::File, 0o4000, &Cred { uid: 2, ..held.clone() }, Ok(())),
        ] {
            assert_eq!(
                may_link(&OnlyXattrs::default(), cred, &inode(kind, mode, 2, 2)),
                expect,
                "{kind:?} {mode:o} {cred:?}"
            );
        }
    }
}
