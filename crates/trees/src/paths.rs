//! Paths of directories that a command has met: each knows the one that holds it.

use chiton_types::Name;

/// The number of a directory.
pub(crate) type DirId = usize;

#[derive(Default)]
pub(crate) struct Paths {
    dirs: Vec<(Option<DirId>, Vec<u8>)>,
}

impl Paths {
    /// A directory where the command begins.
    pub(crate) fn root(&mut self, path: &[u8]) -> DirId {
        self.dirs.push((None, path.to_vec()));
        self.dirs.len() - 1
    }

    /// A directory in another.
    pub(crate) fn add(&mut self, up: DirId, name: &Name) -> DirId {
        self.dirs.push((Some(up), name.as_bytes().to_vec()));
        self.dirs.len() - 1
    }

    pub(crate) fn path(&self, dir: DirId) -> Vec<u8> {
        let (mut parts, mut at) = (Vec::new(), Some(dir));
        while let Some(dir) = at {
            let (up, name) = &self.dirs[dir];
            parts.push(&name[..]);
            at = *up;
        }
        parts.reverse();
        let mut path = parts.first().map_or(Vec::new(), |root| root.to_vec());
        parts[1..].iter().for_each(|name| push(&mut path, name));
        path
    }

    pub(crate) fn path_in(&self, dir: DirId, name: &Name) -> Vec<u8> {
        let mut path = self.path(dir);
        push(&mut path, name.as_bytes());
        path
    }
}

/// Adds a name to a path.
pub(crate) fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_as_the_caller_wrote_them() {
        let name = |text: &str| Name::try_from(text).expect("a name");
        let mut paths = Paths::default();
        let (top, root) = (paths.root(b"./a/"), paths.root(b"/"));
        let below = paths.add(top, &name("b"));
        assert_eq!(paths.path(top), b"./a/");
        assert_eq!(paths.path_in(below, &name("c")), b"./a/b/c");
        assert_eq!(paths.path_in(root, &name("x")), b"/x");
    }
}
