//! A handler that panics costs its request, not the dispatch thread.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::proc_status::{self, Waiting};

/// A caller that is not known, or for which no process waits.
pub(crate) const NOBODY: u32 = 0;
/// In place of a caller: one that does not wait for a server that is away.
pub(crate) const IMPATIENT: u32 = u32::MAX;

thread_local! {
    /// The thread whose request this dispatch thread carries out.
    static CALLER: Cell<u32> = const { Cell::new(NOBODY) };
}

/// Whether the caller of this thread's request has a signal that it would handle or die of. False if the caller has
/// exited: its request is still carried out.
pub(crate) fn caller_is_signalled() -> bool {
    match CALLER.get() {
        IMPATIENT => true,
        caller => proc_status::look(caller) == Waiting::Signalled,
    }
}

/// Runs a handler for the thread `caller`. If the handler panics, its reply is dropped, which answers EIO, and the
/// panic is logged.
#[inline]
pub(crate) fn guarded(what: &str, caller: u32, handler: impl FnOnce()) {
    CALLER.set(caller);
    // The state behind the handlers is guarded by locks that do not poison, and its invariants are asserted where
    // they matter. To continue is better for other users of the mount than to hang them all.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(handler)) {
        tracing::error!("bug: {what} panicked, and its caller gets EIO: {}", words(&*panic));
    }
}

/// Carries out a part of a request that does not wait for a server that is away: where it would,
/// [`chiton_types::Refusal::Interrupted`] is the answer.
pub(crate) fn without_waiting<R>(body: impl FnOnce() -> R) -> R {
    let caller = CALLER.replace(IMPATIENT);
    let result = body();
    CALLER.set(caller);
    result
}

fn words(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "(no message)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_body_is_impatient() {
        CALLER.set(NOBODY);
        let within = without_waiting(|| without_waiting(caller_is_signalled) && caller_is_signalled());
        assert!(within && !caller_is_signalled());
    }

    #[test]
    fn a_panic_stays_inside_and_drops_what_the_handler_held() {
        let reply = std::sync::Arc::new(());
        let held = reply.clone();
        guarded("a test", NOBODY, move || {
            assert_eq!(std::sync::Arc::strong_count(&held), 2);
            panic!("on purpose");
        });
        assert_eq!(std::sync::Arc::strong_count(&reply), 1);
    }
}
