//! The placement of units and plates on servers: weighted straw2 (Weil, CRUSH, 2006, with the straws of Ceph's Hammer).
//!
//! ```text
//!   unit ── hash with each server's id ──▶ a straw for each, stretched by weight ──▶ the longest wins
//! ```
//!
//! Invariants:
//! - A server's straw depends on the unit, its id and its weight only. So a unit moves only to a server that was added
//!   or became heavier, or from one that was removed or became lighter.
//! - [`plan`] never moves a plate of a living owner.
//!
//! Straws are drawn between servers, not between failure domains and then within one. Two stages move more than is needed when a
//! domain gets another server: its old servers would receive units, too.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{Alive, ClusterMap, MapChange, ServerInfo};

/// The length of a server's straw for a unit: at most 0, the greater the better.
fn straw(unit: u64, server: &ServerInfo) -> f64 {
    let hash = xxh3_64_with_seed(&unit.to_le_bytes(), server.id);
    // 53 bits, as many as an f64 holds; in (0, 1].
    let uniform = ((hash >> 11) + 1) as f64 / (1u64 << 53) as f64;
    uniform.ln() / f64::from(server.weight)
}

/// The ids of `count` servers for the unit, of different failure domains, the best first. Fewer, if there are fewer
/// domains with a server of some weight.
pub fn place<'a>(unit: u64, servers: impl IntoIterator<Item = &'a ServerInfo>, count: usize) -> Vec<u64> {
    let mut straws: Vec<_> = servers
        .into_iter()
        .filter(|server| server.weight > 0)
        .map(|server| (straw(unit, server), server))
        .collect();
    straws.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(first.id.cmp(&second.id)));
    let mut domains = BTreeSet::new();
    straws
        .into_iter()
        .filter(|(_, server)| server.domain.is_empty() || domains.insert(&server.domain))
        .map(|(_, server)| server.id)
        .take(count)
        .collect()
}

/// Gives every plate without a living owner to a living server that is in, if there is one.
///
/// All plates of a dead server go to an idle standby. If there is none, or if a plate never had an owner, the server
/// with the fewest plates for its weight gets it.
///
/// A server gets plates only if it lives with the generation that the map knows. An owner that lives with another one has
/// restarted and is about to put itself into the map, so it keeps its plates.
pub fn plan(map: &ClusterMap, alive: &Alive) -> Vec<MapChange> {
    let mut plates_of: BTreeMap<u64, u64> = BTreeMap::new();
    let mut orphans: BTreeMap<Option<u64>, Vec<u32>> = BTreeMap::new();
    for (plate, entry) in (0..).zip(&map.plates) {
        match entry.owner {
            Some(owner) if alive.contains_key(&owner) => *plates_of.entry(owner).or_default() += 1,
            owner => orphans.entry(owner).or_default().push(plate),
        }
    }
    let is_ready = |server: &&ServerInfo| {
        server.is_in && server.weight > 0 && alive.get(&server.id) == Some(&server.generation)
    };
    let (mut standbys, mut servers): (Vec<_>, Vec<_>) = map
        .servers
        .values()
        .filter(is_ready)
        .partition(|server| server.is_standby && !plates_of.contains_key(&server.id));
    if servers.is_empty() && orphans.contains_key(&None) {
        // Standbys only: plates that never had an owner need one all the same.
        servers.append(&mut standbys);
    }
    let mut changes = Vec::new();
    for (owner, plates) in orphans {
        let replacement = owner.and_then(|_| standbys.pop());
        servers.extend(replacement);
        for plate in plates {
            let chosen =
                replacement.map(|server| server.id).or_else(|| least_loaded(plate, &servers, &plates_of));
            let Some(server) = chosen else { continue };
            *plates_of.entry(server).or_default() += 1;
            changes.push(MapChange::SetPlate { plate, owner: Some(server), next: None });
        }
    }
    changes
}

