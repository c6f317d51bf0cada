//! Rates of the pure engine on one core: plan, apply, encode, decode; bytes of an entry in memory, in the journal and
//! in rows. `cargo run --release -p chiton-namespace --example rates`
//!
//! Rates are per second of this thread's processor time, so that other work on the machine counts less.

use chiton_model::{Event, Make, Op};
use chiton_namespace::{Context, Namespace, plan};
use chiton_types::{Cred, Ino, Mode, Name, Position, Take, Time};
use rustix::time::{ClockId, clock_gettime};

const FILES: u64 = 2_000_000;

fn main() {
    let timed = |what: &str, n: u64, f: &mut dyn FnMut()| {
        let start = processor_seconds();
        f();
        let seconds = processor_seconds() - start;
        println!("{what:<40} {:>12.0} /s", n as f64 / seconds);
    };
    let mut ns = opened();
    let names: Vec<Name> =
        (0..FILES).map(|i| Name::new(format!("file.{i:08}").as_bytes()).expect("valid")).collect();
    let mut events = Vec::new();
    timed("plan + apply of creates, one directory", FILES, &mut || {
        let mut out = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let op = Op::Make {
                parent: Ino::ROOT,
                name: name.clone(),
                make: Make::File { content: Vec::new() },
                mode: Mode(0o644),
            };
            let ctx = Context {
                cred: &Cred::ROOT,
                now: Time(i as i64),
                offered: Ino(i as u64 + 2),
                is_open: &|_| false,
            };
            plan(&ns, &op, &ctx, &mut out).expect("a new name");
            ns.apply(&out[0], Position(i as u64 + 1));
            events.push(out.pop().expect("one event"));
        }
    });
    let names_bytes: usize = names.iter().map(|n| n.as_bytes().len()).sum();
    println!(
        "{:<40} {:>12.1}",
        "estimated bytes an entry beside its name",
        (ns.memory_bytes() - names_bytes) as f64 / FILES as f64
    );
    println!("{:<40} {:>12.1}", "resident bytes an entry, with its name", {
        let before = resident_bytes();
        drop(ns);
        (before - resident_bytes()) as f64 / FILES as f64
    });
    let mut ns = opened();
    timed("apply alone", FILES, &mut || {
        for (i, event) in events.iter().enumerate() {
            ns.apply(event, Position(i as u64 + 1));
        }
    });
    let mut bytes = Vec::with_capacity(FILES as usize * 80);
    timed("encode", FILES, &mut || {
        for event in &events {
            event.encode(&mut bytes);
        }
    });
    println!("{:<40} {:>12.1}", "encoded bytes an event", bytes.len() as f64 / FILES as f64);
    let mut again = opened();
    timed("decode + needs + fit + apply (replay)", FILES, &mut || {
        let mut take = Take::new(&bytes);
        let mut position = 0;
        while !take.is_empty() {
            let event = Event::decode(&mut take).expect("encoded above");
            assert!(again.needs(&event).is_empty());
            position += 1;
            assert_eq!(again.fit(&event, Position(position)), Ok(()));
            again.apply(&event, Position(position));
        }
    });
    let mut rows = Vec::new();
    timed("checkpoint rows (two a file)", FILES * 2, &mut || {
        again.checkpoint_begin();
        while !again.checkpoint_take(4096, &mut rows) {}
        again.checkpoint_done();
    });
    let stored: usize = rows.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, Vec::len)).sum();
    println!("{:<40} {:>12.1}", "row bytes an entry", stored as f64 / FILES as f64);
    timed("random lookups", FILES, &mut || {
        let mut found = 0;
        for i in 0..names.len() {
            let name = &names[(i * 7_919) % names.len()];
            found += usize::from(again.lookup(&Cred::ROOT, Ino::ROOT, name).expect("in memory").is_some());
        }
        assert_eq!(found, names.len());
    });
}

fn opened() -> Namespace {
    let mut ns = Namespace::new();
    let store = Formatted(Namespace::format_rows(Time(0), 0, 0));
    let root = Namespace::fetch(&store, &chiton_namespace::Need::Inode(Ino::ROOT)).expect("cannot fail");
    ns.install(root, ns.generation()).expect("a row just made");
    ns
}

struct Formatted(Vec<chiton_namespace::RowChange>);

impl chiton_namespace::RowSource for Formatted {
    type Error = std::convert::Infallible;
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Self::Error> {
        Ok(self.0.iter().find(|(k, _)| k == key).and_then(|(_, v)| v.clone()))
    }
    fn scan(&self, _: &[u8], _: &[u8], _: usize) -> Result<chiton_namespace::Rows, Self::Error> {
        Ok(Vec::new())
    }
}

/// Resident memory of this process, from the kernel.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: usize =
        statm.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("statm has a second field");
    pages * 4096
}

fn processor_seconds() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
