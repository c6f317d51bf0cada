//! Opens a journal: finds its end, and creates the segment that stops every earlier writer.

use chiton_types::{Epoch, Position};

use crate::chain::{Chain, End};
use crate::damage::Damage;
use crate::error::JournalError;
use crate::options::Identity;
use crate::place::{Place, PlaceError, Shape};
use crate::segment::{FENCE_NUMBERS, SegmentHeader};
use crate::trim::Catalog;

/// The result of an opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Position of the first available event, or of the first that will be written.
    pub first_position: Position,
    /// Position of the last event.
    pub last_position: Position,
    /// Damage behind the last event; it is void now.
    pub torn: Option<Damage>,
}

/// A journal whose end is ours.
pub(crate) struct Opening {
    /// The header of the new segment.
    pub(crate) header: SegmentHeader,
    pub(crate) catalog: Catalog,
    pub(crate) recovered: Recovered,
}

impl Opening {
    /// Reads the end and takes it.
    ///
    /// # Errors
    /// [`JournalError::Absent`]; [`JournalError::Damaged`] if the journal is corrupt, or another one; or an error
    /// of the place.
    pub(crate) fn take(place: &dyn Place, identity: Identity) -> Result<Opening, JournalError> {
        loop {
            let chain = Chain::load(place)?;
            let Some(first) = chain.links.first() else { return Err(chain.absent()) };
            chain.check_journal(identity.journal)?;
            let End { last, link, torn } =
                chain.walk(place, chain.unsure(), &mut |_| Ok::<(), JournalError>(()), &mut |_| {})?;
            let after =
                |n: u64| n.checked_add(1).ok_or(JournalError::Failed("numbers are used up".to_owned()));
            let is_whole = place.shape() == Shape::Whole;
            let catalog = Catalog::new(&chain, link);
            let next = match &chain.links[link] {
                // Exactly the number that the earlier writer would use next, so that it cannot continue.
                claim if claim.header.is_claim => after_claim(claim.header.segment)?,
                last => after(last.header.segment)?,
            };
            let header = SegmentHeader {
                is_claim: is_whole,
                journal: identity.journal,
                nonce: identity.nonce,
                epoch: identity.epoch.max(Epoch(after(chain.epoch.0)?)),
                segment: match catalog.is_void(next) {
                    // Any segment with this number also stops the earlier writer.
                    true if is_whole => after(chain.highest())?,
                    _ => next,
                },
                first: last.next(),
                durable: last,
            };
            let recovered = Recovered { first_position: first.header.first, last_position: last, torn };
            if catalog.is_void(header.segment) {
                place.remove(header.segment)?;
            }
            if !is_whole {
                // A process that died may have left frames that are not synced. The new header will say that they
                // are durable.
                place.sync(chain.links[link].header.segment)?;
            }
            // If another writer took the number meanwhile, the journal ends elsewhere: read it again.
            if claim(place, &header)? {
                if is_whole {
                    catalog.add_claim(header.segment, header.first);
                } else {
                    catalog.add(header.segment, header.first);
                }
                return Ok(Opening { header, catalog, recovered });
            }
        }
    }
}

/// Number of the first segment after a claim.
pub(crate) fn after_claim(claim: u64) -> Result<u64, JournalError> {
    let used_up = || JournalError::Failed("numbers are used up".to_owned());
    claim.checked_add(FENCE_NUMBERS + 1).ok_or_else(used_up)
}

/// Makes an empty segment of this header, durable; false if the number is taken.
pub(crate) fn claim(place: &dyn Place, header: &SegmentHeader) -> Result<bool, JournalError> {
    match place.create(header.segment, &header.encode()) {
        Ok(()) => {}
        Err(PlaceError::Exists) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    if place.shape() == Shape::Grows {
        place.sync(header.segment)?;
    }
    Ok(true)
}
