//! Where a command begins.

use chiton_client::{Client, Lookup};
use chiton_types::{Attr, Ino, Kind, Name, Refusal};

/// The inode that a path names. A symbolic link at its end is not followed; those before it are.
#[derive(Clone, Debug)]
pub struct Place {
    /// The path as messages show it.
    pub path: Vec<u8>,
    /// The directory that holds it and its name there; nothing of the root.
    pub name: Option<(Ino, Name)>,
    pub attr: Attr,
}

impl Place {
    /// Finds a path of the client, which messages show as `shown`.
    ///
    /// # Errors
    /// As lstat(2). [`Refusal::Invalid`] of a path that ends in `.` or `..`, which names no entry of a directory.
    pub fn find(client: &Client, path: &[u8], shown: &[u8]) -> Result<Place, Refusal> {
        let Some((parent, name)) = Place::new_name(client, path)? else {
            return Ok(Place { path: shown.to_vec(), name: None, attr: client.stat("/")? });
        };
        let attr = match client.start_lookup(&client.caller(), parent, name.as_bytes()).wait()? {
            Lookup::Found { attr, .. } => attr,
            Lookup::Absent { .. } => return Err(Refusal::NotFound),
        };
        if path.ends_with(b"/") && attr.kind != Kind::Dir {
            return Err(Refusal::NotDir);
        }
        Ok(Place { path: shown.to_vec(), name: Some((parent, name)), attr })
    }

    /// The directory and the name that a path ends in, which need not be there; nothing of the root.
    ///
    /// # Errors
    /// As [`Place::find`].
    pub fn new_name(client: &Client, path: &[u8]) -> Result<Option<(Ino, Name)>, Refusal> {
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
        let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let (dir, name) = path[..end].split_at(start);
        match name {
            b"" => return Ok(None),
            b"." | b".." => return Err(Refusal::Invalid),
            _ => {}
        }
        let dir = client.stat(if dir.is_empty() { b"/" } else { dir })?;
        if dir.kind != Kind::Dir {
            return Err(Refusal::NotDir);
        }
        Ok(Some((dir.ino, Name::new(name)?)))
    }
}
