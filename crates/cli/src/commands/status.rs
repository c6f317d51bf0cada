//! `chiton status`: a short report (is it healthy, how far is everything durable, which clients are connected,
//! which directories are decoupled, what to do next); with `--verbose` also all counters of the server, with
//! `--json` all of it as numbers.

mod everything;
mod offline;
mod report;

use std::path::Path;

use crate::args::Status;
use crate::failure::Outcome;
use crate::{reach, target};

pub(crate) fn run(args: &Status) -> Outcome {
    reach::answering(Path::new(&args.target))?;
    let status = match offline::offline(&args.target)? {
        Some(status) => status,
        None => target::admin(&target::client(&args.target)?, "status")?,
    };
    if args.json {
        println!("{status}");
        return Ok(());
    }
    println!("{}", report::of(&args.target, &status));
    if args.verbose {
        println!("\n{}", everything::everything(&status));
    }
    Ok(())
}
