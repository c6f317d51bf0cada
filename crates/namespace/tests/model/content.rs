//! Content of files: writes, shared ranges, compaction, and the end of orphans.

use std::collections::BTreeMap;

use chiton_model::{Body, Extent, FILE_BYTES_MAX, Gone, INLINE_BYTES_MAX};
use chiton_types::{Ino, Kind, Position, Refusal, Time};

use crate::state::{Ask, Content, Done, Model, Node};

impl Model {
    fn file(&self, ino: Ino) -> Result<&Node, Refusal> {
        let node = self.node(ino)?;
        match node.kind {
            Kind::File => Ok(node),
            Kind::Dir => Err(Refusal::IsDir),
            _ => Err(Refusal::Invalid),
        }
    }

    pub(crate) fn write(
        &mut self,
        ino: Ino,
        body: &Body,
        size: u64,
        mtime: Time,
        kill_setid: bool,
    ) -> Result<Done, Refusal> {
        let node = self.file(ino)?;
        if size > FILE_BYTES_MAX {
            return Err(Refusal::TooBig);
        }
        let end = match body {
            Body::Inline(bytes) => {
                if bytes.len() > INLINE_BYTES_MAX || matches!(node.content, Content::Blocks(_)) {
                    return Err(Refusal::Invalid);
                }
                bytes.len() as u64
            }
            Body::Extents(extents) => {
                let data = extents.iter().filter(|e| !e.block.is_hole());
                data.map(Extent::end).max().unwrap_or(0).max(node.size)
            }
        };
        if size < end {
            return Err(Refusal::Invalid);
        }
        let mut bytes = match &node.content {
            Content::Blocks(bytes) => bytes.clone(),
            Content::Inline(_) => BTreeMap::new(),
        };
        let content = match body {
            Body::Inline(bytes) => Content::Inline(bytes.clone()),
            Body::Extents(extents) => {
                extents.iter().for_each(|e| self.put(&mut bytes, e));
                Content::Blocks(bytes)
            }
        };
        let node = self.node_mut(ino);
        (node.content, node.size) = (content, size);
        if kill_setid {
            node.kill_setid();
        }
        node.changed(mtime);
        Ok(Done::about(ino))
    }

    fn put(&self, bytes: &mut BTreeMap<u64, u8>, e: &Extent) {
        if e.block.is_hole() {
            bytes.retain(|o, _| !(e.offset..e.end()).contains(o));
        } else {
            bytes.extend(self.resolve(e));
        }
    }

    pub(crate) fn clone_range(
        &mut self,
        from: Ino,
        from_at: u64,
        to: Ino,
        to_at: u64,
        len: u64,
        ask: &Ask<'_>,
    ) -> Result<Done, Refusal> {
        let (source, dest) = (self.file(from)?, self.file(to)?);
        let (Some(from_end), Some(to_end)) = (from_at.checked_add(len), to_at.checked_add(len)) else {
            return Err(Refusal::Invalid);
        };
        let overlap = from == to && from_at < to_end && to_at < from_end;
        if len == 0 || overlap || from_end > source.size || to_end > FILE_BYTES_MAX {
            return Err(Refusal::Invalid);
        }
        let in_blocks = |node: &Node| match &node.content {
            Content::Blocks(bytes) => Ok(bytes.clone()),
            // A file of nothing but a hole is in blocks as well as not.
            Content::Inline(bytes) if bytes.is_empty() => Ok(BTreeMap::new()),
            Content::Inline(_) => Err(Refusal::Invalid),
        };
        let (bytes, mut result) = (in_blocks(source)?, in_blocks(dest)?);
        result.retain(|o, _| !(to_at..to_end).contains(o));
        result.extend(bytes.range(from_at..from_end).map(|(o, b)| (o - from_at + to_at, *b)));
        let dest = self.node_mut(to);
        dest.content = Content::Blocks(result);
        dest.size = dest.size.max(to_end);
        dest.changed(ask.now);
        Ok(Done::about(to))
    }

    /// The same bytes elsewhere: nothing that can be seen. Callers keep to that.
    pub(crate) fn remap(
        &mut self,
        ino: Ino,
        expected: Position,
        extents: &[Extent],
    ) -> Result<Done, Refusal> {
        let node = self.file(ino)?;
        let Content::Blocks(bytes) = &node.content else { return Err(Refusal::WouldBlock) };
        // The model knows no positions: histories pass the inode's own, or 0.
        if expected == Position(0) {
            return Err(Refusal::WouldBlock);
        }
        for e in extents {
            assert!(
                self.resolve(e).iter().all(|(o, b)| bytes.get(o) == Some(b)),
                "a remap of other bytes: {e:?}"
            );
        }
        Ok(Done::about(ino))
    }

    /// Frees an orphan. (Histories have no file so large that it takes more than one step.)
    pub(crate) fn reclaim(&mut self, ino: Ino) -> Result<Done, Refusal> {
        self.node(ino)?;
        if !self.is_orphan(ino) {
            return Err(Refusal::Busy);
        }
        self.nodes.remove(&ino);
        Ok(Done { subject: Some(ino), gone: Some(Gone { ino, orphan: false }) })
    }
}
