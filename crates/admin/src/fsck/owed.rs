//! Owed changes: one plate has decided them, and another has not carried them out.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use chiton_engine::{OwedEffect, PeerState};
use chiton_journal::{MemoryPlace, Place, Shape};
use chiton_metastore::{Metastore, StoreError};
use chiton_objects::{MemoryObjects, Objects};
use chiton_runtime::SharedWorld;
use chiton_server::{FilesystemInfo, StartError, Stores};
use chiton_types::PlateId;

use crate::Overlay;

const PAGE_ROWS: usize = 4096;

/// Effects by the plate that carries them out, each with the plate that owes it.
pub(crate) type Owed = BTreeMap<PlateId, Vec<(PlateId, OwedEffect)>>;

/// Effects that plates owe to others, which have not carried them out. `stores`: by plate.
pub(crate) fn owed<'a>(stores: impl Iterator<Item = &'a dyn Metastore>) -> Result<Owed, StoreError> {
    let (mut owed, mut carried_out) = (Owed::new(), BTreeMap::new());
    let mut count = 0u16;
    for (plate, store) in (0..).map(PlateId).zip(stores) {
        count = plate.0 + 1;
        let (mut start, end) = chiton_namespace::start_rows();
        loop {
            let page = store.scan(Bound::Excluded(&start), Some(&end), PAGE_ROWS)?;
            for (key, value) in &page {
                // A row that cannot be read is the check's to find.
                match PeerState::decode(key, value).ok().flatten() {
                    Some(PeerState::Owed(effect)) => {
                        owed.entry(effect.to).or_default().push((plate, effect));
                    }
                    Some(PeerState::CarriedOut { from, upto }) => {
                        carried_out.insert((from, plate), upto);
                    }
                    Some(PeerState::Guarded { .. }) | None => {}
                }
            }
            match page.into_iter().last() {
                Some((last, _)) => start = last,
                None => break,
            }
        }
    }
    owed.retain(|to, effects| {
        effects
            .retain(|(from, effect)| carried_out.get(&(*from, *to)).is_none_or(|upto| *upto < effect.number));
        to.0 < count && !effects.is_empty()
    });
    Ok(owed)
}

/// Carries out in memory the changes that plates owe each other; their servers run on.
///
/// # Errors
/// As [`chiton_server::Offline::carry_out`].
pub(crate) fn settle(
    info: &FilesystemInfo,
    plates: &[Arc<Overlay>],
    world: &SharedWorld,
) -> Result<(), StartError> {
    let found = owed(plates.iter().map(|store| &**store as &dyn Metastore));
    for (to, effects) in found.map_err(|e| StartError::Failed(e.to_string()))? {
        let store = plates[usize::from(to.0)].clone();
        let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::new());
        let place: Arc<dyn Place> = Arc::new(MemoryPlace::new(Shape::Grows));
        let open_meta = Box::new(move || Ok(store.clone() as Arc<dyn Metastore>));
        let stores = Stores { objects, open_meta, place, objects_address: String::new() };
        chiton_server::Offline::open_with(info, to, &stores, world.clone())?.carry_out(&effects)?;
    }
    Ok(())
}
