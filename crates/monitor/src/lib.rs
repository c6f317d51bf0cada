//! The versioned map of a cluster of servers, its store, the placement of plates, and liveness.
//!
//! ```text
//!   server ── register, renew ──▶ Monitor ── alive ──▶ leader: plan(map, alive)
//!                                  │   ▲                         │ changes
//!      watch: increments ◀─────────┘   └──── change(epoch, …) ◀──┘
//! ```
//!
//! # Getting started
//!
//! ```
//! use std::sync::Arc;
//!
//! use chiton_monitor::{MapChange, MemoryMonitor, Monitor, ServerInfo, WEIGHT_ORDINARY, plan};
//! use chiton_runtime::SeededWorld;
//!
//! let monitor = MemoryMonitor::new(Arc::new(SeededWorld::new(7)));
//! monitor.init(1, 16, 1000)?;
//! let liveness = monitor.register(3, 1)?; // and renew it in time
//! let server = ServerInfo {
//!     id: 3,
//!     addresses: vec!["10.0.0.3:7400".into()],
//!     domain: String::new(),
//!     weight: WEIGHT_ORDINARY,
//!     is_in: true,
//!     is_standby: false,
//!     generation: 1,
//! };
//! let epoch = monitor.change(1, &[], &[MapChange::PutServer(server)], "server 3", "it starts")?;
//! let map = monitor.map()?;
//! monitor.change(epoch, &[], &plan(&map, &monitor.alive()?), "server 3", "first placement")?;
//! assert!(monitor.map()?.plates.iter().all(|plate| plate.owner == Some(3)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//! - Stores hide behind [`Monitor`] and pass [`conformance::suite`]; [`MemoryMonitor`] is the reference.
//! - A change happens whole, on the map that its author saw, or not at all.
//! - [`place()`] and [`plan`] are pure: no clock, no randomness, no store.
//!
//! # Layout
//!
//! - [`ClusterMap`], [`MapIncrement`], [`ServerInfo`]: the map.
//! - [`Monitor`], [`Liveness`], [`Watch`]: the traits; [`MonitorError`], [`ChangeError`]: their errors.
//! - [`MemoryMonitor`]: tests and simulation.
//! - [`plan`]: owners for plates that have none; [`rebalance`]: hand-overs; [`place()`]: straw2.
//! - [`conformance`]: the suite that a new store must pass.

mod error;
mod map;
mod monitor;
mod place;

mod memory;

pub mod conformance;

pub use error::{ChangeError, MonitorError};
pub use map::{
    ADDRESSES_MAX, CHANGES_MAX, ClusterMap, JSON_BYTES_MAX, MapChange, MapError, MapIncrement, PLATES_MAX,
    PlateOwner, REVOKED_MAX, SERVERS_MAX, ServerInfo, TEXT_BYTES_MAX, WEIGHT_ORDINARY,
};
pub use memory::MemoryMonitor;
pub use monitor::{
    AUDIT_LINES_KEPT, Alive, AuditLine, CONDITIONS_MAX, Condition, Event, INCREMENTS_KEPT, Liveness, Monitor,
    Prepared, Watch,
};
pub use place::{place, plan, rebalance};