/// Hand-overs that make equal servers' numbers of plates differ by at most one, with as few moves as that takes. Servers that are out,
/// or have no weight, give all away. Plates of servers that do not live are [`plan`]'s.
pub fn rebalance(map: &ClusterMap, alive: &Alive) -> Vec<MapChange> {
    let lives = |id: u64| map.servers.get(&id).filter(|server| alive.get(&id) == Some(&server.generation));
    // Where each plate is going to be.
    let mut places: Vec<Option<u64>> =
        map.plates.iter().map(|entry| entry.next.or(entry.owner).filter(|id| lives(*id).is_some())).collect();
    let mut plates_of: BTreeMap<u64, u64> = BTreeMap::new();
    for id in places.iter().flatten() {
        *plates_of.entry(*id).or_default() += 1;
    }
    let takers: Vec<&ServerInfo> = map
        .servers
        .values()
        .filter(|server| server.is_in && server.weight > 0 && lives(server.id).is_some())
        .filter(|server| !server.is_standby || plates_of.contains_key(&server.id))
        .collect();
    let weight = |id: u64| map.servers.get(&id).map_or(0, |server| u64::from(server.weight));
    let mut moves: BTreeMap<usize, u64> = BTreeMap::new();
    loop {
        let load = |id: u64| plates_of.get(&id).copied().unwrap_or(0);
        let stays = |id: u64| takers.iter().any(|taker| taker.id == id);
        // Those that may keep nothing give first, then the one with the most for its weight.
        let givers = plates_of.keys().copied().filter(|id| load(*id) > 0);
        let giver = givers.max_by(|a, b| {
            let loads = (load(*a) * weight(*b)).cmp(&(load(*b) * weight(*a)));
            (!stays(*a)).cmp(&!stays(*b)).then(loads).then(b.cmp(a))
        });
        let Some(from) = giver else { break };
        let Some(plate) = places.iter().position(|place| *place == Some(from)) else { break };
        let Some(to) = least_loaded(plate as u32, &takers, &plates_of) else { break };
        if to == from || stays(from) && load(from) * weight(to) <= (load(to) + 1) * weight(from) {
            break;
        }
        *plates_of.entry(from).or_default() -= 1;
        *plates_of.entry(to).or_default() += 1;
        places[plate] = Some(to);
        moves.insert(plate, to);
    }
    let change = |(plate, to): (usize, u64)| {
        let entry = map.plates[plate];
        let next = (entry.owner != Some(to)).then_some(to);
        (entry.next != next).then_some(MapChange::SetPlate { plate: plate as u32, owner: entry.owner, next })
    };
    moves.into_iter().filter_map(change).collect()
}

