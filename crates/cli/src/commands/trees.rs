//! Commands on whole trees: they send the server many operations in each message, past any mount.
//!
//! ```text
//!   PATH ─ the mount that it is in ─▶ server, path in the file system ─▶ chiton-trees, here or there ─▶ refusals as they come, totals at the end
//! ```

mod chmod;
mod cp;
mod du;
mod find;
mod huge;
mod ls;
mod place;
mod report;
mod rm;
mod users;
mod work;

use std::path::PathBuf;

use clap::Args;

pub(crate) use self::chmod::{Chmod, Chown, chmod, chown};
pub(crate) use self::cp::{Cp, cp};
pub(crate) use self::du::{Du, du};
pub(crate) use self::find::{Find, find};
pub(crate) use self::huge::{Huge, HugeArgs, huge};
pub(crate) use self::ls::{Ls, ls};
pub(crate) use self::rm::{Rm, rm};
use self::work::{Here, carry_out};

/// The paths of a command, and where they are.
#[derive(Debug, Args)]
pub(crate) struct Paths {
    /// Paths of a mount, or with --server paths in the file system, from its root on.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) at: At,
}

/// How a command reaches the file system, and how it reports.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// The server, if the paths are not in a mount: its address (tcp:HOST:PORT, unix:PATH), its data directory, or the etcd of a cluster.
    #[arg(long, value_name = "TARGET")]
    pub(crate) server: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
