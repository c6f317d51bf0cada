//! chmod, chown, utimens, and the effect of a change of content on set-id bits.

use chiton_model::{AttrChange, SetTime};
use chiton_types::access::WRITE;
use chiton_types::{Attr, Capabilities, Cred, Kind, Mode, Refusal, Time};

use super::{either, is_owner, may, require};
use crate::fault::Fault;
use crate::plan::{InodeFacts, PlanState};

/// The result of a change of attributes; `None` leaves an attribute as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Changed {
    pub mode: Option<Mode>,
    pub atime: Option<Time>,
    /// Last change of content.
    pub mtime: Option<Time>,
}

/// The right to set a file's size by its name.
///
/// # Errors
/// [`Refusal::Access`], or a [`Fault`] that names the facts to fetch first.
pub fn may_truncate<S: PlanState>(
    state: &S,
    cred: &Cred,
    inode: &InodeFacts,
    change: &AttrChange,
) -> Result<(), Fault> {
    if change.size.is_none() {
        return Ok(());
    }
    // Also through a descriptor that was opened before it became so.
    if inode.is_kept() {
        return Err(Refusal::NotPermitted.into());
    }
    if change.size_by_handle { Ok(()) } else { may(state, cred, inode, WRITE) }
}

/// Mode and times after a change, if the caller may make it. Owner and group are then those of `change`; the size is
/// another question ([`may_truncate`]).
///
/// # Errors
/// [`Refusal::NotPermitted`], [`Refusal::Access`], or a [`Fault`] that names the facts to fetch first.
pub fn change<S: PlanState>(
    state: &S,
    cred: &Cred,
    inode: &InodeFacts,
    change: &AttrChange,
    now: Time,
) -> Result<Changed, Fault> {
    let sets_time = |time| matches!(time, Some(SetTime::At(_)));
    let sets = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
    let is_set = sets || sets_time(change.atime) || sets_time(change.mtime);
    let touches = change.atime.is_some() || change.mtime.is_some();
    if (is_set && inode.is_kept()) || (touches && inode.is_immutable()) {
        return Err(Refusal::NotPermitted.into());
    }
    let chowns = || cred.over(Capabilities::CHOWN, inode.uid, inode.gid);
    let mine = cred.uid == inode.uid;
    if let Some(uid) = change.uid {
        require(either(Some(mine && uid == inode.uid), chowns), Refusal::NotPermitted)?;
    }
    if let Some(gid) = change.gid {
        let by_group = match mine {
            true if gid == inode.gid => Some(true),
            true => cred.in_group(gid),
            false => Some(false),
        };
        require(either(by_group, chowns), Refusal::NotPermitted)?;
    }
    let mut mode = change.mode.map(|mode| Mode(mode.0 & 0o7777));
    if let Some(mode) = &mut mode {
        require(is_owner(cred, inode), Refusal::NotPermitted)?;
        if mode.has(Mode::SETGID) {
            let gid = change.gid.unwrap_or(inode.gid);
            let keeps = either(cred.in_group(gid), || cred.over(Capabilities::FSETID, inode.uid, inode.gid));
            if !keeps.ok_or(Fault::NeedGroups)? {
                mode.0 &= !Mode::SETGID;
            }
        }
    }
    let before = mode.unwrap_or(inode.mode);
    let cleared = before.without_setid(inode.kind);
    if cleared != before && clears(cred, inode, change)? {
        mode = Some(cleared).filter(|cleared| *cleared != inode.mode);
    }
    let resolve = |time: Option<SetTime>| match time {
        None => Ok(None),
        Some(SetTime::At(at)) => {
            require(is_owner(cred, inode), Refusal::NotPermitted)?;
            Ok(Some(at))
        }
        Some(SetTime::Now) if is_owner(cred, inode) == Some(true) => Ok(Some(now)),
        Some(SetTime::Now) => match may(state, cred, inode, WRITE) {
            Ok(()) => Ok(Some(now)),
            // A caller that is not known to be the owner may turn out to act as one.
            Err(_) if is_owner(cred, inode).is_none() => Err(Fault::NeedGroups),
            Err(denial) => Err(denial),
        },
    };
    Ok(Changed { mode, atime: resolve(change.atime)?, mtime: resolve(change.mtime)? })
}

/// Whether a change clears set-id bits: one of the owner or the group by a caller who may not give files away, and
/// whatever is asked to.
fn clears(cred: &Cred, inode: &InodeFacts, change: &AttrChange) -> Result<bool, Fault> {
    if change.kill_setid {
        return Ok(true);
    }
    if change.uid.is_none() && change.gid.is_none() {
        return Ok(false);
    }
    let keeps = cred.over(Capabilities::CHOWN, inode.uid, inode.gid);
    keeps.map(|keeps| !keeps).ok_or(Fault::NeedGroups)
}

