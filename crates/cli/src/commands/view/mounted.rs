//! The journal of a subtree that a running mount has decoupled, read through its socket: one that lies in the memory of its
//! process cannot be read otherwise.
//!
//! Invariants:
//! - It is only read.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use chiton_fuse::{ControlReply, ControlRequest, ask_control};
use chiton_journal::{Place, PlaceError, SegmentInfo, Shape};
use serde_json::Value;

/// Exit code of a request for a segment that is gone.
const ABSENT: u8 = 4;

/// The journal of a running mount.
#[derive(Debug)]
pub(super) struct JournalOfMount {
    socket: PathBuf,
    ino: u64,
}

impl JournalOfMount {
    /// Of the subtree in which the inode is. `socket`: of the mount.
    pub(super) fn new(socket: PathBuf, ino: u64) -> JournalOfMount {
        JournalOfMount { socket, ino }
    }

    fn ask(&self, request: &ControlRequest, piece: &mut dyn FnMut(&str)) -> Result<Value, PlaceError> {
        let mut meanwhile = |word| match word {
            ControlReply::Text(text) => piece(&text),
            ControlReply::Progress(_) | ControlReply::Done { .. } | ControlReply::Failed { .. } => {}
        };
        let unreached =
            |e| PlaceError::Failed(format!("the mount cannot be asked ({}): {e}", self.socket.display()));
        match ask_control(&self.socket, request, &mut meanwhile).map_err(unreached)? {
            ControlReply::Done { report, .. } => Ok(report),
            ControlReply::Failed { exit_code: ABSENT, .. } => Err(PlaceError::Missing),
            ControlReply::Failed { message, .. } => Err(PlaceError::Failed(message)),
            ControlReply::Progress(_) | ControlReply::Text(_) => Err(nonsense()),
        }
    }
}

fn nonsense() -> PlaceError {
    PlaceError::Failed("the mount's answer does not fit the request".to_owned())
}

impl Place for JournalOfMount {
    fn shape(&self) -> Shape {
        Shape::Grows
    }

    fn list(&self) -> Result<Vec<SegmentInfo>, PlaceError> {
        let all = self.ask(&ControlRequest::Segments { ino: self.ino }, &mut |_| {})?;
        let all: Vec<[u64; 2]> = serde_json::from_value(all).map_err(|_| nonsense())?;
        Ok(all.into_iter().map(|[number, bytes]| SegmentInfo { number, bytes }).collect())
    }

    fn read(&self, number: u64, bytes_max: u64) -> Result<Vec<u8>, PlaceError> {
        let (mut bytes, mut is_whole) = (Vec::new(), true);
        let request = ControlRequest::Segment { ino: self.ino, number, bytes_max };
        self.ask(&request, &mut |piece| is_whole &= BASE64.decode_vec(piece, &mut bytes).is_ok())?;
        if is_whole { Ok(bytes) } else { Err(nonsense()) }
    }

    fn create(&self, number: u64, _: &[u8]) -> Result<(), PlaceError> {
        Err(denied(number))
    }

    fn append(&self, number: u64, _: u64, _: &[u8]) -> Result<(), PlaceError> {
        Err(denied(number))
    }

    fn sync(&self, number: u64) -> Result<(), PlaceError> {
        Err(denied(number))
    }

    fn remove(&self, number: u64) -> Result<(), PlaceError> {
        Err(denied(number))
    }
}

fn denied(number: u64) -> PlaceError {
    PlaceError::Failed(format!("segment {number} is another process's, and only read here"))
}
