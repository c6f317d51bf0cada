//! Blocks that nothing refers to: garbage of the namespace, and blocks that dead sessions left unnamed.
//!
//! Invariants:
//! - A session's blocks (a decoupling's likewise) are looked at only when it is over, and a checkpoint holds all that it did: nothing can name
//!   one of them for the first time any more, and all references are in the metadata store.
//! - Nothing is committed to the maps while they are scanned: both are the checkpointer's work.
//! - Of several plates each looks for unnamed blocks of its own writers only: those of its sessions, of which the files of its shards alone
//!   name blocks. The ids of sessions distinguish them ([`crate::session_ids`]). In a file system that has grown into a cluster, files of
//!   any plate may name blocks of earlier writers: these are marked as swept, and no plate looks at them ([`crate::GrowthTarget`]).
//! - Deleting is repeated after a crash: a block is forgotten only when its deletion is as durable as the event.

use std::ops::Bound;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use chiton_metastore::Batch;
use chiton_namespace::chunk::Chunk;
use chiton_namespace::{image_tag, rows_with_tag, tag, tag_of};
use chiton_types::{BlockId, Position, SessionId, ShardId, Take};
use hashbrown::{HashMap, HashSet};

use crate::plate::Plate;
use crate::session_ids::first_writer;
use chiton_engine::swept_key;

/// Garbage blocks deleted for one event.
const GARBAGE_BLOCKS: usize = 1_000;
const PAGE: usize = 4_096;

/// Whether writers of earlier lives are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    Due,
    Failed,
    Done,
}

impl Plate {
    /// Deletes the blocks that the namespace has dropped.
    pub(crate) fn sweep_garbage(&self) {
        // A view may need the blocks; the sweep after the next checkpoint deletes them.
        if self.is_viewed() {
            return;
        }
        while !self.is_stopping() {
            let blocks = self.engine.lock().namespace().garbage(GARBAGE_BLOCKS);
            if blocks.is_empty() {
                return;
            }
            for block in &blocks {
                if let Err(error) = self.blocks.objects.delete(&block.key()) {
                    self.note_error(&format!("garbage stays: {error}"));
                    return;
                }
            }
            // The deletions become durable with the event that forgets them.
            self.blocks.unsynced.store(true, SeqCst);
            let whole = blocks.len() == GARBAGE_BLOCKS;
            self.with_engine(|engine, _| engine.swept(blocks));
            if !whole {
                return;
            }
        }
    }

    /// Lists writers of earlier lives whose sessions are over: once, and again while blocks cannot be listed.
    fn list_dead_writers(&self) {
        let mut listing = self.blocks.dead_writers_listing.lock();
        if *listing == Listing::Done {
            return;
        }
        match self.find_dead_writers() {
            Ok(found) => {
                self.blocks.dead_writers.lock().extend(found);
                *listing = Listing::Done;
            }
            Err(error) => {
                // Said once, however often it is tried.
                if *listing == Listing::Due {
                    self.note_error(&format!("blocks cannot be listed: {error}"));
                }
                *listing = Listing::Failed;
            }
        }
    }

    fn find_dead_writers(&self) -> Result<Vec<(SessionId, Position)>, chiton_objects::ObjectError> {
        // Replayed events may name their blocks, and no checkpoint holds these events yet: the blocks wait for one that does.
        let (live, replayed) = {
            let engine = self.engine.lock();
            let live: HashSet<SessionId> = engine.live_writers().into_iter().collect();
            (live, engine.position())
        };
        let mut found = Vec::new();
        // Writers of plates before this one have lower numbers, those of plates behind it higher ones than the plate's own session.
        let mut after = Some(format!("blocks/{:016x}", first_writer(self.plate)));
        while !self.is_stopping() {
            let page = self.blocks.objects.list("blocks/", after.as_deref(), 1)?;
            let Some(object) = page.into_iter().next() else { break };
            let Some(block) = BlockId::parse_key(&object.key) else {
                after = Some(object.key);
                continue;
            };
            if block.writer >= self.blocks.writer.0 {
                // Sessions of this life are reported when they end.
                break;
            }
            // The first key after all of this writer: '0' follows '/'.
            after = Some(format!("blocks/{:016x}0", block.writer));
            let session = SessionId(block.writer);
            let swept = matches!(self.rows.meta.get().get(&swept_key(block.writer)), Ok(Some(_)));
            if !live.contains(&session) && !swept {
                found.push((session, replayed));
            }
        }
        Ok(found)
    }

