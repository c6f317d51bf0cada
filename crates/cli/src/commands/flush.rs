//! `chiton flush`.

use std::fs::File;
use std::path::Path;

use crate::args::Target;
use crate::failure::{Failure, Outcome};
use crate::target;

pub(crate) fn run(args: &Target) -> Outcome {
    // Through a mount, what it has buffered goes first: an fsync of its root does that.
    let path = Path::new(&args.target);
    let through_mount =
        target::address(&args.target).is_ok() && path.is_dir() && !path.join("chiton.json").exists();
    if through_mount {
        let root =
            File::open(path).map_err(|e| Failure::failed(format!("cannot open {}: {e}", args.target)))?;
        root.sync_all().map_err(|e| Failure::failed(format!("cannot flush {}: {e}", args.target)))?;
    }
    let client = target::client(&args.target)?;
    client
        .sync()
        .map_err(|r| Failure::failed(format!("the server could not make everything durable: {r}")))?;
    if args.json {
        println!("{}", serde_json::json!({ "flushed": true }));
    } else {
        println!("everything answered so far is durable");
    }
    Ok(())
}
