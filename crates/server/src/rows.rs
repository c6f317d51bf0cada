//! Where the rows of a plate come from when they are not in memory.

use std::collections::VecDeque;

use chiton_engine::Engine;
use chiton_metastore::StoreError;
use chiton_namespace::{Fetched, Namespace, Need};
use chiton_runtime::sync::Mutex;
use chiton_types::Position;

use crate::away::ROWS;
use crate::often::Often;
use crate::plate::Plate;
use crate::stores::{Meta, Source};

/// The rows of a decoupled subtree come from its [`crate::Base`] instead.
pub(crate) struct Rows {
    pub(crate) meta: Meta,
    /// The process keeps others from the stores, so that the metadata store may be opened again although it names another
    /// holder.
    pub(crate) is_held: bool,
    /// Checkpoints that the metadata store may hold in a journal of its own only: its count of commits, and the position.
    pub(crate) unsettled: Mutex<VecDeque<(u64, Position)>>,
}

impl Plate {
    /// Rows from the metadata store; to be called without the engine's lock.
    pub(crate) fn fetch(&self, needs: &[Need]) -> Result<Vec<Fetched>, String> {
        if let Some(base) = self.kind.base() {
            return base.fetch(needs).inspect_err(|line| {
                self.note_often(
                    Often::Rows,
                    &format!("cannot read metadata of the decoupled subtree: {line}"),
                );
            });
        }
        loop {
            match self.fetch_rows(needs) {
                Err(error @ StoreError::Away { .. })
                    if self.condition.away.note(ROWS, &error) && !self.is_fenced() =>
                {
                    self.condition.away.pause();
                    // It may be closed for good. If this fails, the next round tries it again.
                    let _ = self.mend_meta(error);
                }
                Err(error @ StoreError::Fenced { .. }) => return Err(self.mend_meta(error).to_string()),
                Err(error) => return Err(format!("cannot read metadata: {error}")),
                Ok(fetched) => {
                    self.condition.away.note_back(ROWS);
                    return Ok(fetched);
                }
            }
        }
    }

    fn fetch_rows(&self, needs: &[Need]) -> Result<Vec<Fetched>, StoreError> {
        let meta = self.rows.meta.get();
        let source = Source(&*meta);
        if let Ok(fetched) = Namespace::fetch_all(&source, needs) {
            return Ok(fetched);
        }
        // One by one: of several, those that can be read are installed.
        let fetch = |need| {
            Namespace::fetch(&source, need).or_else(|error: StoreError| {
                if !matches!(error, StoreError::Away { .. } | StoreError::Fenced { .. }) {
                    self.note_often(Often::Rows, &format!("cannot read metadata: {error}"));
                }
                // One damaged row may be among many good ones.
                let damaged = matches!(error, StoreError::Corrupt { .. });
                damaged.then(|| Fetched::unreadable(need)).flatten().ok_or(error)
            })
        };
        needs.iter().map(fetch).collect()
    }

    /// Fetches rows that the engine's own queue needs, and installs them.
    pub(crate) fn supply(&self, needs: &[Need], generation: u64) -> Result<(), String> {
        let fetched = self.fetch(needs)?;
        self.install(&mut self.engine.lock(), fetched, generation)
    }

    /// Installs fetched rows. Notes those that cannot be decoded; that is an error where there is no way around them.
    pub(crate) fn install(
        &self,
        engine: &mut Engine,
        fetched: Vec<Fetched>,
        generation: u64,
    ) -> Result<(), String> {
        let result =
            install(engine, fetched, generation).inspect_err(|line| self.note_often(Often::Rows, line));
        for row in engine.namespace().take_torn_rows() {
            self.note_often(Often::Rows, &row.to_string());
        }
        result
    }
}

/// Takes fetched rows in.
pub(crate) fn install(engine: &mut Engine, fetched: Vec<Fetched>, generation: u64) -> Result<(), String> {
    for rows in fetched {
        engine.namespace().install(rows, generation).map_err(|e| e.to_string())?;
    }
    Ok(())
}
