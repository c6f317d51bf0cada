//! The cluster's map: its servers, and the owner of each plate.
//!
//! ```text
//!   ClusterMap of epoch 6 ── apply(MapIncrement 6 → 7) ──▶ ClusterMap of epoch 7
//! ```
//!
//! Invariants:
//! - An increment applies whole or not at all, and only to the map of epoch `from`.
//! - Owners are servers of the map. A server that owns a plate, or is about to, cannot be removed.
//! - Bytes from outside are refused if they exceed a limit, before anything uses them.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub const SERVERS_MAX: usize = 1024;
pub const PLATES_MAX: usize = 4096;
pub const ADDRESSES_MAX: usize = 16;
pub const REVOKED_MAX: usize = 2048;
/// Bytes of the serial number or the name of a certificate.
const SERIAL_BYTES_MAX: usize = 64;
/// Bytes of an address, a failure domain, and the texts of an audit line.
pub const TEXT_BYTES_MAX: usize = 255;
/// Changes of one increment: enough to place every plate and put every server.
pub const CHANGES_MAX: usize = SERVERS_MAX + PLATES_MAX;
/// Bytes of a map or an increment as JSON. An etcd refuses requests above 1.5 MiB, and one holds both.
pub const JSON_BYTES_MAX: usize = 640 << 10;
/// The weight of an ordinary server.
pub const WEIGHT_ORDINARY: u32 = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    pub id: u64,
    /// Where clients and other servers reach it, the best first.
    pub addresses: Vec<String>,
    /// Servers of one failure domain may fail together. Empty: the server is a domain of its own.
    pub domain: String,
    /// Its share of the plates, against [`WEIGHT_ORDINARY`]. With 0 it gets none.
    pub weight: u32,
    /// False for a server that must not get plates.
    pub is_in: bool,
    /// True for a server that owns nothing until it replaces a dead one.
    pub is_standby: bool,
    /// Greater after each start, which distinguishes a restarted server from the one before.
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlateOwner {
    pub owner: Option<u64>,
    /// The server to which a hand-over is under way.
    pub next: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterMap {
    /// The map's version: 1 at first, one more after each change.
    pub epoch: u64,
    pub filesystem: u64,
    /// How long a server lives without renewing, in milliseconds.
    pub lease_ms: u32,
    pub servers: BTreeMap<u64, ServerInfo>,
    /// Indexed by plate. Their number never changes.
    pub plates: Vec<PlateOwner>,
    /// Certificates that are valid no more: their serial numbers, and their names for people.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub revoked: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapChange {
    /// Adds the server, or replaces the one with its id.
    PutServer(ServerInfo),
    RemoveServer(u64),
    SetPlate {
        plate: u32,
        owner: Option<u64>,
        next: Option<u64>,
    },
    /// Refuses a certificate from now on.
    Revoke {
        serial: String,
        name: String,
    },
}

/// The difference between two maps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapIncrement {
    /// The epoch of the map that it changes.
    pub from: u64,
    /// The epoch of the result.
    pub to: u64,
    pub changes: Vec<MapChange>,
}

/// Why a map or an increment was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The increment belongs to a map of another epoch: fetch the increments between, or the whole map.
    Epoch {
        map: u64,
        from: u64,
        to: u64,
    },
    Plate(u32),
    Server(u64),
    /// The server to be removed owns this plate, or is about to: move the plate first.
    Owns {
        server: u64,
        plate: u32,
    },
    /// The map has a server under another id than its own.
    Key {
        key: u64,
        id: u64,
    },
    /// Something is too large.
    Limit {
        what: &'static str,
        found: usize,
        most: usize,
    },
    /// The bytes are no JSON of this type.
    Malformed(String),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Epoch { map, from, to } => {
                write!(f, "the increment {from} to {to} does not fit the map of epoch {map}")
            }
            MapError::Plate(plate) => write!(f, "the map has no plate {plate}"),
            MapError::Server(id) => write!(f, "the map has no server {id}"),
            MapError::Owns { server, plate } => {
                write!(f, "server {server} cannot be removed: plate {plate} names it; move the plate first")
            }
            MapError::Key { key, id } => write!(f, "the map has server {id} under the id {key}"),
            MapError::Limit { what, found, most } => write!(f, "{found} {what}; at most {most} are allowed"),
            MapError::Malformed(cause) => write!(f, "not valid JSON of a map: {cause}"),
        }
    }
}

