//! Leases, as the network saw them granted and given back.

use chiton_types::Ino;

use crate::checkers::leases::{Holders, Moment};
use crate::history::{Happened, History, Violation};

pub(super) fn judge(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut holders = Holders::default();
    for event in &history.events {
        let now = event.at.as_nanos() as Moment;
        match &event.what {
            Happened::LeaseGiven { session, ino, mode, believers } => {
                found.extend(holders.granted((*session, *ino, *mode), now, believers).err());
            }
            Happened::LeaseReturned { session, ino, keep } => holders.gave_back(*session, *ino, *keep),
            Happened::LeasesVoid { session } => holders.ended(*session),
            Happened::NamesChanged { session, dirs, asked, believers } => {
                let asked = asked.as_nanos() as Moment;
                let wrong = |dir: &Ino| holders.changed(*session, *dir, asked, believers).err();
                found.extend(dirs.iter().filter_map(wrong));
            }
            _ => {}
        }
    }
    // The others follow from the first one.
    found.truncate(1);
    found
}
