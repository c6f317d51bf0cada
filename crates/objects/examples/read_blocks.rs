//! Writes 1 GiB as blocks of 4 MiB, then reads it from the page cache with verification.
//!
//! `cargo run --release -p chiton-objects --example read_blocks -- DIRECTORY`

use std::path::PathBuf;
use std::time::Duration;

use chiton_objects::block::{BlockIndex, read_block, seal_block};
use chiton_objects::{LocalObjects, Objects};
use chiton_runtime::{RealWorld, World};

const BLOCKS: u64 = 256;
const BYTES: u64 = 4 << 20;

fn report(what: &str, took: Duration) {
    println!("{what:40} {:6.2} GiB/s", (BLOCKS * BYTES) as f64 / (1u64 << 30) as f64 / took.as_secs_f64());
}

fn main() {
    let dir = std::env::args_os().nth(1).map(PathBuf::from).expect("usage: read_blocks DIRECTORY");
    let store = LocalObjects::open(&dir).expect("open the store");
    let key = |n: u64| format!("blocks/{:02x}/{n}", n % 16);
    let timed = |what: &str, run: &mut dyn FnMut()| {
        let start = RealWorld.monotonic();
        run();
        report(what, RealWorld.monotonic() - start);
    };
    let payload: Vec<u8> = (0..BYTES).map(|n| (n * 31 % 253) as u8).collect();
    timed("write (no sync)", &mut || {
        for n in 0..BLOCKS {
            let mut block = payload.clone();
            seal_block(&mut block);
            store.put(&key(n), &block).expect("put");
        }
    });
    timed("sync", &mut || store.sync().expect("sync"));
    for _ in 0..3 {
        timed("whole blocks, read_block", &mut || {
            for n in 0..BLOCKS {
                assert_eq!(read_block(&store, &key(n), None).expect("read").len() as u64, BYTES);
            }
        });
        let indexes: Vec<BlockIndex> =
            (0..BLOCKS).map(|n| BlockIndex::fetch(&store, &key(n)).expect("index")).collect();
        for request in [BYTES, 1 << 20, 128 << 10, 64 << 10] {
            let mut into = vec![0; request as usize];
            timed(&format!("parts of {} KiB into one buffer", request >> 10), &mut || {
                for (n, index) in indexes.iter().enumerate() {
                    for part in 0..BYTES / request {
                        index.read_into(&store, &key(n as u64), part * request, &mut into).expect("read");
                    }
                }
            });
        }
    }
    for n in 0..BLOCKS {
        store.delete(&key(n)).expect("delete");
    }
}
