//! From stores to a state that can serve: rows, then the journal after them, then reservations.

use std::ops::Bound;
use std::sync::Arc;

use chiton_journal::{Frame, Identity, Journal, JournalError, Progress, ReplayError, replay};
use chiton_metastore::{Metastore, StoreError, prefix_end};
use chiton_namespace::{Fetched, Namespace, Need, OpenError};
use chiton_runtime::SharedWorld;
use chiton_types::{Epoch, Position, SessionId};

use crate::error::StartError;
use crate::format::FilesystemInfo;
use crate::options::ServerOptions;
use crate::replay_budget::{ReplayLoad, ReplayRate};
use crate::reserve::{self, Reserve};
use crate::session_ids;
use crate::severable::Severable;
use crate::shared::{Parts, Shared, install};
use crate::stores::{Meta, Source, Stores};
use chiton_engine::{
    Engine, Moment, OwnRows, POSITION_KEY, ReplayFault, SESSION_MARK_KEY, Settings, mark_key,
};

/// The maps' epoch, as long as a server is alone.
pub(crate) const EPOCH: Epoch = Epoch(1);
const PAGE_ROWS: usize = 4096;
/// About what a frame takes beside its payload.
const FRAME_OVERHEAD_BYTES: usize = 16;

/// Recovers what the stores hold.
pub(crate) fn recover(
    info: FilesystemInfo,
    (stores, reserve, is_held): (Stores, Option<Arc<Reserve>>, bool),
    options: ServerOptions,
    world: SharedWorld,
) -> Result<Arc<Shared>, StartError> {
    let failed = |e: &dyn std::fmt::Display| StartError::Failed(e.to_string());
    let meta = Meta::open(stores.open_meta).map_err(|e| store_error(&e))?;
    let store = meta.get();
    let m = Moment { now: world.now(), mono: world.monotonic(), ..Moment::default() };
    let ns = match Namespace::open(&Source(&*store)) {
        Ok(ns) => ns,
        Err(OpenError::Source(e)) => return Err(store_error(&e)),
        Err(OpenError::Corrupt(row)) => return Err(StartError::Corrupt(row.to_string())),
    };
    let rows = own_rows(&*store, info.shards)?;
    let (position, session_mark) = (rows.position, session_mark(&*store)?);
    let settings = Settings {
        session_ms: options.session_ms,
        grace_ms: options.grace_ms.min(options.session_ms),
        lease_entries_max: options.lease_entries_max,
        lease_rest_ms: options.lease_rest_ms,
        sessions_max: options.sessions_max,
        dirty_rows_max: options.dirty_rows_max(),
        epoch: EPOCH,
        shard_weights: vec![100; usize::from(info.shards)],
        root: chiton_types::Ino::ROOT,
    };
    let mut engine = Engine::from_rows(settings, ns, rows, &m);

    let mut journal_options = options.journal;
    if let Some(reserve) = &reserve {
        journal_options.segment_bytes =
            reserve::segment_bytes(reserve.wanted(), journal_options.segment_bytes);
    }
    let place = Arc::new(Severable::new(stores.place));
    let identity = Identity { journal: info.filesystem, epoch: EPOCH, nonce: world.random() };
    let (journal, recovered) =
        Journal::open(place.clone(), identity, journal_options).map_err(|e| journal_error(&e, position))?;
    if let Some(torn) = &recovered.torn {
        (options.log)(&format!(
            "the journal's last commit was cut off by the crash, which is harmless: {torn}"
        ));
    }
    if recovered.last_position < position {
        let last = recovered.last_position;
        return Err(StartError::Corrupt(format!(
            "the journal ends at position {last}, the metadata store holds all up to {position}: is it the right journal, or \
             was it cut off? `chiton journal reset` goes on with what the metadata store holds: what came after {position} is \
             lost, but nothing before"
        )));
    }
    let mut replayed = ReplayLoad::default();
    let begun = world.monotonic();
    let fetch = |needs: &[Need]| {
        let fetch = |need| Namespace::fetch(&Source(&*store), need);
        needs.iter().map(fetch).collect::<Result<_, _>>().map_err(|e| store_error(&e))
    };
    let mut visit = |frame: &Frame<'_>| {
        replayed.events += u64::from(frame.header.event_count);
        replayed.bytes += (frame.payload.len() + FRAME_OVERHEAD_BYTES) as u64;
        replay_frame(&mut engine, &fetch, frame, false, &m)
    };
    let mut progress = |p: Progress| {
        if let Some(tell) = &options.progress {
            tell(p);
        }
    };
    match replay(&*place, position, &mut visit, &mut progress) {
        Ok(_) => {}
        Err(ReplayError::Visitor(error)) => return Err(error),
        Err(ReplayError::Journal(error)) => return Err(journal_error(&error, position)),
    }

    let spent = world.monotonic().saturating_sub(begun);
    let rate = ReplayRate::measured(replayed, spent);
    if rate.measured {
        let (events, seconds) = (replayed.events, spent.as_secs_f64());
        (options.log)(&format!("replayed {events} events of the journal in {seconds:.1} s"));
    }
    let reserved_to = session_ids::reserve(&*store, session_mark).map_err(|e| store_error(&e))?;
    engine.set_filesystem(info.filesystem);
    engine.begin(&m);
    let (frames, events) = engine.frames();
    let last = journal.append(frames, events).map_err(|e| failed(&e))?;
    engine.frames_taken();
    journal.wait_durable(last).map_err(|e| failed(&e))?;
    let parts = Parts {
        engine,
        journal,
        place,
        meta,
        base: None,
        reserve,
        is_held,
        objects: stores.objects,
        objects_address: stores.objects_address,
        world,
        options,
        info,
        own_session: SessionId(session_mark),
        rate,
        replayed,
        stored: position,
        session_ids: (session_mark + 1, reserved_to),
    };
    let shared = Arc::new(Shared::new(parts));
    install_hooks(&shared);
    shared.take_reserve();
    Ok(shared)
}

