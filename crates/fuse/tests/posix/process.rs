//! Child processes that make system calls and nothing else.

use std::time::Duration;

pub(crate) struct Child {
    pub(crate) pid: libc::pid_t,
    reaped: bool,
}

impl Child {
    /// Forks. `body` may only make system calls (other threads' locks, the allocator's too, are not its own), and its
    /// value is the exit status.
    pub(crate) fn fork(body: impl FnOnce() -> i32) -> Child {
        // SAFETY: the child makes system calls only, and never returns.
        match unsafe { libc::fork() } {
            0 => {
                let status = body();
                unsafe { libc::_exit(status) }
            }
            pid => {
                assert!(pid > 0, "fork");
                Child { pid, reaped: false }
            }
        }
    }

    /// Waits until it is inside the system call of this number.
    pub(crate) fn wait_in(&self, call: libc::c_long) {
        let wanted = format!("{call} ");
        self.until("in the system call", || {
            std::fs::read_to_string(format!("/proc/{}/syscall", self.pid))
                .is_ok_and(|now| now.starts_with(&wanted))
        });
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a child of ours that is not reaped yet.
        assert_eq!(unsafe { libc::kill(self.pid, signal) }, 0);
    }

    /// Its exit status, or the negative number of the signal that killed it.
    pub(crate) fn status(mut self) -> i32 {
        let mut raw = 0;
        self.until("over", || {
            // SAFETY: `raw` is a live integer.
            unsafe { libc::waitpid(self.pid, &mut raw, libc::WNOHANG) == self.pid }
        });
        self.reaped = true;
        if libc::WIFEXITED(raw) { libc::WEXITSTATUS(raw) } else { -libc::WTERMSIG(raw) }
    }

    /// Polls a condition, with a limit that only a hung machine exceeds.
    fn until(&self, what: &str, mut there: impl FnMut() -> bool) {
        for _ in 0..6_000 {
            if there() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        panic!("the child is not {what}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // SAFETY: a child of ours.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}
