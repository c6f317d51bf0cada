//! The number by which the kernel knows an open file.
//!
//! ```text
//!   63      52  51     45  44      43                   0
//!   ┌─────────┬─────────┬───────┬──────────────────────┐
//!   │  slot   │  flags  │ paged │ number at the client │      slot 0: the global client
//!   └─────────┴─────────┴───────┴──────────────────────┘
//! ```
//!
//! How it was opened stands in it so that it can be opened again elsewhere, without a table of all open files.

use chiton_client::OpenFlags;

const NUMBER_BITS: u32 = 44;
const PAGED: u64 = 1 << NUMBER_BITS;
const FLAGS_SHIFT: u32 = NUMBER_BITS + 1;
const FLAG_BITS: u32 = 7;
/// Maximum number of slots.
pub(crate) const SLOTS_MAX: usize = 1 << (64 - FLAGS_SHIFT - FLAG_BITS);

/// A handle: number, slot and open flags in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) u64);

impl Handle {
    pub(crate) fn new(slot: usize, flags: OpenFlags, number: u64) -> Handle {
        // At a million opens a second this takes half a year.
        assert!(slot < SLOTS_MAX && number >> NUMBER_BITS == 0, "a handle's number has {NUMBER_BITS} bits");
        let bits = [flags.read, flags.write, flags.exec, flags.append, flags.direct, flags.sync, flags.dsync];
        let flags = bits.iter().rev().fold(0, |all, bit| all << 1 | u64::from(*bit));
        Handle((slot as u64) << (FLAGS_SHIFT + FLAG_BITS) | flags << FLAGS_SHIFT | number)
    }

    /// The same, of a file whose writes the kernel puts into cached pages first.
    pub(crate) fn paged(self) -> Handle {
        Handle(self.0 | PAGED)
    }

    pub(crate) fn is_paged(self) -> bool {
        self.0 & PAGED != 0
    }

    pub(crate) fn slot(self) -> usize {
        (self.0 >> (FLAGS_SHIFT + FLAG_BITS)) as usize
    }

    pub(crate) fn number(self) -> u64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }

    /// The open flags without those that act only once.
    pub(crate) fn flags(self) -> OpenFlags {
        let has = |bit: u32| self.0 >> (FLAGS_SHIFT + bit) & 1 == 1;
        OpenFlags {
            read: has(0),
            write: has(1),
            exec: has(2),
            append: has(3),
            direct: has(4),
            sync: has(5),
            dsync: has(6),
            truncate: false,
            exclusive: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_holds_slot_and_open_flags() {
        let check = |slot: usize, flags: OpenFlags, number: u64| {
            let handle = Handle::new(slot, flags, number);
            let once = OpenFlags { truncate: false, exclusive: false, ..flags };
            assert_eq!((handle.slot(), handle.flags(), handle.number()), (slot, once, number));
            assert!(!handle.is_paged());
            let handle = handle.paged();
            assert!(handle.is_paged());
            assert_eq!((handle.slot(), handle.flags(), handle.number()), (slot, once, number));
        };
        check(0, OpenFlags::READ, 1);
        check(SLOTS_MAX - 1, OpenFlags { append: true, truncate: true, ..OpenFlags::WRITE }, (1 << 44) - 1);
        check(7, OpenFlags { exec: true, direct: true, sync: true, dsync: true, ..OpenFlags::READ_WRITE }, 0);
        assert_eq!(Handle::new(0, OpenFlags::default(), 5).0, 5, "as the client numbers it");
    }
}
