//! Which events of a decoupled journal a merge sends.

use chiton_merge::squash;
use chiton_model::Event;

use crate::temporary_names::hide_temporary;

/// Leaves what the global namespace is to be told, from a whole batch: nothing redundant, and nothing that is about
/// the client's own engine. Deterministic.
pub(crate) fn filter(events: &mut Vec<Event>) {
    squash(events);
    hide_temporary(events);
    events.retain(|event| {
        !matches!(
            event,
            Event::Reserve { .. }
                | Event::SessionOpened { .. }
                | Event::SessionClosed { .. }
                | Event::Noop
                // When an orphan goes is the server's matter.
                | Event::Reclaim { .. }
                | Event::Swept { .. }
        )
    });
}
