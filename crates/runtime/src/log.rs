//! Standard error: lines of a command for its user, and the log of the libraries, which report by [`tracing`].
//!
//! ```text
//!   CHITON_LOG not set   chiton: the journal has space again                     (of this project, from INFO on)
//!   CHITON_LOG=debug     2026-… DEBUG fuse{unique=8 operation=35}: chiton_server: appended session=3 seq=17 position=92
//! ```
//!
//! A request can be followed by its numbers: the kernel's `unique` of the mount, the `session` and `seq` of the client, the
//! `position` in the journal, and the `durable` position of a commit.
//!
//! Invariants:
//! - A line that cannot be written (the log's disk is full, its reader is gone) is dropped. It ends no process and
//!   fails no operation, as a panic of `eprintln!` would: a test keeps that macro out of code that may run in a
//!   daemon.

use std::fmt::{self, Arguments};
use std::io::{self, Write};

use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

/// The environment variable for the log level: a level (`error`, `warn`, `info`, `debug`, `trace`) for this
/// project's crates, or directives such as `chiton_client=debug,chiton_server=info`.
pub const LOG_VARIABLE: &str = "CHITON_LOG";

/// The targets of this project begin so.
const TARGET: &str = "chiton";

/// Writes a line to standard error, in one piece where the system allows it.
#[macro_export]
macro_rules! log_line {
    ($($words:tt)*) => {
        $crate::log::line(::std::format_args!($($words)*))
    };
}

/// Writes one line to standard error; see [`log_line!`](crate::log_line).
pub fn line(words: Arguments<'_>) {
    write(&mut io::stderr().lock(), words);
}

/// A line on standard output for the process that started this one, which may be gone.
pub fn announce(words: Arguments<'_>) {
    let mut out = io::stdout().lock();
    write(&mut out, words);
    let _ = out.flush();
}

/// Sends this process's log to standard error, at the level of [`LOG_VARIABLE`]. A process with its own subscriber
/// keeps it.
///
/// # Errors
/// The variable has a value that is no filter.
pub fn install() -> Result<(), String> {
    let filter = std::env::var_os(LOG_VARIABLE).map(|filter| filter.to_string_lossy().into_owned());
    let targets = match &filter {
        None => Targets::new().with_target(TARGET, LevelFilter::INFO),
        Some(text) => targets(text)?,
    };
    let layer =
        tracing_subscriber::fmt::layer().with_writer(|| Lossy).with_ansi(false).log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(targets);
    // An error means that there is a subscriber already.
    let _ = match filter {
        None => tracing::subscriber::set_global_default(registry.with(layer.event_format(Plain))),
        Some(_) => tracing::subscriber::set_global_default(registry.with(layer)),
    };
    Ok(())
}

fn targets(text: &str) -> Result<Targets, String> {
    if let Ok(level) = text.parse::<LevelFilter>() {
        return Ok(Targets::new().with_target(TARGET, level));
    }
    text.parse().map_err(|_| {
        format!(
            "{LOG_VARIABLE}: \"{text}\" is neither a level (error, warn, info, debug, trace) nor a list such as \
             chiton_client=debug,chiton_server=info"
        )
    })
}

/// A line for an administrator: the message and its fields.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        write!(to, "chiton: ")?;
        ctx.format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

/// Standard error; a write that fails is dropped.
struct Lossy;

impl Write for Lossy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().lock().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(to: &mut dyn Write, words: Arguments<'_>) {
    let _ = to.write_all(format!("{words}\n").as_bytes());
}
