//! The leader's work: an owner for each plate that has none, or a dead one.

use std::collections::BTreeSet;

use chiton_monitor::{
    Alive, CONDITIONS_MAX, ChangeError, ClusterMap, Condition, MapChange, PlateOwner, plan,
};

use crate::member::Shared;

impl Shared {
    /// Gives plates without a living owner to others, if this server leads; false to be tried again.
    pub(crate) fn lead(&self, map: &ClusterMap) -> bool {
        match self.try_to_lead(map) {
            Ok(()) => true,
            // The event that says so leads to the next try.
            Err(ChangeError::Outdated(_) | ChangeError::Condition(_)) => true,
            Err(ChangeError::Failed(error)) => {
                (self.log)(&format!("plates of dead servers cannot be given to others yet: {error}"));
                false
            }
        }
    }

    fn try_to_lead(&self, map: &ClusterMap) -> Result<(), ChangeError> {
        let alive = self.monitor.alive().map_err(ChangeError::from)?;
        if leader(map, &alive) != Some(self.id) {
            return Ok(());
        }
        let mut gone = BTreeSet::new();
        let mut changes = Vec::new();
        for change in plan(map, &alive) {
            if let MapChange::SetPlate { plate, .. } = &change
                && let Some(PlateOwner { owner: Some(former), .. }) = map.plates.get(*plate as usize)
            {
                // With as many dead servers as this the rest has its turn after this change.
                if gone.len() + 1 == CONDITIONS_MAX && !gone.contains(former) {
                    continue;
                }
                gone.insert(*former);
            }
            changes.push(change);
        }
        if changes.is_empty() {
            return Ok(());
        }
        let mut requires = vec![Condition::Alive(self.id, self.generation)];
        requires.extend(gone.iter().map(|id| Condition::Gone(*id)));
        let why = match gone.is_empty() {
            true => "plates without an owner".to_owned(),
            false => {
                let names: Vec<String> = gone.iter().map(ToString::to_string).collect();
                let mut why = format!("the lease of server {} has ended", names.join(", "));
                why.truncate(chiton_monitor::TEXT_BYTES_MAX);
                why
            }
        };
        self.monitor.change(map.epoch, &requires, &changes, &self.who(), &why)?;
        (self.log)(&format!("{} plates get new owners: {why}", changes.len()));
        Ok(())
    }
}

/// The server with the lowest number of those that live as the map knows them.
fn leader(map: &ClusterMap, alive: &Alive) -> Option<u64> {
    let known =
        |id: &u64, generation: u64| map.servers.get(id).is_some_and(|server| server.generation == generation);
    alive.iter().find(|(id, generation)| known(id, **generation)).map(|(id, _)| *id)
}
