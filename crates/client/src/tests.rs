//! The session against a scripted server: every way in which a connection can break.

mod caching;
mod drain;
mod ending;
mod fake_server;
pub(crate) mod near;
mod pending;
mod resume;
mod same_decision;
mod unchanged;
mod write_behind;
