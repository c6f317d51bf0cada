//! Whole trees over a Unix socket: by the library's batches, as `chiton rm -r`, `du` and `cp -r` work, beside one call for each name.
//!
//! Both sides work on equal trees of small files in directories of a hundred, with one plate. Batches run second in each round.

use chiton_bench::report::Row;
use chiton_client::Client;
use chiton_model::{AttrChange, SetTime};
use chiton_trees::{Place, Refused, Watch};
use chiton_types::{Ino, Kind, Mode, Name};

use super::plates::cpu_seconds;
use super::subject::{Subject, name, timed};
use super::{Plan, tree_jobs};
use crate::failure::{Failure, Outcome};

const FILES: u64 = 50_000;
const PER_DIR: u64 = 100;
const CONTENT: &[u8] = b"small";

/// The rates of each command.
struct Rates {
    usage: Rate,
    copy: Rate,
    remove: Rate,
}

/// The figures of trees that are removed as a whole.
struct Whole {
    /// Removals acknowledged a second, of a tree with a tenth of the files and with all.
    tenth: f64,
    all: f64,
    /// Names that the server frees a second, until none is left.
    freed: f64,
}

/// Names a second, and a second of processor time of client and server together.
struct Rate {
    names: f64,
    by_cpu: f64,
}

impl Rate {
    /// Runs `f`, which is about so many names.
    fn of<T>(names: u64, f: impl FnOnce() -> Outcome<T>) -> Outcome<(T, Rate)> {
        let before = cpu_seconds();
        let (value, seconds) = timed(f)?;
        let cpu = cpu_seconds() - before;
        Ok((value, Rate { names: names as f64 / seconds, by_cpu: names as f64 / cpu }))
    }
}

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let (mut single, mut batched, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let subject = Subject::start(plan, &format!("trees-{round}"))?;
        let client = subject.over_socket()?;
        let files = FILES / plan.divisor;
        single.push(one_at_a_time(&client, files)?);
        // Caches of the first client would answer for the second.
        drop(client);
        batched.push(by_batches(&subject.beside(None)?, files)?);
        whole.push(as_a_whole(&subject.beside(None)?, files)?);
        subject.end()?;
    }
    let row = |name: &str, of: fn(&Rates) -> f64| {
        let [single, batched] = [&single, &batched].map(|all| all.iter().map(of).collect::<Vec<f64>>());
        Row::new(name, "names/s", &single, &batched)
    };
    let of_whole = |name: &str, unit, of: fn(&Whole) -> (f64, f64)| {
        let (baseline, ours): (Vec<f64>, Vec<f64>) = whole.iter().map(of).unzip();
        Row::new(name, unit, &baseline, &ours)
    };
    let mut rows = vec![
        row("chiton du / a lookup of each name", |rates| rates.usage.names).with_bound("pages of listings"),
        row("chiton cp -r / five calls for each name", |rates| rates.copy.names)
            .with_bound("a question for each file; two operations, in batches"),
        row("chiton rm -r --each / a call for each name", |rates| rates.remove.names)
            .with_bound("CPU of the server"),
        of_whole("chiton rm -r acknowledged, all files / a tenth of them", "1/s", |whole| {
            (whole.tenth, whole.all)
        })
        .with_bound("a message and an event, whatever the size"),
        Row::new(
            "names freed a second after chiton rm -r / removed by chiton rm -r --each",
            "names/s",
            &batched.iter().map(|rates| rates.remove.names).collect::<Vec<f64>>(),
            &whole.iter().map(|whole| whole.freed).collect::<Vec<f64>>(),
        )
        .with_bound("recalls of leases, and CPU of the server"),
        row("chiton du / lookups, a CPU second", |rates| rates.usage.by_cpu).with_bound("CPU"),
        row("chiton cp -r / single calls, a CPU second", |rates| rates.copy.by_cpu).with_bound("CPU"),
        row("chiton rm -r --each / single calls, a CPU second", |rates| rates.remove.by_cpu)
            .with_bound("CPU"),
    ];
    rows.extend(tree_jobs::measure(plan)?);
    Ok(rows)
}

/// A tree of files, with the names in it.
pub(super) fn fill(client: &Client, root: &str, files: u64) -> Outcome<u64> {
    let dirs = files.div_ceil(PER_DIR);
    for dir in 0..dirs {
        let parent = client.mkdir_all(format!("{root}/dir{dir:04}")).map_err(Failure::failed)?.ino;
        let names: Vec<Vec<u8>> = (0..PER_DIR).map(name).collect();
        let new = |name| chiton_client::NewFile { parent, name, mode: Mode(0o644), content: CONTENT };
        let files: Vec<_> = names.iter().map(|name| new(&name[..])).collect();
        for made in client.create_each(&client.caller(), &files) {
            made.map_err(Failure::failed)?;
        }
    }
    Ok(dirs * (PER_DIR + 1) + 1)
}

fn one_at_a_time(client: &Client, files: u64) -> Outcome<Rates> {
    let names = fill(client, "/single", files)?;
    let (seen, usage) = Rate::of(names, || look(client, "/single"))?;
    let ((), copy) = Rate::of(names, || copy(client, "/single", "/single-copy"))?;
    let ((), remove) = Rate::of(names, || remove(client, "/single-copy"))?;
    expect(seen, files)?;
    Ok(Rates { usage, copy, remove })
}

