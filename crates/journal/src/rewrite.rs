//! Changes a journal that has no writer: for tools.
//!
//! ```text
//!   rewrite   old 1   old 2   old 3            each new segment is published whole, from the last to the first,
//!             old 1   old 2   old 3   new 6    and its old one removed then: at every moment the place holds a
//!             old 1   old 2   new 5   new 6    healthy journal of the same positions
//!             old 1   new 5   new 6
//! ```
//!
//! Invariants:
//! - A crash at any moment leaves a healthy journal, and a repeated call produces the same result.
//! - New segments carry a higher epoch than all before: a writer that was forgotten is fenced. Where segments are whole, a
//!   claim at its next number keeps it from confirming anything, and no claim is ever removed.
//! - A damaged journal is only ever reset, never rewritten or cut.

use chiton_types::{Epoch, Position};

use crate::chain::Chain;
use crate::damage::{Cause, Damage, DamageKind};
use crate::error::JournalError;
use crate::opening::Opening;
use crate::options::Identity;
use crate::place::{Place, Shape};
use crate::reader::{Frame, SegmentReader};
use crate::replay::Progress;
use crate::segment::{FENCE_NUMBERS, SegmentHeader};
use crate::survey::{Found, SegmentNote, SegmentState, Survey, survey};
use chiton_types::frame::encode_frame;

/// Asked about a frame: the payload that it shall have instead, if another.
pub type Change<'a, E> = &'a mut dyn FnMut(&Frame<'_>) -> Result<Option<Vec<u8>>, E>;

/// Drops all events: makes an empty journal whose next event has the position `first`. The old journal may be
/// damaged.
///
/// # Errors
/// An error of the place; [`JournalError::Damaged`] if the segments belong to another journal.
pub fn reset(place: &dyn Place, identity: Identity, first: Position) -> Result<(), JournalError> {
    assert!(first > Position(0), "positions count from 1");
    match fence(place, identity) {
        // Segments that cannot be read are removed all the same.
        Ok(()) | Err(JournalError::Damaged(_) | JournalError::Absent) => {}
        Err(error) => return Err(error),
    }
    let chain = Chain::load(place)?;
    chain.check_journal(identity.journal)?;
    let old = place.list()?;
    let header = end_header(place, &chain, identity, first)?;
    if place.shape() == Shape::Grows {
        // From the end, so that the rest is always a journal until the new segment voids it.
        for link in chain.links.iter().rev().filter(|link| link.header.first > first) {
            place.remove(link.header.segment)?;
        }
    }
    place.publish(header.segment, &header.encode())?;
    for info in old.iter().filter(|info| !chain.all_claims.contains(&info.number)) {
        place.remove(info.number)?;
    }
    Ok(())
}

/// Stops every earlier writer by a claim with the number that it would use next. In a directory the lock does that.
fn fence(place: &dyn Place, identity: Identity) -> Result<(), JournalError> {
    if place.shape() == Shape::Whole {
        Opening::take(place, identity)?;
    }
    Ok(())
}

/// The header of an empty segment from which the journal is written anew. In a place of whole segments it voids
/// everything before.
fn end_header(
    place: &dyn Place,
    chain: &Chain,
    identity: Identity,
    first: Position,
) -> Result<SegmentHeader, JournalError> {
    let durable = match place.shape() {
        Shape::Whole => Position(0),
        Shape::Grows => Position(first.0 - 1),
    };
    Ok(SegmentHeader {
        is_claim: place.shape() == Shape::Whole,
        journal: identity.journal,
        nonce: identity.nonce,
        epoch: epoch_after(chain, identity.epoch)?,
        segment: number_after(place, chain)?,
        first,
        durable,
    })
}

/// Ends the journal before position `at`: the events from there on are gone, and the next event has that position.
///
/// # Errors
/// [`JournalError::Damaged`] if it is, or if `at` is amid a frame; [`JournalError::Trimmed`] if `at` is before the first
/// event; the place's.
pub fn cut(place: &dyn Place, identity: Identity, at: Position) -> Result<(), JournalError> {
    let mut visit = |found: Found<'_>| match found {
        Found::Frame(frame) if frame.first < at && at <= frame.last() => {
            let cause = Cause::Positions { expected: frame.first, found: at };
            let damage =
                Damage { segment: frame.segment, offset: frame.offset, kind: DamageKind::Corrupt, cause };
            Err(JournalError::Damaged(damage))
        }
        _ => Ok(()),
    };
    let survey = whole(survey(place, &mut visit, &mut |_| {})?)?;
    if at < survey.first || at > survey.last.next() {
        return Err(JournalError::Trimmed { asked: at, first: survey.first });
    }
    fence(place, identity)?;
    let chain = Chain::load(place)?;
    chain.check_journal(identity.journal)?;
    let header = end_header(place, &chain, identity, at)?;
    let whole = place.shape() == Shape::Whole;
    if whole {
        place.publish(header.segment, &header.encode())?;
    }
    for note in survey.segments.iter().rev() {
        let is_claim = chain.all_claims.contains(&note.number);
        let is_past = |h: SegmentHeader| h.first > at || whole && h.first == at;
        if !is_claim && (note.state == SegmentState::Void || note.header.is_some_and(is_past)) {
            place.remove(note.number)?;
        }
    }
    if !whole {
        place.publish(header.segment, &header.encode())?;
    }
    Ok(())
}

