//! `/proc/<thread>/status`: what a FUSE request does not say about its caller.

/// The text of a thread's status; `None` if there is no such thread here.
pub(crate) fn read(thread: u32) -> Option<String> {
    if thread == 0 {
        return None;
    }
    std::fs::read_to_string(format!("/proc/{thread}/status")).ok()
}

/// What follows `name:` on its line.
pub(crate) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// What there is to know about a thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It waits.
    Still,
    /// A signal is pending that it would act on (or die of).
    Signalled,
    /// It is gone.
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
    let mask = |name| field(status, name).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0);
    let pending = mask("SigPnd") | mask("ShdPnd");
    pending & !mask("SigBlk") & !mask("SigIgn") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

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
