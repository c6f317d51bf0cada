//! The figures of two papers, measured here and written as CSV: Cudele's (`figures`), and those of the thesis of FPFS (`fpfs`).
//!
//! ```text
//!   chiton-figures fig6a ─▶ Setting ─▶ Site (a server, a process of its own) ◀── clients, realms (threads here)
//!                                        │
//!                                        └─▶ data/fig6a.csv ─▶ plot/ (Python): ratio to the raw baseline, beside the paper's
//! ```
//!
//! Invariants:
//! - Every run has a new server and file system, so that no run is slower because of an earlier one.
//! - The files contain measured values with their units. Ratios are computed where they are drawn, from the
//!   baseline beside them.
//! - Every operation that fails ends the run.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes and real mounts: nothing here runs in a simulation"
)]

mod data;
mod policies;
mod setting;

mod serve;
mod site;

mod compositions;
mod gauge;
mod huge;
mod interfere;
mod juicefs;
mod latency;
mod load;
mod measure;
mod model;
mod mount;
mod nfs;
mod servers;
mod walk;

pub mod figures;
pub mod fpfs;

pub use data::{Row, Table};
pub use serve::{ServeArgs, serve};
pub use setting::{Scale, Setting};

/// Why a measurement did not come to its end, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

pub type Result<T> = std::result::Result<T, Failure>;
