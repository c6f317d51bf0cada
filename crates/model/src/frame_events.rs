//! The events of a journal frame, with the positions that they take.

use chiton_types::{Malformed, Position, Take};

use crate::event::Event;

impl Event {
    /// An event that takes one position and changes nothing.
    pub const NOTHING: Event = Event::Skipped { count: 1 };

    /// How many positions of the journal it takes.
    pub fn positions(&self) -> u32 {
        if let Event::Skipped { count } = self { *count } else { 1 }
    }
}

/// Decodes the events of a frame, each with its first position. The last item is an error if the events do not take exactly
/// the positions of the frame, or something follows them.
#[derive(Debug)]
pub struct FrameEvents<'a> {
    from: Take<'a>,
    next: Position,
    /// Positions that are left.
    left: u32,
    is_over: bool,
}

impl<'a> FrameEvents<'a> {
    /// Of a frame that takes `positions` positions from `first` on.
    pub fn new(first: Position, positions: u32, payload: &'a [u8]) -> FrameEvents<'a> {
        FrameEvents { from: Take::new(payload), next: first, left: positions, is_over: false }
    }

    fn decode(&mut self) -> Result<Option<(Position, Event)>, Malformed> {
        if self.left == 0 {
            self.from.finish()?;
            return Ok(None);
        }
        let event = Event::decode(&mut self.from)?;
        let positions = event.positions();
        self.left = self
            .left
            .checked_sub(positions)
            .ok_or(Malformed { expected: "events that take no more positions than their frame" })?;
        let position = self.next;
        self.next = Position(position.0.saturating_add(u64::from(positions)));
        Ok(Some((position, event)))
    }
}

impl Iterator for FrameEvents<'_> {
    type Item = Result<(Position, Event), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let item = self.decode().transpose();
        self.is_over = !matches!(item, Some(Ok(_)));
        item
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::SessionId;

    use super::*;

    fn payload(events: &[Event]) -> Vec<u8> {
        let mut bytes = Vec::new();
        events.iter().for_each(|event| event.encode(&mut bytes));
        bytes
    }

    #[test]
    fn skipped_events_take_their_positions() {
        let closed = Event::SessionClosed { session: SessionId(3) };
        let skipped = Event::Skipped { count: 70_000 };
        let bytes = payload(&[closed.clone(), skipped.clone(), closed.clone()]);
        assert!(bytes.len() < 30);
        let read = |positions, bytes: &[u8]| {
            FrameEvents::new(Position(10), positions, bytes).collect::<Result<Vec<_>, _>>()
        };
        assert_eq!(
            read(70_002, &bytes),
            Ok(vec![(Position(10), closed.clone()), (Position(11), skipped), (Position(70_011), closed)])
        );
        for positions in [0, 1, 2, 70_001, 70_003] {
            assert!(read(positions, &bytes).is_err(), "{positions}");
        }
        assert!(read(1, &[15, 0]).is_err(), "no position");
        assert_eq!(read(1, &payload(&[Event::NOTHING])), Ok(vec![(Position(10), Event::NOTHING)]));
    }
}
