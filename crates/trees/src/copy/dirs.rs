//! Directories that are being copied: each gets its attributes when all its names have their results.

use chiton_model::Op;
use chiton_types::{Name, Refusal};

use super::{Dir, Tag, Work};
use crate::Refused;
use crate::paths::push;

impl Work<'_> {
    pub(super) fn dir(&mut self, id: usize) -> &mut Dir {
        self.dirs[id].as_mut().expect("a directory stays until all of it has its result")
    }

    /// One of its names has its result.
    pub(super) fn over(&mut self, id: usize) {
        self.dir(id).unanswered -= 1;
        self.try_finish(id);
    }

    /// Gives a copy its attributes when nothing more is made in it.
    pub(super) fn try_finish(&mut self, id: usize) {
        let dir = self.dir(id);
        if dir.is_read && dir.unanswered == 0 {
            let (ino, attr) = (dir.copy, dir.attr.clone());
            let xattrs = std::mem::take(&mut dir.xattrs);
            self.copy_xattrs((attr.ino, ino), xattrs, id, None);
            if self.dir(id).unanswered > 0 {
                return;
            }
            let op = Op::SetAttr { ino, change: self.attributes(&attr) };
            self.pipeline.push(Tag::FinishedDir(id), op);
        }
    }

    pub(super) fn gone(&mut self, id: usize) {
        if let Some(Dir { up: Some(up), .. }) = self.dirs[id].take() {
            self.over(up);
        }
    }

    pub(super) fn refuse(&mut self, dir: usize, name: Option<&Name>, doing: &'static str, refusal: Refusal) {
        self.done.refused += 1;
        let mut path = self.path(dir);
        // The names in the first are those of the place itself.
        if let Some(name) = name.filter(|_| dir > 0) {
            push(&mut path, name.as_bytes());
        }
        self.watch.refused(Refused { path, doing: doing.into(), refusal });
    }

    fn path(&mut self, id: usize) -> Vec<u8> {
        let (mut names, mut at) = (Vec::new(), id);
        // The first directory below the place is the place.
        while let Dir { up: Some(up), name, .. } = self.dir(at) {
            let up = *up;
            if up > 0 {
                names.push(name.clone());
            }
            at = up;
        }
        let mut path = self.dir(at).path.clone();
        names.iter().rev().for_each(|name| push(&mut path, name.as_bytes()));
        path
    }
}
