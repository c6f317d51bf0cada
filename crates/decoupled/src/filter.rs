//! Which events of a decoupled journal a merge sends.

use chiton_merge::squash;
use chiton_model::Event;

use crate::temporary_names::hide_temporary;

/// Keeps the events of a whole batch that the global namespace needs: no redundant ones, and none about the
/// client's own engine. Deterministic.
pub(crate) fn filter(events: &mut Vec<Event>) {
    squash(events);
    hide_temporary(events);
    events.retain(|event| {
        !matches!(
            event,
            Event::Reserve { .. }
                | Event::SessionOpened { .. }
                | Event::SessionClosed { .. }
                | Event::Skipped { .. }
                | Event::Refused { .. }
                // When an orphan goes is the server's matter.
                | Event::Reclaim { .. }
                | Event::Swept { .. }
        )
    });
}