/// Setting the flags immutable and append-only (`chattr`): for the owner, and to change them CAP_LINUX_IMMUTABLE is needed.
///
/// # Errors
/// [`Refusal::NotPermitted`], [`Refusal::Unsupported`] of an inode that is neither
/// a file nor a directory, or a [`Fault`] that names the facts to fetch first.
pub fn may_set_flags(cred: &Cred, inode: &InodeFacts, flags: u8) -> Result<(), Fault> {
    if !matches!(inode.kind, Kind::File | Kind::Dir) || flags & !Attr::SETTABLE != 0 {
        return Err(Refusal::Unsupported.into());
    }
    require(is_owner(cred, inode), Refusal::NotPermitted)?;
    let changes = inode.flags & Attr::SETTABLE != flags;
    let may_change = if changes { cred.everywhere(Capabilities::LINUX_IMMUTABLE) } else { Some(true) };
    require(may_change, Refusal::NotPermitted)
}

/// The mode after a write, if that changes it. `kill_setid`: the writer may not keep set-id bits.
pub fn written(inode: &InodeFacts, kill_setid: bool) -> Option<Mode> {
    let cleared = inode.mode.without_setid(inode.kind);
    (kill_setid && cleared != inode.mode).then_some(cleared)
}

#[cfg(test)]
mod tests {
    use chiton_types::Privileges;

    use super::super::tests::{OnlyXattrs, inode};
    use super::*;

    const NOW: Time = Time(9);

    fn file(mode: u16) -> InodeFacts {
        inode(Kind::File, mode, 1, 1)
    }

    fn changed(cred: &Cred, inode: &InodeFacts, wanted: &AttrChange) -> Result<Changed, Fault> {
        change(&OnlyXattrs::default(), cred, inode, wanted, NOW)
    }

    fn with(uid: u32, capabilities: Capabilities) -> Cred {
        let privileges = Some(Privileges { capabilities, ..Privileges::ALL });
        Cred { privileges, ..Cred::new(uid, uid, &[7]) }
    }

    #[test]
    fn each_change_needs_ownership_or_its_capability() {
        let chmod = AttrChange { mode: Some(Mode(0o600)), ..Default::default() };
        let give = AttrChange { uid: Some(5), ..Default::default() };
        let group = AttrChange { gid: Some(7), ..Default::default() };
        let times = AttrChange { mtime: Some(SetTime::At(Time(1))), ..Default::default() };
        let touch = AttrChange { mtime: Some(SetTime::Now), ..Default::default() };
        let (none, chown, fowner) = (Capabilities::NONE, Capabilities::CHOWN, Capabilities::FOWNER);
        for (cred, wanted, allowed) in [
            (with(1, none), &chmod, true),
            (with(2, none), &chmod, false),
            (with(0, none), &chmod, false),
            (with(2, fowner), &chmod, true),
            (with(2, chown), &chmod, false),
            (with(1, none), &give, false),
            (with(2, chown), &give, true),
            (with(2, fowner), &give, false),
            (with(1, none), &group, true),
            (with(2, fowner), &group, false),
            (with(2, chown), &group, true),
            (with(1, none), &times, true),
            (with(2, none), &times, false),
            (with(2, fowner), &times, true),
            (with(2, fowner), &touch, true),
            (with(2, none), &touch, false),
            (with(2, Capabilities::DAC_OVERRIDE), &touch, true),
            (with(2, Capabilities::DAC_OVERRIDE), &times, false),
        ] {
            let done = changed(&cred, &file(0o644), wanted);
            assert_eq!(done.is_ok(), allowed, "{cred:?} {wanted:?} {done:?}");
            let unseen = Cred { privileges: None, ..cred.clone() };
            let asked = changed(&unseen, &file(0o644), wanted);
            assert!(asked == done || asked == Err(Fault::NeedGroups), "{unseen:?} {wanted:?}");
            assert!(
                cred.uid == 1 || !allowed || asked == Err(Fault::NeedGroups),
                "{wanted:?} needs a capability"
            );
        }
    }

    #[test]
    fn set_id_bits_are_cleared_as_on_linux() {
        let mode = |cred: &Cred, before: u16, wanted: AttrChange| {
            changed(cred, &file(before), &wanted).map(|changed| changed.mode.map(|mode| mode.0))
        };
        let group = AttrChange { gid: Some(7), ..Default::default() };
        let owner = with(1, Capabilities::NONE);
        assert_eq!(mode(&owner, 0o6755, group), Ok(Some(0o755)));
        assert_eq!(mode(&owner, 0o2755, group), Ok(Some(0o755)));
        assert_eq!(mode(&owner, 0o2745, group), Ok(None));
        assert_eq!(mode(&owner, 0o755, group), Ok(None));
        assert_eq!(mode(&with(2, Capabilities::CHOWN), 0o6755, group), Ok(None));
        let kill = AttrChange { kill_setid: true, ..group };
        assert_eq!(mode(&with(2, Capabilities::CHOWN), 0o6755, kill), Ok(Some(0o755)));
        // Nobody gives a program a group that is not theirs.
        let chmod = AttrChange { mode: Some(Mode(0o2755)), ..Default::default() };
        assert_eq!(mode(&owner, 0o644, chmod), Ok(Some(0o2755)));
        let stranger = with(2, Capabilities::FOWNER);
        assert_eq!(mode(&stranger, 0o644, chmod), Ok(Some(0o755)));
        let keeper = with(2, Capabilities::FOWNER.and(Capabilities::FSETID));
        assert_eq!(mode(&keeper, 0o644, chmod), Ok(Some(0o2755)));
        assert_eq!(written(&file(0o6755), true), Some(Mode(0o755)));
        assert_eq!(written(&file(0o6755), false), None);
    }
}
