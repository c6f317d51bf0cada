//! Listings with attributes: those that the directory's plate lacks come from the plates of the inodes.

use std::sync::Arc;

use chiton_types::{Cred, Refusal};
use chiton_wire::{Answer, Call, DirEntry, Failure, Stat};

use super::Each;
use super::chain::Next;

impl Each {
    /// A page of a listing, with the attributes of inodes of other plates.
    pub(super) fn start_listing(self: Arc<Each>, at: usize, cred: Cred, call: Call) -> Next {
        let underway = self.services[at].start(&cred, call);
        Next::one(underway, move |answer| match answer {
            Ok(Answer::Entries { entries, end, parent_leased, parent_open }) => {
                let is_missing = |entry: &DirEntry| match &entry.attr {
                    None => self.index(entry.ino) != at,
                    // Its plate knows the attributes of the home only.
                    Some((attr, _)) => attr.is_parted(),
                };
                let missing = (0..entries.len()).filter(|n| is_missing(&entries[*n])).collect();
                let page = Page { entries, end, parent_leased, parent_open, missing };
                page.complete(self, cred)
            }
            answer => Next::Answer(answer),
        })
    }
}

/// Entries of a directory, of which some lack the attributes that other plates have.
struct Page {
    entries: Vec<DirEntry>,
    end: bool,
    parent_leased: bool,
    parent_open: bool,
    /// Places in the listing of the entries whose attributes are missing.
    missing: Vec<usize>,
}

impl Page {
    fn complete(mut self, each: Arc<Each>, cred: Cred) -> Next {
        if self.missing.is_empty() {
            return Next::Answer(Ok(self.answer()));
        }
        let inodes = self.missing.iter().map(|n| self.entries[*n].ino).collect();
        each.stat_inodes(cred, inodes, move |stats| {
            for (n, stat) in std::mem::take(&mut self.missing).into_iter().zip(stats) {
                self.entries[n].attr = match stat {
                    Ok(Stat::Attr { attr, lease }) => Some((attr, lease)),
                    // Gone meanwhile, or kept from others by a decoupling: the caller looks for itself.
                    Ok(_) | Err(Failure::Refused(Refusal::Stale | Refusal::NotFound | Refusal::Busy)) => None,
                    Err(failure) => return Next::Answer(Err(failure.into())),
                };
            }
            Next::Answer(Ok(self.answer()))
        })
    }

    fn answer(self) -> Answer {
        let Page { entries, end, parent_leased, parent_open, .. } = self;
        Answer::Entries { entries, end, parent_leased, parent_open }
    }
}
