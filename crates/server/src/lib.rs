//! The server: the one kind of daemon. A pure engine that decides, and a thin runtime around it.

pub mod engine;
