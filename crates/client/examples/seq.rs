//! Writes a large file in sequence, syncs it and reads it back: through the client library over a server in this
//! process, and plainly, in the same directory.
//!
//! `cargo run --release -p chiton-client --example seq -- DIRECTORY [MIB [KIB]]` (1024 MiB in calls of 1024 KiB)

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chiton_client::{Caller, Client, ClientOptions, Groups, OpenFlags};
use chiton_runtime::{RealWorld, SharedWorld, World};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_types::{Ino, Mode};

struct Load {
    file_bytes: u64,
    call_bytes: usize,
}

/// MiB/s of writing with fsync, of writing alone, and of reading what the kernel has cached and what it has not.
struct Rates {
    write: f64,
    write_alone: f64,
    read_cached: f64,
    read: f64,
}

impl Load {
    fn rate(&self, begin: std::time::Duration) -> f64 {
        self.file_bytes as f64 / f64::from(1 << 20) / (RealWorld.monotonic() - begin).as_secs_f64()
    }

    fn calls(&self) -> u64 {
        self.file_bytes / self.call_bytes as u64
    }
}

/// Drops the kernel's cached pages of every file below `dir`.
fn drop_pages(dir: &Path) {
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            drop_pages(&path);
        } else if let Ok(file) = File::open(&path) {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
        }
    }
}

fn plain(dir: &Path, load: &Load) -> Rates {
    let path = dir.join("plain");
    let mut bytes = vec![7; load.call_bytes];
    let begin = RealWorld.monotonic();
    let mut file = File::create(&path).expect("create");
    for n in 0..load.calls() {
        bytes[0] = n as u8;
        file.write_all(&bytes).expect("write");
    }
    let write_alone = load.rate(begin);
    file.sync_all().expect("fsync");
    let write = load.rate(begin);
    let mut read = || {
        let mut file = File::open(&path).expect("open");
        let begin = RealWorld.monotonic();
        for n in 0..load.calls() {
            file.read_exact(&mut bytes).expect("read");
            assert_eq!(bytes[0], n as u8);
        }
        load.rate(begin)
    };
    let read_cached = read();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
    let read = read();
    std::fs::remove_file(&path).expect("remove");
    Rates { write, write_alone, read_cached, read }
}

fn through_client(dir: &Path, load: &Load) -> Rates {
    let world: SharedWorld = Arc::new(RealWorld);
    let data = dir.join("data");
    Server::format(&data, &FormatOptions::default(), &world).expect("format");
    let server = Server::start(&data, ServerOptions::default(), world).expect("start");
    let client = Client::embedded(server.clone(), ClientOptions::default()).expect("embedded");
    let groups = Arc::from([]);
    let caller = Caller { uid: 0, gid: 0, groups: Groups::Known(&groups) };
    let mut bytes = vec![7; load.call_bytes];
    let begin = RealWorld.monotonic();
    let (entry, fh) =
        client.create(&caller, Ino::ROOT, b"file", Mode(0o644), OpenFlags::READ_WRITE).expect("create");
    for n in 0..load.calls() {
        bytes[0] = n as u8;
        client.write(&caller, fh, n * load.call_bytes as u64, &bytes).expect("write");
    }
    let write_alone = load.rate(begin);
    client.fsync(fh, false).expect("fsync");
    let write = load.rate(begin);
    client.release(fh).expect("release");
    let mut read = || {
        let fh = client.open(&caller, entry.attr.ino, OpenFlags::READ).expect("open");
        let begin = RealWorld.monotonic();
        for n in 0..load.calls() {
            let got = client.read_into(fh, n * load.call_bytes as u64, &mut bytes).expect("read");
            assert!(got == load.call_bytes && bytes[0] == n as u8);
        }
        let rate = load.rate(begin);
        client.release(fh).expect("release");
        rate
    };
    let read_cached = read();
    drop_pages(&data);
    let read = read();
    drop(client);
    server.shutdown().expect("shutdown");
    std::fs::remove_dir_all(&data).expect("remove");
    Rates { write, write_alone, read_cached, read }
}

fn main() {
    let mut args = std::env::args_os().skip(1);
    let dir = args.next().map(PathBuf::from).expect("usage: seq DIRECTORY [MIB [KIB]]");
    let mut number = |default: u64| {
        args.next().map_or(default, |arg| arg.to_str().and_then(|arg| arg.parse().ok()).expect("a number"))
    };
    let load = Load { file_bytes: number(1024) << 20, call_bytes: (number(1024) << 10) as usize };
    let dir = dir.join(format!("seq-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("make the directory");
    println!(
        "{:8} {:>14} {:>14} {:>14} {:>14}   MiB/s",
        "", "write+fsync", "write", "read cached", "read cold"
    );
    // In turns, because disks change their minds.
    for _ in 0..3 {
        let (ours, theirs) = (through_client(&dir, &load), plain(&dir, &load));
        let line = |name: &str, r: &Rates, digits: usize| {
            println!(
                "{name:8} {:14.digits$} {:14.digits$} {:14.digits$} {:14.digits$}",
                r.write, r.write_alone, r.read_cached, r.read
            );
        };
        line("chiton", &ours, 0);
        line("plain", &theirs, 0);
        let ratio = Rates {
            write: ours.write / theirs.write,
            write_alone: ours.write_alone / theirs.write_alone,
            read_cached: ours.read_cached / theirs.read_cached,
            read: ours.read / theirs.read,
        };
        line("ratio", &ratio, 2);
    }
    std::fs::remove_dir_all(&dir).expect("remove the directory");
}
