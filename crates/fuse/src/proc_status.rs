//! Reads `/proc/<thread>` for properties of the caller that a FUSE request lacks.

use std::sync::{Arc, OnceLock};

use chiton_types::{ID_RANGES_MAX, IdMaps, IdRange, Scope};

/// The text of a thread's status; `None` if there is no such thread here.
pub(crate) fn read(thread: u32) -> Option<String> {
    if thread == 0 {
        return None;
    }
    std::fs::read_to_string(format!("/proc/{thread}/status")).ok()
}

/// The text after `name:` on its line.
pub(crate) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// A line with a mask of bits; none if it is not there.
pub(crate) fn mask(status: &str, name: &str) -> u64 {
    field(status, name).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0)
}

/// The user and group as which a thread uses file systems: the last of the four on their lines.
pub(crate) fn acting_ids(status: &str) -> Option<(u32, u32)> {
    let last = |name| field(status, name)?.split_ascii_whitespace().nth(3)?.parse().ok();
    Some((last("Uid")?, last("Gid")?))
}

pub(crate) fn groups(status: &str) -> Arc<[u32]> {
    let line = field(status, "Groups").unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The inodes over which capabilities of a thread count: all, if it is in the user namespace of this process.
pub(crate) fn scope(thread: u32) -> Scope {
    static OWN: OnceLock<Option<std::path::PathBuf>> = OnceLock::new();
    let own = OWN.get_or_init(|| std::fs::read_link("/proc/self/ns/user").ok());
    // Another user's may not be looked at, its maps may.
    let theirs = std::fs::read_link(format!("/proc/{thread}/ns/user")).ok();
    if theirs.is_some() && theirs == *own {
        return Scope::Everywhere;
    }
    let read = |of: &str, kind: &str| std::fs::read_to_string(format!("/proc/{of}/{kind}_map")).ok();
    let number = thread.to_string();
    let maps = (read(&number, "uid"), read(&number, "gid"));
    if theirs.is_none() && maps.0.is_some() && maps == (read("self", "uid"), read("self", "gid")) {
        return Scope::Everywhere;
    }
    let ranges = |text: Option<String>| ranges(&text.unwrap_or_default());
    Scope::Mapped(Arc::new(IdMaps { users: ranges(maps.0), groups: ranges(maps.1) }))
}

/// The numbers outside of a namespace that have one inside: the lines are "inside outside count".
fn ranges(map: &str) -> Vec<IdRange> {
    let range = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1).map(|word| word.parse().ok());
        Some(IdRange { first: words.next()??, count: words.next()?? })
    };
    map.lines().filter_map(range).take(ID_RANGES_MAX).collect()
}

/// The state of a thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Still,
    /// A signal is pending that it would act on (or die of).
    Signalled,
    /// The process has exited.
    Gone,
    /// It is in a namespace that we cannot see.
    Unknown,
}

/// Looks at a thread: this is how a wait learns of a signal. (The kernel would send FUSE_INTERRUPT, to dispatch threads that may all
/// be waiting themselves.)
pub(crate) fn look(thread: u32) -> Waiting {
    if thread == 0 {
        return Waiting::Unknown;
    }
    match read(thread) {
        None => Waiting::Gone,
        Some(status) if is_signalled(&status) => Waiting::Signalled,
        Some(_) => Waiting::Still,
    }
}

fn is_signalled(status: &str) -> bool {
    let pending = mask(status, "SigPnd") | mask(status, "ShdPnd");
    pending & !mask(status, "SigBlk") & !mask(status, "SigIgn") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_status_and_of_maps_are_read() {
        let status = "Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapEff:\t00000000a80425fb\n";
        assert_eq!(acting_ids(status), Some((4, 8)));
        assert_eq!(groups(status).to_vec(), [9, 10]);
        assert_eq!(mask(status, "CapEff"), 0xa804_25fb);
        assert_eq!(acting_ids("Uid:\t1\n"), None);
        let map = "         0     100000      65536\n     70000       1000          1\n";
        assert_eq!(
            ranges(map),
            [IdRange { first: 100_000, count: 65_536 }, IdRange { first: 1_000, count: 1 }]
        );
        assert_eq!(scope(std::process::id()), Scope::Everywhere);
    }

    #[test]
    fn only_signals_that_would_be_delivered_count() {
        let check = |pending: &str, shared: &str, blocked: &str, ignored: &str, expect: bool| {
            let status = format!(
                "Name:\tx\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\nSigCgt:\t0\n"
            );
            assert_eq!(is_signalled(&status), expect, "{status}");
        };
        check("0000000000000000", "0000000000000000", "0", "0", false);
        check("0000000000000100", "0000000000000000", "0", "0", true);
        check("0", "0000000000000002", "0", "0", true);
        check("0", "0000000000000002", "0000000000000002", "0", false);
        check("0", "0000000000000002", "0", "0000000000000002", false);
        check("0", "0000000000000006", "0000000000000002", "0", true);
        assert_eq!(look(std::process::id()), Waiting::Still);
        assert_eq!(look(u32::MAX), Waiting::Gone);
        assert_eq!(look(0), Waiting::Unknown);
    }
}