fn by_batches(client: &Client, files: u64) -> Outcome<Rates> {
    let names = fill(client, "/batched", files)?;
    let place = |path: &str| Place::find(client, path.as_bytes(), path.as_bytes()).map_err(Failure::failed);
    let tree = place("/batched")?;
    let mut first = FirstRefusal::default();
    let (lines, usage) =
        Rate::of(names, || Ok(chiton_trees::usage(client, std::slice::from_ref(&tree), 0, &mut first)))?;
    let to = Name::new(b"batched-copy").map_err(Failure::failed)?;
    let (copied, copy) =
        Rate::of(names, || Ok(chiton_trees::copy(client, &tree, Ino::ROOT, &to, &mut first)))?;
    let copied_tree = place("/batched-copy")?;
    let (removed, remove) =
        Rate::of(names, || Ok(chiton_trees::remove_each(client, &[copied_tree], &mut first)))?;
    if let Some(refused) = first.0 {
        return Err(Failure::failed(refused));
    }
    expect(lines[0].files, files)?;
    expect(copied.files, files)?;
    expect(removed.files, files)?;
    Ok(Rates { usage, copy, remove })
}

fn as_a_whole(client: &Client, files: u64) -> Outcome<Whole> {
    let before = client.statfs().map_err(Failure::failed)?.inodes_used;
    let mut rates = Vec::new();
    for files in [files.div_ceil(10), files] {
        let names = fill(client, "/whole", files)?;
        client.sync().map_err(Failure::failed)?;
        let tree = Place::find(client, b"/whole", b"/whole").map_err(Failure::failed)?;
        let mut first = FirstRefusal::default();
        let (removed, seconds) = timed(|| Ok(chiton_trees::remove(client, &[tree], &mut first)))?;
        expect(removed.trees, 1)?;
        let ((), freeing) = timed(|| {
            while client.statfs().map_err(Failure::failed)?.inodes_used > before {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Ok(())
        })?;
        rates.push((1.0 / seconds, names as f64 / (seconds + freeing)));
    }
    Ok(Whole { tenth: rates[0].0, all: rates[1].0, freed: rates[1].1 })
}

fn expect(seen: u64, files: u64) -> Outcome {
    match seen == files {
        true => Ok(()),
        false => Err(Failure::failed(format!("{seen} of {files} files were met"))),
    }
}

#[derive(Default)]
pub(super) struct FirstRefusal(pub(super) Option<Refused>);

impl Watch for FirstRefusal {
    fn refused(&mut self, refused: Refused) {
        self.0.get_or_insert(refused);
    }
}

// ---- as programs on a mount ask -----------------------------------------------------------------------

/// The names in a directory: a listing, and a lookup of each, as `ls -l` on a mount.
fn entries(client: &Client, dir: Ino) -> Outcome<Vec<(Name, Ino, Kind)>> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let (page, end) =
            client.readdir(&client.caller(), dir, cookie, 1_000, false).map_err(Failure::failed)?;
        cookie = page.last().map_or(cookie, |last| last.cookie);
        let is_over = end || page.is_empty();
        all.extend(page.into_iter().map(|entry| (entry.name, entry.ino, entry.kind)));
        if is_over {
            return Ok(all);
        }
    }
}

fn look(client: &Client, root: &str) -> Outcome<u64> {
    let (mut files, mut todo) = (0, vec![client.stat(root).map_err(Failure::failed)?.ino]);
    while let Some(dir) = todo.pop() {
        for (name, ino, kind) in entries(client, dir)? {
            client.lookup(&client.caller(), dir, name.as_bytes()).map_err(Failure::failed)?;
            match kind {
                Kind::Dir => todo.push(ino),
                _ => files += 1,
            }
        }
    }
    Ok(files)
}

fn copy(client: &Client, from: &str, to: &str) -> Outcome {
    let caller = client.caller();
    let made = client.mkdir_all(to).map_err(Failure::failed)?.ino;
    let mut todo = vec![(client.stat(from).map_err(Failure::failed)?.ino, made)];
    while let Some((from, to)) = todo.pop() {
        for (name, ino, kind) in entries(client, from)? {
            let name = name.as_bytes();
            let attr = client.getattr(ino, None).map_err(Failure::failed)?.attr;
            let change = AttrChange { mtime: Some(SetTime::At(attr.mtime)), ..AttrChange::default() };
            if kind == Kind::Dir {
                let made = client.mkdir(&caller, to, name, attr.mode).map_err(Failure::failed)?;
                todo.push((ino, made.attr.ino));
                continue;
            }
            let content = read(client, ino).map_err(Failure::failed)?;
            client.listxattr(&caller, ino).map_err(Failure::failed)?;
            let file = chiton_client::NewFile { parent: to, name, mode: attr.mode, content: &content };
            let made = client.create_each(&caller, &[file]).remove(0).map_err(Failure::failed)?;
            client.setattr(&caller, made.ino, change, None).map_err(Failure::failed)?;
        }
    }
    Ok(())
}

fn read(client: &Client, ino: Ino) -> Result<Vec<u8>, chiton_types::Refusal> {
    let (_, content) = client.start_content(&client.caller(), ino).wait()?;
    Ok(content.unwrap_or_default())
}

fn remove(client: &Client, root: &str) -> Outcome {
    let mut dirs =
        vec![(client.stat(root).map_err(Failure::failed)?.ino, Ino::ROOT, root.as_bytes()[1..].to_vec())];
    let mut at = 0;
    while at < dirs.len() {
        let dir = dirs[at].0;
        for (name, ino, kind) in entries(client, dir)? {
            match kind {
                Kind::Dir => dirs.push((ino, dir, name.as_bytes().to_vec())),
                _ => client.unlink(&client.caller(), dir, name.as_bytes()).map_err(Failure::failed)?,
            }
        }
        at += 1;
    }
    let rmdir = |(_, parent, name): &(Ino, Ino, Vec<u8>)| client.rmdir(&client.caller(), *parent, name);
    dirs.iter().rev().try_for_each(rmdir).map_err(Failure::failed)
}
