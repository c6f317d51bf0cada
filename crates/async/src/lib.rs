//! The one tokio runtime of the process: it drives sockets and the libraries' background work.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

/// Threads of the runtime; the callers' threads run their own futures.
const THREADS: usize = 2;

/// The runtime's handle; the first call makes it.
pub fn runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            // Another part of the program may have chosen one before: as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
            Builder::new_multi_thread()
                .worker_threads(THREADS)
                .thread_name("chiton-io")
                .enable_all()
                .build()
                .expect("threads and a poll descriptor can be had")
        })
        .handle()
}

/// Waits on the caller's thread until the future is done.
///
/// # Panics
/// On a thread of the runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}
