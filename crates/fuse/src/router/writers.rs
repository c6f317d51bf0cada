//! The files of a realm that are open for writing: it is not given back as long as there are any.

use std::time::Duration;

use chiton_types::Ino;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};

/// Files open for writing.
#[derive(Debug, Default)]
pub(super) struct Writers {
    open: Mutex<HashMap<u64, Writer>>,
    fewer: Condvar,
}

#[derive(Debug)]
struct Writer {
    ino: Ino,
    /// A descriptor of the file was closed.
    is_flushed: bool,
}

impl Writers {
    pub(super) fn add(&self, number: u64, ino: Ino) {
        self.open.lock().insert(number, Writer { ino, is_flushed: false });
    }

    pub(super) fn remove(&self, number: u64) {
        self.open.lock().remove(&number);
        self.fewer.notify_all();
    }

    /// A descriptor of the file is closed: maybe not the last one.
    pub(super) fn note_flushed(&self, number: u64) {
        if let Some(writer) = self.open.lock().get_mut(&number) {
            writer.is_flushed = true;
        }
    }

    /// The number of writers. The kernel reports a file's last close only after close(2) has returned. So while all
    /// of them may be closed already, and no process `has_open` one of these inodes, this waits for them, at most
    /// for `patience`.
    pub(super) fn count_after(&self, patience: Duration, has_open: impl FnOnce(&[Ino]) -> bool) -> usize {
        let may_be_closed = |open: &mut HashMap<u64, Writer>| {
            !open.is_empty() && open.values().all(|writer| writer.is_flushed)
        };
        let mut open = self.open.lock();
        if !may_be_closed(&mut open) {
            return open.len();
        }
        let inos: Vec<Ino> = open.values().map(|writer| writer.ino).collect();
        drop(open);
        let is_open = has_open(&inos);
        let mut open = self.open.lock();
        if !is_open && may_be_closed(&mut open) {
            self.fewer.wait_while_for(&mut open, may_be_closed, patience);
        }
        open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(86_400);

    #[test]
    fn only_those_are_waited_for_that_may_be_closed() {
        let writers = Writers::default();
        let count = |patience| writers.count_after(patience, |_| false);
        assert_eq!(count(LONG), 0);
        writers.add(1, Ino(11));
        assert_eq!(count(LONG), 1, "nobody has closed it");
        writers.note_flushed(1);
        assert_eq!(count(Duration::ZERO), 1);
        let seen = |inos: &[Ino]| inos == [Ino(11)];
        assert_eq!(writers.count_after(LONG, seen), 1, "a process has it open");
        writers.add(2, Ino(12));
        assert_eq!(count(LONG), 2, "one of them is open for sure");
        writers.remove(2);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| count(LONG));
            writers.remove(1);
            assert_eq!(waits.join().expect("it ends"), 0);
        });
        writers.note_flushed(1);
        assert_eq!(count(LONG), 0);
    }
}