    /// Deletes blocks of dead writers that no map names.
    pub(crate) fn sweep_writers(&self) {
        self.list_dead_writers();
        if self.is_viewed() {
            return;
        }
        let covered = Position(self.checkpoints.position.load(Relaxed));
        let mut writers: HashMap<u64, HashSet<u64>> = HashMap::new();
        self.blocks.dead_writers.lock().retain(|(session, ended)| {
            let due = *ended <= covered;
            if due {
                writers.insert(session.0, HashSet::new());
            }
            !due
        });
        // A session that wrote no block needs no look at the maps.
        writers.retain(|writer, _| {
            let any = self.blocks.objects.list(&format!("blocks/{writer:016x}/"), None, 1);
            !matches!(any, Ok(page) if page.is_empty())
        });
        if writers.is_empty() {
            return;
        }
        if let Err(line) = self.mark_named(&mut writers).and_then(|()| self.delete_unnamed(&writers)) {
            self.note_error(&format!("blocks of ended sessions stay for now: {line}"));
            let again = writers.keys().map(|writer| (SessionId(*writer), Position(0)));
            self.blocks.dead_writers.lock().extend(again);
        }
    }

    /// Collects the blocks of these writers that the maps name.
    fn mark_named(&self, writers: &mut HashMap<u64, HashSet<u64>>) -> Result<(), String> {
        let checkpointing = self.checkpoints.begun.lock();
        if checkpointing.is_some() {
            return Err("a checkpoint is not committed".to_owned());
        }
        let meta = self.rows.meta.get();
        // Of rows as decoupled clients saw them: those of maps, and of content that they may still read.
        let ranges = (0..self.info.shards)
            .flat_map(|shard| [tag::CHUNK, tag::IMAGE].map(|tag| rows_with_tag(ShardId(shard), tag)));
        for (mut start, end) in ranges {
            loop {
                if self.is_stopping() {
                    return Err("the server stops".to_owned());
                }
                let page = meta
                    .scan(Bound::Excluded(&start), Some(&end), PAGE)
                    .map_err(|e| self.mend_meta(e).to_string())?;
                for (key, value) in &page {
                    let Some(map) = map_in(key, value) else { continue };
                    let chunk =
                        Chunk::decode(&mut Take::new(map)).map_err(|e| format!("row {key:02x?}: {e}"))?;
                    for extent in chunk.extents() {
                        if let Some(named) = writers.get_mut(&extent.block.writer) {
                            named.insert(extent.block.number);
                        }
                    }
                }
                match page.into_iter().last() {
                    Some((last, _)) => start = last,
                    None => break,
                }
            }
        }
        Ok(())
    }

    fn delete_unnamed(&self, writers: &HashMap<u64, HashSet<u64>>) -> Result<(), String> {
        let mut batch = Batch::new();
        for (writer, named) in writers {
            let prefix = format!("blocks/{writer:016x}/");
            let mut after = None;
            loop {
                if self.is_stopping() {
                    return Err("the server stops".to_owned());
                }
                let page =
                    self.blocks.objects.list(&prefix, after.as_deref(), PAGE).map_err(|e| e.to_string())?;
                for object in &page {
                    let number = BlockId::parse_key(&object.key).map(|block| block.number);
                    if number.is_some_and(|number| !named.contains(&number)) {
                        self.blocks.objects.delete(&object.key).map_err(|e| e.to_string())?;
                    }
                }
                match page.into_iter().last() {
                    Some(object) => after = Some(object.key),
                    None => break,
                }
            }
            if !named.is_empty() {
                batch.put(swept_key(*writer), []);
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        // Only once the deletions are durable may the next start pass these writers over.
        self.blocks.objects.sync().map_err(|e| e.to_string())?;
        self.rows.meta.get().commit(&batch).map_err(|e| self.mend_meta(e).to_string())
    }
}

/// The extents in a row of a chunk, or in one as a decoupled client saw it; `None` if the row has none.
fn map_in<'a>(key: &[u8], value: &'a [u8]) -> Option<&'a [u8]> {
    match (tag_of(key)?, image_tag(key), value.split_first()) {
        (tag::CHUNK, ..) => Some(value),
        (tag::IMAGE, Some(tag::CHUNK | tag::KEPT_CHUNK), Some((1, value))) => Some(value),
        _ => None,
    }
}
