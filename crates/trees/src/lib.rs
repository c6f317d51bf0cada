//! Whole trees by batches: remove them, measure them, change their attributes, copy them.
//!
//! ```text
//!   Walk: pages of directories, several questions under way ─▶ the command ─▶ Pipeline: operations, a thousand in a message
//!                       ▲ directories to enter ────────────────────┘ ▲ results ──────────────┘
//! ```
//!
//! A [`Task`] is such a command as a value: it is carried out here, or as a [`Job`] by a server. [`Task::perform_there`] follows such a
//! job, also over the death of its server.
//!
//! Every function takes [`Place`]s and a [`Watch`]. It reports a refusal to the watch, continues with the rest, and returns totals.
//!
//! # Getting started
//!
//! ```no_run
//! use chiton_client::{Client, ClientOptions};
//! use chiton_trees::{Place, Refused, Watch, usage};
//!
//! struct Report;
//!
//! impl Watch for Report {
//!     fn refused(&mut self, refused: Refused) {
//!         eprintln!("{refused}");
//!     }
//! }
//!
//! # let failed = |refusal: chiton_types::Refusal| refusal.to_string();
//! let client = Client::connect(&"tcp:server:7117".parse()?, ClientOptions::default())?;
//! let place = Place::find(&client, b"/results", b"/results").map_err(failed)?;
//! // Its directories are read many at a time; a refusal is reported, and the rest is counted.
//! for line in usage(&client, &[place], 0, &mut Report) {
//!     println!("{} bytes in {} files", line.bytes, line.files);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//! - Directories are entered by inode number, never by path: no symbolic link is followed, whatever other clients do meanwhile.
//! - Only a tree that leaves as a whole does so at once. Everything else is not atomic: other clients see a tree half done, and
//!   their changes meanwhile may or may not be met.
//! - Memory grows with the directories of a tree, or with those under way, not with its files.

mod attributes;
mod copy;
mod find;
mod follow;
mod job;
mod mode;
mod paths;
mod place;
mod remove;
mod scan;
mod task;
mod usage;
mod walk;
mod watch;

pub use attributes::{Changed, change};
pub use copy::{Copied, copy, resume_copy};
pub use find::{Conditions, Found, Searched, find};
pub use follow::Unfollowed;
pub use job::{Job, JobState, JobStatus, jobs};
pub use mode::ModeChange;
pub use place::Place;
pub use remove::{Removed, remove, remove_each, remove_whole};
pub use scan::{Seen, scan};
pub use task::{Copying, Removal, Subject, Task, Totals};
pub use usage::{Usage, usage};
pub use watch::{Refused, Watch};
