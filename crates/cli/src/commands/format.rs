//! `chiton format`.

use std::sync::Arc;

use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server};

use crate::args::Format;
use crate::failure::{Failure, Outcome};

/// The root directory is whose file system it is.
pub(crate) fn options() -> FormatOptions {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    FormatOptions { uid, gid, ..FormatOptions::default() }
}

pub(crate) fn run(args: &Format) -> Outcome {
    let options = FormatOptions { shards: args.shards, plates: args.plates, ..options() };
    let world: SharedWorld = Arc::new(RealWorld);
    Server::format(&args.data, &options, &world).map_err(Failure::from)?;
    if args.json {
        let (data, shards, plates) = (args.data.to_string(), args.shards, args.plates);
        println!("{}", serde_json::json!({ "data": data, "shards": shards, "plates": plates }));
    } else {
        println!("formatted {}; mount it: chiton mount --data {0} MOUNTPOINT", args.data);
    }
    Ok(())
}
