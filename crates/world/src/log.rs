//! Lines for an administrator, on standard error.
//!
//! Invariants:
//! - A line that cannot be written (the disk of the log is full, its reader is gone) is dropped. It ends no process and fails
//!   no operation, as a panic of `eprintln!` would: a test keeps that macro out of what may run in a daemon.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Writes a line to standard error, in one piece where the system allows it.
#[macro_export]
macro_rules! log_line {
    ($($words:tt)*) => {
        $crate::log::line(::std::format_args!($($words)*))
    };
}

/// See [`log_line!`](crate::log_line).
pub fn line(words: Arguments<'_>) {
    write(&mut io::stderr().lock(), words);
}

/// A line on standard output for the process that started this one, which may be gone.
pub fn announce(words: Arguments<'_>) {
    let mut out = io::stdout().lock();
    write(&mut out, words);
    let _ = out.flush();
}

fn write(to: &mut dyn Write, words: Arguments<'_>) {
    let _ = to.write_all(format!("{words}\n").as_bytes());
}
