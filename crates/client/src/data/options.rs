//! The options of file data.

use std::time::Duration;

use chiton_model::{CHUNK_BYTES, INLINE_BYTES_MAX};
use chiton_objects::BLOCK_BYTES_MAX;

use super::OnLoss;

/// How readers and writers of one file on different clients see each other's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DataMode {
    /// As on one machine: a reader sees everything that any client wrote before.
    #[default]
    Linearizable,
    /// A client that opens a file sees what was closed before. Nothing is recalled in between.
    CloseToOpen,
    /// Readers see what a writer pushed at the latest `flush_interval` ago; nothing is recalled.
    Lazy,
}

/// Settings of [`super::Files`].
#[derive(Clone, Debug)]
pub struct FilesOptions {
    /// Consistency of content between clients.
    pub data: DataMode,
    /// Payload of a full block, in bytes: a power of two, at most 16 MiB.
    pub block_bytes: usize,
    /// Files up to this size live in their inode, in bytes; at most [`INLINE_BYTES_MAX`].
    pub inline_bytes_max: usize,
    /// Memory for data that are not yet stored, of all files together, in bytes. Writers
    /// wait when it is used up (each may go over it by one write and one block).
    pub dirty_bytes_max: usize,
    /// Memory for blocks read ahead, in bytes.
    pub cache_bytes_max: usize,
    /// Furthest read-ahead of one handle, in bytes.
    pub read_ahead_bytes_max: u64,
    /// Data dirty for longer are pushed in the background.
    pub flush_interval: Duration,
    /// Files that are remembered although they are not open.
    pub idle_files_max: usize,
    /// Number of the first block that is written. Blocks of a writer's earlier life lie below.
    pub first_block: u64,
    /// Threads that store blocks.
    pub upload_threads: usize,
    /// Threads that read ahead.
    pub read_ahead_threads: usize,
    /// Called when written data are lost.
    pub on_loss: OnLoss,
}

impl Default for FilesOptions {
    fn default() -> FilesOptions {
        FilesOptions {
            data: DataMode::Linearizable,
            block_bytes: 4 << 20,
            inline_bytes_max: INLINE_BYTES_MAX,
            dirty_bytes_max: 256 << 20,
            cache_bytes_max: 64 << 20,
            read_ahead_bytes_max: 8 << 20,
            flush_interval: Duration::from_secs(1),
            idle_files_max: 4096,
            first_block: 1,
            upload_threads: 2,
            read_ahead_threads: 2,
            on_loss: OnLoss::default(),
        }
    }
}

impl FilesOptions {
    /// Panics if the settings contradict each other.
    pub(super) fn check(&self) {
        let block = self.block_bytes as u64;
        assert!(
            block.is_power_of_two() && block <= BLOCK_BYTES_MAX,
            "block_bytes {block}: a power of two up to 16 MiB"
        );
        assert!(CHUNK_BYTES.is_multiple_of(block), "a chunk of a map must hold whole blocks");
        assert!(self.inline_bytes_max <= INLINE_BYTES_MAX, "inline_bytes_max is at most {INLINE_BYTES_MAX}");
        assert!(self.dirty_bytes_max >= self.block_bytes, "dirty_bytes_max must hold a block");
        assert!(self.first_block > 0, "blocks are numbered from 1");
        assert!(self.upload_threads > 0 && self.read_ahead_threads > 0, "at least one thread each");
    }
}
