//! The session against a scripted server: every way in which a connection can break.

mod ahead;
mod caching;
mod fake_server;
mod promises;
mod resume;
mod unchanged;
