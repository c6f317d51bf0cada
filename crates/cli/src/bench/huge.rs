//! Huge directories: one that many clients share beside one for each of them, policies for splits, a split while clients work, growth
//! to a million names, and listings with attributes.
//!
//! Each client is a connection over a Unix socket and asks the server for each operation. All servers have four plates in one process,
//! so on few processors the rates show what an operation costs, and not what parts give on machines of their own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use chiton_bench::report::Row;
use chiton_bench::trivial_mount::TrivialMount;
use chiton_client::{Client, ClientOptions};
use chiton_model::XattrHow;
use chiton_runtime::{RealWorld, World};
use chiton_server::FormatOptions;
use chiton_types::{Ino, Mode};

use super::Plan;
use super::subject::{Subject, make_dir, name, timed, unmount};
use crate::failure::{Failure, Outcome};

const PLATES: u16 = 4;
/// Clients that work at the same time.
const CLIENTS: usize = 16;
/// Creates of each group of clients.
const CREATES: u64 = 160_000;
/// Directories of the comparison of policies.
const DIRS: usize = 8;
/// Clients of that comparison: few, many.
const FEW: usize = 2;
const MANY: usize = 16;
/// Names of a directory that is split.
const SPLIT: u64 = 8_000;
const SPLIT_LIMIT: f64 = 0.2;
/// Names of a directory that grows, and of one that is listed.
const LARGE: u64 = 1_000_000;
const BATCH: usize = 1_000;
/// Names of a page of a listing.
const PAGE: u32 = 4_096;
/// Names of the directory that is listed on mounts: the trivial file system holds them, too.
const MOUNTED: u64 = 100_000;

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let mut rows = vec![shared(plan)?];
    rows.extend(policies(plan)?);
    rows.extend(splits(plan)?);
    rows.extend(large(plan)?);
    rows.push(mounted(plan)?);
    Ok(rows)
}

fn start(plan: &Plan, place: &str) -> Outcome<Subject> {
    Subject::start_with(plan, place, &FormatOptions { plates: PLATES, ..FormatOptions::default() })
}

/// So many connections.
fn clients(subject: &Subject, count: usize) -> Outcome<Vec<Client>> {
    let first = subject.over_socket()?;
    let more = (1..count).map(|_| subject.beside(None));
    std::iter::once(Ok(first)).chain(more).collect()
}

/// A directory with a policy.
fn directory(client: &Client, path: &str, policy: &str) -> Outcome<Ino> {
    let dir = client.mkdir_all(path).map_err(Failure::failed)?.ino;
    client
        .setxattr(&client.caller(), dir, b"chiton.policy", policy.as_bytes(), XattrHow::Set)
        .map_err(Failure::failed)?;
    Ok(dir)
}

/// Each client makes `each` files, in turn in the directories that `dirs` gives it; all work at the same time. Creates a second.
fn create(clients: &[Client], dirs: &[Vec<Ino>], each: u64) -> Outcome<f64> {
    let make = |n: usize, client: &Client, dirs: &[Ino]| -> Outcome {
        for i in 0..each {
            let dir = dirs[i as usize % dirs.len()];
            let name = format!("client.{n:02}.file.{i:08}");
            let made = client.start_create(&client.caller(), dir, name.as_bytes(), Mode(0o644)).wait();
            made.map_err(Failure::failed)?;
        }
        Ok(())
    };
    let ((), seconds) = timed(|| {
        thread::scope(|scope| {
            let each = clients.iter().zip(dirs).enumerate();
            let threads: Vec<_> =
                each.map(|(n, (client, dirs))| scope.spawn(move || make(n, client, dirs))).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| Failure::failed("a thread that creates files panicked"))?
            })
        })
    })?;
    Ok((clients.len() as u64 * each) as f64 / seconds)
}

/// One directory for all clients, with parts from its birth, beside one for each client.
fn shared(plan: &Plan) -> Outcome<Row> {
    let each = CREATES / plan.divisor / CLIENTS as u64;
    let (mut private, mut shared) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let subject = start(plan, &format!("shared-{round}"))?;
        let clients = clients(&subject, CLIENTS)?;
        let own = (0..CLIENTS)
            .map(|n| Ok(vec![clients[0].mkdir_all(format!("/own/{n}")).map_err(Failure::failed)?.ino]));
        private.push(create(&clients, &own.collect::<Outcome<Vec<_>>>()?, each)?);
        directory(&clients[0], "/always", "huge: always")?;
        let one = clients[0].mkdir_all("/always/one").map_err(Failure::failed)?.ino;
        shared.push(create(&clients, &vec![vec![one]; CLIENTS], each)?);
        drop(clients);
        subject.end()?;
    }
    let name = format!("creates by {CLIENTS} clients, one directory / one for each, {PLATES} plates");
    Ok(Row::new(&name, "ops/s", &private, &shared).with_target(0.9).with_bound("CPU: one call a create"))
}

