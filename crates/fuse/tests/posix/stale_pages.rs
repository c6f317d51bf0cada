//! Pages that the kernel of a mount keeps although another mount writes the file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::two_mounts::TwoMounts;

/// S44: the kernel fills a page with the old content again, between a write into it and the request of that write. The page does
/// not stay so when nobody writes the file any more.
#[test]
fn a_page_that_was_read_during_a_write_does_not_stay() {
    const ROUNDS: u16 = 500;
    let (two, early) = TwoMounts::after_alone(|a| {
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(a.dir.join("f"))
                .expect("open")
        };
        let files = [open(), open()];
        files[0].write_all_at(&[0; 4096], 0).expect("write");
        files
    });
    let other = File::options().write(true).open(two.b.dir.join("f")).expect("open");
    let together = Barrier::new(3);
    let stale = AtomicUsize::new(0);
    let in_rounds_then = |at_once: &dyn Fn(u16), afterwards: &dyn Fn(u16)| {
        for round in 1..=ROUNDS {
            together.wait();
            at_once(round);
            together.wait();
            afterwards(round);
        }
    };
    let in_rounds = |each: &dyn Fn(u16)| in_rounds_then(each, &|_| ());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            in_rounds(&|round| {
                // The recall comes sooner or later during the write.
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(u64::from(round % 64) * 4) {}
                other.write_all_at(&round.to_le_bytes(), 200).expect("write");
            });
        });
        scope.spawn(|| {
            in_rounds(&|_| {
                for _ in 0..32 {
                    early[1].read_exact_at(&mut [0; 2], 100).expect("read");
                }
            });
        });
        in_rounds_then(&|round| early[0].write_all_at(&round.to_le_bytes(), 0).expect("write"), &|round| {
            let is_seen = || {
                let mut seen = [0; 2];
                early[0].read_exact_at(&mut seen, 0).expect("read");
                u16::from_le_bytes(seen) == round
            };
            let begun = Instant::now();
            while !is_seen() && begun.elapsed() < Duration::from_secs(3) {}
            stale.fetch_add(usize::from(!is_seen()), Ordering::Relaxed);
        });
    });
    assert_eq!(stale.into_inner(), 0, "pages that stayed stale");
}
