//! The pure engine on one core: events a second, bytes an event and an entry.
//!
//! Rates are per second of this thread's processor time, so that other work on the machine counts less.

use std::convert::Infallible;

use chiton_bench::report::Row;
use chiton_metastore::{FjallMetastore, FjallOptions, Metastore};
use chiton_model::Event;
use chiton_namespace::{Namespace, Need, RowChange, RowSource, Rows};
use chiton_types::frame::{FrameBuilder, FrameHeader};
use chiton_types::{Ino, Kind, Mode, Name, Position, Seq, SessionId, ShardId, Take, Time};
use rustix::time::{ClockId, clock_gettime};

use super::Plan;
use crate::failure::{Failure, Outcome};

const FILES: u64 = 1_000_000;
/// Entries of one directory: the most that an unpacked tree or a job's folder has.
const PER_DIR: u64 = 10_000;

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let files = FILES / plan.divisor;
    let events = events(files);
    let n = events.len() as f64;
    let [mut append, mut apply, mut replay]: [Vec<f64>; 3] = Default::default();
    let (mut event_bytes, mut memory_bytes, mut row_bytes) = (0.0, 0.0, 0.0);
    for round in 0..plan.rounds {
        let mut journal = Vec::with_capacity(events.len() * 100);
        append.push(
            n / spent(|| {
                for (i, event) in events.iter().enumerate() {
                    let header = FrameHeader {
                        event_count: 1,
                        shard: ShardId(0),
                        session: SessionId(1),
                        seq: Seq(i as u64 + 1),
                    };
                    let mut frame = FrameBuilder::begin(&mut journal, &header);
                    event.encode(frame.payload());
                    frame.seal();
                }
            }),
        );
        event_bytes = journal.len() as f64 / n;
        let mut ns = formatted();
        apply.push(
            n / spent(|| {
                for (i, event) in events.iter().enumerate() {
                    ns.apply(event, Position(i as u64 + 1));
                }
            }),
        );
        let names: usize = events.iter().map(name_bytes).sum();
        memory_bytes = (ns.memory_bytes() - names) as f64 / n;
        let mut encoded = Vec::new();
        events.iter().for_each(|e| e.encode(&mut encoded));
        let mut again = formatted();
        replay.push(
            n / spent(|| {
                let mut take = Take::new(&encoded);
                let mut position = 0;
                while !take.is_empty() {
                    let event = Event::decode(&mut take).expect("encoded above");
                    assert!(again.needs(&event).is_empty(), "everything is in memory");
                    position += 1;
                    assert_eq!(
                        again.fit(&event, Position(position), chiton_types::SHARDS_DEFAULT),
                        Ok(()),
                        "it fits"
                    );
                    again.apply(&event, Position(position));
                }
            }),
        );
        if round == 0 {
            row_bytes = stored_bytes(plan, &mut ns)? / n;
        }
    }
    let goal = |value: f64, n: usize| vec![value; n];
    let per = |name: &str, rates: &[f64], target: f64| {
        Row::new(name, "events/s", &goal(target, rates.len()), rates)
            .with_target(1.0)
            .with_bound("CPU and memory")
    };
    // Fewer bytes are better, so the ratio is limit / ours.
    let bytes = |name: &str, limit: f64, ours: f64| {
        Row::new(&format!("{name} (1/bytes; {ours:.0} bytes)"), "1/byte", &[1.0 / limit], &[1.0 / ours])
            .with_target(1.0)
    };
    Ok(vec![
        per("append to the journal / 10 million", &append, 10e6),
        per("apply / 2 million", &apply, 2e6),
        per("decode and apply (replay) / 1 million", &replay, 1e6),
        bytes("journal bytes a create / 100", 100.0, event_bytes),
        bytes("memory an entry beside its name / 200", 200.0, memory_bytes),
        bytes("metadata store an entry / 150", 150.0, row_bytes),
    ])
}

/// Creates in directories of [`PER_DIR`] entries, and the making of these.
fn events(files: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let mut make = |parent: Ino, name: String, ino: u64, kind: Kind| {
        events.push(Event::Make {
            parent,
            name: Name::new(name.as_bytes()).expect("a valid name"),
            ino: Ino(ino),
            kind,
            mode: Mode(0o644),
            uid: 1000,
            gid: 1000,
            rdev: 0,
            time: Time(1_700_000_000_000_000_000 + ino as i64 * 1_000),
            content: Vec::new(),
        });
    };
    for i in 0..files {
        let dir = Ino::new(ShardId((i / PER_DIR % 64) as u16), 1_000_000_000 + i / PER_DIR);
        if i % PER_DIR == 0 {
            make(Ino::ROOT, format!("dir.{:06}", i / PER_DIR), dir.0, Kind::Dir);
        }
        make(dir, format!("file.{i:08}"), Ino::new(dir.shard(), i + 2).0, Kind::File);
    }
    events
}

fn name_bytes(event: &Event) -> usize {
    event.footprint().names().map(|change| change.name.as_bytes().len()).sum()
}

/// Bytes on disk of everything, settled.
fn stored_bytes(plan: &Plan, ns: &mut Namespace) -> Outcome<f64> {
    let dir = plan.dir.join("rows");
    let store = FjallMetastore::open(&dir, FjallOptions::default()).map_err(Failure::failed)?;
    ns.checkpoint_begin();
    loop {
        let mut rows: Vec<RowChange> = Vec::new();
        let last = ns.checkpoint_take(100_000, &mut rows);
        store.commit(&rows.into_iter().collect()).map_err(Failure::failed)?;
        if last {
            break;
        }
    }
    ns.checkpoint_done();
    store.settle().map_err(Failure::failed)?;
    let bytes = store.stats().map_err(Failure::failed)?.disk_bytes;
    store.close().map_err(Failure::failed)?;
    std::fs::remove_dir_all(&dir).map_err(Failure::failed)?;
    Ok(bytes as f64)
}

fn formatted() -> Namespace {
    let rows = Formatted(Namespace::format_rows(Time(0), 0, 0));
    let mut ns = Namespace::open(&rows).unwrap_or_else(|_| unreachable!("rows just made"));
    let Ok(root) = Namespace::fetch(&rows, &Need::Inode(Ino::ROOT));
    ns.install(root, ns.generation()).expect("a row just made");
    ns
}

struct Formatted(Vec<RowChange>);

impl RowSource for Formatted {
    type Error = Infallible;
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.iter().find(|(k, _)| k == key).and_then(|(_, v)| v.clone()))
    }
    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Rows, Infallible> {
        let mut rows: Rows =
            self.0.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect();
        rows.retain(|(key, _)| (start..end).contains(&key.as_slice()));
        rows.sort();
        rows.truncate(limit);
        Ok(rows)
    }
}

/// Processor seconds of this thread that `f` took.
fn spent(f: impl FnOnce()) -> f64 {
    let now = || {
        let t = clock_gettime(ClockId::ThreadCPUTime);
        t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
    };
    let start = now();
    f();
    now() - start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_plan_is_measured() {
        let dir = tempfile::tempdir().expect("a directory");
        let plan = Plan { dir: dir.path().to_owned(), rounds: 1, divisor: 10_000 };
        let rows = measure(&plan).expect("it measures");
        assert!(!rows.is_empty());
    }
}
