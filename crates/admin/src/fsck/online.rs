//! Checking a file system while it is served: its servers give views of the rows of one moment, and the same check
//! reads them from there. Nothing is changed.
//!
//! Of several plates, on one server or on several, each gives a view, and these fit each other ([`crate::cut`]). A change that one plate had
//! decided and another had not carried out at that moment is carried out in memory here. So nothing that is under way looks like damage.
//!
//! Memory: the buffers of sorting, a page of rows of each plate, the changes that plates
//! owe each other, and of a plate that is owed some the rows that its start needs.

use std::sync::Arc;

use chiton_client::Client;
use chiton_metastore::Metastore;
use chiton_runtime::{RealWorld, SharedWorld, parallel};
use chiton_server::{FilesystemInfo, StartError};
use chiton_types::{PlateId, Plates};

use crate::fsck::owed::settle;
use crate::fsck::{CheckError, Finding, Options, Problem, Progress, Summary, check, check_plates};
use crate::{Overlay, RowsOfPlates, View};

/// Journals that are read at the same time.
const JOURNALS_MAX: usize = 16;

/// Checks the file system that `client` is connected to, as of the time of the call. The client's user must be root or
/// the servers' own.
///
/// # Errors
/// As [`check`]; [`CheckError::View`] if a server gives no view, and [`CheckError::Lost`] if a plate moves while its rows are read.
pub fn check_online(
    client: &Arc<Client>,
    options: &Options,
    found: &mut dyn FnMut(Finding),
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, CheckError> {
    progress(Progress { pass: "checkpoints", done: 0, total: u64::from(client.plates()) });
    let view = View::open(client).map_err(|error| CheckError::View(error.to_string()))?;
    let options = Options { live: true, shards: view.shards(), ..options.clone() };
    let result = check_view(&view, &options, found, progress);
    match view.lost() {
        Some(lost) => result.map_err(|_| CheckError::Lost(lost)),
        None => result,
    }
}

fn check_view(
    view: &View,
    options: &Options,
    found: &mut dyn FnMut(Finding),
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, CheckError> {
    let mut damaged = 0;
    progress(Progress { pass: "journals", done: 0, total: u64::from(view.plates()) });
    let asked = view.clone();
    // A journal in a bucket has many objects, and each server reads those of its own plates.
    let journals =
        parallel::map("chiton-journals", JOURNALS_MAX, usize::from(view.plates()), move |number| {
            asked.of_plate(PlateId(number as u16)).journal()
        });
    for (plate, cause) in (0..).map(PlateId).zip(journals) {
        let cause = cause.map_err(CheckError::View)?;
        if cause.is_empty() {
            continue;
        }
        damaged += 1;
        let plate = (view.plates() > 1).then_some(plate);
        found(Finding { problem: Problem::JournalDamage { cause }, path: None, plate });
    }
    let mut summary = match view.plates() {
        1 => check(view, view, options, found, progress)?,
        _ => check_plates(&rows_of(view)?, view, options, found, progress)?,
    };
    summary.findings += damaged;
    Ok(summary)
}

/// The rows of all plates as they are once no plate owes another anything.
fn rows_of(view: &View) -> Result<RowsOfPlates, CheckError> {
    let unknown = || CheckError::View("the server does not say which shards its plates have".to_owned());
    let shards = view.shards().ok_or_else(unknown)?;
    let map = Plates::new(shards, view.plates()).ok_or_else(unknown)?;
    let (version, filesystem, created, monitor) = (0, 0, 0, None);
    let info = FilesystemInfo { version, filesystem, shards, plates: view.plates(), created, monitor };
    let of_plate = |plate| Arc::new(Overlay::new(Arc::new(view.of_plate(PlateId(plate)))));
    let plates: Vec<Arc<Overlay>> = (0..view.plates()).map(of_plate).collect();
    let world: SharedWorld = Arc::new(RealWorld);
    settle(&info, &plates, &world).map_err(|error| match error {
        StartError::Corrupt(cause) => CheckError::Unsettled(cause),
        // The rows could not be read.
        error => CheckError::View(error.to_string()),
    })?;
    let rows = plates.into_iter().map(|rows| rows as Arc<dyn Metastore>);
    Ok(RowsOfPlates::new(map, rows.collect()))
}
