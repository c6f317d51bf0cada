//! The session against a scripted server: every way in which a connection can break.

mod caching;
mod dial;
mod drain;
mod ending;
pub(crate) mod fake_server;
pub(crate) mod near;
mod pending;
mod plates;
mod resume;
mod same_decision;
mod unchanged;
mod write_behind;
