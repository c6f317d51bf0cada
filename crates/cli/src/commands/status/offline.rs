//! The status of a file system without a server, from its journal and its metadata store.

use std::path::Path;
use std::sync::Arc;

use chiton_admin::journal::JournalToolError;
use chiton_journal::survey;
use chiton_runtime::RealWorld;
use chiton_server::{DataAddress, Offline, Server, StartError};
use chiton_types::PlateId;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::target;

/// The status of a data address without a server; `None` if a server has it, or it is no data address.
pub(super) fn offline(target: &str) -> Outcome<Option<Value>> {
    let is_data = target.starts_with("s3://") || Path::new(target).join(target::FORMAT_FILE).is_file();
    if !is_data {
        return Ok(None);
    }
    let data: DataAddress = target.parse().map_err(Failure::absent)?;
    let mut journals = Vec::new();
    let info = Server::info(&data)?;
    for plate in info.plates().all() {
        // Between two plates nobody holds it; the status is of a moment anyhow.
        match Offline::open(&data, plate, Arc::new(RealWorld)) {
            Ok(offline) => journals.push(journal(&offline, plate)?),
            Err(StartError::Held { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(json!({
        "served": false,
        "filesystem": format!("{:016x}", info.filesystem),
        "shards": info.shards,
        "journals": journals,
    })))
}

/// The journal of a plate, as the status of a server has it.
fn journal(offline: &Offline, plate: PlateId) -> Outcome<Value> {
    let stored = offline.stored()?;
    let place = offline.place();
    let bytes = std::cell::Cell::new(0);
    let survey = survey::<JournalToolError>(
        &*place,
        &mut |found| {
            if let chiton_journal::Found::Frame(frame) = found
                && frame.last() > stored
            {
                bytes.set(bytes.get() + frame.payload.len() as u64);
            }
            Ok(())
        },
        &mut |_| {},
    )?;
    Ok(json!({
        "name": "server",
        "plate": plate.0,
        "written": survey.last.0,
        "durable": survey.last.0,
        "not_durable": { "events": 0, "bytes": 0, "oldest_ms": 0 },
        "checkpointed": stored.0,
        "not_checkpointed": { "events": survey.last.0.saturating_sub(stored.0), "bytes": bytes.get() },
        "integrity": if survey.is_whole() { "OK" } else { "DAMAGED" },
        "first": survey.first.0,
        "segments": survey.segments.len(),
        "bytes": survey.segments.iter().map(|note| note.bytes).sum::<u64>(),
    }))
}
