//! A server over the rows of one moment, for what would be: the same engine, and nothing of it reaches a store.
//!
//! ```text
//!   rows of one moment ── fetched when they are needed ──▶ engine ──▶ journal in memory
//! ```
//!
//! Invariants:
//! - Nothing is checkpointed, swept or compacted, and no block is put: what changes ends with it.
//! - Whoever was known at that moment stays known: no session is waited for, and nothing ends because nobody comes back.
//! - Its journal begins where the rows end.

use std::sync::Arc;
use std::time::Duration;

use chiton_journal::{Identity, Journal, MemoryPlace, Shape, reset};
use chiton_metastore::Metastore;
use chiton_namespace::{Namespace, OpenError};
use chiton_objects::MemoryObjects;
use chiton_runtime::SharedWorld;
use chiton_types::{Ino, SessionId};

use crate::error::StartError;
use crate::format::FilesystemInfo;
use crate::options::ServerOptions;
use crate::replay_budget::{ReplayLoad, ReplayRate};
use crate::server::Server;
use crate::severable::Severable;
use crate::shared::{Parts, Shared};
use crate::startup::{EPOCH, install_hooks, own_rows, store_error};
use crate::stores::{Meta, Source};
use chiton_engine::{Engine, Moment, Settings};

/// A time that does not come.
const NEVER: Duration = Duration::from_secs(1 << 40);
/// Sessions have higher ids than any that the rows know.
const SESSIONS_FROM: u64 = 1 << 62;

impl Server {
    /// Starts over the rows of one moment, which nobody changes: what is changed then is in memory only. Memory grows with
    /// what is changed, and with what is looked at. Clients bring the blocks ([`Server::objects`] is empty).
    ///
    /// # Errors
    /// [`StartError::Corrupt`] if the rows make no file system; [`StartError::Failed`].
    pub fn start_preview(
        info: &FilesystemInfo,
        rows: Arc<dyn Metastore>,
        world: SharedWorld,
    ) -> Result<Arc<Server>, StartError> {
        Server::running(start(info, rows, world)?, None, &[("chiton-sched", Shared::schedule)])
    }
}

fn start(
    info: &FilesystemInfo,
    rows: Arc<dyn Metastore>,
    world: SharedWorld,
) -> Result<Arc<Shared>, StartError> {
    let failed = |e: &dyn std::fmt::Display| StartError::Failed(e.to_string());
    let options = ServerOptions {
        checkpoint_rows: usize::MAX,
        checkpoint_journal_bytes: u64::MAX,
        checkpoint_age: NEVER,
        recovery_target: NEVER,
        dirty_bytes_max: usize::MAX,
        session_ms: u32::MAX,
        grace_ms: 0,
        ..ServerOptions::default()
    };
    let m = Moment { now: world.now(), mono: world.monotonic(), ..Moment::default() };
    let ns = match Namespace::open(&Source(&*rows)) {
        Ok(ns) => ns,
        Err(OpenError::Source(e)) => return Err(store_error(&e)),
        Err(OpenError::Corrupt(row)) => return Err(StartError::Corrupt(row.to_string())),
    };
    let own = own_rows(&*rows, info.shards)?;
    let position = own.position;
    let settings = Settings {
        session_ms: options.session_ms,
        grace_ms: options.grace_ms,
        lease_entries_max: options.lease_entries_max,
        lease_rest_ms: options.lease_rest_ms,
        sessions_max: usize::MAX,
        dirty_rows_max: usize::MAX,
        epoch: EPOCH,
        shard_weights: vec![100; usize::from(info.shards)],
        root: Ino::ROOT,
    };
    let mut engine = Engine::from_rows(settings, ns, own, &m);
    engine.set_filesystem(info.filesystem);
    engine.begin_preview();

    let place = Arc::new(Severable::new(Arc::new(MemoryPlace::new(Shape::Grows))));
    let identity = Identity { journal: info.filesystem, epoch: EPOCH, nonce: world.random() };
    reset(&*place, identity, position.next()).map_err(|e| failed(&e))?;
    let (journal, _) = Journal::open(place.clone(), identity, options.journal).map_err(|e| failed(&e))?;
    let parts = Parts {
        engine,
        journal,
        place,
        meta: Meta::open(Box::new(move || Ok(rows.clone()))).map_err(|e| store_error(&e))?,
        base: None,
        reserve: None,
        is_held: false,
        objects: Arc::new(MemoryObjects::new()),
        objects_address: String::new(),
        world,
        options,
        info: info.clone(),
        own_session: SessionId(SESSIONS_FROM),
        rate: ReplayRate::ASSUMED,
        replayed: ReplayLoad::default(),
        stored: position,
        session_ids: (SESSIONS_FROM + 1, u64::MAX),
    };
    let shared = Arc::new(Shared::new(parts));
    install_hooks(&shared);
    Ok(shared)
}