/// Under each policy all clients create in eight directories, until each has more names than the threshold.
fn policies(plan: &Plan) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for (count, words) in [(FEW, "few"), (MANY, "many")] {
        let each = CREATES / plan.divisor / count as u64;
        let (mut best, mut auto) = (Vec::new(), Vec::new());
        for round in 0..plan.rounds {
            let under = |policy: &str| -> Outcome<f64> {
                let subject = start(plan, &format!("policies-{words}-{policy}-{round}"))?;
                let clients = clients(&subject, count)?;
                let threshold = 8_000 / plan.divisor;
                let policy = format!("huge: {policy}\nhuge_threshold: {threshold}");
                directory(&clients[0], "/all", &policy)?;
                let dirs = (0..DIRS)
                    .map(|n| Ok(clients[0].mkdir_all(format!("/all/{n}")).map_err(Failure::failed)?.ino));
                let dirs = dirs.collect::<Outcome<Vec<_>>>()?;
                let rate = create(&clients, &vec![dirs; count], each)?;
                drop(clients);
                subject.end()?;
                Ok(rate)
            };
            let (never, always) = (under("never")?, under("always")?);
            best.push(never.max(always));
            auto.push(under("auto")?);
        }
        let name = format!(
            "creates in {DIRS} directories, {words} clients ({count}), huge: auto / the better of never and always"
        );
        rows.push(Row::new(&name, "ops/s", &best, &auto).with_target(0.95).with_bound("CPU; splits"));
    }
    Ok(rows)
}

/// A directory of 8,000 names is split, while another client creates in it.
fn splits(plan: &Plan) -> Outcome<Vec<Row>> {
    let (mut speeds, mut before, mut during) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let subject = start(plan, &format!("split-{round}"))?;
        let clients = clients(&subject, 2)?;
        let dir = clients[0].mkdir_all("/dir").map_err(Failure::failed)?.ino;
        fill(&clients[0], dir, 0..SPLIT)?;
        let over = AtomicBool::new(false);
        let (seconds, (early, late)) = thread::scope(|scope| {
            let (creator, over) = (&clients[1], &over);
            let waits = scope.spawn(move || longest_creates(creator, dir, over));
            thread::sleep(Duration::from_millis(200));
            let split =
                timed(|| clients[0].split(&clients[0].caller(), dir, |_| {}).map_err(Failure::failed));
            over.store(true, Ordering::Relaxed);
            let waits = waits.join().map_err(|_| Failure::failed("a thread that creates files panicked"))?;
            Ok::<_, Failure>((split?.1, waits?))
        })?;
        speeds.push(1.0 / seconds);
        before.push(1.0 / early);
        during.push(1.0 / late);
        drop(clients);
        subject.end()?;
    }
    let limit = vec![1.0 / SPLIT_LIMIT; speeds.len()];
    Ok(vec![
        Row::new(&format!("{SPLIT} names split over {PLATES} plates / 200 ms"), "1/s", &limit, &speeds)
            .with_target(1.0)
            .with_bound("commits: guards of the parts, the decision, births"),
        Row::new("longest create during a split / before it", "1/s", &before, &during)
            .with_bound("creates wait for the split of the directory"),
    ])
}

/// Creates until the split is over, and a little longer; the longest of the first 200 ms, and of the rest, in seconds.
fn longest_creates(client: &Client, dir: Ino, is_over: &AtomicBool) -> Outcome<(f64, f64)> {
    let begin = RealWorld.monotonic();
    let (mut early, mut late) = (f64::MIN_POSITIVE, f64::MIN_POSITIVE);
    for i in 0.. {
        let was_over = is_over.load(Ordering::Relaxed);
        let at = RealWorld.monotonic();
        let name = format!("meanwhile.{i}");
        client
            .start_create(&client.caller(), dir, name.as_bytes(), Mode(0o644))
            .wait()
            .map_err(Failure::failed)?;
        let seconds = (RealWorld.monotonic() - at).as_secs_f64();
        let longest = if at - begin < Duration::from_millis(150) { &mut early } else { &mut late };
        *longest = longest.max(seconds);
        if was_over {
            break;
        }
    }
    Ok((early, late))
}

fn fill(client: &Client, dir: Ino, range: std::ops::Range<u64>) -> Outcome {
    let all: Vec<u64> = range.collect();
    for some in all.chunks(BATCH) {
        let names: Vec<Vec<u8>> = some.iter().map(|i| name(*i)).collect();
        for made in client.create_in(&client.caller(), dir, &names, Mode(0o644)) {
            made.map_err(Failure::failed)?;
        }
    }
    Ok(())
}

