//! The asking end.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::message::{ControlReply, ControlRequest};

/// Asks the mount whose socket is at `path`, and waits for its last word; `meanwhile` is told what comes before it.
///
/// # Errors
/// The mount cannot be reached, or goes away.
pub fn ask_control(
    path: &Path,
    request: &ControlRequest,
    meanwhile: &mut dyn FnMut(ControlReply),
) -> io::Result<ControlReply> {
    let mut stream = UnixStream::connect(path)?;
    let mut line = serde_json::to_vec(request).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line?).map_err(io::Error::other)? {
            word @ (ControlReply::Progress(_) | ControlReply::Text(_)) => meanwhile(word),
            reply => return Ok(reply),
        }
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the mount went away"))
}
