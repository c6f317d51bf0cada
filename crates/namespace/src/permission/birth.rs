//! New inodes: their group, mode and access lists.

use chiton_types::{Capabilities, Cred, Kind, Mode, Refusal};

use super::Acl;
use crate::fault::Fault;
use crate::plan::InodeFacts;

/// An inode to be made.
#[derive(Clone, Copy, Debug)]
pub struct Newborn {
    pub kind: Kind,
    pub rdev: u32,
    /// Permissions that the caller asks for.
    pub mode: Mode,
    /// The caller's umask, which holds where the directory has no default list.
    pub umask: u16,
}

/// The attributes of a new inode, without its owner: that is the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    pub mode: Mode,
    pub gid: u32,
    /// Access list, if the mode does not say it all.
    pub list: Option<Acl>,
    /// Default list, of a directory.
    pub default: Option<Acl>,
}

/// Group, mode and lists of a new inode in a directory. `default`: the directory's default list. The right to change
/// its names was asked for before.
///
/// # Errors
/// [`Refusal::NotPermitted`] of devices, or a [`Fault`] that names the facts to fetch first.
pub fn birth(cred: &Cred, dir: &InodeFacts, default: Option<&Acl>, newborn: Newborn) -> Result<Birth, Fault> {
    let Newborn { kind, rdev, mode, umask } = newborn;
    // The device 0/0 leads nowhere: overlays mark with it what is removed.
    let is_device = matches!(kind, Kind::Char | Kind::Block) && (kind, rdev) != (Kind::Char, 0);
    if is_device {
        super::require(cred.everywhere(Capabilities::MKNOD), Refusal::NotPermitted)?;
    }
    let gid = if dir.mode.has(Mode::SETGID) { dir.gid } else { cred.gid };
    if kind == Kind::Symlink {
        return Ok(Birth { mode: Mode(0o777), gid, list: None, default: None });
    }
    let mut mode = Mode(mode.0 & 0o7777);
    if kind == Kind::Dir {
        mode.0 |= dir.mode.0 & Mode::SETGID;
    } else if mode.has(Mode::SETGID | 0o010) {
        // Nobody gives a program a group that is not theirs.
        let may = super::either(cred.in_group(gid), || cred.over(Capabilities::FSETID, dir.uid, dir.gid));
        if !may.ok_or(Fault::NeedGroups)? {
            mode.0 &= !Mode::SETGID;
        }
    }
    match default {
        None => {
            let mode = Mode(mode.0 & !(umask & 0o777));
            Ok(Birth { mode, gid, list: None, default: None })
        }
        Some(default) => {
            let (mode, list) = default.inherited(mode);
            let default = (kind == Kind::Dir).then(|| default.clone());
            Ok(Birth { mode, gid, list, default })
        }
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::Privileges;

    use super::super::tests::inode;
    use super::*;

    fn dir(mode: u16) -> InodeFacts {
        inode(Kind::Dir, mode, 1, 50)
    }

    fn born(cred: &Cred, dir_mode: u16, kind: Kind, mode: u16) -> Result<(u32, u16), Fault> {
        let newborn = Newborn { kind, rdev: 0, mode: Mode(mode), umask: 0o022 };
        birth(cred, &dir(dir_mode), None, newborn).map(|born| (born.gid, born.mode.0))
    }

    #[test]
    fn a_set_gid_directory_gives_its_group_and_programs_of_strangers_lose_the_bit() {
        let stranger = Cred::new(3, 3, &[]);
        let member = Cred::new(3, 3, &[50]);
        assert_eq!(born(&stranger, 0o777, Kind::File, 0o666), Ok((3, 0o644)));
        assert_eq!(born(&stranger, 0o2777, Kind::File, 0o666), Ok((50, 0o644)));
        assert_eq!(born(&stranger, 0o2777, Kind::Dir, 0o777), Ok((50, 0o2755)));
        assert_eq!(born(&stranger, 0o777, Kind::File, 0o2777), Ok((3, 0o2755)));
        assert_eq!(born(&stranger, 0o2777, Kind::File, 0o2777), Ok((50, 0o755)));
        assert_eq!(born(&stranger, 0o2777, Kind::File, 0o2767), Ok((50, 0o2745)));
        assert_eq!(born(&member, 0o2777, Kind::File, 0o2777), Ok((50, 0o2755)));
        assert_eq!(born(&Cred::unseen(3, 3), 0o2777, Kind::File, 0o2777), Err(Fault::NeedGroups));
        assert_eq!(born(&Cred::ROOT, 0o2777, Kind::File, 0o2777), Ok((50, 0o2755)));
        assert_eq!(born(&stranger, 0o777, Kind::Symlink, 0o600), Ok((3, 0o777)));
    }

    #[test]
    fn devices_need_a_capability_and_whiteouts_do_not() {
        let make = |cred: &Cred, kind, rdev| {
            let newborn = Newborn { kind, rdev, mode: Mode(0o600), umask: 0 };
            birth(cred, &dir(0o777), None, newborn).map(drop)
        };
        let powerless = Cred { privileges: Some(Privileges::NONE), ..Cred::ROOT };
        assert_eq!(make(&powerless, Kind::Block, 0), Err(Refusal::NotPermitted.into()));
        assert_eq!(make(&powerless, Kind::Char, 5), Err(Refusal::NotPermitted.into()));
        assert_eq!(make(&powerless, Kind::Char, 0), Ok(()));
        assert_eq!(make(&powerless, Kind::Fifo, 0), Ok(()));
        assert_eq!(make(&Cred::unseen(0, 0), Kind::Char, 5), Err(Fault::NeedGroups));
        assert_eq!(make(&Cred::ROOT, Kind::Char, 5), Ok(()));
    }
}