/// A directory grows to a million names by batches, with parts, and is listed with all attributes.
fn large(plan: &Plan) -> Outcome<Vec<Row>> {
    let count = LARGE / plan.divisor;
    let (mut first, mut last, mut listed) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let subject = start(plan, &format!("large-{round}"))?;
        let client = subject.over_socket()?;
        directory(&client, "/always", "huge: always")?;
        let dir = client.mkdir_all("/always/one").map_err(Failure::failed)?.ino;
        let tenth = count / 10;
        let rate = |tenths: std::ops::Range<u64>| -> Outcome<f64> {
            let of = tenths.end - tenths.start;
            let ((), seconds) = timed(|| fill(&client, dir, tenths.start * tenth..tenths.end * tenth))?;
            Ok((of * tenth) as f64 / seconds)
        };
        // The first names are slower, because the servers begin.
        rate(0..1)?;
        first.push(rate(1..3)?);
        rate(3..8)?;
        last.push(rate(8..10)?);
        // Another client has no attributes yet.
        let reader = subject.beside(None)?;
        let (seen, seconds) = timed(|| list(&reader, dir))?;
        if seen != count {
            return Err(Failure::failed(format!("{seen} of {count} names were listed")));
        }
        listed.push(seen as f64 / seconds);
        drop((client, reader));
        subject.end()?;
    }
    let limit = vec![1_000_000.0; listed.len()];
    Ok(vec![
        Row::new(
            &format!(
                "creates in one directory that grows to {count} names, last fifth / second and third tenth"
            ),
            "ops/s",
            &first,
            &last,
        )
        .with_target(0.9)
        .with_bound("CPU; checkpoints"),
        Row::new(
            &format!("listing of {count} names with attributes, library / a million a second"),
            "names/s",
            &limit,
            &listed,
        )
        .with_target(1.0)
        .with_bound("CPU: one connection"),
    ])
}

/// Lists a directory with all attributes: the number of names.
fn list(client: &Client, dir: Ino) -> Outcome<u64> {
    let (mut seen, mut cookie) = (0, 0);
    loop {
        let (page, end) =
            client.readdir(&client.caller(), dir, cookie, PAGE, true).map_err(Failure::failed)?;
        cookie = page.last().map_or(cookie, |last| last.cookie);
        seen += page.len() as u64;
        if end || page.is_empty() {
            return Ok(seen);
        }
    }
}

/// `ls -l` of a large directory on a mount, beside the trivial file system.
fn mounted(plan: &Plan) -> Outcome<Row> {
    let count = MOUNTED / plan.divisor;
    let floor_dir = plan.dir.join("huge-floor");
    make_dir(&floor_dir)?;
    let floor = TrivialMount::spawn(&floor_dir).map_err(Failure::failed)?;
    let subject = start(plan, "huge-mounted")?;
    let mount = subject.mount(&plan.dir.join("huge-mnt"))?;
    let maker =
        chiton_embedded::client(&subject.server, ClientOptions::default()).map_err(Failure::failed)?;
    directory(&maker, "/always", "huge: always")?;
    let dir = maker.mkdir_all("/always/one").map_err(Failure::failed)?.ino;
    fill(&maker, dir, 0..count)?;
    make_dir(&floor.dir().join("one"))?;
    for i in 0..count {
        let path = floor.dir().join("one").join(String::from_utf8_lossy(&name(i)).as_ref());
        std::fs::File::create(&path)
            .map_err(|e| Failure::failed(format!("cannot make {}: {e}", path.display())))?;
    }
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        theirs.push(look(&floor.dir().join("one"), count)?);
        ours.push(look(&mount.dir().join("always/one"), count)?);
    }
    drop(maker);
    unmount(mount)?;
    subject.end()?;
    floor.unmount().map_err(Failure::failed)?;
    Ok(Row::new(&format!("ls -l of {count} names, mounted / trivial FUSE"), "names/s", &theirs, &ours)
        .with_target(0.8)
        .with_bound("CPU: FUSE crossings"))
}

/// Lists a directory and asks for the attributes of each name: names a second.
fn look(dir: &Path, count: u64) -> Outcome<f64> {
    let failed = |e: std::io::Error| Failure::failed(format!("cannot list {}: {e}", dir.display()));
    let (seen, seconds) = timed(|| {
        let mut seen = 0;
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            entry.and_then(|entry| entry.metadata()).map_err(failed)?;
            seen += 1;
        }
        Ok(seen)
    })?;
    match seen == count {
        true => Ok(seen as f64 / seconds),
        false => Err(Failure::failed(format!("{seen} of {count} names were listed in {}", dir.display()))),
    }
}
