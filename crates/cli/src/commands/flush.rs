//! `chiton flush`.

use std::fs::File;
use std::path::Path;

use crate::args::Target;
use crate::failure::{Failure, Outcome};
use crate::{reach, target};

pub(crate) fn run(args: &Target) -> Outcome {
    let path = Path::new(&args.target);
    let client = target::client(&args.target)?;
    // Through a mount, flush its buffers first: an fsync of its root does that. An fsync of the named path also
    // covers the decoupled subtree that it may be in.
    if let Some(mount) = reach::mount_around(path)?.filter(reach::Mount::is_ours)
        && !path.join(target::FORMAT_FILE).exists()
    {
        for path in [&mount.dir, path] {
            let said = path.display();
            let file = File::open(path).map_err(|e| Failure::failed(format!("cannot open {said}: {e}")))?;
            file.sync_all().map_err(|e| Failure::failed(format!("cannot flush {said}: {e}")))?;
        }
    }
    client.sync().map_err(|r| {
        Failure::failed(format!(
            "the server could not make everything durable: {r}; chiton status {} shows the reason",
            args.target
        ))
    })?;
    if args.json {
        println!("{}", serde_json::json!({ "flushed": true }));
    } else {
        println!("everything acknowledged so far is durable");
    }
    Ok(())
}