/// The server that would have the fewest plates for its weight with this one; straws decide between equal ones.
fn least_loaded(plate: u32, servers: &[&ServerInfo], plates_of: &BTreeMap<u64, u64>) -> Option<u64> {
    let load = |server: &ServerInfo| plates_of.get(&server.id).copied().unwrap_or(0) + 1;
    let best = servers.iter().min_by(|a, b| {
        // load(a) / weight(a) against load(b) / weight(b)
        let loads = (load(a) * u64::from(b.weight)).cmp(&(load(b) * u64::from(a.weight)));
        loads.then_with(|| straw(plate.into(), b).total_cmp(&straw(plate.into(), a)))
    });
    best.map(|server| server.id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::WEIGHT_ORDINARY;

    const UNITS: u64 = 10_000;

    fn server(id: u64, weight: u32) -> ServerInfo {
        ServerInfo {
            id,
            addresses: vec![],
            domain: String::new(),
            weight,
            is_in: true,
            is_standby: false,
            generation: 1,
        }
    }

    fn servers(weights: &[u32]) -> Vec<ServerInfo> {
        (1..).zip(weights).map(|(id, weight)| server(id, *weight)).collect()
    }

    fn placed(servers: &[ServerInfo]) -> Vec<u64> {
        (0..UNITS).map(|unit| place(unit, servers, 1)[0]).collect()
    }

    fn counts(placed: &[u64]) -> BTreeMap<u64, u64> {
        placed.iter().fold(BTreeMap::new(), |mut counts, id| {
            *counts.entry(*id).or_default() += 1;
            counts
        })
    }

    #[test]
    fn shares_follow_weights_within_five_percent() {
        let tables: [&[u32]; 5] = [
            &[1000],
            &[1000, 1000],
            &[1000, 1000, 1000, 1000],
            &[1000, 2000, 3000],
            &[500, 1000, 1500, 2000],
        ];
        for weights in tables {
            let counts = counts(&placed(&servers(weights)));
            let sum: u32 = weights.iter().sum();
            for (id, weight) in (1..).zip(weights) {
                let fair = UNITS as f64 * f64::from(*weight) / f64::from(sum);
                let got = counts[&id] as f64;
                assert!((got / fair - 1.0).abs() < 0.05, "{weights:?}: server {id} has {got} of {fair}");
            }
        }
    }

    #[test]
    fn units_go_to_different_failure_domains() {
        let mut rack = servers(&[1000; 6]);
        for (index, server) in rack.iter_mut().enumerate() {
            server.domain = ["a", "b"][index % 2].into();
        }
        rack.extend([server(7, 1000), server(8, 0)]);
        for unit in 0..1000 {
            let ids = place(unit, &rack, 4);
            // Racks a and b, and server 7; server 8 has no weight.
            let domains: BTreeSet<_> = ids.iter().map(|id| if *id == 7 { 2 } else { id % 2 }).collect();
            assert_eq!((ids.len(), domains.len()), (3, 3), "unit {unit}: {ids:?}");
            assert_eq!(place(unit, &rack, 1), ids[..1]);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// From weight `from` of the first server to `to`; 0 stands for a server that is not there.
        #[test]
        fn movement_is_near_the_minimum(
            rest in prop::collection::vec(200u32..4000, 1..8),
            from in prop_oneof![Just(0u32), 200u32..4000],
            to in prop_oneof![Just(0u32), 200u32..4000],
        ) {
            let of_weight = |weight| {
                let mut all = servers(&[&[weight], &rest[..]].concat());
                all.retain(|server| server.weight > 0);
                placed(&all)
            };
            let (before, after) = (of_weight(from), of_weight(to));
            let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count() as u64;
            let (had, has) = (counts(&before), counts(&after));
            let least: u64 =
                has.iter().map(|(id, count)| count.saturating_sub(had.get(id).copied().unwrap_or(0))).sum();
            prop_assert!(moved * 10 <= least * 11, "moved {moved}, at least {least}");
            // And what had to move by the weights, not only by the counts, within the scatter of 10,000 units.
            let sum: u32 = rest.iter().sum();
            let share = |weight: u32| f64::from(weight) / f64::from(weight + sum);
            let fair = UNITS as f64 * (share(from) - share(to)).abs();
            prop_assert!((moved as f64) <= fair * 1.1 + 250.0, "moved {moved}, fair {fair}");
        }

        #[test]
        fn plan_gives_every_orphan_an_owner_and_moves_nothing_else(
            plates in 1u32..64,
            weights in prop::collection::vec(0u32..3000, 1..8),
            standby in 0usize..8,
            out in 0usize..8,
            dead in prop::collection::btree_set(1u64..9, 0..4),
        ) {
            let mut all = servers(&weights);
            for (index, server) in all.iter_mut().enumerate() {
                server.is_standby = index == standby;
                server.is_in = index != out;
            }
            let map = cluster(plates, &all);
            let map = map.changed(&plan(&map, &alive(&all))).expect("a first plan").0;
            let mut survivors = alive(&all);
            survivors.retain(|id, _| !dead.contains(id));
            let ready: BTreeSet<u64> = all
                .iter()
                .filter(|it| it.is_in && it.weight > 0 && survivors.contains_key(&it.id))
                .map(|it| it.id)
                .collect();
            let next = map.changed(&plan(&map, &survivors)).expect("a second plan").0;
            for (before, after) in map.plates.iter().zip(&next.plates) {
                match before.owner {
                    Some(owner) if survivors.contains_key(&owner) => prop_assert_eq!(before, after),
                    _ if ready.is_empty() => prop_assert_eq!(before, after),
                    _ => prop_assert!(after.owner.is_some_and(|owner| ready.contains(&owner))),
                }
            }
            prop_assert_eq!(plan(&next, &survivors), []);
        }

        #[test]
        fn equal_servers_get_equal_numbers_of_plates(plates in 1u32..200, count in 1usize..20) {
            let all = servers(&vec![WEIGHT_ORDINARY; count]);
            let map = cluster(plates, &all);
            let map = map.changed(&plan(&map, &alive(&all))).expect("a plan").0;
            let owners: Vec<u64> = map.plates.iter().filter_map(|plate| plate.owner).collect();
            prop_assert_eq!(owners.len(), plates as usize);
            let counts = counts(&owners);
            let of = |server: &ServerInfo| counts.get(&server.id).copied().unwrap_or(0);
            let (least, most) = (all.iter().map(of).min(), all.iter().map(of).max());
            prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{counts:?}");
        }
    }

    proptest! {
        /// Balanced, and with no more moves than there are plates too many.
        #[test]
        fn rebalancing_moves_only_what_is_too_much(
            owners in proptest::collection::vec(0u64..6, 1..100),
            out in proptest::collection::vec(proptest::bool::weighted(0.2), 6),
        ) {
            let mut all = servers(&[WEIGHT_ORDINARY; 6]);
            for (server, out) in all.iter_mut().zip(out) {
                server.is_in = !out;
            }
            let owned: Vec<_> = (0..)
                .zip(&owners)
                .map(|(plate, id)| MapChange::SetPlate { plate, owner: Some(id + 1), next: None })
                .collect();
            let map = cluster(owners.len() as u32, &all).changed(&owned).expect("owners").0;
            let moves = rebalance(&map, &alive(&all));
            let after = map.changed(&moves).expect("moves").0;
            let places: Vec<u64> =
                after.plates.iter().filter_map(|plate| plate.next.or(plate.owner)).collect();
            let (before, counts) = (counts(&owners.iter().map(|id| id + 1).collect::<Vec<_>>()), counts(&places));
            let inside: Vec<_> = all.iter().filter(|server| server.is_in).map(|server| server.id).collect();
            if inside.is_empty() {
                prop_assert_eq!(moves.len(), 0);
                return Ok(());
            }
            let of = |counts: &BTreeMap<u64, u64>, id: u64| counts.get(&id).copied().unwrap_or(0);
            let (least, most) = (inside.iter().map(|id| of(&counts, *id)).min(), inside.iter().map(|id| of(&counts, *id)).max());
            prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{counts:?}");
            prop_assert_eq!(counts.keys().filter(|id| !inside.contains(id)).count(), 0);
            // Each server gives or takes, not both.
            let too_many: u64 = all.iter().map(|server| of(&before, server.id).saturating_sub(of(&counts, server.id))).sum();
            prop_assert_eq!(moves.len() as u64, too_many);
            prop_assert_eq!(rebalance(&after, &alive(&all)), []);
        }
    }

    fn alive(servers: &[ServerInfo]) -> Alive {
        servers.iter().map(|server| (server.id, server.generation)).collect()
    }

    fn cluster(plates: u32, servers: &[ServerInfo]) -> ClusterMap {
        let put: Vec<_> = servers.iter().cloned().map(MapChange::PutServer).collect();
        ClusterMap::new(1, plates, 1000).expect("a map").changed(&put).expect("servers").0
    }

    fn owners(map: &ClusterMap) -> Vec<Option<u64>> {
        map.plates.iter().map(|plate| plate.owner).collect()
    }

    #[test]
    fn standby_takes_all_plates_of_a_dead_server() {
        let mut all = servers(&[1000, 1000, 1000]);
        all[2].is_standby = true;
        let map = cluster(8, &all);
        let map = map.changed(&plan(&map, &alive(&all))).expect("a plan").0;
        assert!(!owners(&map).contains(&Some(3)), "a standby owns nothing at first");
        let next = map.changed(&plan(&map, &alive(&all[1..]))).expect("a take-over").0;
        let wanted: Vec<_> =
            owners(&map).into_iter().map(|owner| if owner == Some(1) { Some(3) } else { owner }).collect();
        assert_eq!(owners(&next), wanted);
        // It is a server like others now: the next dead one's plates go to it as the only survivor.
        let last = next.changed(&plan(&next, &alive(&all[2..]))).expect("a take-over").0;
        assert_eq!(owners(&last), [Some(3); 8]);
    }

    #[test]
    fn standbys_alone_share_a_first_placement() {
        let mut all = servers(&[1000, 1000]);
        all.iter_mut().for_each(|server| server.is_standby = true);
        let map = cluster(8, &all);
        let map = map.changed(&plan(&map, &alive(&all))).expect("a plan").0;
        assert_eq!(owners(&map).iter().filter(|owner| **owner == Some(1)).count(), 4);
    }

    #[test]
    fn restarted_server_keeps_plates_but_gets_none() {
        let all = servers(&[1000, 1000]);
        let map = cluster(8, &all);
        let map = map.changed(&plan(&map, &alive(&all))).expect("a plan").0;
        assert_eq!(plan(&map, &Alive::from([(1, 2), (2, 1)])), []);
        let takeover = map.changed(&plan(&map, &Alive::from([(1, 2)]))).expect("an empty plan").0;
        assert_eq!(owners(&takeover), owners(&map));
    }
}
