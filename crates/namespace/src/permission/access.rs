//! The rights to read, write and execute.

use chiton_types::access::{EXEC, READ, WRITE};
use chiton_types::{Capabilities, Cred, Kind, Refusal};

use crate::fault::Fault;
use crate::plan::{InodeFacts, PlanState};

/// Checks the rights `want` (bits of [`chiton_types::access`]) on an inode.
///
/// # Errors
/// [`Refusal::NotPermitted`] to write what is immutable, else [`Refusal::Access`], or a [`Fault`] that names the facts to fetch first.
#[inline]
pub fn may<S: PlanState>(state: &S, cred: &Cred, inode: &InodeFacts, want: u8) -> Result<(), Fault> {
    if want & WRITE != 0 && inode.is_immutable() {
        return Err(Refusal::NotPermitted.into());
    }
    let overrides = overrides(cred, inode, want);
    if overrides == Some(true) || by_class(state, cred, inode, want)? {
        return Ok(());
    }
    super::require(overrides, Refusal::Access)
}

/// The class that the caller belongs to (owner, a listed user, a group, others) alone decides.
fn by_class<S: PlanState>(state: &S, cred: &Cred, inode: &InodeFacts, want: u8) -> Result<bool, Fault> {
    let class = |shift: u16| (inode.mode.0 >> shift) as u8 & want == want;
    if cred.uid == inode.uid {
        return Ok(class(6));
    }
    match super::access_list(state, inode)? {
        Some(list) => list.allows(cred, inode.gid, inode.mode, want),
        // The groups decide only where their class differs from the others'.
        None if class(3) == class(0) => Ok(class(0)),
        None => match cred.in_group(inode.gid) {
            Some(true) => Ok(class(3)),
            Some(false) => Ok(class(0)),
            None => Err(Fault::NeedGroups),
        },
    }
}

/// Whether capabilities override the mode. A file that nobody may execute is not executed by anybody.
fn overrides(cred: &Cred, inode: &InodeFacts, want: u8) -> Option<bool> {
    let over = |wanted| cred.over(wanted, inode.uid, inode.gid);
    let is_reading = if inode.kind == Kind::Dir { want & WRITE == 0 } else { want == READ };
    let reads = if is_reading { over(Capabilities::DAC_READ_SEARCH) } else { Some(false) };
    super::either(reads, || {
        let never = inode.kind != Kind::Dir && want & EXEC != 0 && inode.mode.0 & 0o111 == 0;
        if never { Some(false) } else { over(Capabilities::DAC_OVERRIDE) }
    })
}

#[cfg(test)]
mod tests {
    use chiton_types::Privileges;

    use super::super::tests::{OnlyXattrs, inode};
    use super::*;

    const REFUSED: Result<(), Fault> = Err(Fault::Refused(Refusal::Access));

    fn check(cred: &Cred, kind: Kind, mode: u16, want: u8) -> Result<(), Fault> {
        may(&OnlyXattrs::default(), cred, &inode(kind, mode, 10, 20), want)
    }

    #[test]
    fn access_follows_posix_classes() {
        let check = |cred: &Cred, mode: u16, want: u8| check(cred, Kind::File, mode, want);
        let owner = Cred::new(10, 99, &[]);
        let member = Cred::new(11, 99, &[20]);
        let unknown = Cred { groups: None, ..Cred::new(11, 99, &[]) };
        let other = Cred::new(11, 99, &[]);
        // The owner is judged by the owner's bits alone, even when others may more.
        assert_eq!(check(&owner, 0o077, READ), REFUSED);
        assert_eq!(check(&member, 0o640, READ), Ok(()));
        assert_eq!(check(&member, 0o604, READ), REFUSED);
        assert_eq!(check(&other, 0o640, READ), REFUSED);
        // Groups and capabilities are asked for only where they decide.
        assert_eq!(check(&unknown, 0o640, READ), Err(Fault::NeedGroups));
        assert_eq!(check(&unknown, 0o644, READ), Ok(()));
        assert_eq!(check(&Cred::unseen(10, 99), 0o600, READ), Ok(()));
        assert_eq!(check(&Cred::unseen(11, 99), 0o600, READ), Err(Fault::NeedGroups));
        assert_eq!(check(&Cred::unseen(0, 0), 0o600, READ), Err(Fault::NeedGroups));
        assert_eq!(check(&Cred::unseen(0, 0), 0o644, READ), Ok(()));
        // Root may all but execute what nobody may.
        assert_eq!(check(&Cred::ROOT, 0o000, READ | WRITE), Ok(()));
        assert_eq!(check(&Cred::ROOT, 0o666, EXEC), REFUSED);
    }

    #[test]
    fn each_capability_allows_what_it_does_on_linux() {
        let with = |capabilities| {
            let privileges = Some(Privileges { capabilities, ..Privileges::ALL });
            Cred { privileges, ..Cred::new(0, 0, &[]) }
        };
        let allowed = |capabilities, kind, mode, want| check(&with(capabilities), kind, mode, want) == Ok(());
        let (search, all) = (Capabilities::DAC_READ_SEARCH, Capabilities::DAC_OVERRIDE);
        for (capabilities, kind, mode, want, expect) in [
            (Capabilities::NONE, Kind::File, 0o600, READ, false),
            (Capabilities::NONE, Kind::Dir, 0o700, EXEC, false),
            (Capabilities::NONE, Kind::File, 0o644, READ, true),
            (search, Kind::File, 0o000, READ, true),
            (search, Kind::File, 0o000, WRITE, false),
            (search, Kind::File, 0o000, READ | WRITE, false),
            (search, Kind::File, 0o700, EXEC, false),
            (search, Kind::Dir, 0o000, READ | EXEC, true),
            (search, Kind::Dir, 0o000, WRITE, false),
            (all, Kind::Dir, 0o000, READ | WRITE | EXEC, true),
            (all, Kind::File, 0o000, READ | WRITE, true),
            (all, Kind::File, 0o000, EXEC, false),
            (all, Kind::File, 0o100, EXEC, true),
        ] {
            assert_eq!(
                allowed(capabilities, kind, mode, want),
                expect,
                "{capabilities:?} {kind:?} {mode:o} {want}"
            );
        }
    }
}
