//! The whole tree as a server shows it, each inode as its plate does; directories with parts are put together.

use chiton_model::{Extent, PartRange, decode_parts, part_of, range_of};
use chiton_objects::Objects;
use chiton_objects::block::read_block;
use chiton_server::{EmbeddedSession, Server};
use chiton_types::{Attr, Cred, Ino, Kind, Name, Plates};
use chiton_wire::{Answer, Call, Content, Query};

use crate::tree::{Node, Tree};

/// Reads the whole tree.
///
/// # Errors
/// The unreadable part, with its path.
pub(crate) fn look(server: &Server) -> Result<Tree, String> {
    let sessions = Sessions::begin(server, "look")?;
    let objects = server.objects();
    let mut tree = Tree::default();
    let mut to_do = vec![(String::new(), Ino::ROOT)];
    while let Some((path, ino)) = to_do.pop() {
        let node = node(&sessions, &*objects, ino).map_err(|what| format!("{path}/: {what}"))?;
        if node.kind == Kind::Dir {
            let parts = sessions.parts(ino)?;
            for part in parts.iter().filter(|part| !part.is_folded()) {
                let (dir, cookie) = (part.ino, part.first.saturating_sub(1));
                let part_end = range_of(&parts, dir).map(|(_, last)| last).filter(|_| parts.len() > 1);
                let query = Query::ReadDir { dir, cookie, entries_max: 10_000, plus: false, part_end };
                match sessions.ask(dir, query)? {
                    Answer::Entries { entries, end: true, .. } => {
                        to_do.extend(
                            entries.into_iter().map(|entry| (format!("{path}/{}", entry.name), entry.ino)),
                        );
                    }
                    other => return Err(format!("{path}/ cannot be listed: {other:?}")),
                }
            }
        }
        let path = if path.is_empty() { "/".to_owned() } else { path };
        tree.nodes.insert(path, node);
    }
    Ok(tree)
}

/// A session with each plate.
pub(crate) struct Sessions {
    plates: Plates,
    sessions: Vec<EmbeddedSession>,
}

impl Sessions {
    /// # Errors
    /// If a plate refuses.
    pub(crate) fn begin(server: &Server, identity: &str) -> Result<Sessions, String> {
        let plates = server.plates();
        let begin = |plate| server.session_embedded_at(plate, identity, Box::new(|_| {}));
        Ok(Sessions { plates, sessions: plates.all().map(begin).collect::<Result<_, _>>()? })
    }

    /// That with the plate of an inode.
    ///
    /// # Errors
    /// If no plate has the inode.
    pub(crate) fn of(&self, ino: Ino) -> Result<&EmbeddedSession, String> {
        let plate = self.plates.of(ino).ok_or_else(|| format!("inode {ino} is of no shard"))?;
        Ok(&self.sessions[usize::from(plate.0)])
    }

    /// The parts of a directory in the order of their ranges; itself, if it has none.
    fn parts(&self, dir: Ino) -> Result<Vec<PartRange>, String> {
        match self.ask(dir, Query::Parts { dir })? {
            Answer::Bytes(bytes) if bytes.is_empty() => Ok(vec![PartRange { first: 0, ino: dir }]),
            Answer::Bytes(bytes) => decode_parts(&bytes).map_err(|e| format!("the parts of {dir}: {e}")),
            other => Err(format!("no parts: {other:?}")),
        }
    }

    /// The part of a directory that has a name.
    ///
    /// # Errors
    /// If the plate of the directory does not answer.
    pub(crate) fn part_of(&self, dir: Ino, name: &Name) -> Result<Ino, String> {
        Ok(part_of(&self.parts(dir)?, name.hash64()).unwrap_or(dir))
    }

    fn ask(&self, ino: Ino, query: Query) -> Result<Answer, String> {
        let shown = format!("{query:?}");
        self.of(ino)?.ask(&Cred::ROOT, Call::Query(query)).map_err(|failure| format!("{shown}: {failure:?}"))
    }
}

fn node(sessions: &Sessions, objects: &dyn Objects, ino: Ino) -> Result<Node, String> {
    let mut attr = attr(sessions, ino)?;
    if attr.flags & Attr::HAS_PARTS != 0 {
        for part in sessions.parts(ino)?.iter().filter(|part| part.ino != ino && !part.is_folded()) {
            let part = self::attr(sessions, part.ino)?;
            attr.size += part.size;
            attr.nlink += part.nlink - 2;
            attr.mtime = attr.mtime.max(part.mtime);
            attr.ctime = attr.ctime.max(part.ctime);
            if (part.mode, part.uid, part.gid) != (attr.mode, attr.uid, attr.gid) {
                return Err(format!("its part {} has other permissions", part.ino));
            }
        }
    }
    let content = match attr.kind {
        Kind::File => content(sessions, objects, ino, attr.size)?,
        Kind::Symlink => bytes(sessions, ino, Query::ReadLink { ino })?,
        _ => Vec::new(),
    };
    let names = bytes(sessions, ino, Query::ListXattr { ino })?;
    let mut xattrs = std::collections::BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let value = bytes(sessions, ino, Query::GetXattr { ino, name: name.to_vec() })?;
        xattrs.insert(String::from_utf8_lossy(name).into_owned(), value);
    }
    Ok(Node::new(&attr, content, xattrs))
}

fn attr(sessions: &Sessions, ino: Ino) -> Result<Attr, String> {
    match sessions.ask(ino, Query::GetAttr { ino })? {
        Answer::Attr { attr, .. } => Ok(attr),
        other => Err(format!("no attributes: {other:?}")),
    }
}

fn bytes(sessions: &Sessions, ino: Ino, query: Query) -> Result<Vec<u8>, String> {
    match sessions.ask(ino, query)? {
        Answer::Bytes(bytes) => Ok(bytes),
        other => Err(format!("no bytes: {other:?}")),
    }
}

fn content(sessions: &Sessions, objects: &dyn Objects, ino: Ino, size: u64) -> Result<Vec<u8>, String> {
    let Answer::Map { content, .. } = sessions.ask(ino, Query::Map { ino, offset: 0, len: size.max(1) })?
    else {
        return Err("no map".to_owned());
    };
    let mut bytes = vec![0; size as usize];
    match content {
        Content::Inline(inline) => {
            if inline.len() > bytes.len() {
                return Err(format!("{} bytes are in an inode of size {size}", inline.len()));
            }
            bytes[..inline.len()].copy_from_slice(&inline);
        }
        Content::Extents { extents, .. } => {
            for Extent { offset, len, block, block_offset, .. } in extents {
                let range = u64::from(block_offset)..u64::from(block_offset) + u64::from(len);
                let part = read_block(objects, &block.key(), Some(range)).map_err(|e| e.to_string())?;
                let at = offset as usize;
                let into = bytes.get_mut(at..at + part.len());
                into.ok_or_else(|| format!("an extent at {offset} ends past size {size}"))?
                    .copy_from_slice(&part);
            }
        }
    }
    Ok(bytes)
}