impl std::error::Error for MapError {}

impl ClusterMap {
    /// The first map of a file system: no servers, and no plate has an owner.
    ///
    /// # Errors
    /// [`MapError::Limit`] with too many plates.
    pub fn new(filesystem: u64, plates: u32, lease_ms: u32) -> Result<ClusterMap, MapError> {
        limit("plates", plates as usize, PLATES_MAX)?;
        let plates = vec![PlateOwner::default(); plates as usize];
        Ok(ClusterMap {
            epoch: 1,
            filesystem,
            lease_ms,
            servers: BTreeMap::new(),
            plates,
            revoked: BTreeMap::new(),
        })
    }

    /// Changes the map into that of epoch `to`. After an error it is as before.
    ///
    /// # Errors
    /// All but [`MapError::Malformed`].
    pub fn apply(&mut self, increment: &MapIncrement) -> Result<(), MapError> {
        if increment.from != self.epoch || increment.to <= increment.from {
            return Err(MapError::Epoch { map: self.epoch, from: increment.from, to: increment.to });
        }
        increment.check()?;
        let mut next = self.clone();
        next.epoch = increment.to;
        for change in &increment.changes {
            next.change(change)?;
        }
        next.check()?;
        *self = next;
        Ok(())
    }

    /// The map after `changes`, and the increment that leads to it.
    ///
    /// # Errors
    /// As [`ClusterMap::apply`].
    pub fn changed(&self, changes: &[MapChange]) -> Result<(ClusterMap, MapIncrement), MapError> {
        let increment = MapIncrement { from: self.epoch, to: self.epoch + 1, changes: changes.to_vec() };
        let mut map = self.clone();
        map.apply(&increment)?;
        Ok((map, increment))
    }

    fn change(&mut self, change: &MapChange) -> Result<(), MapError> {
        match change {
            MapChange::PutServer(server) => {
                self.servers.insert(server.id, server.clone());
            }
            MapChange::RemoveServer(id) => {
                let of_it = |plate: &PlateOwner| plate.owner == Some(*id) || plate.next == Some(*id);
                if let Some(plate) = self.plates.iter().position(of_it) {
                    return Err(MapError::Owns { server: *id, plate: plate as u32 });
                }
                self.servers.remove(id).ok_or(MapError::Server(*id))?;
            }
            MapChange::SetPlate { plate, owner, next } => {
                let entry = self.plates.get_mut(*plate as usize).ok_or(MapError::Plate(*plate))?;
                *entry = PlateOwner { owner: *owner, next: *next };
            }
            MapChange::Revoke { serial, name } => {
                self.revoked.insert(serial.clone(), name.clone());
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), MapError> {
        limit("servers", self.servers.len(), SERVERS_MAX)?;
        limit("plates", self.plates.len(), PLATES_MAX)?;
        limit("revoked certificates", self.revoked.len(), REVOKED_MAX)?;
        for (serial, name) in &self.revoked {
            check_revoked(serial, name)?;
        }
        for (key, server) in &self.servers {
            if *key != server.id {
                return Err(MapError::Key { key: *key, id: server.id });
            }
            server.check()?;
        }
        let mut named = self.plates.iter().flat_map(|plate| [plate.owner, plate.next]).flatten();
        named.find(|id| !self.servers.contains_key(id)).map_or(Ok(()), |id| Err(MapError::Server(id)))
    }

    /// # Errors
    /// [`MapError::Limit`] if it would be too large to be read again.
    pub fn to_json(&self) -> Result<Vec<u8>, MapError> {
        to_json(self)
    }

    /// # Errors
    /// If the bytes are no map, break a limit, or contradict themselves.
    pub fn from_json(bytes: &[u8]) -> Result<ClusterMap, MapError> {
        let map: ClusterMap = from_json(bytes)?;
        map.check()?;
        Ok(map)
    }
}

impl ServerInfo {
    fn check(&self) -> Result<(), MapError> {
        limit("addresses", self.addresses.len(), ADDRESSES_MAX)?;
        for address in &self.addresses {
            limit("bytes of an address", address.len(), TEXT_BYTES_MAX)?;
        }
        limit("bytes of a failure domain", self.domain.len(), TEXT_BYTES_MAX)
    }
}

impl MapIncrement {
    fn check(&self) -> Result<(), MapError> {
        limit("changes", self.changes.len(), CHANGES_MAX)?;
        self.changes.iter().try_for_each(|change| match change {
            MapChange::PutServer(server) => server.check(),
            MapChange::Revoke { serial, name } => check_revoked(serial, name),
            MapChange::RemoveServer(_) | MapChange::SetPlate { .. } => Ok(()),
        })
    }

    /// # Errors
    /// [`MapError::Limit`] if it would be too large to be read again.
    pub fn to_json(&self) -> Result<Vec<u8>, MapError> {
        to_json(self)
    }

    /// # Errors
    /// If the bytes are no increment, or break a limit.
    pub fn from_json(bytes: &[u8]) -> Result<MapIncrement, MapError> {
        let increment: MapIncrement = from_json(bytes)?;
        increment.check()?;
        Ok(increment)
    }
}

fn check_revoked(serial: &str, name: &str) -> Result<(), MapError> {
    limit("bytes of a serial number", serial.len(), SERIAL_BYTES_MAX)?;
    limit("bytes of a certificate's name", name.len(), SERIAL_BYTES_MAX)
}

impl fmt::Display for MapChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |id: &Option<u64>| id.map_or("none".to_owned(), |id| id.to_string());
        match self {
            MapChange::PutServer(server) => write!(f, "put server {}", server.id),
            MapChange::RemoveServer(id) => write!(f, "remove server {id}"),
            MapChange::Revoke { serial, name } => write!(f, "revoke the certificate {serial} of {name}"),
            MapChange::SetPlate { plate, owner, next: None } => write!(f, "plate {plate} to {}", name(owner)),
            MapChange::SetPlate { plate, owner, next } => {
                write!(f, "plate {plate} to {}, next {}", name(owner), name(next))
            }
        }
    }
}

