//! Makes 100 files in a directory of its own, alone, and then lets everybody see them.
//!
//!   cargo run --release -p chiton-decoupled --example job -- unix:/srv/chiton/socket [STATE_DIR]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{Realms, RealmsOptions, Subtree, default_state_dir};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    job(std::env::args().skip(1), &mut |line| println!("{line}"))
}

/// `words`: the address of a server, and where journals are kept.
pub(crate) fn job(
    mut words: impl Iterator<Item = String>,
    say: &mut dyn FnMut(String),
) -> Result<(), Box<dyn Error>> {
    let address = words.next().ok_or("usage: job ADDRESS [STATE_DIR]")?.parse()?;
    let state_dir = words.next().map(PathBuf::from).or_else(default_state_dir).ok_or("no state directory")?;
    let fs = Arc::new(Client::connect(&address, ClientOptions::default())?);
    let realms = Realms::new(
        fs.clone(),
        RealmsOptions { state_dir, client: ClientOptions::default(), accept_truncated: false },
    );
    fs.mkdir_all("/results")?;
    let batchfs = chiton_policy::preset("batchfs").ok_or("no such policy")?;
    let job = Subtree::begin(&realms, "/results", Some(batchfs.text.as_bytes()))?;
    for n in 0..100 {
        job.client().create_file(format!("/part-{n}"), format!("result {n}\n").as_bytes())?;
    }
    let seen = fs.stat("/results/part-7").map_or_else(|refusal| refusal.to_string(), |_| "seen".to_owned());
    say(format!("before the merge: {seen}"));
    job.sync_mode(true)?;
    say(format!("after the merge: {} files", fs.list("/results")?.len()));
    job.close()?;
    fs.sync()?;
    Ok(())
}
