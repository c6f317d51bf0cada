//! The asking end.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::message::{ControlReply, ControlRequest};

/// Sends a request to the mount whose socket is at `path`, and waits for the last reply. `meanwhile` gets the
/// replies before it.
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
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the mount ended before it answered"))
}

/// A connection on which a mount reports how it ended.
#[derive(Debug)]
pub struct AwaitedEnd(BufReader<UnixStream>);

/// Asks the mount whose socket is at `path` to report its end. Call it before the unmount.
///
/// # Errors
/// The mount cannot be reached.
pub fn await_end(path: &Path) -> io::Result<AwaitedEnd> {
    let mut stream = UnixStream::connect(path)?;
    let mut line = serde_json::to_vec(&ControlRequest::AwaitEnd).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut end = AwaitedEnd(BufReader::new(stream));
    match end.word()? {
        ControlReply::Text(_) => Ok(end),
        other => Err(io::Error::other(format!("an unexpected answer of the mount: {other:?}"))),
    }
}

impl AwaitedEnd {
    /// Waits until the mount has ended, and until its process is gone.
    ///
    /// # Errors
    /// The process ended without a word, as one that was killed does.
    pub fn wait(mut self) -> io::Result<ControlReply> {
        let reply = self.word()?;
        // The connection closes with the process.
        io::copy(&mut self.0, &mut io::sink())?;
        Ok(reply)
    }

    fn word(&mut self) -> io::Result<ControlReply> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the mount ended before it answered"));
        }
        serde_json::from_str(&line).map_err(io::Error::other)
    }
}