pub(crate) fn limit(what: &'static str, found: usize, most: usize) -> Result<(), MapError> {
    if found > most { Err(MapError::Limit { what, found, most }) } else { Ok(()) }
}

fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, MapError> {
    let bytes = serde_json::to_vec(value).map_err(|error| MapError::Malformed(error.to_string()))?;
    limit("bytes of JSON", bytes.len(), JSON_BYTES_MAX)?;
    Ok(bytes)
}

fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MapError> {
    limit("bytes of JSON", bytes.len(), JSON_BYTES_MAX)?;
    serde_json::from_slice(bytes).map_err(|error| MapError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: u64) -> ServerInfo {
        ServerInfo {
            id,
            addresses: vec![format!("10.0.0.{id}:7400")],
            domain: "rack 7".into(),
            weight: WEIGHT_ORDINARY,
            is_in: true,
            is_standby: false,
            generation: u64::MAX,
        }
    }

    fn set(plate: u32, owner: u64) -> MapChange {
        MapChange::SetPlate { plate, owner: Some(owner), next: None }
    }

    fn revoke(serial: &str, name: &str) -> MapChange {
        MapChange::Revoke { serial: serial.to_owned(), name: name.to_owned() }
    }

    fn two_servers() -> ClusterMap {
        let put = [MapChange::PutServer(server(1)), MapChange::PutServer(server(2)), set(0, 1)];
        ClusterMap::new(9, 4, 1000).expect("a map").changed(&put).expect("two servers").0
    }

    #[test]
    fn increments_lead_to_the_same_map() {
        let map = two_servers();
        let (next, increment) = map.changed(&[set(3, 2)]).expect("a change");
        let mut copy = ClusterMap::from_json(&map.to_json().expect("json")).expect("the map");
        let increment = MapIncrement::from_json(&increment.to_json().expect("json")).expect("an increment");
        copy.apply(&increment).expect("it fits");
        assert_eq!(copy, next);
        assert_eq!(copy.apply(&increment), Err(MapError::Epoch { map: 3, from: 2, to: 3 }));
        assert_eq!(copy, next);
    }

    #[test]
    fn refused_changes_leave_the_map_alone() {
        let map = two_servers();
        let mut other = server(5);
        other.domain = "d".repeat(TEXT_BYTES_MAX + 1);
        let mut crowd = server(5);
        crowd.addresses = vec![String::new(); ADDRESSES_MAX + 1];
        let too_many = |what, found, most| MapError::Limit { what, found, most };
        let cases = [
            (vec![set(1, 2), set(4, 1)], MapError::Plate(4)),
            (vec![set(1, 2), set(2, 3)], MapError::Server(3)),
            (vec![set(1, 2), MapChange::RemoveServer(3)], MapError::Server(3)),
            (vec![set(1, 2), MapChange::RemoveServer(1)], MapError::Owns { server: 1, plate: 0 }),
            (vec![MapChange::PutServer(other)], too_many("bytes of a failure domain", 256, 255)),
            (vec![MapChange::PutServer(crowd)], too_many("addresses", 17, 16)),
            (vec![revoke(&"0".repeat(65), "a")], too_many("bytes of a serial number", 65, 64)),
            (vec![revoke("0", &"a".repeat(65))], too_many("bytes of a certificate's name", 65, 64)),
        ];
        for (changes, error) in cases {
            let mut copy = map.clone();
            assert_eq!(copy.apply(&MapIncrement { from: 2, to: 3, changes }), Err(error));
            assert_eq!(copy, map);
        }
        let backwards = MapIncrement { from: 2, to: 2, changes: vec![] };
        assert_eq!(map.clone().apply(&backwards), Err(MapError::Epoch { map: 2, from: 2, to: 2 }));
    }

    #[test]
    fn revoked_certificates_stay_in_the_map_and_are_limited() {
        let map = two_servers();
        // A map from before there was a list.
        assert!(!String::from_utf8(map.to_json().expect("json")).expect("text").contains("revoked"));
        let (map, _) = map.changed(&[revoke("7f", "alice"), revoke("80", "bob")]).expect("a change");
        let copy = ClusterMap::from_json(&map.to_json().expect("json")).expect("the map");
        assert_eq!(copy.revoked.keys().collect::<Vec<_>>(), ["7f", "80"]);
        let many: Vec<MapChange> = (0..=REVOKED_MAX).map(|n| revoke(&n.to_string(), "a")).collect();
        let refused = map.changed(&many);
        assert!(
            matches!(refused, Err(MapError::Limit { what: "revoked certificates", .. })),
            "{:?}",
            refused.err()
        );
    }

    #[test]
    fn increment_of_one_change_is_small() {
        let mut long = server(u64::MAX);
        long.addresses = vec!["[2001:0db8:0000:0000:0000:0000:0000:0001]:65535".into(); 8];
        let plate = MapChange::SetPlate { plate: u32::MAX, owner: Some(u64::MAX), next: Some(u64::MAX) };
        for change in [MapChange::PutServer(long), MapChange::RemoveServer(u64::MAX), plate] {
            let increment = MapIncrement { from: u64::MAX - 1, to: u64::MAX, changes: vec![change] };
            let bytes = increment.to_json().expect("json").len();
            assert!(bytes < 1000, "{bytes} bytes: {increment:?}");
        }
    }

    #[test]
    fn largest_map_can_be_read_again() {
        let mut map = ClusterMap::new(9, PLATES_MAX as u32, 1000).expect("a map");
        map.servers = (0..SERVERS_MAX as u64).map(|id| (id, server(id))).collect();
        map.plates.fill(PlateOwner { owner: Some(1023), next: Some(1022) });
        let bytes = map.to_json().expect("it is small enough");
        assert_eq!(ClusterMap::from_json(&bytes), Ok(map));
    }

    #[test]
    fn hostile_bytes_are_refused() {
        assert!(matches!(ClusterMap::from_json(b"{"), Err(MapError::Malformed(_))));
        let huge = vec![b' '; JSON_BYTES_MAX + 1];
        assert!(matches!(ClusterMap::from_json(&huge), Err(MapError::Limit { .. })));
        assert!(matches!(MapIncrement::from_json(&huge), Err(MapError::Limit { .. })));
        let mut map = two_servers();
        map.plates = vec![PlateOwner::default(); PLATES_MAX + 1];
        let bytes = serde_json::to_vec(&map).expect("json");
        assert!(matches!(ClusterMap::from_json(&bytes), Err(MapError::Limit { what: "plates", .. })));
        let mut map = two_servers();
        map.servers.insert(7, server(8));
        let bytes = serde_json::to_vec(&map).expect("json");
        assert_eq!(ClusterMap::from_json(&bytes), Err(MapError::Key { key: 7, id: 8 }));
        let changes = vec![MapChange::RemoveServer(1); CHANGES_MAX + 1];
        let bytes = serde_json::to_vec(&MapIncrement { from: 1, to: 2, changes }).expect("json");
        assert!(matches!(MapIncrement::from_json(&bytes), Err(MapError::Limit { what: "changes", .. })));
    }
}
