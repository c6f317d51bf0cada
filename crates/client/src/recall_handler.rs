//! The end of a lease at a client: pending operations are sent, buffers pushed, caches dropped, and the kernel
//! is made to forget.
//!
//! ```text
//!   Client ──▶ RecallHandler ──▶ Files ──▶ Service ──▶ Core
//!      ▲ weak                                 │
//!      └──────────── RecallInbox ◀────────────┘ (of the innermost service)
//! ```
//!
//! Invariant: only the inbox points upwards, weakly.

use std::collections::BTreeSet;
use std::sync::Arc;

use chiton_runtime::thread;
use chiton_types::{Ino, Kind};
use chiton_wire::{Grown, LeaseMode};

use crate::core::{Core, Invalidator};
use crate::data::Files;
use crate::handler::Handler;
use crate::pages;
use crate::plate_inodes::PlateInodes;

pub(crate) struct RecallHandler {
    pub(crate) core: Arc<Core>,
    pub(crate) files: Arc<Files>,
}

impl RecallHandler {
    /// Ends write-behind in a directory or of a file, and returns when the server knows of all pending operations there. True if the
    /// names of that directory were held.
    fn flush_pending(&self, ino: Ino) -> bool {
        if !self.core.write_behind.is_on() {
            return false;
        }
        let were_held = self.core.end_write_behind(ino);
        self.core.write_behind.of(ino).flush(Some(ino));
        were_held
    }

    /// Takes attributes and pages back from the kernel.
    fn forget_pages(&self, invalidator: &Arc<dyn Invalidator>, ino: Ino) {
        match self.core.embedded {
            true => pages::forget(invalidator, &self.files, ino),
            // It was never alone, so no write of it holds pages.
            false => invalidator.inval_inode(ino),
        }
    }
}

impl Handler for RecallHandler {
    fn recall(&self, ino: Ino, keep: LeaseMode) {
        let held_names = self.flush_pending(ino);
        if !(held_names && keep == LeaseMode::Shared) {
            self.weaken(ino, keep);
        }
    }

    fn recall_all(&self, inodes: &PlateInodes, keep: LeaseMode) {
        for write_behind in self.core.write_behind.of_plate(inodes) {
            write_behind.clear();
            write_behind.flush(None);
        }
        if keep > LeaseMode::None {
            // Cached content stays; dirty content is pushed.
            for ino in self.files.weaken_idle(inodes, keep) {
                self.weaken(ino, keep);
            }
            return;
        }
        // Dirty content is pushed file by file; the rest is only cached.
        for ino in self.files.known(inodes) {
            self.weaken(ino, LeaseMode::None);
        }
        self.void(inodes, None);
    }

    fn grown(&self, ino: Ino, grown: Grown) {
        if let Some(invalidator) = self.core.invalidator.get() {
            invalidator.grown(ino, grown);
        }
    }

    fn stop_write_behind(&self, ino: Ino) {
        self.core.end_write_behind(ino);
    }

    fn weaken(&self, ino: Ino, keep: LeaseMode) {
        let core = &self.core;
        let _yielding = self.files.begin_yield(ino);
        let is_file = self.files.size(ino).is_some();
        // If the kernel forgets the names of one directory, it forgets those of all.
        let may_be_dir = !is_file && core.cache.attr(ino).is_none_or(|attr| attr.kind == Kind::Dir);
        core.cache.recalled(ino);
        if let Some(invalidator) = core.invalidator.get().filter(|_| is_file) {
            // Bytes that programs stored into mappings are written back here before it is pushed from here.
            self.forget_pages(invalidator, ino);
        }
        self.files.recall(ino, keep);
        if let (Some(invalidator), LeaseMode::None) = (core.invalidator.get(), keep) {
            if may_be_dir && core.forgets_names_at_once() {
                invalidator.inval_dir(core.home(ino));
            }
            core.invalidate_names(invalidator, ino);
            self.forget_pages(invalidator, ino);
        }
    }

    fn dirty(&self, inodes: &PlateInodes) -> Vec<Ino> {
        self.files.dirty_files().into_iter().filter(|ino| inodes.has(*ino)).collect()
    }

    fn void(&self, inodes: &PlateInodes, landed: Option<&BTreeSet<Ino>>) {
        let core = &self.core;
        core.write_behind.of_plate(inodes).for_each(|write_behind| write_behind.clear());
        core.cache.void(inodes);
        let open = self.files.forget(inodes, landed);
        if let Some(invalidator) = core.invalidator.get().filter(|_| core.forgets_names_at_once()) {
            invalidator.inval_dir(core.top());
        }
        core.invalidate_content(open);
        core.invalidate_later(core.dentries.dirs());
    }

    fn leave(self: Arc<Self>) {
        // With the files ends the session, which waits for its threads: and this may be one of them.
        if let Some(last) = Arc::into_inner(self) {
            drop(thread::spawn("chiton-end", move || drop(last)).expect("a thread can be started"));
        }
    }
}
