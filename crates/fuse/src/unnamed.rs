//! The files that were made here without a name (O_TMPFILE) and have none yet. Only these may be given a first name: a file that lost
//! its last name stays without. (O_EXCL, which forbids it, is the kernel's matter.)

use std::collections::BTreeMap;

use chiton_types::Ino;
use parking_lot::Mutex;

/// Counts how often each unnamed file is open.
#[derive(Debug, Default)]
pub(crate) struct Unnamed(Mutex<BTreeMap<Ino, usize>>);

impl Unnamed {
    /// It was made, and is open.
    pub(crate) fn made(&self, ino: Ino) {
        self.0.lock().insert(ino, 1);
    }

    /// Whether a file is unnamed.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.0.lock().contains_key(&ino)
    }

    /// A file of any kind was opened.
    pub(crate) fn opened(&self, ino: Ino) {
        if let Some(opens) = self.0.lock().get_mut(&ino) {
            *opens += 1;
        }
    }

    /// A file of any kind was closed.
    pub(crate) fn closed(&self, ino: Ino) {
        let mut files = self.0.lock();
        if let Some(opens) = files.get_mut(&ino) {
            *opens -= 1;
            if *opens == 0 {
                files.remove(&ino);
            }
        }
    }

    /// The file got a name.
    pub(crate) fn named(&self, ino: Ino) {
        self.0.lock().remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_until_they_have_a_name_or_are_closed() {
        let unnamed = Unnamed::default();
        let (a, b) = (Ino(5), Ino(6));
        unnamed.made(a);
        unnamed.made(b);
        unnamed.opened(a);
        unnamed.closed(a);
        assert!(unnamed.has(a) && unnamed.has(b));
        unnamed.closed(a);
        unnamed.named(b);
        assert!(!unnamed.has(a) && !unnamed.has(b));
        unnamed.opened(a);
        unnamed.closed(a);
        assert!(!unnamed.has(a));
    }
}
