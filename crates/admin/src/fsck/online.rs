//! Checking a file system while it is served: the server gives a view of the rows of one moment, and the same check
//! reads it from there. Nothing is changed.
//!
//! Of several plates the server gives a view each, which fit each other: changes that one plate has decided and another had not carried out
//! at that moment is carried out in memory here.

use std::sync::Arc;

use chiton_client::Client;
use chiton_metastore::Metastore;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::FilesystemInfo;
use chiton_types::{PlateId, Plates};

use crate::fsck::owed::settle;
use crate::fsck::{CheckError, Finding, Options, Problem, Progress, Summary, check, check_plates};
use crate::{Overlay, RowsOfPlates, View};

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
    let mut damaged = 0;
    for plate in (0..view.plates()).map(PlateId) {
        let journal = view.of_plate(plate).ask("journal").map_err(|refusal| {
            CheckError::View(format!("the server cannot read its journal: {refusal}; its log says why"))
        })?;
        let cause = String::from_utf8_lossy(&journal).into_owned();
        if cause.is_empty() {
            continue;
        }
        damaged += 1;
        let plate = (view.plates() > 1).then_some(plate);
        found(Finding { problem: Problem::JournalDamage { cause }, path: None, plate });
    }
    let mut result = match view.plates() {
        1 => check(&view, &view, &options, found, progress),
        _ => check_plates(&rows_of(&view)?, &view, &options, found, progress),
    };
    if let Ok(summary) = &mut result {
        summary.findings += damaged;
    }
    result
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
    settle(&info, &plates, &world).map_err(|error| CheckError::Unsettled(error.to_string()))?;
    let rows = plates.into_iter().map(|rows| rows as Arc<dyn Metastore>);
    Ok(RowsOfPlates::new(map, rows.collect()))
}
