//! The sessions with all plates of a file system, over any network.
//!
//! ```text
//!   one plate:       Client ─▶ Connected
//!   several plates:  Client ─▶ Routed ─┬▶ Connected (plate 0, which says how many there are)
//!                                      ├▶ Connected (plate 1)
//!                                      └▶ …               all deliver recalls to one inbox
//! ```

use std::sync::Arc;
use std::time::Duration;

use chiton_types::PlateId;
use chiton_wire::Welcome;

use crate::connected::{Connected, ConnectedOptions, plates_of};
use crate::routed::Routed;
use crate::service::Service;
use crate::write_behind::{Limits, WriteBehind, WriteBehinds};
use crate::{ClientOptions, ConnectError, Dialer, RecallInbox};

/// The connections to a file system, over which a client is built.
pub(crate) struct Reached {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) inbox: Arc<RecallInbox>,
    pub(crate) write_behind: WriteBehinds,
    /// Identity of the file system.
    pub(crate) filesystem: u64,
    /// Where a client on the same machine finds the object store.
    pub(crate) objects: String,
}

impl Reached {
    /// Connects to each plate. Tries once, but for plates that do not run yet and a dialer with patience.
    pub(crate) fn connect(dialer: Box<dyn Dialer>, options: &ClientOptions) -> Result<Reached, ConnectError> {
        let ready_by = options.world.monotonic() + dialer.patience();
        let client = options.world.random();
        let dialing = Dialing { dialer: Arc::from(dialer), options, ready_by, client, inbox: Arc::default() };
        // How much all sessions may keep is known only when the first has begun: that one may keep as much as a single one.
        let (first, behind, welcome) = dialing.connect(PlateId(0), 0, options.kept_bytes_max)?;
        let Welcome::Accepted { filesystem, ref objects, .. } = welcome else {
            return Err(ConnectError("the server refuses the session".into()));
        };
        let objects = objects.clone();
        let Some(plates) = plates_of(&welcome)? else {
            let write_behind = WriteBehinds::one(behind);
            return Ok(Reached { service: first, inbox: dialing.inbox, write_behind, filesystem, objects });
        };
        let (mut each, mut behinds) = (vec![first], vec![behind]);
        for plate in plates.all().skip(1) {
            let kept_bytes_max = options.kept_bytes_max / usize::from(plates.count());
            let (next, behind, _) = dialing.connect(plate, filesystem, kept_bytes_max)?;
            each.push(next);
            behinds.push(behind);
        }
        let service = Arc::new(Routed::new(plates, each));
        let write_behind = WriteBehinds::several(plates, behinds);
        Ok(Reached { service, inbox: dialing.inbox, write_behind, filesystem, objects })
    }
}

/// A session, its write-behind, and the answer to its greeting.
type Begun = (Arc<dyn Service>, Arc<WriteBehind>, Welcome);

/// The parts that all sessions share.
struct Dialing<'a> {
    dialer: Arc<dyn Dialer>,
    options: &'a ClientOptions,
    /// Until when plates that do not run yet are asked again.
    ready_by: Duration,
    /// The number that the client names at every plate.
    client: u64,
    inbox: Arc<RecallInbox>,
}

impl Dialing<'_> {
    fn connect(&self, plate: PlateId, filesystem: u64, kept_bytes_max: usize) -> Result<Begun, ConnectError> {
        let options = ConnectedOptions {
            identity: self.options.identity.clone(),
            timeout: self.options.timeout,
            kept_bytes_max,
            decouples: self.options.decouples,
            plate,
            client: self.client,
            ready_by: self.ready_by,
            filesystem,
        };
        let limits = Limits::new(kept_bytes_max);
        let write_behind = Arc::new(WriteBehind::new(self.options.write_behind_after, limits));
        let (connected, welcome) = Connected::connect(
            self.dialer.clone(),
            options,
            write_behind.clone(),
            self.inbox.clone(),
            self.options.world.clone(),
        )?;
        Ok((Arc::new(connected), write_behind, welcome))
    }
}
