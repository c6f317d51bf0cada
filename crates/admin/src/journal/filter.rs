//! Which events are meant. All conditions must hold.

use std::str::FromStr;

use chiton_metastore::{Metastore, StoreError};
use chiton_model::Event;
use chiton_types::frame::FrameHeader;
use chiton_types::{Ino, Position, SessionId};

use crate::journal::under::Under;

/// Positions from the first to the last, both included: `5..9`, `5..`, `..9`, `7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub first: Position,
    pub last: Position,
}

impl Range {
    pub const ALL: Range = Range { first: Position(1), last: Position(u64::MAX) };

    /// True if a position is in it.
    pub fn contains(&self, position: Position) -> bool {
        (self.first..=self.last).contains(&position)
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Range, String> {
        let number = |part: &str, default: u64| match part {
            "" => Ok(Position(default)),
            part => part
                .parse()
                .map(Position)
                .map_err(|_| format!("{part:?} is not a position: write a number, or two as in 5..9")),
        };
        let (first, last) = match text.split_once("..") {
            Some((first, last)) => (number(first, 1)?, number(last, u64::MAX)?),
            None if text.is_empty() => return Err("name positions, as in 5..9".to_owned()),
            None => (number(text, 1)?, number(text, 1)?),
        };
        if first == Position(0) || first > last {
            return Err(format!("{text:?} holds no position: they count from 1, the smaller comes first"));
        }
        Ok(Range { first, last })
    }
}

/// A filter for events. Every given condition must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub range: Option<Range>,
    /// Only events that touch this inode.
    pub inode: Option<Ino>,
    /// Only events that touch an inode at or below this path, from the root: `/a/b`.
    pub path: Option<String>,
    /// Only events of these types.
    pub types: Vec<String>,
    /// Events about an entry of this name, or an extended attribute.
    pub name: Option<Vec<u8>>,
    /// Only events of this session.
    pub client: Option<SessionId>,
}

/// A filter in use.
pub struct Seen<'a> {
    filter: &'a Filter,
    under: Option<Under<'a>>,
}

impl Filter {
    /// True if every event is meant.
    pub fn is_all(&self) -> bool {
        *self == Filter::default()
    }

    /// Begins to filter events. `store` supplies the parents of inodes that the journal does not name.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub fn begin<'a>(&'a self, store: Option<&'a dyn Metastore>) -> Result<Seen<'a>, StoreError> {
        let under = self.path.as_deref().map(|path| Under::new(path, store)).transpose()?;
        Ok(Seen { filter: self, under })
    }
}

impl Seen<'_> {
    /// Whether this event, which comes after all that were asked about, is meant.
    ///
    /// # Errors
    /// The error of the store.
    pub fn matches(
        &mut self,
        position: Position,
        header: &FrameHeader,
        event: &Event,
    ) -> Result<bool, StoreError> {
        let f = self.filter;
        let under = match &mut self.under {
            // Asked always: it learns from each event.
            Some(under) => under.takes(event)?,
            None => true,
        };
        Ok(under
            && f.range.is_none_or(|range| range.contains(position))
            && f.inode.is_none_or(|ino| touches(event, ino))
            && (f.types.is_empty() || f.types.iter().any(|name| name == event.type_name()))
            && f.name.as_deref().is_none_or(|name| bears(event, name))
            && f.client.is_none_or(|client| header.session == client || is_about(event, client)))
    }
}

fn touches(event: &Event, ino: Ino) -> bool {
    event.footprint().inodes().iter().any(|touch| touch.ino == ino)
}

fn bears(event: &Event, wanted: &[u8]) -> bool {
    event.footprint().names().any(|change| change.name.as_bytes() == wanted)
        || matches!(event, Event::Xattr { name, .. } if name == wanted)
}

fn is_about(event: &Event, client: SessionId) -> bool {
    matches!(event, Event::SessionOpened { session, .. } | Event::SessionClosed { session } if *session == client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let check = |text: &str, expect: Option<(u64, u64)>| {
            let range = text.parse::<Range>().ok().map(|range| (range.first.0, range.last.0));
            assert_eq!(range, expect, "{text}");
        };
        check("5..9", Some((5, 9)));
        check("5..", Some((5, u64::MAX)));
        check("..9", Some((1, 9)));
        check("..", Some((1, u64::MAX)));
        check("7", Some((7, 7)));
        for bad in ["", "9..5", "0..4", "a..", "-1", "1...2"] {
            check(bad, None);
        }
    }
}
