//! Clients of a real server: over its socket, and over its death.

mod blocked;
mod paths;
mod plates;
mod restarts;
mod rights;
mod servers;
mod site;
mod write_behind;