/// Installs what happens before and after each commit of the journal.
pub(crate) fn install_hooks(shared: &Shared) {
    let (objects, unsynced) = (shared.objects.clone(), shared.blocks_unsynced.clone());
    let (log, base) = (shared.options.log.clone(), shared.base.clone());
    shared.journal.before_commit(Box::new(move |_| {
        use std::sync::atomic::Ordering::SeqCst;
        if !unsynced.swap(false, SeqCst) {
            return Ok(());
        }
        if let Some(base) = &base {
            return base.sync_blocks();
        }
        for _ in 0..3 {
            match objects.sync() {
                Err(e) if e.is_transient() => log(&e.to_string()),
                result => return result.map_err(|e| e.to_string()),
            }
        }
        objects.sync().map_err(|e| e.to_string())
    }));
    let commits = shared.commits.clone();
    shared.journal.on_durable(Box::new(move |durable| {
        commits.answer(durable);
        if commits.engine_is_due(durable) {
            commits.scheduler_wake_up.wake();
        }
    }));
}

/// What a frame needs and lacks is fetched.
pub(crate) type Fetch<'a> = dyn Fn(&[Need]) -> Result<Vec<Fetched>, StartError> + 'a;

/// `base_changes`: what the events were planned on may have changed since; what does not fit it any more is passed over.
pub(crate) fn replay_frame(
    engine: &mut Engine,
    fetch: &Fetch<'_>,
    frame: &Frame<'_>,
    base_changes: bool,
    m: &Moment,
) -> Result<(), StartError> {
    loop {
        let needs = match engine.replay(&frame.header, frame.first, frame.payload, base_changes, m) {
            Ok(()) => return Ok(()),
            Err(ReplayFault::Malformed(cause)) => {
                let at = frame.first;
                return Err(StartError::Corrupt(format!("the journal's frame at position {at}: {cause}")));
            }
            Err(ReplayFault::Misfit(at, _)) if base_changes => {
                engine.pass_over(at);
                continue;
            }
            Err(ReplayFault::Misfit(at, misfit)) => {
                return Err(StartError::Corrupt(format!(
                    "the journal's event at position {at} does not fit the metadata store: {misfit}. Do the two belong \
                     together? `chiton journal event recover` passes over what does not fit"
                )));
            }
            Err(ReplayFault::Missing(needs)) => needs,
        };
        let generation = engine.namespace().generation();
        install(engine, fetch(&needs)?, generation).map_err(StartError::Corrupt)?;
    }
}

pub(crate) fn own_rows(store: &dyn Metastore, shards: u16) -> Result<OwnRows, StartError> {
    let mut rows = OwnRows::of_shards(shards);
    let corrupt = |key: &[u8], cause: &dyn std::fmt::Display| {
        StartError::Corrupt(format!("row {:?}: {cause}", String::from_utf8_lossy(key)))
    };
    let mut take = |key: &[u8], value: &[u8]| rows.take(key, value).map_err(|e| corrupt(key, &e));
    let position = store.get(POSITION_KEY).map_err(|e| store_error(&e))?;
    take(POSITION_KEY, &position.ok_or_else(|| corrupt(POSITION_KEY, &"it is missing"))?)?;
    for prefix in [b"R", b"S", b"F"] {
        let end = prefix_end(prefix);
        let mut start = prefix.to_vec();
        let mut bound: fn(&[u8]) -> Bound<&[u8]> = |key| Bound::Included(key);
        loop {
            let page = store.scan(bound(&start), end.as_deref(), PAGE_ROWS).map_err(|e| store_error(&e))?;
            for (key, value) in &page {
                take(key, value)?;
            }
            match page.into_iter().last() {
                Some((last, _)) => start = last,
                None => break,
            }
            bound = |key| Bound::Excluded(key);
        }
    }
    if let Some(shard) = rows.marks.iter().position(|mark| *mark == 0) {
        return Err(corrupt(&mark_key(chiton_types::ShardId(shard as u16)), &"it is missing"));
    }
    Ok(rows)
}

fn session_mark(store: &dyn Metastore) -> Result<u64, StartError> {
    let row = store.get(SESSION_MARK_KEY).map_err(|e| store_error(&e))?;
    let mark = row.as_deref().and_then(|row| row.try_into().ok()).map(u64::from_le_bytes);
    mark.filter(|mark| (1..u64::MAX / 2).contains(mark))
        .ok_or_else(|| StartError::Corrupt("the row of session ids is missing or not a number".to_owned()))
}

/// `stored`: up to where the metadata store holds the events.
fn journal_error(error: &JournalError, stored: Position) -> StartError {
    match error {
        JournalError::Absent => StartError::Corrupt(format!(
            "there is no journal: if it cannot be brought back, `chiton journal reset` goes on with what the metadata store \
             holds, which is all up to position {stored}"
        )),
        JournalError::NoSpace(_) => {
            StartError::Failed(format!("{error}; free space there, then start again"))
        }
        JournalError::Unreachable(_)
        | JournalError::Denied(_)
        | JournalError::Failed(_)
        | JournalError::Fenced { .. } => StartError::Failed(error.to_string()),
        _ => StartError::Corrupt(error.to_string()),
    }
}

pub(crate) fn store_error(error: &StoreError) -> StartError {
    match error {
        StoreError::Corrupt { .. } => StartError::Corrupt(error.to_string()),
        _ => StartError::Failed(error.to_string()),
    }
}