/// Removes segments all of whose events are before `first`, but for the last; returns how many.
///
/// # Errors
/// [`JournalError::Damaged`] if the journal is; the place's.
pub fn trim_before(place: &dyn Place, first: Position) -> Result<usize, JournalError> {
    let survey = whole(survey::<JournalError>(place, &mut |_| Ok(()), &mut |_| {})?)?;
    let live: Vec<&SegmentNote> =
        survey.segments.iter().filter(|note| note.state == SegmentState::Live).collect();
    let mut removed = 0;
    for pair in live.windows(2) {
        if pair[1].header.is_none_or(|next| next.first > first) {
            break;
        }
        // A claim keeps older writers out for good.
        if pair[0].header.is_some_and(|header| !header.is_claim) {
            place.remove(pair[0].number)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Gives each frame to `change`; where that returns a payload, the frame gets it, with the same count of events.
/// Returns how many frames were changed. `change` is asked twice about a frame and must answer alike.
///
/// # Errors
/// [`JournalError::Damaged`] if the journal is; the place's; `change`'s.
pub fn rewrite<E: From<JournalError>>(
    place: &dyn Place,
    identity: Identity,
    change: Change<'_, E>,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, E> {
    let (mut first_changed, mut changed) = (None, 0);
    let mut visit = |found: Found<'_>| -> Result<(), E> {
        if let Found::Frame(frame) = found
            && change(&frame)?.is_some()
        {
            changed += 1;
            first_changed.get_or_insert(frame.segment);
        }
        Ok(())
    };
    let survey = whole(survey(place, &mut visit, progress)?)?;
    let Some(first_changed) = first_changed else { return Ok(0) };
    fence(place, identity).map_err(E::from)?;
    let chain = Chain::load(place)?;
    chain.check_journal(identity.journal).map_err(JournalError::from)?;
    let epoch = epoch_after(&chain, identity.epoch)?;
    let base = number_after(place, &chain)?;
    let is_claim = |note: &SegmentNote| chain.all_claims.contains(&note.number);
    let void = |note: &&SegmentNote| note.state == SegmentState::Void && !is_claim(note);
    for note in survey.segments.iter().filter(void).rev() {
        place.remove(note.number).map_err(JournalError::from)?;
    }
    let old: Vec<&SegmentNote> = survey
        .segments
        .iter()
        .filter(|note| note.state == SegmentState::Live && note.number >= first_changed)
        .collect();
    let bytes_total = old.iter().map(|note| note.bytes).sum();
    let mut done = Progress { bytes_done: 0, bytes_total };
    for (i, note) in old.iter().enumerate().rev() {
        if note.frames > 0 {
            let header = note.header.expect("a live segment has one");
            let new = SegmentHeader {
                is_claim: false,
                journal: identity.journal,
                nonce: identity.nonce,
                epoch,
                segment: base + i as u64,
                first: header.first,
                durable: Position(header.first.0 - 1),
            };
            let bytes = copy(place, note, &new, change)?;
            place.publish(new.segment, &bytes).map_err(JournalError::from)?;
        }
        if !is_claim(note) {
            place.remove(note.number).map_err(JournalError::from)?;
        }
        done.bytes_done += note.bytes;
        progress(done);
    }
    Ok(changed)
}

/// A segment's new bytes.
fn copy<E: From<JournalError>>(
    place: &dyn Place,
    note: &SegmentNote,
    new: &SegmentHeader,
    change: Change<'_, E>,
) -> Result<Vec<u8>, E> {
    let bytes = place.read(note.number, u64::MAX).map_err(JournalError::from)?;
    let reader = SegmentReader::new(note.number, &bytes).map_err(JournalError::from)?;
    let mut out = Vec::with_capacity(bytes.len());
    out.extend_from_slice(&new.encode());
    // In a healthy journal the segment's valid frames come first.
    for frame in reader.take(note.frames as usize) {
        let frame = frame.map_err(JournalError::from)?;
        let payload = change(&frame)?;
        encode_frame(&mut out, &frame.header, payload.as_deref().unwrap_or(frame.payload));
    }
    let mark = new.mark(out.len() as u64);
    out.extend_from_slice(&mark);
    Ok(out)
}

fn whole(survey: Survey) -> Result<Survey, JournalError> {
    match survey.flaws.first() {
        Some(flaw) => Err(JournalError::Damaged(flaw.damage.clone())),
        None => Ok(survey),
    }
}

fn epoch_after(chain: &Chain, least: Epoch) -> Result<Epoch, JournalError> {
    let next = chain.epoch.0.checked_add(1).ok_or(JournalError::Failed("epochs are used up".to_owned()))?;
    Ok(least.max(Epoch(next)))
}

/// A number above all segments, also those that cannot be read.
fn number_after(place: &dyn Place, chain: &Chain) -> Result<u64, JournalError> {
    let listed = place.list()?.last().map_or(0, |info| info.number);
    let linked = chain.links.last().map_or(0, |link| link.header.segment);
    // The numbers after a claim are left to late puts of the writer before.
    let unused = if place.shape() == Shape::Whole { FENCE_NUMBERS } else { 0 };
    // Room for as many again.
    let top = listed.max(linked).checked_add(1 << 32);
    top.map(|top| top - (1 << 32) + 1 + unused).ok_or(JournalError::Failed("numbers are used up".to_owned()))
}
