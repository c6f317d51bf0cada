//! Listings with attributes that the kernel is about to read, or may not have read yet.
//!
//! The kernel starts the lifetime of the names and attributes of a listing when it reads the reply.
//! If a lease ends between the reply and that moment, the kernel would keep names and attributes
//! after the notification that they are no longer valid. So the end of a lease begins here:
//!
//! ```text
//!   READDIRPLUS ─▶ asked ─▶ the client lists ─▶ replied ─▶ the kernel reads it ─▶ the next request of the handle, or its release
//!                    │                             │
//!   a lease ends:    └ the reply allows no time    └ waits for the lock of the directory, which the kernel holds while it reads
//! ```
//!
//! Invariants:
//! - A listing that was asked for before a lease ended, and is replied to after it, says nothing that the kernel may keep.
//! - A listing of a handle is read before the kernel sends the next request of that handle.

use std::sync::atomic::{AtomicUsize, Ordering};

use chiton_types::{Ino, Name};
use hashbrown::HashMap;
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct ListingReplies {
    /// By the number of the handle.
    replies: Mutex<HashMap<u64, Reply>>,
    /// How many there are, to be read without the lock.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Reply {
    dir: Ino,
    state: State,
}

#[derive(Debug)]
enum State {
    Asked,
    /// A lease ended meanwhile.
    Spoiled,
    /// With this name, among others.
    Replied(Name),
}

impl ListingReplies {
    /// A handle asks for names of a directory: the kernel has read the reply to its request before.
    pub(crate) fn asked(&self, handle: u64, dir: Ino) {
        let mut replies = self.replies.lock();
        replies.insert(handle, Reply { dir, state: State::Asked });
        self.count.store(replies.len(), Ordering::SeqCst);
    }

    /// The reply has names, and this is one of them. False: the kernel must not keep them.
    pub(crate) fn replied(&self, handle: u64, name: Name) -> bool {
        let mut replies = self.replies.lock();
        let Some(reply) = replies.get_mut(&handle) else { return false };
        let is_sound = matches!(reply.state, State::Asked);
        if is_sound {
            reply.state = State::Replied(name);
        }
        is_sound
    }

    /// Nothing of a handle is unread.
    pub(crate) fn over(&self, handle: u64) {
        if self.count.load(Ordering::SeqCst) > 0 {
            let mut replies = self.replies.lock();
            replies.remove(&handle);
            self.count.store(replies.len(), Ordering::SeqCst);
        }
    }

    /// A lease ends: directories of which the kernel may not have read a reply yet, each with a name in it.
    pub(crate) fn take_unread(&self) -> Vec<(Ino, Name)> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut replies = self.replies.lock();
        let mut unread = Vec::new();
        replies.retain(|_, reply| match &reply.state {
            State::Replied(name) => {
                unread.push((reply.dir, name.clone()));
                false
            }
            State::Asked | State::Spoiled => {
                reply.state = State::Spoiled;
                true
            }
        });
        self.count.store(replies.len(), Ordering::SeqCst);
        unread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_ends_finds_what_is_unread() {
        let (replies, name) = (ListingReplies::default(), |s: &str| Name::try_from(s).expect("a name"));
        assert_eq!(replies.take_unread(), []);
        // Replied to, and not read.
        replies.asked(1, Ino(10));
        assert!(replies.replied(1, name("a")));
        // Being listed.
        replies.asked(2, Ino(20));
        // Read: the next request came, or the handle was released.
        replies.asked(3, Ino(30));
        assert!(replies.replied(3, name("c")));
        replies.over(3);
        assert_eq!(replies.take_unread(), [(Ino(10), name("a"))]);
        assert_eq!(replies.take_unread(), [], "once is enough");
        assert!(!replies.replied(2, name("b")), "it was listed before the lease ended");
        assert_eq!(replies.take_unread(), []);
        replies.asked(2, Ino(20));
        assert!(replies.replied(2, name("b")), "the next one is sound");
        assert_eq!(replies.take_unread(), [(Ino(20), name("b"))]);
    }
}
