//! Sequential write and read of one large file, on a local disk or a mount.
//!
//! Invariants:
//! - The write counts until fsync has returned.
//! - The kernel's cached pages of the file are dropped before it is read back (a file system with its own cache
//!   still answers from that).
//! - The bytes read are as many as were written, and the first of each call is checked.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use rustix::fs::Advice;

use crate::stopwatch::Stopwatch;

const MIB: f64 = (1 << 20) as f64;

#[derive(Clone, Debug)]
pub struct SeqioOptions {
    /// Where the file is made (and removed afterwards).
    pub dir: PathBuf,
    /// Bytes of the file; a multiple of `call_bytes`.
    pub file_bytes: u64,
    /// Bytes of each write and read.
    pub call_bytes: usize,
}

impl SeqioOptions {
    /// 1 GiB in calls of 4 MiB.
    pub fn standard(dir: PathBuf) -> SeqioOptions {
        SeqioOptions { dir, file_bytes: 1 << 30, call_bytes: 4 << 20 }
    }
}

/// The rates in MiB per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeqioRate {
    /// Writing, fsync included.
    pub write_mib_per_second: f64,
    /// Reading back, with the file's page cache dropped.
    pub read_mib_per_second: f64,
}

/// Writes a file and reads it back.
///
/// # Errors
/// Any call failed, or the content came back different.
pub fn measure(options: &SeqioOptions) -> io::Result<SeqioRate> {
    assert!(options.call_bytes >= 1, "calls of no bytes");
    assert_eq!(options.file_bytes % options.call_bytes as u64, 0, "the file is not a whole number of calls");
    let path = options.dir.join(format!("seqio.{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    let outcome = write_then_read(file, &path, options);
    std::fs::remove_file(&path)?;
    outcome
}

fn write_then_read(mut file: File, path: &std::path::Path, options: &SeqioOptions) -> io::Result<SeqioRate> {
    let calls = options.file_bytes / options.call_bytes as u64;
    let mut buffer: Vec<u8> = (0..options.call_bytes).map(|i| (i % 251) as u8).collect();

    let watch = Stopwatch::start();
    for call in 0..calls {
        buffer[0] = call as u8;
        file.write_all(&buffer)?;
    }
    file.sync_all()?;
    let write_mib_per_second = options.file_bytes as f64 / MIB / watch.seconds();

    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    drop(file);
    let mut file = File::open(path)?;
    let watch = Stopwatch::start();
    for call in 0..calls {
        file.read_exact(&mut buffer)?;
        if buffer[0] != call as u8 {
            return Err(io::Error::other(format!("call {call} read what was not written")));
        }
    }
    let read_mib_per_second = options.file_bytes as f64 / MIB / watch.seconds();
    Ok(SeqioRate { write_mib_per_second, read_mib_per_second })
}
