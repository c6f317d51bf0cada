//! Clients of a real server: in its process, over its socket, and over its death.

mod agree;
mod blocked;
mod restarts;
mod rights;
mod site;
mod write_behind;
