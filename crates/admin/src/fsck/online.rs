//! Checking a file system while it is served: the server gives a view of the rows of one moment, and the same check
//! reads it from there. Nothing is changed.

use std::sync::Arc;

use chiton_client::Client;

use crate::View;
use crate::fsck::{CheckError, Finding, Options, Problem, Progress, Summary, check};

/// Checks the server that `client` is connected to, as of the time of the call. The client's user must be root or
/// the server's own.
///
/// # Errors
/// As [`check`]; [`CheckError::View`] if the server gives no view.
pub fn check_online(
    client: &Arc<Client>,
    options: &Options,
    found: &mut dyn FnMut(Finding),
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, CheckError> {
    let view = View::open(client).map_err(|error| CheckError::View(error.to_string()))?;
    let options = Options { live: true, shards: view.shards(), ..options.clone() };
    let journal = view.ask("journal").map_err(|refusal| {
        CheckError::View(format!("the server cannot read its journal: {refusal}; its log says why"))
    })?;
    let cause = String::from_utf8_lossy(&journal).into_owned();
    let is_damaged = !cause.is_empty();
    if is_damaged {
        found(Finding { problem: Problem::JournalDamage { cause }, path: None, plate: None });
    }
    let mut result = check(&view, &view, &options, found, progress);
    if let Ok(summary) = &mut result {
        summary.findings += u64::from(is_damaged);
    }
    result
}
