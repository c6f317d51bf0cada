//! The work of clients in every figure: each creates files in its own directory, one at a time.

use std::sync::Barrier;
use std::thread;

use chiton_client::{Client, Lookup, OpenFlags};
use chiton_types::{Ino, Mode};

use crate::Result;
use crate::setting::now;
use crate::site::refused;

/// Names of `count` files. As short as mdtest's.
pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("file.mdtest.0.{n}")).collect()
}

/// One create after the other, each answered before the next is asked: a message each.
pub(crate) fn create(client: &Client, dir: Ino, names: &[String]) -> Result<()> {
    let caller = client.caller();
    for name in names {
        client.start_create(&caller, dir, name.as_bytes(), Mode(0o644)).wait().map_err(refused)?;
    }
    Ok(())
}

/// As a mount creates: is the name free? Then create, open and close.
pub(crate) fn look_and_create(client: &Client, dir: Ino, names: &[String]) -> Result<()> {
    names.iter().try_for_each(|name| look_and_create_one(client, dir, name))
}

/// The same for one name.
pub(crate) fn look_and_create_one(client: &Client, dir: Ino, name: &str) -> Result<()> {
    let caller = client.caller();
    match client.lookup(&caller, dir, name.as_bytes()).map_err(refused)? {
        Lookup::Absent { .. } => {}
        Lookup::Found { .. } => return Err(format!("{name} is there already").into()),
    }
    let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
    let (_, fh) = client.create(&caller, dir, name.as_bytes(), Mode(0o644), flags).map_err(refused)?;
    client.release(fh).map_err(refused)
}

/// When each of several bodies, begun at once in threads, was done: seconds from the common beginning, in their order.
pub(crate) fn at_once<T: Sync>(
    each: &[T],
    body: impl Fn(usize, &T) -> Result<()> + Sync,
) -> Result<Vec<f64>> {
    let start = Barrier::new(each.len());
    thread::scope(|scope| {
        let (start, body) = (&start, &body);
        let threads: Vec<_> = each
            .iter()
            .enumerate()
            .map(|(at, one)| {
                scope.spawn(move || {
                    start.wait();
                    let begun = now();
                    body(at, one).map(|()| (begun, now()))
                })
            })
            .collect();
        let spans: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a client panicked".into())))
            .collect::<Result<_>>()?;
        let begun = spans.iter().map(|(begun, _)| *begun).min().unwrap_or_default();
        Ok(spans.iter().map(|(_, done)| (*done - begun).as_secs_f64()).collect())
    })
}

pub(crate) fn slowest(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(0.0, f64::max)
}
