//! `chiton serve`.

use std::path::Path;
use std::sync::Arc;

use chiton_proto::Address;
use chiton_server::{Server, ServerOptions};
use chiton_world::RealWorld;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Serve, ServerArgs};
use crate::failure::{Class, Failure, Outcome};
use crate::target::SOCKET;

pub(crate) fn run(args: &Serve) -> Outcome {
    // Listened for from the start: a signal during recovery ends the process in order, too.
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Failure::failed(format!("cannot listen for signals: {e}")))?;
    let data = std::path::absolute(&args.data)
        .map_err(|e| Failure::failed(format!("{}: {e}", args.data.display())))?;
    let server = start(&data, &args.server)?;
    let mut addresses = vec![Address::Unix(data.join(SOCKET))];
    addresses.extend(args.listen.iter().cloned());
    server.serve(&addresses).map_err(|e| Failure::new(Class::Busy, format!("cannot serve: {e}")))?;
    for address in &addresses {
        eprintln!("serving {} on {address}", data.display());
    }
    signals.forever().next();
    eprintln!("shutting down: everything is made durable first");
    server.shutdown().map_err(|e| {
        Failure::failed(format!(
            "the last checkpoint failed: {e}; what is in the journal is replayed at the next start"
        ))
    })
}

/// Starts the server of a data directory, with a bar while it replays its journal.
pub(crate) fn start(data: &Path, args: &ServerArgs) -> Outcome<Arc<Server>> {
    let bar = ProgressBar::hidden();
    bar.set_style(
        ProgressStyle::with_template("replaying the journal {bar:30} {bytes}/{total_bytes} {eta}")
            .expect("a valid template"),
    );
    let shown = bar.clone();
    let options = ServerOptions {
        cache_bytes: usize::try_from(args.cache).unwrap_or(usize::MAX),
        take_over: args.take_over,
        progress: Some(Arc::new(move |done, total| {
            if shown.is_hidden() && total > 0 {
                shown.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            }
            shown.set_length(total);
            shown.set_position(done);
        })),
        ..ServerOptions::default()
    };
    let server = Server::start(data, options, Arc::new(RealWorld)).map_err(Failure::from);
    bar.finish_and_clear();
    server
}
