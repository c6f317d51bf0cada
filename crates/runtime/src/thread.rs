//! Threads, as [`std::thread`] has them, or turns of a [`Schedule`](crate::schedule::Schedule).

use std::io;
use std::time::Duration;

use crate::schedule;

/// A running thread. Dropping this does not end the thread.
#[derive(Debug)]
pub struct JoinHandle(Handle);

#[derive(Debug)]
enum Handle {
    Real(std::thread::JoinHandle<()>),
    Scheduled(u64),
}

/// Starts a thread.
///
/// # Errors
/// If the operating system has no more threads.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    if let Some(schedule) = schedule::current() {
        return Ok(JoinHandle(Handle::Scheduled(schedule.spawn(name, Box::new(body)))));
    }
    #[expect(clippy::disallowed_methods, reason = "this is what others are to use")]
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(JoinHandle(Handle::Real(thread)))
}

impl JoinHandle {
    /// Waits for the end of the thread.
    ///
    /// # Errors
    /// The value with which the thread panicked.
    pub fn join(self) -> std::thread::Result<()> {
        match self.0 {
            Handle::Real(thread) => thread.join(),
            Handle::Scheduled(thread) => {
                // A panic ends a simulation.
                if let Some(schedule) = schedule::current() {
                    schedule.join(thread);
                }
                Ok(())
            }
        }
    }

    /// True if it is the thread that asks.
    pub fn is_current(&self) -> bool {
        match &self.0 {
            Handle::Real(thread) => thread.thread().id() == std::thread::current().id(),
            Handle::Scheduled(thread) => {
                schedule::current().is_some_and(|schedule| schedule.current() == *thread)
            }
        }
    }
}

pub fn sleep(time: Duration) {
    match schedule::current() {
        Some(schedule) => schedule.sleep(time),
        #[expect(clippy::disallowed_methods, reason = "this is what others are to use")]
        None => std::thread::sleep(time),
    }
}
