//! Both ends together, and each against a peer that misbehaves.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test waits for real threads and processes"
)]

mod connections;
mod hostile;
mod limits;
mod rig;
mod tls;
